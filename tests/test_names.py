"""Names: exact, or an alias that is listed; never the beginning of another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.hardware import GPUS, LINKS
from lib.models import MODELS
from lib.names import ALIASES, find

THINGS = (*GPUS, *LINKS, *MODELS)


@pytest.mark.parametrize("things", [GPUS, LINKS, MODELS])
def test_every_name_finds_itself_however_it_is_written(things):
    for thing in things:
        assert find("x", thing.name, things) is thing
        assert find("x", thing.name.lower().replace(" ", "-"), things) is thing


def test_every_alias_finds_what_it_stands_for():
    for alias, name in ALIASES.items():
        assert find("x", alias, THINGS).name == name


@pytest.mark.parametrize(
    ("wanted", "name"), [("L4", "L4"), ("L40", "L40"), ("H20", "H20"), ("h100", "H100 SXM"),
                         ("PCIe 4", "PCIe 4.0 x16"),
                         ("meta-llama/Llama-3.1-8B", "Llama-3.1-8B")]
)  # fmt: skip
def test_short_names_are_their_own(wanted, name):
    assert find("x", wanted, THINGS).name == name


@pytest.mark.parametrize(
    "wanted", ["MI3", "A1", "H1", "B20", "H2", "Llama-2-7", "Llama-3.1", "Qwen", "", "L"]
)
def test_the_beginning_of_a_name_is_none(wanted):
    with pytest.raises(ValueError, match=r"--gpu: .* is none"):
        find("--gpu", wanted, THINGS)


def test_what_may_be_meant_is_named():
    with pytest.raises(ValueError, match="did you mean MI3"):
        find("--gpu", "MI300", GPUS)
    with pytest.raises(ValueError, match="did you mean Llama-2-70B"):
        find("--model", "Llama-2-7", MODELS)


@given(st.text(max_size=30))
def test_any_text_is_found_or_refused(wanted):
    try:
        found = find("x", wanted, THINGS)
    except ValueError:
        return
    assert found in THINGS
