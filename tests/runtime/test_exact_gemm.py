"""Integer matrix products by f32 BLAS: the proof's bounds, and the worst that data can do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fqfuse.runtime.kernels.base import Recorder, Scratch
from fqfuse.runtime.kernels.exact_gemm import (
    Codes,
    KSplit,
    record_product,
    scratch_bytes,
    split_for_any,
    split_for_weights,
)

U8, S8 = Codes(0, 255), Codes(-128, 127)


def product(split: KSplit, a: np.ndarray, w: np.ndarray) -> np.ndarray:
    record = Recorder(Scratch(scratch_bytes(split, a.shape[0], w.shape[1])))
    result = record.take((a.shape[0], w.shape[1]), split.dtype)
    record_product(split, a.astype(np.float32), w.astype(np.float32), result, record)
    for call in record.calls:
        call()
    return result


def worst_case(w: np.ndarray, codes: Codes, column: int, sign: int) -> np.ndarray:
    """The row of codes that drives a column's sum as far as it goes."""
    up, down = (codes.high, codes.low) if sign > 0 else (codes.low, codes.high)
    return np.where(w[:, column] > 0, up, down)[None]


@pytest.mark.parametrize(
    "codes", [U8, S8, Codes(-255, 0), Codes(-100, 155), Codes(3, 258)], ids=str
)
@pytest.mark.parametrize("depth", [1, 64, 515, 1200, 2304, 4608])
@pytest.mark.parametrize("exact", [True, False])
def test_worst_rows_are_exact(codes: Codes, depth: int, exact: bool) -> None:
    rng = np.random.default_rng(depth)
    w = rng.integers(-128, 128, (depth, 7)).astype(np.int8)
    w[:, 0], w[:, 1], w[:, 2] = 127, -128, 0
    split = split_for_weights(w.T, codes, exact)
    rows = [worst_case(w, codes, column, sign) for column in range(7) for sign in (1, -1)]
    a = np.concatenate([*rows, rng.integers(codes.low, codes.high + 1, (20, depth))])
    truth = a.astype(np.int64) @ w.astype(np.int64)
    assert np.abs(truth).max() <= split.bound
    got = product(split, a, w)
    if exact:
        np.testing.assert_array_equal(got, truth)
    # s32 -> f32 rounds once
    np.testing.assert_array_equal(got.astype(np.float32), truth.astype(np.float32))


@settings(max_examples=40)
@given(
    st.integers(1, 3000),
    st.integers(1, 128),
    st.sampled_from([U8, S8, Codes(-128, 127 + 300)]),
    st.integers(0, 2**32 - 1),
)
def test_every_partial_sum_of_a_piece_is_exact(
    depth: int, largest: int, codes: Codes, seed: int
) -> None:
    # BLAS may add in any order: the largest subset of the terms of one sign bounds every partial
    # sum.
    w = (
        np.random.default_rng(seed)
        .integers(-largest, largest, (3, depth), endpoint=True)
        .astype(np.int16)
    )
    split = split_for_weights(w, codes, exact=False)
    assert split.cuts[0] == 0
    assert split.cuts[-1] == depth
    assert list(split.cuts) == sorted(set(split.cuts))
    terms = np.stack([w * codes.low, w * codes.high]).astype(np.int64)
    top, bottom = np.maximum(terms.max(0), 0), np.minimum(terms.min(0), 0)
    for start, stop in zip(split.cuts, split.cuts[1:], strict=False):
        assert top[:, start:stop].sum(1).max() <= 2**24
        assert bottom[:, start:stop].sum(1).min() >= -(2**24)


def test_small_weights_need_no_cut() -> None:
    w = np.random.default_rng(0).integers(-30, 31, (8, 4608)).astype(np.int8)
    assert len(split_for_weights(w, U8, exact=True).cuts) == 2


@pytest.mark.parametrize(
    ("depth", "weights", "codes"),
    [(514, S8, U8), (515, S8, U8), (1024, S8, S8), (5000, U8, U8), (70000, S8, U8)],
)
def test_unknown_weights(depth: int, weights: Codes, codes: Codes) -> None:
    split = split_for_any(depth, weights, codes, exact=True)
    assert (
        max(b - a for a, b in zip(split.cuts, split.cuts[1:], strict=False))
        * weights.magnitude
        * codes.magnitude
        <= 2**24
    )
    a = np.full((2, depth), codes.high)
    w = np.full((depth, 3), weights.high)
    w[:, 1] = weights.low
    truth = (a.astype(np.int64) @ w).astype(np.int32)  # wraps around as s32 does
    np.testing.assert_array_equal(product(split, a, w).astype(np.int64), truth)
    assert split.wraps == (depth * weights.magnitude * codes.magnitude >= 2**31)
