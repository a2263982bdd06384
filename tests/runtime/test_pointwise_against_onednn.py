"""Pooling, binary, eltwise, reorder, concat and the rarer primitives against the real oneDNN."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from support.runtime_draws import Draw
from support.runtime_oracle import Oracle
from support.runtime_plans import one_step
from support.versions import nan_or

from fqfuse.inference import InferenceSession
from fqfuse.ir.types import DType, TensorType
from fqfuse.masks import mask_of
from fqfuse.plan.attributes import Eltwise, PrimitiveAttr, Scale, Sum, ZeroPoint
from fqfuse.runtime.numpy_runtime import run_step

U8, S8, S32, F32 = DType.U8, DType.S8, DType.S32, DType.F32
TYPES = (U8, S8, F32)
SHAPE = (2, 16, 6, 5)


@pytest.fixture(params=["random-0", "ties-1"])
def draw(request: pytest.FixtureRequest) -> Draw:
    kind, seed = request.param.split("-")
    return Draw(np.random.default_rng(int(seed)), kind == "ties")


def name(value: object) -> str:
    return value.value if isinstance(value, DType) else str(value)


POOLS = {
    "3x3": ((2, 32, 15, 15), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "2x2": ((1, 16, 8, 8), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    "7x7": ((1, 64, 7, 7), {"kernel_shape": (7, 7)}),
    "uneven": ((1, 16, 9, 9), {"kernel_shape": (5, 3), "strides": (1, 2), "pads": (2, 1, 2, 1)}),
    "1d": ((2, 16, 11), {"kernel_shape": (3,), "strides": (2,), "pads": (1, 1)}),
    "3d": ((1, 16, 5, 6, 7), {"kernel_shape": (3, 2, 3), "strides": (2, 2, 2)}),
}


# A maximum with a linear post-op is left out: the library runs it by its reference code, which has
# no fused multiply-add.
@pytest.mark.parametrize("dtype", [U8, S8], ids=name)
@pytest.mark.parametrize("op", ["max", "exclude", "include", "exclude_linear", "include_linear"])
@pytest.mark.parametrize("window", POOLS)
def test_pooling(oracle: Oracle, draw: Draw, window: str, op: str, dtype: DType) -> None:
    shape, params = POOLS[window]
    attr = PrimitiveAttr(post_ops=(Eltwise("linear", 0.7, 3.25),) if op.endswith("linear") else ())
    kind = "MaxPool" if op == "max" else "AveragePool"
    if op != "max":
        params = params | {"count_include_pad": int(op.startswith("include"))}
    oracle.compare(
        *one_step(
            "pooling", kind, [("src", draw.data(dtype, shape))], dtype, params=params, attr=attr
        )
    )


@pytest.mark.parametrize("dtype", [U8, S8], ids=name)
@pytest.mark.parametrize("spatial", [(7, 7), (6, 5), (11,), (3, 4, 5)], ids=str)
def test_global_average(oracle: Oracle, draw: Draw, spatial: tuple[int, ...], dtype: DType) -> None:
    oracle.compare(
        *one_step(
            "pooling", "GlobalAveragePool", [("src", draw.data(dtype, (2, 64, *spatial)))], dtype
        )
    )


def test_float_pooling(oracle: Oracle, draw: Draw) -> None:
    shape, params = POOLS["3x3"]
    x = draw.data(F32, shape)
    oracle.compare(*one_step("pooling", "MaxPool", [("src", x)], F32, params=params))
    plan, step, live = one_step("pooling", "AveragePool", [("src", x)], F32, params=params)
    (mine,) = run_step(plan, step, live)
    real, _ = oracle(plan, step, live, mine.shape)
    # Nine f32 additions in another order: the rounding errors are relative to the largest partial
    # sum.
    np.testing.assert_allclose(
        mine, real, rtol=0, atol=8 * np.finfo(np.float32).eps * np.abs(x).max()
    )


@pytest.mark.parametrize(
    "algorithm", ["add", "mul", "sub", "max", "min", "div", "ge", "gt", "le", "lt", "eq", "ne"]
)
@pytest.mark.parametrize(
    "types", list(itertools.product(TYPES, TYPES, TYPES)), ids=lambda t: "-".join(map(name, t))
)
def test_binary(
    oracle: Oracle, draw: Draw, types: tuple[DType, DType, DType], algorithm: str
) -> None:
    a, b = draw.data(types[0], SHAPE), draw.data(types[1], SHAPE)
    if algorithm == "div":
        b[b == 0] = 1
    scales = {f"src_{i}": draw.scale(0.01, 0.1) for i, t in enumerate(types[:2]) if t is not F32}
    post_ops = (
        (Eltwise("linear", draw.number(5, 20), draw.number(-3, 3)), Eltwise("relu"))
        if types[2] is not F32
        else ()
    )
    attr = PrimitiveAttr(scales, {}, post_ops)
    oracle.compare(
        *one_step(
            "binary",
            "Add",
            [("src_0", a), ("src_1", b)],
            types[2],
            params={"algorithm": algorithm},
            attr=attr,
        )
    )


@pytest.mark.parametrize(
    "shapes",
    [(SHAPE, (1, 16, 1, 1)), ((1, 16, 1, 1), SHAPE), (SHAPE, (1, 1, 1, 1)), (SHAPE, (16, 1, 1))],
    ids=str,
)
def test_binary_broadcasts(
    oracle: Oracle, draw: Draw, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    attr = PrimitiveAttr({"src_0": draw.scale(0.1, 1), "src_1": draw.scale(0.1, 1)})
    args = [("src_0", draw.data(U8, shapes[0])), ("src_1", draw.data(S8, shapes[1]))]
    oracle.compare(*one_step("binary", "Mul", args, U8, params={"algorithm": "mul"}, attr=attr))


def test_binary_with_a_sum(oracle: Oracle, draw: Draw) -> None:
    attr = PrimitiveAttr(
        {"src_0": draw.scale(0.1, 1), "src_1": draw.scale(0.1, 1)},
        {},
        (Sum("old", 0.25 if draw.ties else 0.3),),
    )
    args = [("src_0", draw.data(U8, SHAPE)), ("src_1", draw.data(U8, SHAPE))]
    oracle.compare(
        *one_step(
            "binary",
            "Add",
            args,
            U8,
            params={"algorithm": "add"},
            attr=attr,
            operands={"old": draw.data(U8, SHAPE)},
        )
    )


@pytest.mark.parametrize("layout", ["plain", "last"])
@pytest.mark.parametrize("src", [*TYPES, S32], ids=name)
@pytest.mark.parametrize("dst", [*TYPES, S32], ids=name)
def test_reorder(oracle: Oracle, draw: Draw, src: DType, dst: DType, layout: str) -> None:
    for scaled, zero in itertools.product(
        [(), ("src",), ("dst",), ("src", "dst")], [(), ("src",), ("dst",), ("src", "dst")]
    ):
        if (
            (src is F32 and "src" in zero)
            or (dst is F32 and "dst" in zero)
            or (src is dst is F32 and len(scaled) == 2)
        ):
            # the library multiplies the two scales of an f32 copy first; no plan has such a step
            continue
        scales = {role: draw.scale(0.02, 0.1) for role in scaled}
        zero_points = {role: ZeroPoint((int(draw.rng.integers(1, 50)),)) for role in zero}
        attr = PrimitiveAttr(scales, zero_points)
        oracle.compare(
            *one_step(
                "reorder",
                "Identity",
                [("src", draw.data(src, SHAPE))],
                dst,
                params={"layout": layout},
                attr=attr,
            )
        )


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    "types", [(F32, U8), (U8, F32), (F32, S8), (S8, F32)], ids=lambda t: "-".join(map(name, t))
)
def test_reorder_per_axis(
    oracle: Oracle, draw: Draw, types: tuple[DType, DType], axis: int
) -> None:
    role = "dst" if types[0] is F32 else "src"
    attr = PrimitiveAttr({role: draw.scale(0.02, 0.1, SHAPE[axis], 1 << axis)})
    oracle.compare(
        *one_step("reorder", "Identity", [("src", draw.data(types[0], SHAPE))], types[1], attr=attr)
    )


@pytest.mark.parametrize(
    "mask", ["per_dim_0+per_dim_1", "per_dim_1+per_dim_2", "per_dim_1+per_dim_2+per_dim_3"]
)
@pytest.mark.parametrize(
    "types", [(F32, U8), (U8, F32), (F32, S8), (U8, S8)], ids=lambda t: "-".join(map(name, t))
)
def test_reorder_along_two_dimensions(
    oracle: Oracle, draw: Draw, types: tuple[DType, DType], mask: str
) -> None:
    """One scale for each index of both: the sum of their bits, in the order of the dimensions."""
    role, bits = "dst" if types[0] is F32 else "src", mask_of(mask)
    count = math.prod(size for axis, size in enumerate(SHAPE) if bits >> axis & 1)
    attr = PrimitiveAttr({role: draw.scale(0.02, 0.1, count, bits)})
    oracle.compare(
        *one_step("reorder", "Identity", [("src", draw.data(types[0], SHAPE))], types[1], attr=attr)
    )


@pytest.mark.parametrize("role", ["src", "dst"])
def test_dimensions_apart_are_left_to_numpy(role: str) -> None:
    """The library's reorder counts their scales wrongly: a row of onednn/defects."""
    rng = np.random.default_rng(1)
    scales = rng.uniform(0.5, 4, (SHAPE[0], 1, SHAPE[2], 1)).astype(np.float32)
    x = rng.integers(-100, 100, SHAPE).astype(np.int8 if role == "src" else np.float32)
    attr = PrimitiveAttr({role: Scale(tuple(scales.ravel().tolist()), 0b101)})
    plan, step, live = one_step(
        "reorder", "Identity", [("src", x)], F32 if role == "src" else S8, attr=attr
    )
    wanted = x * scales if role == "src" else np.clip(np.rint(x / scales), -128, 127)
    (mine,) = run_step(plan, step, live)
    np.testing.assert_array_equal(mine, wanted)
    plan = replace(plan, values={**plan.values, "y": TensorType(plan.type("y").dtype, SHAPE)})
    session = InferenceSession(plan, "auto")
    np.testing.assert_array_equal(session.run(None, live)[0], wanted)
    (placed,) = session.placement()
    assert placed.runtime == "numpy"
    assert "reorder with scales of dimensions apart" in placed.reason


@pytest.mark.parametrize("dst", [U8, S8, S32], ids=name)
def test_quantizing_a_nan(oracle: Oracle, draw: Draw, dst: DType) -> None:
    x = draw.data(F32, SHAPE)
    x.ravel()[::3] = nan_or(1e30)
    x.ravel()[1::7] = np.inf
    oracle.compare(
        *one_step(
            "reorder",
            "Identity",
            [("src", x)],
            dst,
            attr=PrimitiveAttr({"dst": draw.scale(0.2, 1)}),
        )
    )


@pytest.mark.parametrize("scales", [(None, None), (0.3, 1.7), (None, 0.5), (0.001, 1.0)], ids=str)
@pytest.mark.parametrize("dst", [U8, S8], ids=name)
@pytest.mark.parametrize("axis", [0, 1, 3])
def test_concat(
    oracle: Oracle, draw: Draw, axis: int, dst: DType, scales: tuple[float | None, float | None]
) -> None:
    other = tuple(n + 16 if i == axis else n for i, n in enumerate(SHAPE))
    args = [("src_0", draw.data(U8, SHAPE)), ("src_1", draw.data(U8, other))]
    attr = PrimitiveAttr(
        {f"src_{i}": Scale((float(np.float32(s)),)) for i, s in enumerate(scales) if s is not None}
    )
    oracle.compare(*one_step("concat", "Concat", args, dst, params={"axis": axis}, attr=attr))


@pytest.mark.parametrize(
    "algorithm",
    [
        "relu",
        "leaky",
        "linear",
        "abs",
        "sqrt",
        "square",
        "clip",
        "clip_v2",
        "round",
        "hardswish",
        "hardsigmoid",
    ],
)
def test_eltwise(oracle: Oracle, draw: Draw, algorithm: str) -> None:
    ends = {
        "leaky": (0.1, 0),
        "linear": (1.3, 0.7),
        "clip": (-0.5, 0.7),
        "clip_v2": (-0.5, 0.7),
        "hardswish": (1 / 6, 0.5),
    }
    alpha, beta = map(
        float, np.float32(ends.get(algorithm, (0.2, 0.5) if algorithm == "hardsigmoid" else (0, 0)))
    )
    params = {
        "algorithm": "relu" if algorithm == "leaky" else algorithm,
        "alpha": alpha,
        "beta": beta,
    }
    x = draw.data(F32, SHAPE) / 20
    oracle.compare(
        *one_step(
            "eltwise",
            "Identity",
            [("src", np.abs(x) if algorithm == "sqrt" else x)],
            F32,
            params=params,
        )
    )


# oneDNN's polynomials and NumPy's are both a few ulp from the truth; absolute near 0, where the
# formulas cancel.
FLOAT_BOUNDS = {
    "exp": 2e-6,
    "tanh": 5e-7,
    "logistic": 5e-7,
    "gelu_erf": 3e-6,
    "gelu_tanh": 3e-6,
    "elu": 1e-6,
    "swish": 3e-6,
    "mish": 4e-6,
}
FLOAT_BOUNDS |= {"soft_relu": 4e-6, "log": 4e-6, "pow": 2e-6}


@pytest.mark.parametrize("algorithm", FLOAT_BOUNDS)
def test_transcendental_eltwise(oracle: Oracle, draw: Draw, algorithm: str) -> None:
    x = np.clip(draw.data(F32, SHAPE) / 10, -8, 8)
    if algorithm in ("log", "pow"):
        x = np.abs(x) + np.float32(0.01)
    alpha, beta = {
        "elu": (1.0, 0.0),
        "swish": (1.0, 0.0),
        "soft_relu": (1.0, 0.0),
        "pow": (1.5, 0.4),
    }.get(algorithm, (0.0, 0.0))
    plan, step, live = one_step(
        "eltwise",
        "Identity",
        [("src", x)],
        F32,
        params={"algorithm": algorithm, "alpha": alpha, "beta": beta},
    )
    (mine,) = run_step(plan, step, live)
    real, _ = oracle(plan, step, live, mine.shape)
    np.testing.assert_allclose(
        mine, real, rtol=FLOAT_BOUNDS[algorithm], atol=FLOAT_BOUNDS[algorithm]
    )


@pytest.mark.parametrize("dst", TYPES, ids=name)
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "LayerNormalization"])
def test_normalizing(oracle: Oracle, draw: Draw, op: str, dst: DType) -> None:
    x = draw.data(F32, (2, 16, 33)) / 20
    attr = PrimitiveAttr() if dst is F32 else PrimitiveAttr({"dst": draw.scale(0.005, 0.05)})
    args, params, primitive = [("src", x)], {"axis": -1}, "softmax"
    if op == "LayerNormalization":
        primitive = "layer_normalization"
        args += [
            ("scale", draw.rng.normal(1, 0.3, 33).astype(np.float32)),
            ("bias", draw.rng.normal(0, 0.3, 33).astype(np.float32)),
        ]
    plan, step, live = one_step(
        primitive, op, args, dst, params=params, attr=attr, constants=("scale", "bias")
    )
    if dst is not F32:
        oracle.compare(plan, step, live, lsb=1)  # exp, and sums in another order
        return
    (mine,) = run_step(plan, step, live)
    real, _ = oracle(plan, step, live, mine.shape)
    # exp, and sums of 33 terms in another order; the library's log alone is 4e-6 off.
    np.testing.assert_allclose(mine, real, rtol=2e-6, atol=5e-6 if op == "LogSoftmax" else 2e-6)


@pytest.mark.parametrize("post_ops", [(), (Eltwise("linear", 0.7, 1.3),)], ids=["plain", "linear"])
@pytest.mark.parametrize("dtype", [U8, S8], ids=name)
@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"])
def test_reduction(
    oracle: Oracle, draw: Draw, op: str, dtype: DType, post_ops: tuple[Eltwise, ...]
) -> None:
    args = [("src", draw.data(dtype, SHAPE)), ("axes", np.array([2, 3]))]
    oracle.compare(
        *one_step(
            "reduction", op, args, dtype, attr=PrimitiveAttr(post_ops=post_ops), constants=("axes",)
        )
    )


@pytest.mark.parametrize("dtype", TYPES, ids=name)
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resampling_doubles(oracle: Oracle, draw: Draw, mode: str, dtype: DType) -> None:
    args = [("src", draw.data(dtype, SHAPE)), ("scales", np.array([1, 1, 2, 2], np.float32))]
    plan, step, live = one_step(
        "resampling", "Resize", args, dtype, params={"mode": mode}, constants=("scales",)
    )
    if dtype is not F32 or mode == "nearest":
        oracle.compare(plan, step, live)
        return
    (mine,) = run_step(plan, step, live)
    real, _ = oracle(plan, step, live, mine.shape)
    # four terms, another order
    np.testing.assert_allclose(
        mine, real, rtol=0, atol=4 * np.finfo(np.float32).eps * np.abs(args[0][1]).max()
    )


@pytest.mark.parametrize("dtype", TYPES, ids=name)
def test_prelu(oracle: Oracle, draw: Draw, dtype: DType) -> None:
    slope = draw.rng.normal(0, 0.5, (1, 16, 1, 1)).astype(np.float32)
    oracle.compare(
        *one_step("prelu", "PRelu", [("src", draw.data(dtype, SHAPE)), ("slope", slope)], dtype)
    )


def test_batch_normalization_of_codes(oracle: Oracle, draw: Draw) -> None:
    parameters = {
        key: draw.rng.normal(0, 1, 16).astype(np.float32) for key in ("scale", "bias", "mean")
    }
    parameters["var"] = draw.rng.uniform(0.1, 1, 16).astype(np.float32)
    plan = one_step(
        "batch_normalization",
        "BatchNormalization",
        [("src", draw.data(S8, SHAPE)), *parameters.items()],
        S8,
    )
    oracle.compare(*plan, lsb=1)  # the library folds the parameters into one multiply-add


def test_local_response_normalization(oracle: Oracle, draw: Draw) -> None:
    params = {"size": 5, "alpha": 0.01, "beta": 0.75, "bias": 1.0}
    plan, step, live = one_step(
        "lrn", "LRN", [("src", draw.data(F32, SHAPE) / 20)], F32, params=params
    )
    (mine,) = run_step(plan, step, live)
    real, _ = oracle(plan, step, live, mine.shape)
    # a power, and five squares in another order
    np.testing.assert_allclose(mine, real, rtol=1e-6, atol=1e-6)
