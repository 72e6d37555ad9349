from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.page.published import figures
from lib.prefix_cache import (
    Reuse,
    block_hashes,
    blocks,
    checked_reuse,
    choose_replica,
    common_prefix,
    positional_reuse,
    reused_blocks,
    vllm_request,
)

BUG = figures()["reasoning_bug"]
P, T, A, U = ([f"{name}{i}" for i in range(n)] for name, n in (("p", 8), ("t", 6), ("a", 6), ("u", 4)))
HELD, TURN_2 = P + T + A, P + A + U  # decode holds the thinking; the next prompt comes without it

tokens = st.lists(st.integers(0, 3), max_size=40)
sizes = st.integers(1, 6)


def span(positions):
    return [positions[0], positions[-1]]


def test_published_hashes_and_common_blocks():
    assert [list(block) for block in blocks(HELD, 4)] == BUG["decode_blocks"]
    assert block_hashes(HELD, 4) == BUG["decode_hashes"]
    assert block_hashes(TURN_2, 4) == BUG["turn2_hashes"]
    assert common_prefix(block_hashes(HELD, 4), block_hashes(TURN_2, 4)) == BUG["common_blocks"]


def test_published_positional_reuse_loads_other_tokens_from_other_positions():
    reuse = positional_reuse(TURN_2, HELD, 8, 4, history_tokens=len(P + A))
    assert span(reuse.positions) == BUG["needed_positions"]
    assert list(reuse.needed_tokens) == BUG["needed_tokens"]
    assert list(reuse.loaded_tokens) == BUG["loaded_tokens"]
    assert span(reuse.sources) == BUG["loaded_from_positions"]
    assert reuse.wrong == (8, 9, 10, 11)
    assert reuse.computed_tokens == 6


def test_checked_reuse_takes_the_prompt_and_recomputes_the_rest():
    reuse = checked_reuse(TURN_2, HELD, 0, 4)
    assert list(reuse.loaded_tokens) == P
    assert reuse.wrong == ()
    assert reuse.computed_tokens == len(A + U)
    assert checked_reuse(TURN_2, HELD, 8, 4).positions == range(8, 8)


def conversation(prompt=128, thinking=96, answer=96, message=64):
    p, t, a, u = (
        [f"{name}{i}" for i in range(n)]
        for name, n in (("p", prompt), ("t", thinking), ("a", answer), ("u", message))
    )
    return p + t + a, p + a + u, p + t + a + u


def test_vllm_pulls_160_wrong_positions_and_never_prefills_the_new_message():
    held, stripped, _ = conversation()
    reuse = vllm_request(stripped, held, 128)
    assert (len(reuse.positions), len(reuse.wrong), reuse.computed_tokens) == (160, 160, 1)
    assert reuse.positions == range(128, 288)
    assert reuse.sources == range(160, 320)
    assert reuse.loaded_tokens[:2] == ("t32", "t33")
    assert reuse.needed_tokens[-1] == "u63"


def test_vllm_is_right_when_history_is_intact():
    held, _, intact = conversation()
    reuse = vllm_request(intact, held, 128)
    assert (len(reuse.positions), reuse.wrong, reuse.computed_tokens) == (192, (), 64)
    assert reuse.sources == reuse.positions


def test_vllm_can_load_a_slot_that_was_never_written():
    held, stripped, _ = conversation()
    reuse = vllm_request(stripped, held[:-1], 128)  # the last sampled token's KV is never computed
    assert reuse.loaded_tokens[-1] is None
    assert len(reuse.wrong) == 160


@pytest.mark.parametrize(("message", "pulled"), [(1, 64), (0, 0)])
def test_vllm_leaves_out_a_pull_below_its_threshold(message, pulled):
    prompt = list(range(64 + message - 1 + 16))
    assert len(vllm_request(prompt, prompt, 16).positions) == pulled


def test_editing_a_conversation_keeps_only_the_blocks_before_the_edit():
    a, b, c, d = (list(range(i, i + 16)) for i in (0, 100, 200, 300))
    edited = [*b[:8], -1, *b[9:]]
    assert reused_blocks(a + b + c, a + b + c + d, 16) == [True, True, True, False]
    assert reused_blocks(a + b + c, a + edited + c, 16) == [True, False, False]
    assert reused_blocks(a + b + c, [-1, *a[1:], *b, *c], 16) == [False, False, False]


def test_a_token_inserted_at_the_start_shifts_every_block():
    tokens = list(range(64))
    assert not any(reused_blocks(tokens, [-1, *tokens], 16))


@given(tokens, sizes, st.data())
def test_an_edit_changes_every_later_hash_and_no_earlier_one(tokens, size, data):
    before = block_hashes(tokens, size)
    assert len(before) == len(tokens) // size
    if not before:
        return
    at = data.draw(st.integers(0, len(before) * size - 1))
    edited = [*tokens[:at], 99, *tokens[at + 1 :]]
    changed = [x != y for x, y in zip(before, block_hashes(edited, size), strict=True)]
    assert changed == [i >= at // size for i in range(len(before))]


@given(tokens, sizes)
def test_a_hash_covers_the_chain(tokens, size):
    names = block_hashes(tokens, size)
    for parent, name, block in zip(["", *names], names, blocks(tokens, size), strict=False):
        assert name == sha256((parent + "|".join(map(str, block))).encode()).hexdigest()[:8]


@given(tokens.filter(bool), tokens, sizes, st.data())
def test_checked_reuse_is_never_wrong_and_never_leaves_a_full_block_behind(prompt, held, size, data):
    local = size * data.draw(st.integers(0, (len(prompt) - 1) // size))
    reuse = checked_reuse(prompt, held, local, size)
    assert reuse.wrong == ()
    assert reuse.needed_tokens == reuse.loaded_tokens
    assert 1 <= reuse.computed_tokens == len(prompt) - local - len(reuse.positions)
    stop = reuse.positions.stop
    assert stop + size >= len(prompt) or held[: stop + size] != prompt[: stop + size]


@given(tokens.filter(bool), tokens, sizes, st.data())
def test_every_rule_fills_the_slots_behind_the_local_ones_without_gaps(prompt, held, size, data):
    local = size * data.draw(st.integers(0, (len(prompt) - 1) // size))
    history = data.draw(st.integers(local, len(prompt)))
    for reuse in (
        checked_reuse(prompt, held, local, size),
        positional_reuse(prompt, held, local, size, history),
        vllm_request(prompt, held, local, size, recompute_below=0),
    ):
        assert reuse.positions.start == local
        assert reuse.positions.stop <= len(prompt)
        assert len(reuse.positions) == len(reuse.sources)
        assert local + len(reuse.positions) + reuse.computed_tokens in (len(prompt), len(prompt) + 1)
        assert all(0 <= s < -(-len(held) // size) * size for s in reuse.sources)


@given(tokens.filter(bool), tokens, sizes)
def test_vllm_is_right_whenever_the_history_only_grew(held, message, size):
    reuse = vllm_request(held + message, held, 0, size, recompute_below=0)
    assert reuse.wrong == ()
    assert reuse.computed_tokens == max(1, len(message))


def test_right_tokens_at_another_position_are_wrong():
    assert Reuse((1, 1, 1), (1, 1, 1), 0, range(0, 2), range(1, 3)).wrong == (0, 1)


def test_a_right_token_after_another_history_is_wrong():
    assert Reuse((1, 2, 3), (9, 2, 3), 0, range(0, 2), range(0, 2)).wrong == (0, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: blocks([1], 0), "block_tokens=0"),
        (lambda: block_hashes([1], True), "block_tokens=True"),
        (lambda: checked_reuse([], [1], 0, 4), "prompt=.. is empty"),
        (lambda: checked_reuse([1, 2], [1], 3, 4), "local_tokens=3"),
        (lambda: checked_reuse([1, 2], [1], -4, 4), "local_tokens=-4"),
        (lambda: vllm_request([1] * 16, [1], 16), "local_tokens=16.*below 16"),
        (lambda: vllm_request([1] * 16, [1], 0, recompute_below=-1), "recompute_below=-1"),
        (lambda: positional_reuse([1] * 8, [1], 4, 4, history_tokens=9), "history_tokens=9"),
        (lambda: positional_reuse([1] * 8, [1], 4, 4, history_tokens=3), "history_tokens=3"),
        (lambda: positional_reuse([1] * 8, [1], 4, 4, history_tokens=5.0), "history_tokens=5.0"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_router_picks_the_replica_with_the_longest_common_beginning():
    choice = choose_replica("abcd", {"A": "ab", "B": "abc", "C": "xbcd"})
    assert choice == ("B", {"A": 2, "B": 3, "C": 0})


def test_a_router_without_replicas_is_refused():
    with pytest.raises(ValueError, match="served is empty"):
        choose_replica("abcd", {})
