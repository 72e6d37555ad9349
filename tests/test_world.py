"""What others measured, on a page: quoted by path, and set beside predictions."""

from dataclasses import dataclass
from decimal import Decimal

import pytest

from lib import data
from lib.page import world
from lib.page.markup import typeset


@dataclass
class Row:
    name: str
    unit: str
    printed: Decimal | int
    predicted: float | None
    why: str = ""


def shown(html):
    return html.press["record"].split("\n")


def test_a_figure_is_quoted_by_its_path():
    assert world.get("llm-d-h200.pd.itl_mean_ms") == 4.9
    assert world.get('guide-l40s.collocated_itl_p99_ms."0.4"') == 169
    assert world.get("mooncake-h800-transfer.kv_transfer_ms") == [0.92, 2.51, 8.84, 31.65]


def test_an_unknown_path_names_what_there_is():
    with pytest.raises(ValueError, match=r"no 'llm-d-h200.pd.itl'; at 'itl' there are e2e_mean_s, "):
        world.get("llm-d-h200.pd.itl")


def test_every_entry_says_its_set_up_and_source():
    for name, entry in data.measurements().items():
        lines = shown(world.setup(name, "a guess"))
        assert lines == [
            typeset(f"Measured on: {entry['setup']}"),
            typeset(f"Published in: {entry['source']}"),
            "Modelled with: a guess",
        ]


def test_predictions_stand_at_the_precision_of_the_measurement():
    table = world.beside([Row("a", "ms", Decimal("10.30"), 5.404), Row("b", "s", 1157, 84.3)])
    assert shown(table)[1:] == ["a, ms | 10.30 | 5.40 | 0.52", "b, s | 1,157 | 84 | 0.07"]


def test_a_reason_stands_where_nothing_is_predicted_or_it_is_no_prediction():
    table = world.beside([Row("a", "ms", 5, None, "unknown"), Row("b", "ms", 5, 5.0, "fitted")])
    assert shown(table)[1:] == ["a, ms | 5 | – | unknown", "b, ms | 5 | 5 | fitted"]
