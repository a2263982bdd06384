"""How far two arrays are apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.onnx_cases import random

from fqfuse.accuracy.measures import Measure, unmasked


def measured(f32, found) -> Measure:
    measure = Measure()
    measure.add(np.asarray(f32, np.float32), np.asarray(found, np.float32))
    return measure


def test_sqnr_and_cosine_are_those_of_the_formulas() -> None:
    a, b = random([100], 1), random([100], 2)
    measure = measured(a, b)
    wide, other = a.astype(np.float64), b.astype(np.float64)
    # numpy sums in another order
    assert measure.sqnr == pytest.approx(
        20 * np.log10(np.linalg.norm(wide) / np.linalg.norm(wide - other)), rel=1e-12
    )
    cosine = wide @ other / np.linalg.norm(wide) / np.linalg.norm(other)
    assert measure.cosine == pytest.approx(cosine, rel=1e-12)
    assert measure.largest == np.abs(wide - other).max()


def test_samples_add_up_to_one_long_one() -> None:
    a, b = random([8, 5], 1), random([8, 5], 2)
    parts = Measure()
    for x, y in zip(a, b, strict=True):
        parts.add(x, y)
    assert parts.sqnr == pytest.approx(measured(a, b).sqnr, rel=1e-12)


def test_equal_is_exact_and_noise_without_signal_is_not() -> None:
    assert measured([1, 2], [1, 2]).sqnr == math.inf
    assert measured([0, 0], [0, 0]).cosine == 1
    assert measured([0, 0], [0, 1]).sqnr == -math.inf
    assert math.isnan(measured([0, 0], [0, 1]).cosine)


def test_nan_and_infinity_where_f32_has_numbers_are_broken() -> None:
    measure = measured([1, 2, 3], [1, math.nan, math.inf])
    assert (measure.broken, measure.entries, measure.sqnr) == (2, 1, -math.inf)
    same = measured([1, math.inf, math.nan], [1, math.inf, math.nan])
    assert (same.broken, same.sqnr) == (0, math.inf)


@pytest.mark.parametrize("mask", [-3.4028235e38, -1e9, -65504, -1e4, -math.inf])
def test_entries_of_a_mask_are_left_out(mask: float) -> None:
    measure = measured([1, -2, mask], [1, -2.5, 0])
    assert (measure.masked, measure.entries, measure.noise, measure.broken) == (1, 2, 0.25, 0)


def test_large_numbers_among_large_ones_are_no_mask() -> None:
    assert unmasked(np.array([-1e4, 5e3, 2], np.float32)) is None
    assert unmasked(np.array([-1e4, -20, 3], np.float32)) is not None
    assert unmasked(np.empty(0, np.float32)) is None
