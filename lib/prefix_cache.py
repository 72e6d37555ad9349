"""Whose KV may be reused: blocks named by chained hashes, and three rules for taking them from elsewhere."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lib import checks

Token = str | int


def blocks(tokens: Sequence[Token], block_tokens: int) -> list[tuple[Token, ...]]:
    """The full blocks of `block_tokens` tokens; a last block that is not full is left out."""
    checks.counts("blocks", block_tokens=block_tokens)
    full = len(tokens) // block_tokens
    return [tuple(tokens[i * block_tokens : (i + 1) * block_tokens]) for i in range(full)]


def block_hashes(tokens: Sequence[Token], block_tokens: int) -> list[str]:
    """One name per full block: 8 hex digits of sha256 over the previous name and the tokens joined by "|".

    A name depends on every token up to its block's end, so equal names mean equal prefixes. Engines keep the
    whole digest; 8 digits are enough to read, and too few to trust.
    """
    names: list[str] = []
    for block in blocks(tokens, block_tokens):
        parent = names[-1] if names else ""
        names.append(hashlib.sha256((parent + "|".join(map(str, block))).encode()).hexdigest()[:8])
    return names


def common_prefix(a: Sequence[object], b: Sequence[object]) -> int:
    """How many leading items of two sequences are equal: tokens, or blocks when given their hashes."""
    same = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        same += 1
    return same


def reused_blocks(before: Sequence[Token], after: Sequence[Token], block_tokens: int) -> list[bool]:
    """For each full block of `after`, whether an engine that has served `before` still has its KV."""
    names = block_hashes(after, block_tokens)
    hits = common_prefix(names, block_hashes(before, block_tokens))
    return [i < hits for i in range(len(names))]


@dataclass(frozen=True)
class Reuse:
    """What the slots of `prompt` hold when prefill begins: its own KV first, then KV taken from the holder.

    Slot `positions[i]` receives what the holder keeps in slot `sources[i]`; `held` are the holder's tokens.
    """

    prompt: tuple[Token, ...]
    held: tuple[Token, ...]
    local_tokens: int
    positions: range
    sources: range

    @property
    def needed_tokens(self) -> tuple[Token, ...]:
        """The prompt's own tokens at the loaded positions."""
        return tuple(self.prompt[p] for p in self.positions)

    @property
    def loaded_tokens(self) -> tuple[Token | None, ...]:
        """The tokens whose KV was loaded; None for a slot that the holder had reserved but never written."""
        return tuple(self.held[s] if s < len(self.held) else None for s in self.sources)

    @property
    def wrong(self) -> tuple[int, ...]:
        """Loaded positions that hold other KV than prefill would have computed there.

        KV is right only when it comes from the same position and every token up to there agrees: a key
        carries its position, and beyond the first layer both key and value carry all the tokens before.
        """
        agree = common_prefix(self.prompt, self.held)
        return tuple(p for p, s in zip(self.positions, self.sources, strict=True) if s != p or p >= agree)

    @property
    def computed_tokens(self) -> int:
        """Tokens that prefill computes: all the others, and always the last one, whose output it needs."""
        return max(1, len(self.prompt) - self.local_tokens - len(self.positions))


def checked_reuse(
    prompt: Sequence[Token], held: Sequence[Token], local_tokens: int, block_tokens: int
) -> Reuse:
    """Take the holder's blocks as long as their hashes are the prompt's; never the last token's block."""
    _check_request("checked_reuse", prompt, held, local_tokens, block_tokens)
    equal = common_prefix(block_hashes(prompt, block_tokens), block_hashes(held, block_tokens))
    stop = min(equal, (len(prompt) - 1) // block_tokens) * block_tokens
    return _reuse(prompt, held, local_tokens, range(local_tokens, max(local_tokens, stop)), shift=0)


def positional_reuse(
    prompt: Sequence[Token], held: Sequence[Token], local_tokens: int, block_tokens: int, history_tokens: int
) -> Reuse:
    """Count the full blocks that the prompt's first `history_tokens` lack; take as many off the holder's end.

    The rule of the review's example: the count is right, and no token is ever looked at.
    """
    _check_request("positional_reuse", prompt, held, local_tokens, block_tokens)
    checks.counts_or_zero("positional_reuse", history_tokens=history_tokens)
    if not local_tokens <= history_tokens <= len(prompt):
        raise ValueError(
            f"positional_reuse: history_tokens={history_tokens} is no part of the prompt; "
            f"use {local_tokens} (local_tokens) to {len(prompt)} (the whole prompt)"
        )
    full = len(held) // block_tokens
    count = min(full, (history_tokens - local_tokens) // block_tokens)
    shift = (full - count) * block_tokens - local_tokens
    return _reuse(prompt, held, local_tokens, range(local_tokens, local_tokens + count * block_tokens), shift)


def vllm_request(
    prompt: Sequence[Token],
    held: Sequence[Token],
    local_tokens: int,
    block_tokens: int = 16,
    recompute_below: int = 64,
) -> Reuse:
    """What vLLM's NIXL connector pulls back from decode for the next turn, without comparing a token.

    It asks for min(tokens held, prompt length) - local tokens (get_num_new_matched_tokens in
    kv_connector/v1/nixl/pull_scheduler.py) and reads them from the holder's last blocks, a started one
    included (base_worker.py). Fewer than `recompute_below` tokens are not worth a pull (its
    kv_recompute_threshold, 64 by default).
    """
    _check_request("vllm_request", prompt, held, local_tokens, block_tokens)
    checks.counts_or_zero("vllm_request", recompute_below=recompute_below)
    stop = min(len(held), len(prompt))
    if stop - local_tokens < max(1, recompute_below):
        return _reuse(prompt, held, local_tokens, range(local_tokens, local_tokens), shift=0)
    remote_blocks, prompt_blocks = -(-len(held) // block_tokens), -(-stop // block_tokens)
    shift = (remote_blocks - prompt_blocks) * block_tokens
    return _reuse(prompt, held, local_tokens, range(local_tokens, stop), shift)


def _reuse(
    prompt: Sequence[Token], held: Sequence[Token], local_tokens: int, positions: range, shift: int
) -> Reuse:
    sources = range(positions.start + shift, positions.stop + shift)
    return Reuse(tuple(prompt), tuple(held), local_tokens, positions, sources)


def _check_request(
    rule: str, prompt: Sequence[Token], held: Sequence[Token], local_tokens: int, block_tokens: int
) -> None:
    checks.counts(rule, block_tokens=block_tokens)
    checks.counts_or_zero(rule, local_tokens=local_tokens)
    if not prompt:
        raise ValueError(
            f"{rule}: prompt={prompt!r} is empty; give at least the token whose output is wanted"
        )
    if local_tokens % block_tokens or local_tokens >= len(prompt):
        raise ValueError(
            f"{rule}: local_tokens={local_tokens} is not a number of whole blocks before the last token; "
            f"use a multiple of {block_tokens} below {len(prompt)}"
        )


# ---------------------------------------------------------------------------------------- the router's choice


class Choice(NamedTuple):
    """The replica that a router picks, and what the request shares with each replica's last one."""

    replica: str
    shared: dict[str, int]


def choose_replica(request: Sequence[object], served: Mapping[str, Sequence[object]]) -> Choice:
    """Return the replica whose last request begins like this one for longest, the first of several.

    Give characters, and it is a router that reads text; give block hashes, and it knows the cache.
    """
    if not served:
        raise ValueError("choose_replica: served is empty; name at least one replica and what it served")
    shared = {name: common_prefix(request, last) for name, last in served.items()}
    return Choice(max(shared, key=lambda name: shared[name]), shared)
