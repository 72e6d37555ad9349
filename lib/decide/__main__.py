"""`python -m lib.decide`."""

import sys

from lib.decide.command import main

sys.exit(main())
