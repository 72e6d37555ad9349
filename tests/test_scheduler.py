import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.scheduler import Job, Limits, textbook


def compositions(jobs, budget=2048, seqs=256):
    """Run all jobs from a common start; per step what each request computed, decodes as "d"."""
    scheduler = textbook(Limits(budget, seqs, blocks=1))
    for job in jobs:
        scheduler.add(job)
    steps = []
    while plan := scheduler.plan():
        chunks = {chunk.job.request: chunk.tokens for chunk in plan.chunks}
        steps += [chunks | {job.request: "d" for job in plan.decodes}] * plan.steps
        scheduler.repeat(plan, plan.steps - 1, ahead=False)
        scheduler.advance(plan)
    assert not scheduler.waiting
    assert not scheduler.decoding
    return steps


def test_a_prompt_is_cut_to_the_budget_and_its_last_chunk_ends_with_a_token():
    assert compositions([Job(0, 5000, 2)]) == [{0: 2048}, {0: 2048}, {0: 904}, {0: "d"}]


def test_decodes_come_first_and_the_chunk_gets_what_they_leave():
    assert compositions([Job(0, 10, 3), Job(1, 2100, 1)])[1:3] == [{0: "d", 1: 2047}, {0: "d", 1: 53}]


def test_unused_budget_is_lost_to_the_next_prompt():
    assert compositions([Job(0, 100, 1), Job(1, 100, 1)]) == [{0: 100}, {1: 100}]


def test_a_whole_prompt_runs_in_one_step_without_a_budget():
    assert compositions([Job(0, 100_000, 1)], budget=None) == [{0: 100_000}]


def test_a_job_whose_prompt_was_computed_elsewhere_emits_every_token_by_decoding():
    assert compositions([Job(0, 50, 3, num_external_tokens=50)]) == [{0: "d"}] * 3


def test_more_decodes_than_budget_keep_prompts_waiting_but_not_for_ever():
    jobs = [Job(i, 1, 4, num_external_tokens=1) for i in range(3)] + [Job(3, 5, 1)]
    assert compositions(jobs, budget=2) == [{0: "d", 1: "d", 2: "d"}] * 4 + [{3: 2}, {3: 2}, {3: 1}]


def test_a_full_engine_starts_no_prompt():
    jobs = [Job(0, 1, 3), Job(1, 1, 1)]
    assert compositions(jobs, seqs=1) == [{0: 1}, {0: "d"}, {0: "d"}, {1: 1}]


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(1, 20)), min_size=1, max_size=8),
    st.integers(1, 100),
    st.integers(1, 4),
)
def test_every_prompt_token_is_computed_once_and_every_output_token_emitted_once(sizes, budget, seqs):
    jobs = [Job(i, prompt, output) for i, (prompt, output) in enumerate(sizes)]
    steps = compositions(jobs, budget, seqs)
    for i, (prompt, output) in enumerate(sizes):
        mine = [step[i] for step in steps if i in step]
        chunks = [tokens for tokens in mine if tokens != "d"]
        assert sum(chunks) == prompt
        assert mine == chunks + ["d"] * (output - 1)
    for step in steps:
        decodes = sum(tokens == "d" for tokens in step.values())
        assert sum(tokens for tokens in step.values() if tokens != "d") <= max(0, budget - decodes)
        assert len(step) <= seqs


def test_textbook_respects_a_later_arrival_only_after_the_one_before_it():
    scheduler = textbook(Limits(10, 4, blocks=1))
    scheduler.add(Job(0, 15, 1))
    plan = scheduler.plan()
    scheduler.advance(plan)
    scheduler.add(Job(1, 3, 1))
    plan = scheduler.plan()
    assert [(chunk.job.request, chunk.tokens, chunk.past) for chunk in plan.chunks] == [(0, 5, 10)]
    assert [job.request for job in plan.emitting] == [0]


@pytest.mark.parametrize("steps", [1, 2])
def test_part_of_a_run_can_be_kept(steps):
    scheduler = textbook(Limits(10, 4, blocks=1))
    scheduler.add(Job(0, 5, 4, num_external_tokens=5))
    plan = scheduler.plan()
    assert plan.steps == 4
    scheduler.repeat(plan, steps - 1, ahead=False)
    assert scheduler.advance(plan) == []
    assert scheduler.plan().steps == 4 - steps
