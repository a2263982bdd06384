"""Every row against ONNX Runtime or onnx.reference, and its inferred types against what it
computes.
"""

from __future__ import annotations

import numpy as np
import pytest

from fqfuse.ir.ops import OPS, dims
from fqfuse.ir.types import TensorType

from .cases import CASES, by_hand
from .harness import Case, assert_close, infer, oracle, run_row, types_of

pytestmark = pytest.mark.parametrize("case", CASES, ids=str)


def test_values(case: Case):
    before = [None if a is None else a.copy() for a in case.inputs]
    actual = run_row(case)
    expected = by_hand(case) if case.oracle == "by hand" else oracle(case, len(actual))
    for a, e in zip(actual, expected, strict=True):
        assert_close(a, e, exact=case.exact)
    for array, copy in zip(case.inputs, before, strict=True):
        np.testing.assert_array_equal(array, copy)  # evaluate must not write into its inputs


def test_read_only_inputs(case: Case):
    frozen = [None if a is None else a.copy() for a in case.inputs]
    for array in frozen:
        if array is not None:
            array.setflags(write=False)
    for a, e in zip(run_row(case, frozen), run_row(case), strict=True):
        np.testing.assert_array_equal(a, e)


def test_static_types(case: Case):
    actual = run_row(case)
    assert infer(case, types_of(case.inputs)) == tuple(types_of(actual))


def test_types_without_constants(case: Case):
    actual = run_row(case)
    if case.op == "Split" and case.inputs[1:] and case.inputs[1] is not None:
        actual = actual[: case.inputs[1].size]
    for type_, array in zip(
        infer(case, types_of(case.inputs), constants=False), actual, strict=True
    ):
        assert_describes(type_, array, {})


def test_symbolic_types(case: Case):
    """With a symbol for each dimension of the first input: formulas that give the actual sizes."""
    if case.op in ("ConstantOfShape", "Range") or case.inputs[0] is None:
        return
    shape = case.inputs[0].shape
    symbols = tuple(f"d{axis}" for axis in range(len(shape)))
    types = types_of(case.inputs)
    types[0] = TensorType(types[0].dtype, symbols)
    inferred = infer(case, types)
    unknown = 0
    for type_, array in zip(inferred, run_row(case), strict=True):
        assert_describes(type_, array, dict(zip(symbols, shape, strict=True)))
        unknown += -1 if type_.shape is None else sum(d == dims.UNKNOWN for d in type_.shape)
    assert unknown == case.unknown


def test_unknown_rank(case: Case):
    types = [None if t is None else TensorType(t.dtype, None) for t in types_of(case.inputs)]
    actual = run_row(case)
    for constants in (True, False):
        inferred = (
            infer(case, types, constants=constants)
            if case.op != "Split" or constants or len(types) < 2
            else ()
        )
        for type_, array in zip(inferred, actual, strict=False):
            assert_describes(type_, array, {})


def assert_describes(type_: TensorType, array: np.ndarray, sizes: dict[str, int]) -> None:
    """The type is true of the array, and where it has a formula over `sizes`, the formula gives the
    size.
    """
    assert type_.dtype.numpy == array.dtype
    if type_.shape is None:
        return
    assert len(type_.shape) == array.ndim
    for dim, size in zip(type_.shape, array.shape, strict=True):
        if dim != dims.UNKNOWN:
            assert dims.evaluate(dim, sizes) == size, f"{type_} of {array.shape} with {sizes}"


def test_the_row_exists(case: Case):
    assert case.op in OPS
