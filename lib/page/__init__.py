"""What a chapter shows: tables, figures, source, others' figures beside its own, forms, what a machine took.

All of it travels: into the wheel that a downloaded notebook needs, and into the browser. How the book is
checked and built is not here but in `lib.press`, which these modules never import.
"""

import sys

from lib.page import figures, published, world
from lib.page.checkout import Strayed, strayed
from lib.page.conclusions import conclusion
from lib.page.forms import form
from lib.page.listing import source
from lib.page.machine import measured
from lib.page.markup import Html
from lib.page.tables import table

__all__ = ["Html", "conclusion", "figures", "form", "measured", "published", "source", "table", "world"]

if "ipykernel.kernelapp" in sys.modules and (_complaint := strayed()):  # a kernel, wherever it was started
    raise Strayed(_complaint)
