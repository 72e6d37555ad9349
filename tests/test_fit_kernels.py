"""The fit of kernels' constants, on tables whose constants are known."""

import numpy as np
import pytest

from tools.fit_kernels.fit import Rows, fit, predict


def made_up(form, start, compute, bandwidth, noise=0.0):
    """Rows of kernels that take what the form says, but for noise; some compute long, some read long."""
    draw = np.random.default_rng(7)
    arithmetic, reading = 10 ** draw.uniform(-6, -2, (2, 400))
    exact = Rows(arithmetic, reading, reading)
    seconds = predict(form, np.array([start, compute, bandwidth]), exact)
    return Rows(arithmetic, reading, seconds * np.exp(noise * draw.standard_normal(400)))


@pytest.mark.parametrize("form", ["max", "sum", "reading"])
def test_known_constants_come_back(form):
    found = fit(form, made_up(form, 8e-6, 0.6, 0.8))
    assert found.start == pytest.approx(8e-6, rel=0.01)
    assert found.bandwidth == pytest.approx(0.8, rel=0.01)
    assert found.compute is None if form == "reading" else found.compute == pytest.approx(0.6, rel=0.01)
    assert found.rows == 400
    assert found.median < 0.005


def test_noise_shows_in_the_errors_not_in_the_constants():
    found = fit("sum", made_up("sum", 8e-6, 0.6, 0.8, noise=0.1))
    assert (found.start, found.compute, found.bandwidth) == pytest.approx((8e-6, 0.6, 0.8), rel=0.1)
    assert found.median == pytest.approx(0.067, rel=0.3)  # of a normal spread of 0.1: 0.674 of it
    assert found.p90 == pytest.approx(0.164, rel=0.3)  # 1.645


def test_a_kernel_without_a_start_gets_none():
    assert fit("max", made_up("max", 0.0, 0.6, 0.8)).start == pytest.approx(0.0, abs=2e-8)


def test_no_share_exceeds_the_data_sheet():
    found = fit("sum", made_up("sum", 8e-6, 0.6, 1.4))
    assert found.bandwidth == 1.0


def test_errors_are_of_rows_that_the_fit_has_not_seen():
    rows = made_up("sum", 8e-6, 0.6, 0.8)
    wrong = rows.seconds.copy()
    wrong[1::2] *= 2
    found = fit("sum", Rows(rows.arithmetic, rows.reading, wrong))
    assert found.start == pytest.approx(8e-6, rel=0.01)
    assert found.median == pytest.approx(0.5, abs=0.01)


def test_the_same_rows_give_the_same_constants():
    rows = made_up("sum", 8e-6, 0.6, 0.8, noise=0.2)
    assert fit("sum", rows) == fit("sum", rows)


def test_too_few_rows_are_refused():
    few = Rows(*[np.ones(15)] * 3)
    with pytest.raises(ValueError, match="15 rows are too few; use 16 or more"):
        fit("sum", few)
