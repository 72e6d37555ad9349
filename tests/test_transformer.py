import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.prefix_cache import checked_reuse, positional_reuse, vllm_request
from lib.transformer import Transformer, attend, norm, rotate, softmax

P, T, A, U = ([f"{name}{i}" for i in range(n)] for name, n in (("p", 8), ("t", 6), ("a", 6), ("u", 4)))
HELD, TURN_2 = P + T + A, P + A + U
VOCAB = tuple(P + T + A + U)
NUMBERS = tuple(range(8))
SMALL = Transformer(NUMBERS, head_dim=4, d_ff=8)

prompts = st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=14)


@given(prompts, st.data())
def test_a_cached_prefix_changes_no_bit(prompt, data):
    split = data.draw(st.integers(0, len(prompt) - 1))
    whole, cache = SMALL.run(prompt)
    prefix = SMALL.run(prompt[:split])[1] if split else []
    rest, longer = SMALL.run(prompt[split:], prefix)
    assert whole.tobytes() == rest.tobytes()
    assert [slot.tobytes() for slot in cache] == [slot.tobytes() for slot in longer]
    assert len(prefix) == split  # the given cache is left as it was


@given(prompts, prompts, st.integers(1, 4))
def test_checked_reuse_of_anything_held_changes_no_bit(prompt, held, size):
    whole = SMALL.run(prompt)[0]
    assert SMALL.after(checked_reuse(prompt, held, 0, size)).tobytes() == whole.tobytes()


@given(prompts, st.integers(0, 3))
@settings(max_examples=25)
def test_wrong_kv_changes_the_output(prompt, seed):
    model = Transformer(NUMBERS, seed=seed, head_dim=4, d_ff=8)
    whole, cache = model.run([*prompt, 0])
    other = model.run([(prompt[0] + 1) % 8])[1]
    assert model.run([0], other + cache[1:-1])[0].tobytes() != whole.tobytes()


@pytest.mark.parametrize("local", [0, 4, 8])
def test_checked_reuse_of_the_published_example_equals_full_recompute(local):
    model = Transformer(VOCAB, seed=3)
    whole = model.run(TURN_2)[0]
    assert model.after(checked_reuse(TURN_2, HELD, local, 4)).tobytes() == whole.tobytes()


def test_positional_reuse_of_the_published_example_picks_another_token():
    """Seed 3 is the first of 0, 1, 2, ... in which both rules change the most likely token.

    In most seeds the favourite stays; in all of them the probabilities move.
    """
    changed = []
    for seed in range(4):
        model = Transformer(VOCAB, seed=seed)
        whole = model.run(TURN_2)[0]
        positional = model.after(positional_reuse(TURN_2, HELD, 8, 4, history_tokens=14))
        pulled = model.after(vllm_request(TURN_2, HELD, 8, 4, recompute_below=0))
        for wrong in (positional, pulled):
            assert np.abs(wrong - whole).sum() / 2 > 0.03  # total variation distance
        changed.append([p.argmax() != whole.argmax() for p in (positional, pulled)])
    assert [all(both) for both in changed] == [False, False, False, True]


def test_a_slot_that_was_never_written_counts_as_zeros():
    reuse = vllm_request(TURN_2, HELD[:-1], 8, 4, recompute_below=0)
    shorter = vllm_request(TURN_2[:15], HELD[:17], 8, 4, recompute_below=0)
    assert None not in reuse.loaded_tokens
    assert None in shorter.loaded_tokens
    assert np.isclose(Transformer(VOCAB).after(shorter).sum(), 1)


def test_probabilities_and_shapes():
    model = Transformer(VOCAB)
    probabilities, cache = model.run(TURN_2)
    assert probabilities.shape == (len(VOCAB),)
    assert np.isclose(probabilities.sum(), 1)
    assert (probabilities > 0).all()
    assert len(cache) == len(TURN_2)
    assert {slot.shape for slot in cache} == {(model.layers, 2, model.kv_heads, model.head_dim)}


def test_the_seed_decides():
    assert (Transformer(VOCAB).run(P)[0] == Transformer(VOCAB).run(P)[0]).all()
    assert (Transformer(VOCAB).run(P)[0] != Transformer(VOCAB, seed=1).run(P)[0]).any()


def test_a_group_of_query_heads_shares_its_keys_and_values():
    rng = np.random.default_rng(0)
    q, kv = rng.normal(size=(4, 6)), rng.normal(size=(5, 2, 2, 6))
    mixed = attend(q, kv).reshape(4, 6)
    for head in range(4):
        keys, values = kv[:, 0, head // 2], kv[:, 1, head // 2]
        expected = softmax(keys @ q[head] / np.sqrt(6)) @ values
        assert np.allclose(mixed[head], expected)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_rotated_scores_depend_on_distance_alone(a, b, shift):
    rng = np.random.default_rng(1)
    q, k = rng.normal(size=8), rng.normal(size=8)
    near, far = rotate(q, a) @ rotate(k, b), rotate(q, a + shift) @ rotate(k, b + shift)
    assert np.isclose(near, far)
    assert np.isclose((rotate(q, a) ** 2).sum(), (q**2).sum())


def test_the_first_pair_turns_by_one_radian_per_position():
    assert np.allclose(rotate(np.array([1.0, 0, 0, 0]), 1), [np.cos(1), 0, np.sin(1), 0])


def test_norm_has_root_mean_square_one():
    assert np.isclose((norm(np.array([3.0, -4, 12])) ** 2).mean(), 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Transformer(VOCAB, kv_heads=3), "kv_heads=3"),
        (lambda: Transformer(VOCAB, head_dim=3), "head_dim=3"),
        (lambda: Transformer(VOCAB, layers=0), "layers=0"),
        (lambda: Transformer(VOCAB, d_ff=True), "d_ff=True"),
        (lambda: Transformer(()), "vocab=.. is empty"),
        (lambda: Transformer(("a", "a")), "repeats"),
        (lambda: Transformer(VOCAB).run([]), "tokens=.. is empty"),
        (lambda: Transformer(VOCAB).run(["x"]), "token='x'"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_each_pair_of_a_head_turns_at_its_own_speed():
    ones = np.array([1.0, 1.0, 0.0, 0.0])  # two pairs: (first, third) and (second, fourth)
    angles = 3 / 10_000 ** np.array([0, 1 / 2])
    assert rotate(ones, 3) == pytest.approx([*np.cos(angles), *np.sin(angles)])


def test_the_norm_of_next_to_nothing_is_held_down_by_a_millionth():
    assert norm(np.array([1e-3, -1e-3])) == pytest.approx([2**-0.5, -(2**-0.5)])
