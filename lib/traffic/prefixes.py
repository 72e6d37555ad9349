"""What prompts share, by the hashes of their blocks."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lib.workload import Prompt

BLOCKS = (512, 16, 64, 32, 128, 256, 1024)  # tokens of a block: Mooncake's, vLLM's, others'
TRIED = 1000  # prompts that tell the size of a block
MASK = 2**64 - 1


class Prefixes:
    """Hashes of blocks as they are read; which of them are shared is known when all are.

    A block that only one request has is a part of its own, and so is what no hash covers: without a
    neighbour of the same content, nobody can find it in a cache. Blocks that always come together are one
    part, for short.
    """

    def __init__(self) -> None:
        self.once: set[int] = set()
        self.shared: set[int] = set()
        self.names: dict[str, int] = {}
        self.given: int | None = None

    def seen(self, ids: Sequence[Any], block: int | None) -> "array[int]":
        """Return the hashes in short, and remember them and what they say of the size of a block."""
        if block is not None and self.given not in (None, block):
            raise ValueError(f"holds blocks of {self.given} and of {block} tokens; give one size of them")
        self.given = block or self.given
        plain = set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) <= MASK
        numbers = array("Q", ids if plain else map(self.number, ids))
        again = self.once.intersection(numbers)
        self.shared |= again
        if len(again) < len(numbers):
            self.once.update(numbers)
            if len(set(numbers)) < len(numbers):  # twice in one prompt
                self.shared.update(i for i, times in Counter(numbers).items() if times > 1)
        return numbers

    def number(self, i: int | str) -> int:
        """Return 64 bits for a hash."""
        return (self.names.setdefault(i, len(self.names)) if isinstance(i, str) else i) & MASK

    def block(self, prompts: Iterable[tuple[Sequence[int] | None, int]]) -> tuple[int, tuple[str, ...]]:
        """Return the tokens of a block, and a word on it where there are blocks.

        What the recording says; else the size, of those in use, by which most prompts have as many hashes
        as blocks, the last of which may be short.
        """
        fits, hashed, covered = dict.fromkeys(BLOCKS, 0), 0, 0
        lengths = []
        for ids, prompt in prompts:
            if ids:
                hashed += 1
                lengths.append((len(ids), prompt))
        if not hashed:
            return BLOCKS[0], ()
        for size in BLOCKS:
            fits[size] = sum(blocks == -(-prompt // size) for blocks, prompt in lengths[:TRIED])
        best = max(BLOCKS, key=lambda size: fits[size])
        fitting = 2 * fits[best] > min(hashed, TRIED)
        block = self.given or (best if fitting else BLOCKS[0])
        covered = sum(blocks == -(-prompt // block) for blocks, prompt in lengths)
        rest = "" if covered == hashed else (
            f" In {hashed - covered:,} of {hashed:,} prompts there are more or fewer blocks: tokens without "
            "one are taken as shared by nobody, blocks without tokens are left out."
        )  # fmt: skip
        said = "as it says" if self.given else "by the lengths" if fitting else "as Mooncake has them"
        shared = f"; {len(self.shared):,} of {len(self.once):,} are shared"
        return block, (f"Prefixes by hashes of blocks of {block} tokens ({said}){shared}.{rest}",)

    def prompts(self, rows: Sequence[tuple[Sequence[int] | None, int]], block: int) -> Iterator[Prompt]:
        """Yield each prompt: a number, or the parts of which some are shared."""
        self.once.clear()
        hashes = [upto_shared(ids, self.shared) if ids else () for ids, _ in rows]
        heads = runs(hashes, self.shared)
        for row, (ids, (_, length)) in enumerate(zip(hashes, rows, strict=True)):
            yield parts(row, ids, length, block, heads) if ids else length


def upto_shared(ids: Sequence[int], shared: set[int]) -> Sequence[int]:
    """Return hashes up to the last shared one."""
    if shared.isdisjoint(ids):
        return ()
    end = len(ids)
    while ids[end - 1] not in shared:
        end -= 1
    return ids[:end]


def runs(hashes: Sequence[Sequence[int]], shared: set[int]) -> dict[int, int]:
    """Return, for each shared hash, the first of those that always come together with it, in a row."""
    count: dict[int, int] = {}
    before: dict[int, int | None] = {}
    for ids in hashes:
        last = None
        for i in ids:
            if i in shared:
                count[i] = count.get(i, 0) + 1
                before[i] = last if before.get(i, last) == last else None
            last = i
    head: dict[int, int] = {}
    for ids in hashes:
        for i in ids:
            if i in shared and i not in head:
                last = before[i]
                joined = last is not None and last in head and count[last] == count[i]
                head[i] = head[last] if joined and last is not None else i
    return head


def parts(row: int, ids: Sequence[int], length: int, block: int, heads: dict[int, int]) -> Prompt:
    """Return a prompt of so many tokens in parts, of which the blocks with these hashes come first."""
    found: list[tuple[str, int]] = []
    left, own = length, False
    for i in ids:
        if not left:
            break
        tokens = min(block, left)
        left -= tokens
        if heads[i] != i if i in heads else own:  # it continues the part before
            found[-1] = (found[-1][0], found[-1][1] + tokens)
        else:
            found.append((f"block {i}" if i in heads else f"own {row}.{len(found)}", tokens))
        own = i not in heads
    if left:
        found.append((f"own {row}.{len(found)}", left))
    return tuple(found)
