"""The scheduler against records of vLLM's own: see lib/data/vllm/README.md."""

import pytest

from lib.data import vllm_records
from lib.simulator import replay

RECORDS = vllm_records()
RANDOM = [record for name, record in RECORDS.items() if name.startswith("random ")]
TOLERANCE = 1e-9


def close(ours, theirs):
    return ours == pytest.approx(theirs, rel=0, abs=TOLERANCE)


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("jump", [True, False])
def test_every_step_and_every_token_is_vllms(name, jump):
    recorded = RECORDS[name]
    replayed = replay(recorded, jump)
    assert set(replayed) <= set(recorded)
    for name, values in replayed.items():
        if name.endswith("steps"):
            assert [list(step[2:]) for step in values] == [step[2:] for step in recorded[name]]
            assert close([step[0] for step in values], [step[0] for step in recorded[name]])
            assert close([step[1] for step in values], [step[1] for step in recorded[name]])
            continue
        assert set(values) == set(recorded[name])
        for request, times in values.items():
            assert close(times, recorded[name][request]), (name, request)


def test_the_records_hold_what_is_hard():
    assert len(RECORDS) - len(RANDOM) == 28
    assert sum(len(step[3]) for record in RANDOM for step in record["steps"]) > 10  # preemptions
    for rule in ("async", "prefix_caching", "long_prefill_token_threshold"):
        assert sum(bool(record["scheduler"][rule]) for record in RANDOM) > 15
    assert any(record["scheduler"]["token_budget"] < len(record["requests"]) for record in RANDOM)
