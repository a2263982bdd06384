"""Kernels against plain f64 and integer references: what needs no library, and geometry that the
library does not take.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.runtime_plans import one_step

from fqfuse.errors import InternalError, InvalidInput
from fqfuse.ir.ops import OPS
from fqfuse.ir.types import DType
from fqfuse.plan.attributes import Binary, Eltwise, PrimitiveAttr, Scale, Sum, ZeroPoint
from fqfuse.plan.verify_shapes import SCHEMAS
from fqfuse.runtime.numerics import NumericsProfile
from fqfuse.runtime.numpy_runtime import run_step

U8, S8, S32, F32 = DType.U8, DType.S8, DType.S32, DType.F32


def convolve(
    x: np.ndarray,
    w: np.ndarray,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    """The definition, one output position and one tap at a time, in int64 or f64."""
    rank = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    sizes = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, s, d in zip(padded.shape[2:], w.shape[2:], strides, dilations, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *sizes), padded.dtype)
    inputs, outputs = w.shape[1], w.shape[0] // groups
    for position, tap in itertools.product(np.ndindex(*sizes), np.ndindex(*w.shape[2:])):
        at = tuple(
            p * s + t * d for p, s, t, d in zip(position, strides, tap, dilations, strict=True)
        )
        for group in range(groups):
            part = padded[(slice(None), slice(group * inputs, (group + 1) * inputs), *at)]
            kernel = w[(slice(group * outputs, (group + 1) * outputs), slice(None), *tap)]
            out[(slice(None), slice(group * outputs, (group + 1) * outputs), *position)] += (
                part @ kernel.T.astype(padded.dtype)
            )
    return out


GEOMETRIES = {
    "1d": ((2, 4, 11), (6, 4, 3), (2,), (2,), (1, 3), 1),
    "2d": ((2, 4, 7, 9), (6, 4, 3, 2), (1, 2), (2, 1), (1, 0, 2, 1), 1),
    "3d": ((1, 4, 5, 4, 6), (6, 4, 2, 3, 2), (2, 1, 1), (1, 1, 2), (0, 1, 1, 1, 0, 1), 1),
    "groups": ((1, 6, 5, 5), (9, 2, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 3),
    "depthwise": ((2, 5, 6, 7), (5, 1, 3, 3), (2, 1), (1, 2), (1, 2, 0, 2), 5),
    "depthwise_multiplier": ((1, 4, 6, 6), (12, 1, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 4),
    "depthwise_1d": ((2, 3, 9), (3, 1, 4), (1,), (1,), (3, 0), 3),
    "window_in_the_padding": ((1, 3, 2, 2), (4, 3, 1, 1), (1, 1), (1, 1), (2, 2, 2, 2), 1),
    "many_channels": ((1, 200, 3, 3), (130, 200, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "large_image": ((1, 3, 70, 65), (8, 3, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
}


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("dtype", [U8, S8, F32], ids=lambda d: d.value)
def test_convolution(geometry: str, dtype: DType) -> None:
    shape, kernel, strides, dilations, pads, groups = GEOMETRIES[geometry]
    rng = np.random.default_rng(1)
    zero = 0 if dtype is F32 else 17
    low, high = dtype.range if dtype.is_integer else (-50, 50)
    x = rng.integers(low, high, shape).astype(dtype.numpy)
    w = rng.integers(-128, 128, kernel).astype(np.float32 if dtype is F32 else np.int8)
    params = {"strides": strides, "dilations": dilations, "pads": pads, "group": groups}
    attr = PrimitiveAttr(zero_points={} if dtype is F32 else {"src": ZeroPoint((zero,))})
    want = convolve(x.astype(np.int64) - zero, w, strides, dilations, pads, groups)
    for dst in (F32,) if dtype is F32 else (S32, F32):
        (got,) = run_step(
            *one_step(
                "convolution", "Conv", [("src", x), ("weights", w)], dst, params=params, attr=attr
            ),
            threads=2,
        )
        # small integers: exact in f32 as well
        np.testing.assert_array_equal(got, want.astype(dst.numpy))


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool"])
def test_auto_pad_is_the_op_tables(op: str, auto_pad: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(0, 9, (1, 3, 7, 8)).astype(np.float32)
    w = rng.integers(-9, 9, (4, 3, 3, 2)).astype(np.float32)
    params = {"strides": (2, 2), "auto_pad": auto_pad, "kernel_shape": (3, 2)}
    args = [("src", x), ("weights", w)] if op == "Conv" else [("src", x)]
    primitive = "convolution" if op == "Conv" else "pooling"
    (got,) = run_step(*one_step(primitive, op, args, F32, params=params))
    spec = OPS[op]
    (want,) = spec.evaluate(
        [*(array for _, array in args), *[None] * (len(spec.inputs) - len(args))],
        spec.complete(params),
    )
    # an average is multiplied by f32(1/n), as oneDNN does
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize(
    "params",
    [
        {"ceil_mode": 1},
        {"dilations": (2, 2)},
        {"ceil_mode": 1, "count_include_pad": 1},
        {"count_include_pad": 1},
    ],
    ids=str,
)
def test_averages_count_what_onnx_counts(params: dict[str, object]) -> None:
    x = np.random.default_rng(3).integers(0, 100, (1, 2, 8, 9)).astype(np.float32)
    params = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 0, 1, 1), **params}
    (got,) = run_step(*one_step("pooling", "AveragePool", [("src", x)], F32, params=params))
    (want,) = OPS["AveragePool"].evaluate([x], OPS["AveragePool"].complete(params))
    np.testing.assert_allclose(got, want, rtol=1e-6)  # as above


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"strides": (2, 3), "output_padding": (1, 2)},
        {"strides": (2, 2), "dilations": (3, 2), "pads": (1, 2, 3, 0)},
        {"strides": (3, 3), "auto_pad": "SAME_UPPER"},
        {"strides": (3, 2), "auto_pad": "SAME_LOWER"},
        {"strides": (2, 2), "output_shape": (9, 12)},
    ],
    ids=str,
)
def test_deconvolution(params: dict[str, object], groups: int) -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(0, 256, (2, 4, 5, 6)).astype(np.uint8)
    w = rng.integers(-128, 128, (4, 6 // groups, 3, 2)).astype(np.int8)
    params = {**params, "group": groups}
    attr = PrimitiveAttr(zero_points={"src": ZeroPoint((9,))})
    args = [("src", x), ("weights", w)]
    (got,) = run_step(
        *one_step("deconvolution", "ConvTranspose", args, S32, params=params, attr=attr), threads=2
    )
    spec = OPS["ConvTranspose"]
    (want,) = spec.evaluate(
        [x.astype(np.float64) - 9, w.astype(np.float64), None], spec.complete(params)
    )
    np.testing.assert_array_equal(got, want)


def test_a_broadcast_operand_of_any_shape() -> None:
    rng = np.random.default_rng(5)
    x, w = (
        rng.integers(0, 9, (2, 3, 6, 5)).astype(np.uint8),
        rng.integers(-9, 9, (4, 3, 1, 1)).astype(np.int8),
    )
    acc = convolve(x.astype(np.int64), w, (1, 1), (1, 1), (0, 0, 0, 0), 1)
    for shape in itertools.product(*[(1, n) for n in acc.shape]):
        operand = rng.integers(-50, 50, shape).astype(np.float32)
        for held in (("weights", "m"), ("weights",)):
            attr = PrimitiveAttr(post_ops=(Binary("add", "m"),))
            (got,) = run_step(
                *one_step(
                    "convolution",
                    "Conv",
                    [("src", x), ("weights", w)],
                    F32,
                    attr=attr,
                    operands={"m": operand},
                    constants=held,
                )
            )
            np.testing.assert_array_equal(got, acc + operand)


def f32(value: object) -> np.ndarray:
    return np.asarray(value, np.float32)


@pytest.mark.parametrize(
    "profile",
    [
        NumericsProfile(),
        NumericsProfile(combine=False),
        NumericsProfile(reciprocal=False),
        NumericsProfile(fma=False),
    ],
    ids=str,
)
def test_profiles_order_the_float_operations(profile: NumericsProfile) -> None:
    rng = np.random.default_rng(6)
    a, w = (
        rng.integers(0, 256, (40, 64)).astype(np.uint8),
        rng.integers(-128, 128, (64, 48)).astype(np.int8),
    )
    ss, ws, ds = f32(0.0123), f32(rng.uniform(0.001, 0.01, 48)), f32(0.0377)
    old = rng.normal(0, 3, (40, 48)).astype(np.float32)
    attr = PrimitiveAttr(
        {
            "src": Scale((float(ss),)),
            "weights": Scale(tuple(ws.tolist()), 2),
            "dst": Scale((float(ds),)),
        },
        {},
        (Sum("old", 0.7), Eltwise("linear", 1.3, 0.11)),
    )
    plan = one_step(
        "matmul", "MatMul", [("src", a), ("weights", w)], F32, attr=attr, operands={"old": old}
    )
    (got,) = run_step(*plan, profile=profile)
    acc = f32(a.astype(np.int64) @ w.astype(np.int64))
    y = acc * (ss * ws) if profile.combine else (acc * ss) * ws

    def fma(x: object, k: float, c: object) -> np.ndarray:
        # f64 has 29 bits to spare: double rounding cannot show on so few values without ties
        # (checked by the equality below).
        return (
            f32(f32(x).astype(np.float64) * np.float64(f32(k)) + f32(c).astype(np.float64))
            if profile.fma
            else f32(x) * f32(k) + f32(c)
        )

    y = fma(fma(old, 0.7, y), 1.3, f32(0.11))
    y = y * (f32(1) / ds) if profile.reciprocal else y / ds
    np.testing.assert_array_equal(got, y)
    (default,) = run_step(*plan)
    assert (profile == NumericsProfile()) == np.array_equal(got, default), (
        "the orders give different bits on this data"
    )


def test_version_2_attributes() -> None:
    rng = np.random.default_rng(7)
    a, w = (
        rng.integers(0, 256, (40, 64)).astype(np.uint8),
        rng.integers(-128, 128, (64, 48)).astype(np.int8),
    )
    bias, scale = f32(rng.normal(0, 500, 48)), f32(rng.uniform(0.0001, 0.001, 48))
    old = rng.integers(0, 256, (40, 48)).astype(np.uint8)
    attr = PrimitiveAttr(
        zero_points={"src": ZeroPoint((3,)), "dst": ZeroPoint((7,))},
        post_ops=(Eltwise("relu", 0.25, 0.0, 1.7), Sum("old", 0.5)),
        output_scales=Scale(tuple(scale.tolist()), 2),
    )
    args = [("src", a), ("weights", w), ("bias", bias)]
    (got,) = run_step(
        *one_step(
            "matmul", "MatMul", args, U8, attr=attr, operands={"old": old}, target="onednn-v2"
        )
    )
    y = (f32((a.astype(np.int64) - 3) @ w.astype(np.int64)) + bias) * scale
    y = np.where(y > 0, y, y * f32(0.25)) * f32(1.7)
    y = f32(y.astype(np.float64) + 0.5 * old)  # 0.5 * integer: exact, and so is its sum in f64
    np.testing.assert_array_equal(got, np.rint(np.clip(y + f32(7), 0, 255)))


def test_numbers_without_dimensions() -> None:
    two, three = np.array(2, np.float32), np.array(3, np.float32)
    (y,) = run_step(
        *one_step(
            "binary", "Mul", [("src_0", two), ("src_1", three)], F32, params={"algorithm": "mul"}
        )
    )
    assert (y.shape, y[()]) == ((), 6)
    (z,) = run_step(
        *one_step("eltwise", "Identity", [("src", two)], F32, params={"algorithm": "square"})
    )
    assert (z.shape, z[()]) == ((), 4)
    attr = PrimitiveAttr({"dst": Scale((0.5,))})
    (q,) = run_step(*one_step("reorder", "Identity", [("src", three)], U8, attr=attr))
    assert (q.shape, q[()]) == ((), 6)


def test_empty_batches_pass_through() -> None:
    x, w = np.zeros((0, 3, 5, 5), np.uint8), np.ones((4, 3, 3, 3), np.int8)
    (y,) = run_step(
        *one_step(
            "convolution", "Conv", [("src", x), ("weights", w)], U8, params={"pads": (1, 1, 1, 1)}
        )
    )
    assert y.shape == (0, 4, 5, 5)
    (z,) = run_step(
        *one_step(
            "matmul",
            "MatMul",
            [("src", np.zeros((0, 3), np.uint8)), ("weights", np.ones((3, 2), np.int8))],
            F32,
        )
    )
    assert z.shape == (0, 2)


def test_an_empty_batch_meets_weights_that_several_threads_share() -> None:
    x, w = np.zeros((0, 96, 5, 5), np.uint8), np.ones((96, 96, 7, 7), np.int8)
    convolution = one_step(
        "convolution", "Conv", [("src", x), ("weights", w)], U8, params={"pads": (3, 3, 3, 3)}
    )
    assert run_step(*convolution, threads=2)[0].shape == (0, 96, 5, 5)
    sides = [("src", np.zeros((0, 4096), np.uint8)), ("weights", np.ones((4096, 96), np.int8))]
    assert run_step(*one_step("matmul", "MatMul", sides, F32), threads=2)[0].shape == (0, 96)


def test_shapes_that_do_not_fit_are_the_users_fault() -> None:
    plan, step, live = one_step(
        "matmul",
        "MatMul",
        [("src", np.zeros((2, 3), np.uint8)), ("weights", np.ones((4, 2), np.int8))],
        F32,
    )
    with pytest.raises(InvalidInput, match="MatMul cannot take these shapes"):
        run_step(plan, step, live)


@pytest.mark.parametrize(
    ("primitive", "op", "args", "says"),
    [
        (
            "winograd",
            "Conv",
            [
                ("src", np.zeros((1, 1, 3, 3), np.uint8)),
                ("weights", np.ones((1, 1, 1, 1), np.int8)),
            ],
            "no kernel",
        ),
        (
            "binary",
            "Add",
            [("src_0", np.zeros(3, np.float32)), ("src_1", np.zeros(3, np.float32))],
            "no binary algorithm",
        ),
        ("eltwise", "Identity", [("src", np.zeros(3, np.float32))], "no eltwise algorithm"),
        (
            "matmul",
            "MatMul",
            [("src", np.zeros((2, 3), np.int32)), ("weights", np.ones((3, 2), np.int8))],
            "src of type s32",
        ),
        (
            "matmul",
            "MatMul",
            [("src", np.zeros((2, 3), np.uint8)), ("weights", np.ones((3, 2), np.float32))],
            "u8 times f32",
        ),
        (
            "convolution",
            "Conv",
            [
                ("src", np.zeros((1, 1, 3, 3), np.uint8)),
                ("weights", np.ones((1, 1, 1, 1), np.float32)),
            ],
            "u8 times f32",
        ),
    ],
)
def test_plans_that_no_composer_makes(
    primitive: str, op: str, args: list[tuple[str, np.ndarray]], says: str
) -> None:
    with pytest.raises(InternalError, match=says):
        run_step(*one_step(primitive, op, args, F32))


def test_every_primitive_of_the_op_table_has_a_kernel() -> None:
    assert {spec.primitive for spec in OPS.values() if spec.primitive} <= set(SCHEMAS)
