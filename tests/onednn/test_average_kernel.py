"""The kernel for averages of codes: what NumPy defines, bit by bit, of every shape, and nothing beyond
is touched.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.executor_plans import F32, S8, U8, Builder
from support.guarded import Guarded
from support.plan_text import parse_plan

from fqfuse.ir.types import DType
from fqfuse.onednn.average_kernel import MOST_POSITIONS, average_call, average_kernel
from fqfuse.onednn.kernels import Kernels
from fqfuse.onednn.library import Library
from fqfuse.plan.attributes import Eltwise, PrimitiveAttr
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering import averages
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.numpy_runtime import NumpyExecutor

PLAN = """
plan means target=TARGET
  in %x : f32[2,16,4,4]
  const @axes : s64[2] = [2,3]
  #0 %y : CODES[2,16,1,1] = reduction<ReduceMean>(src=%x, axes=@axes) | eltwise(linear,alpha=2) ; means
  out %y
"""
BEHIND = """
plan means target=unified
  in %x : f32[2,16,4,4]
  #0 %q : u8[2,16,4,4] = reorder<Identity>(src=%x) ; codes
  #1 %y : f32[2,16,1,1] = pooling<GlobalAveragePool>(src=%q) ATTRIBUTES ; means
  out %y
"""
BY_KERNEL = "averages by "
UNCHANGED = (1.0, -0.0, 1.0, -0.0)


@pytest.fixture
def kernel(library: Library, level: str) -> Kernels:  # noqa: ARG001
    found = average_kernel(library)
    assert found is not None
    return found


def averaged(kernel: Kernels, codes: np.ndarray, numbers: tuple[float, ...]) -> np.ndarray:
    images, positions, channels = codes.shape
    given, means, held = Guarded(codes), Guarded(np.full((images, channels), 7, np.float32)), []
    factors = Guarded(np.array(numbers, np.float32))
    call = average_call(
        kernel,
        held,
        codes=given.array.ctypes.data,
        means=means.array.ctypes.data,
        numbers=factors.array.ctypes.data,
        images=images,
        positions=positions,
        channels=channels,
        sign=128 * (codes.dtype == np.int8),
    )
    assert call() == 0
    return means.array


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("channels", [1, 3, 63, 64, 65, 130])
@pytest.mark.parametrize("positions", [1, 2, 255, 256, 257, 769])
def test_sums_are_exact(kernel: Kernels, dtype: type, channels: int, positions: int) -> None:
    info, rng = np.iinfo(dtype), np.random.default_rng(positions)
    codes = rng.integers(info.min, info.max + 1, (2, positions, channels)).astype(dtype)
    codes[0, :, : channels // 2] = info.max  # the largest sums
    codes[1, :, : channels // 2] = info.min
    found = averaged(kernel, codes, (1.0, *UNCHANGED))
    np.testing.assert_array_equal(found, codes.sum(axis=1, dtype=np.int64).astype(np.float32))


def test_a_sum_of_31_bits(kernel: Kernels) -> None:
    codes = np.full((1, MOST_POSITIONS, 1), 255, np.uint8)
    codes[0, 0, 0] = 0
    wanted = np.float32((MOST_POSITIONS - 1) * 255)
    assert averaged(kernel, codes, (1.0, *UNCHANGED))[0, 0] == wanted
    signed = np.full((1, MOST_POSITIONS, 1), -128, np.int8)
    assert averaged(kernel, signed, (1.0, *UNCHANGED))[0, 0] == np.float32(-128 * MOST_POSITIONS)


@pytest.mark.parametrize(
    "numbers", [(-1.0, 0.0, 0.1, 0.3), (1.0, -128.0, 0.03, 0.0), (-0.7, -0.0, 1.0, -0.0)]
)
def test_each_operation_is_rounded_once(kernel: Kernels, numbers: tuple[float, ...]) -> None:
    """A factor with its shift is one operation: 48 bits of a product and a sum fit in f64 here."""
    codes = np.random.default_rng(3).integers(0, 256, (1, 49, 200)).astype(np.uint8)
    share, *linear = np.array((1 / 49, *numbers), np.float32)
    found = averaged(kernel, codes, (share, *linear))
    y = codes.sum(axis=1).astype(np.float32) * share
    for factor, shift in (linear[:2], linear[2:]):
        y = (y.astype(np.float64) * np.float64(factor) + np.float64(shift)).astype(np.float32)
    assert found.tobytes() == y.tobytes()


# -- plans -----------------------------------------------------------------------------------------

LINEAR = (Eltwise("linear", 1.0, -3.0), Eltwise("linear", 0.02, 0.0))


def averages_of(
    dtype: DType, shape: tuple[int, ...], post_ops: tuple[Eltwise, ...], **window: object
) -> Plan:
    """Quantized, and averaged in f32."""
    b = Builder()
    codes = b.quantize(b.input("x", shape), "codes", dtype, zero=3)
    op = "AveragePool" if window else "GlobalAveragePool"
    out = tuple(5 if window else 1 for _ in shape[2:])
    attr = PrimitiveAttr({}, {}, post_ops)
    found = b.step("pooling", op, {"src": codes}, "y", F32, (*shape[:2], *out), window, attr)
    return b.plan(found)


def held_against_numpy(plan: Plan, threads: int = 1) -> str:
    """Runs twice; the implementation of the average."""
    executor, shape = OneDnnExecutor(plan, threads), plan.type("x").shape
    for seed in range(2):
        x = np.random.default_rng(seed).uniform(-3, 6, shape).astype(np.float32)
        wanted = NumpyExecutor(plan, 1).run({"x": x})[0]
        found = executor.run({"x": x})[0]
        if executor.placement()[-1].implementation.startswith(BY_KERNEL):
            assert found.tobytes() == wanted.tobytes()
        else:  # the library divides where NumPy multiplies by 1/n
            np.testing.assert_array_max_ulp(found, wanted, 16)
    return executor.placement()[-1].implementation


@pytest.mark.parametrize("dtype", [U8, S8])
@pytest.mark.parametrize("shape", [(1, 5, 9), (3, 70, 9, 11), (2, 16, 3, 4, 5)])
@pytest.mark.parametrize("post_ops", [(), LINEAR[1:], LINEAR])
@pytest.mark.parametrize("threads", [1, 2])
def test_plans_average_codes_by_the_kernel(kernel, dtype, shape, post_ops, threads) -> None:
    plan = averages_of(dtype, shape, post_ops)
    assert held_against_numpy(plan, threads) == f"averages by {kernel.level}"


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("dtype", [U8, S8])
def test_without_the_kernel_codes_are_averaged_as_f32(dtype, monkeypatch) -> None:
    monkeypatch.setattr(averages, "average_kernel", lambda _: None)
    found = held_against_numpy(averages_of(dtype, (2, 16, 6, 5), LINEAR[1:]))
    assert len(found.split(" + ")) == 2


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("post_ops", "window"),
    [
        ((*LINEAR, Eltwise("linear", 2.0, 1.0)), {}),
        ((Eltwise("relu", 0.0, 0.0),), {}),
        ((), {"kernel_shape": (2, 2)}),
        ((), {"kernel_shape": (3, 3), "pads": (1, 0, 0, 1), "count_include_pad": 1}),
    ],
)
def test_what_the_kernel_does_not_do(post_ops, window) -> None:
    found = held_against_numpy(averages_of(U8, (2, 16, 6, 6), post_ops, **window))
    assert not found.startswith(BY_KERNEL)


@pytest.mark.usefixtures("library")
def test_codes_that_are_fed() -> None:
    """Their address is another one in each run."""
    b = Builder()
    codes = b.input("x", (1, 16, 6, 6), U8)
    plan = b.plan(b.step("pooling", "GlobalAveragePool", {"src": codes}, "y", F32, (1, 16, 1, 1)))
    executor = OneDnnExecutor(plan, 1)
    for seed in range(3):
        x = np.random.default_rng(seed).integers(0, 256, (1, 16, 6, 6)).astype(np.uint8)
        wanted = x.mean(axis=(2, 3), dtype=np.float64, keepdims=True)
        # of the division by 36, and of the product with 1/36
        np.testing.assert_allclose(executor.run({"x": x})[0], wanted, rtol=3e-7)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_averages_of_f32_are_no_averages_of_codes(dtype: type, target: str) -> None:
    """Though they are stored as codes: of 16 integers the mean is exact, and so is twice that."""
    text = PLAN.replace("TARGET", target).replace("CODES", "u8" if dtype is np.uint8 else "s8")
    x = np.random.default_rng(0).integers(0, 60, (2, 16, 4, 4)).astype(np.float32)
    plan = parse_plan(text)
    (found,) = OneDnnExecutor(plan, 1).run({"x": x})
    assert np.array_equal(found, np.rint(2 * x.mean((2, 3), keepdims=True)).astype(dtype))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("attributes", ["scales(dst=0.5)", "zero_points(dst=3)"])
def test_a_scale_and_a_zero_point_behind_are_not_left_out(attributes: str) -> None:
    """Which `unified` has: of 16 codes the mean is exact."""
    plan = parse_plan(BEHIND.replace("ATTRIBUTES", attributes))
    x = np.random.default_rng(0).integers(0, 256, (2, 16, 4, 4)).astype(np.float32)
    (found,) = OneDnnExecutor(plan, 1).run({"x": x})
    mean = x.mean((2, 3), keepdims=True)
    assert np.array_equal(found, mean * 2 if "scales" in attributes else mean + 3)
