"""What softmax makes of infinities and NaN, and what a store makes of NaN: where the two runtimes
agree, and where the library differs.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net
from laws.plans import compiled
from support.versions import is_3_2

from fqfuse.ir.types import DType
from fqfuse.plan.types import Plan
from fqfuse.runtime.session import InferenceSession

pytestmark = pytest.mark.usefixtures("library")

ROWS = 6
MASKED, INFINITE, FIRST, LAST = 1, 2, 3, 5


def rows(length: int) -> np.ndarray:
    """Plain, fully masked, with +inf, with NaN in front, with one -inf, with NaN at the end."""
    x = np.random.default_rng(0).normal(0, 1, (ROWS, length)).astype(np.float32)
    x[MASKED] = -np.inf
    x[INFINITE, length // 2] = np.inf
    x[FIRST, 0] = np.nan
    x[4, length // 2] = -np.inf
    x[LAST, -1] = np.nan
    return x


def softmax(length: int, dtype: DType | None, zero: int = 0) -> Plan:
    n = Net()
    y = n.op("Softmax", n.input((ROWS, length)), axis=-1)
    plan = compiled(n, y if dtype is None else n.q(y, 1 / 255, zero, dtype))
    assert [step.primitive for step in plan.steps] == ["softmax"]
    return plan


@pytest.mark.parametrize("length", [4, 16, 33, 128])
def test_the_logarithm_of_a_softmax_goes_with_it(length: int) -> None:
    n = Net()
    plan = compiled(n, n.op("LogSoftmax", n.input((ROWS, length)), axis=-1))
    numpy, onednn = both(plan, x := rows(length))
    certain = [0, MASKED, 4]
    # the library's logarithm of the sum is off by 4e-6
    np.testing.assert_allclose(onednn[certain], numpy[certain], rtol=0, atol=6e-6, equal_nan=True)
    assert np.isnan(numpy[[MASKED, INFINITE, FIRST, LAST]]).all()
    own = np.isnan(x) | (x == np.inf)
    assert np.isnan(onednn[own]).all()
    assert not np.isfinite(onednn[[INFINITE, FIRST, LAST]]).any()


def codes_of_nan(dtype: DType, of_3_2: int) -> tuple[int, ...]:
    """What the library may store of a NaN: later versions than 3.2 either end of the codes."""
    return (of_3_2,) if is_3_2() else dtype.range


def both(plan: Plan, x: np.ndarray) -> list[np.ndarray]:
    return [
        InferenceSession(plan, runtime, 1).run(None, {"x": x})[0] for runtime in ("numpy", "onednn")
    ]


@pytest.mark.parametrize("length", [4, 16, 33, 128])
def test_in_f32_a_masked_row_is_nan_and_rows_do_not_touch_each_other(length: int) -> None:
    x = rows(length)
    numpy, onednn = both(softmax(length, None), x)
    certain = [0, MASKED, 4]
    # Polynomials of exp: a few units in the last place of values up to 1.
    np.testing.assert_allclose(onednn[certain], numpy[certain], rtol=0, atol=1e-6, equal_nan=True)
    assert np.isnan(numpy[MASKED]).all()
    assert np.isnan(numpy[[INFINITE, FIRST, LAST]]).all(), (
        "as ONNX Runtime: exp(x - max) is NaN, or the sum is"
    )
    own = np.isnan(x) | (x == np.inf)
    assert np.isnan(onednn[own]).all(), (
        "the library computes at least these as NaN; others of their rows may be 0"
    )


@pytest.mark.parametrize(
    ("dtype", "zero", "code"), [(DType.U8, 0, 0), (DType.U8, 5, 0), (DType.S8, -128, 127)], ids=str
)
@pytest.mark.parametrize("length", [4, 16, 33, 128])
def test_codes_of_a_masked_row_are_those_of_nan_on_both_runtimes(
    length: int, dtype: DType, zero: int, code: int
) -> None:
    numpy, onednn = both(softmax(length, dtype, zero), rows(length))
    assert (numpy[MASKED] == code).all()
    assert np.isin(onednn[MASKED], codes_of_nan(dtype, code)).all()
    apart = np.abs(numpy[[0, 4]].astype(int) - onednn[[0, 4]])
    assert apart.max() <= 1, "exp is a polynomial"


@pytest.mark.parametrize(("dtype", "code"), [(DType.U8, 0), (DType.S8, 127)], ids=str)
def test_a_quantizer_stores_infinities_saturated_and_nan_as_the_library_does(
    dtype: DType, code: int
) -> None:
    n = Net()
    plan = compiled(n, n.q(n.input((3,)), 0.5, 0, dtype))
    numpy, onednn = both(plan, np.asarray([np.inf, -np.inf, np.nan], np.float32))
    assert numpy.tolist() == [dtype.range[1], dtype.range[0], code]
    assert onednn[:2].tolist() == [dtype.range[1], dtype.range[0]]
    assert onednn[2] in codes_of_nan(dtype, code)
