"""Ranges by the kernel: what the row of the op table gives, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.budget import examples

from fqfuse.ir.ops.quantization import dynamic_range
from fqfuse.onednn.library import Library
from fqfuse.onednn.range_kernel import RangeKernel, range_kernel

LARGEST = float(np.finfo(np.float32).max)


@pytest.fixture
def kernel(library: Library, level: str) -> RangeKernel:  # noqa: ARG001
    found = range_kernel(library.effective_isa())
    assert found is not None
    return found


def by_kernel(kernel: RangeKernel, x: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
    """Its status and results, with what lies beside them."""
    scale, zero = np.full(3, 7, np.float32), np.full(3, 7, np.uint8)
    status = kernel(x.ctypes.data, x.size, scale[1:].ctypes.data, zero[1:].ctypes.data)
    assert (scale[0], scale[2], zero[0], zero[2]) == (7, 7, 7, 7)
    return status, scale[1], zero[1]


NUMBERS = st.one_of(
    st.floats(-LARGEST / 2, LARGEST / 2, width=32),
    st.floats(-4, 4, width=32),
    st.sampled_from([0.0, -0.0, 2.0**-149, -(2.0**-149), 2.0**-140]),
)


@given(st.lists(NUMBERS, min_size=1, max_size=70))
@examples(300)
def test_scale_and_zero_point_are_those_of_the_row(
    kernel: RangeKernel, numbers: list[float]
) -> None:
    x = np.array(numbers, np.float32)
    status, scale, zero = by_kernel(kernel, x)
    wanted = dynamic_range(x)
    assert status == 0
    np.testing.assert_array_equal(scale.view(np.uint32), wanted[0].view(np.uint32))
    assert zero == wanted[1]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 64, 257])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_left_to_numpy(kernel: RangeKernel, count: int, odd: float) -> None:
    for place in (0, count // 2, count - 1):
        x = np.ones(count, np.float32)
        x[place] = odd
        assert by_kernel(kernel, x) == (1, 7, 7)


def test_a_range_beyond_f32_is_left_to_numpy(kernel: RangeKernel) -> None:
    assert by_kernel(kernel, np.array([LARGEST, -LARGEST], np.float32)) == (1, 7, 7)
