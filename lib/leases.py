"""Cache blocks that many requests share, taken and given back together.

Requests with the same beginning hold the same blocks for it. `scheduler.Blocks` counts them one by one. Here
the beginning is leased: the first request takes its blocks, whoever comes while somebody still holds them is
only added to the lease, and the last to leave gives them back. Who holds what, and the order of the free
list, are the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from lib.kv_cache import BLOCK_TOKENS
from lib.scheduler import Blocks, Job, contents


@dataclass(slots=True)
class Lease:
    """Blocks that `holders` requests begin with."""

    beginning: object
    blocks: list[int]
    holders: int = 0


class Leased(list[int]):
    """A request's blocks; the first of them are those of the lease."""

    lease: Lease


class Leases(Blocks):
    """`scheduler.Blocks`, with leases for all of a prompt but its last part."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.leases: dict[object, Lease] = {}  # by what they are the beginning of

    def find(self, job: Job, last: int) -> list[int]:
        """The blocks that hold the longest prefix of the job's first `last` blocks."""
        beginning = job.parts[:-1]
        lease = self.leases.get(beginning)
        if lease is None:
            leading = sum([tokens for _, tokens in beginning]) // BLOCK_TOKENS
            found = super().find(job, last)
            if not 0 < leading <= len(found):
                return found
            lease, rest = Lease(beginning, found[:leading]), found[leading:]
        elif len(lease.blocks) > last:
            return super().find(job, last)
        else:
            rest = self.look_up(contents(job, len(lease.blocks), last))
        leased = Leased(lease.blocks + rest)
        leased.lease = lease
        return leased

    def idle(self, blocks: Iterable[int]) -> int:
        """How many of these blocks nobody holds."""
        if isinstance(blocks, Leased) and blocks.lease.holders:
            return super().idle(blocks[len(blocks.lease.blocks) :])
        return super().idle(blocks)

    def share(self, blocks: list[int]) -> None:
        """One more request holds these blocks."""
        if not isinstance(blocks, Leased):
            super().share(blocks)
            return
        lease = blocks.lease
        lease.holders += 1
        if lease.holders == 1:
            self.leases[lease.beginning] = lease
            super().share(blocks)
        else:
            super().share(blocks[len(lease.blocks) :])

    def release(self, blocks: list[int]) -> None:
        """A request gives up its blocks, the last first."""
        if not isinstance(blocks, Leased):
            super().release(blocks)
            return
        lease = blocks.lease
        lease.holders -= 1
        if lease.holders:
            super().release(blocks[len(lease.blocks) :])
        else:
            del self.leases[lease.beginning]
            super().release(blocks)
