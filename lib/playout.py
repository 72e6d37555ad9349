"""What a client that plays an answer at a steady pace makes of its stream: how long it has to wait."""

from collections.abc import Sequence
from itertools import pairwise

from lib import checks


def waits(times: Sequence[float], pace: float, buffer: float = 0.0) -> list[float]:
    """Return for each token of an answer how many seconds its client waits for it: 0 where it is in time.

    times: the seconds at which the tokens come, in order. pace: tokens a second that the client plays, once
    the first one has lain in its buffer for `buffer` seconds. What is late is played when it comes, and puts
    off all that follows. ValueError: a pace that is not positive, a negative buffer, times that fall.
    """
    checks.positive("waits", pace=pace)
    checks.not_negative("waits", buffer=buffer)
    if any(later < time for time, later in pairwise(times)):
        raise ValueError(f"waits: times={times!r} fall; give them in the order in which the tokens come")
    found, due = [], times[0] + buffer if times else 0.0
    for time in times:
        found.append(max(0.0, time - due))
        due = max(due, time) + 1 / pace
    return found
