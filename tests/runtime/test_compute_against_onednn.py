"""Convolution, deconvolution and matmul against the real oneDNN: equal bytes, whatever the scales,
zero points and post-ops.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.codes import has_vnni
from support.geometries import CONVOLUTIONS as SMALL
from support.geometries import DECONVOLUTIONS, MATMULS, Geometry
from support.runtime_draws import CHAINS, TRANSCENDENTAL, Draw, attributes
from support.runtime_oracle import Oracle
from support.runtime_plans import one_step

from fqfuse.ir.types import DType
from fqfuse.plan.attributes import DepthwiseConv, Eltwise, PrimitiveAttr, Scale, ZeroPoint
from fqfuse.runtime.numpy_runtime import run_step

U8, S8, S32, F32 = DType.U8, DType.S8, DType.S32, DType.F32


@pytest.fixture(params=["random-0", "random-1", "ties-2", "ties-3"])
def draw(request: pytest.FixtureRequest) -> Draw:
    kind, seed = request.param.split("-")
    return Draw(np.random.default_rng(int(seed)), kind == "ties")


CONVOLUTIONS = SMALL | {
    "3x3": Geometry((2, 32, 9, 7), (48, 32, 3, 3), {"pads": (1, 1, 1, 1)}),
    "1x1_wide": Geometry((1, 512, 7, 7), (256, 512, 1, 1)),
    "deep": Geometry((1, 512, 7, 7), (64, 512, 3, 3), {"pads": (1, 1, 1, 1)}),
    "depthwise": Geometry((2, 32, 9, 7), (32, 1, 3, 3), {"group": 32, "pads": (1, 1, 1, 1)}),
}


def check_window(
    oracle: Oracle, draw: Draw, g: Geometry, src: DType, dst: DType, chain: str, *, lsb: int = 0
) -> None:
    """One convolution or deconvolution on both runtimes."""
    x, w = draw.data(src, g.src), draw.data(S8, g.weights)
    primitive = "convolution" if g.op == "Conv" else "deconvolution"
    args = [("src", x), ("weights", w)]
    plan, step, live = one_step(primitive, g.op, args, F32, params=g.params)
    (plain,) = run_step(plan, step, live)
    span = float(np.abs(plain).mean()) * 0.03 * 0.005 + 1e-3
    post_ops = (
        draw.chain(chain, plain.shape, 1, dst) if chain in CHAINS else transcendental(chain, dst)
    )
    attr = attributes(draw, src, dst, g.channels, 1 if g.groups == 1 else 3, span, post_ops)
    args.append(("bias", draw.bias(g.channels, span / 4)))
    plan, step, live = one_step(
        primitive,
        g.op,
        args,
        dst,
        params=g.params,
        attr=attr,
        operands=draw.operands,
        constants=constants(draw),
    )
    oracle.compare(plan, step, live, lsb=lsb)
    (got,) = run_step(plan, step, live)
    assert len(np.unique(got)) > 1 or chain in ("max_min", "compare", "hardsigmoid"), (
        "the case is degenerate"
    )


def constants(draw: Draw) -> tuple[str, ...]:
    """Operands of post-ops are constants, but for sums and whole tensors."""
    return (
        "weights",
        "bias",
        *(name for name in draw.operands if name != "old" and draw.operands[name].size < 100),
    )


def transcendental(name: str, dst: DType) -> tuple[Eltwise, ...]:
    alpha, beta = {
        "elu": (1.0, 0.0),
        "swish": (1.0, 0.0),
        "soft_relu": (1.0, 0.0),
        "pow": (1.0, 0.5),
    }.get(name, (0.0, 0.0))
    positive = (Eltwise("abs"),) if name == "pow" else (Eltwise("clip", -8.0, 8.0),)
    return (
        (*positive, Eltwise(name, alpha, beta), Eltwise("linear", 0.5, 0.0))
        if dst is not F32
        else (*positive, Eltwise(name, alpha, beta))
    )


@pytest.mark.parametrize("src", [U8, S8], ids=lambda d: d.value)
@pytest.mark.parametrize("geometry", CONVOLUTIONS)
def test_convolution_geometries(oracle: Oracle, draw: Draw, geometry: str, src: DType) -> None:
    check_window(oracle, draw, CONVOLUTIONS[geometry], src, U8, "sum_scale_relu")


@pytest.mark.parametrize("dst", [U8, S8, F32], ids=lambda d: d.value)
@pytest.mark.parametrize("chain", CHAINS)
def test_convolution_post_ops(oracle: Oracle, draw: Draw, chain: str, dst: DType) -> None:
    check_window(oracle, draw, CONVOLUTIONS["3x3"], U8, dst, chain)


@pytest.mark.parametrize("chain", TRANSCENDENTAL)
def test_convolution_transcendental(oracle: Oracle, draw: Draw, chain: str) -> None:
    # One LSB: the library's polynomials are a few ulp off, which flips a rounding now and then.
    check_window(oracle, draw, CONVOLUTIONS["1x1"], U8, U8, chain, lsb=1)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 1, 1), (3, 2, 1)])
@pytest.mark.parametrize("per_channel", [True, False])
def test_depthwise_post_op(
    oracle: Oracle, draw: Draw, per_channel: bool, kernel: int, stride: int, padding: int
) -> None:
    channels = 48
    depthwise = DepthwiseConv(
        "dw",
        "dw_bias",
        kernel,
        stride,
        padding,
        weights_scale=draw.scale(0.002, 0.01, channels, 3)
        if per_channel
        else draw.scale(0.002, 0.01),
        dst_scale=draw.scale(0.1, 0.3),
    )
    scales = {
        "src": draw.scale(0.01, 0.06),
        "weights": draw.scale(0.002, 0.01, channels, 1),
        "dst": draw.scale(0.05, 0.2),
    }
    attr = PrimitiveAttr(scales, {}, (Eltwise("relu"), depthwise, Eltwise("linear", 0.5, 1.25)))
    args = [
        ("src", draw.data(U8, (1, 32, 9, 7))),
        ("weights", draw.data(S8, (channels, 32, 1, 1))),
        ("bias", draw.bias(channels, 3.0)),
    ]
    operands = {
        "dw": draw.data(S8, (channels, 1, kernel, kernel)),
        "dw_bias": draw.bias(channels, 3.0),
    }
    held = ("weights", "bias", "dw", "dw_bias")
    oracle.compare(
        *one_step("convolution", "Conv", args, U8, attr=attr, operands=operands, constants=held)
    )


@pytest.mark.of_3_2(
    "its bare library has a defect of 3.13 there (deconvolution with strides and compensation)"
)
@pytest.mark.parametrize("src", [U8, S8], ids=lambda d: d.value)
@pytest.mark.parametrize("geometry", DECONVOLUTIONS)
def test_deconvolution_geometries(oracle: Oracle, draw: Draw, geometry: str, src: DType) -> None:
    check_window(oracle, draw, DECONVOLUTIONS[geometry], src, S8, "relu")


@pytest.mark.parametrize("chain", ["linear", "sum", "mul_add", "prelu"])
def test_deconvolution_post_ops(oracle: Oracle, draw: Draw, chain: str) -> None:
    check_window(oracle, draw, DECONVOLUTIONS["stride1"], U8, U8, chain)


def check_matmul(
    oracle: Oracle,
    draw: Draw,
    shapes: str,
    src: DType,
    dst: DType,
    chain: str,
    *,
    live_weights: bool = False,
    lsb: int = 0,
) -> None:
    a_shape, w_shape = MATMULS[shapes]
    a, w = draw.data(src, a_shape), draw.data(S8, w_shape)
    columns, depth = w_shape[-1], w_shape[-2]
    shape = (*np.broadcast_shapes(a_shape[:-2], w_shape[:-2]), a_shape[-2], columns)
    span = 128 * 74 * np.sqrt(depth) * 0.03 * 0.005
    post_ops = (
        draw.chain(chain, shape, len(shape) - 1, dst)
        if chain in CHAINS
        else transcendental(chain, dst)
    )
    attr = attributes(
        draw, src, dst, columns, 0 if live_weights else 1 << (len(w_shape) - 1), span, post_ops
    )
    bias = draw.bias(columns, span / 4).reshape((1,) * (len(shape) - 1) + (columns,))
    held = tuple(name for name in constants(draw) if not (live_weights and name == "weights"))
    args = [("src", a), ("weights", w), ("bias", bias)]
    oracle.compare(
        *one_step("matmul", "MatMul", args, dst, attr=attr, operands=draw.operands, constants=held),
        lsb=lsb,
    )


@pytest.mark.parametrize("src", [U8, S8], ids=lambda d: d.value)
@pytest.mark.parametrize("live_weights", [False, True], ids=["constant", "live"])
@pytest.mark.parametrize("shapes", MATMULS)
def test_matmul_shapes(
    oracle: Oracle, draw: Draw, shapes: str, live_weights: bool, src: DType
) -> None:
    check_matmul(oracle, draw, shapes, src, U8, "none", live_weights=live_weights)


# Without comparisons: behind a matmul whose N is no multiple of 16, oneDNN 3.2 fails to generate
# their code, and everything after it.
@pytest.mark.parametrize("dst", [U8, S8, F32], ids=lambda d: d.value)
@pytest.mark.parametrize("chain", [chain for chain in CHAINS if chain != "compare"])
def test_matmul_post_ops(oracle: Oracle, draw: Draw, chain: str, dst: DType) -> None:
    check_matmul(oracle, draw, "2d", U8, dst, chain)


@pytest.mark.parametrize("chain", TRANSCENDENTAL)
def test_matmul_transcendental(oracle: Oracle, draw: Draw, chain: str) -> None:
    check_matmul(oracle, draw, "2d", S8, S8, chain, lsb=1)  # as for convolution


def test_weights_zero_point_is_exact_integer_arithmetic(oracle: Oracle, draw: Draw) -> None:
    a, w = draw.data(U8, (37, 129)), draw.data(S8, (129, 70))
    attr = PrimitiveAttr(
        {
            "src": draw.scale(0.01, 0.06),
            "weights": draw.scale(0.002, 0.01),
            "dst": draw.scale(0.5, 1),
        },
        {"src": draw.zero_point(U8), "weights": ZeroPoint((7,)), "dst": draw.zero_point(U8)},
    )
    oracle.compare(*one_step("matmul", "MatMul", [("src", a), ("weights", w)], U8, attr=attr))


@pytest.mark.parametrize("post_ops", [(), (Eltwise("relu"),)], ids=["exact", "through f32"])
@pytest.mark.parametrize("depth", [64, 4096, 70000])
def test_s32_destination(oracle: Oracle, depth: int, post_ops: tuple[Eltwise, ...]) -> None:
    # Without attributes the s32 accumulator is stored as it is (and wraps around); else it goes
    # through f32. Codes of 7 bits, which no CPU saturates, need twice as many products for that.
    low, high, times = (-128, 127, 1) if has_vnni() else (-64, 63, 2)
    a = np.full((4, depth * times), 255, np.uint8)
    w = np.full((depth * times, 16), high, np.int8)
    w[:, ::3] = low
    w[0] = 1
    oracle.compare(
        *one_step(
            "matmul",
            "MatMul",
            [("src", a), ("weights", w)],
            S32,
            attr=PrimitiveAttr(post_ops=post_ops),
        )
    )


@pytest.mark.of_3_2("3.2 stores a NaN as 0 or the largest code, later versions as the other")
@pytest.mark.parametrize("dst", [U8, S8, S32], ids=lambda d: d.value)
@pytest.mark.parametrize(
    "post_ops",
    [
        (Eltwise("sqrt"),),
        (Eltwise("sqrt"), Eltwise("relu")),
        (Eltwise("sqrt"), Eltwise("relu", 0.5)),
        (Eltwise("sqrt"), Eltwise("clip", 1.0, 5.0)),
        (Eltwise("sqrt"), Eltwise("linear", 2.0, 5.0)),
    ],
    ids=lambda ops: "-".join(op.algorithm for op in ops),
)
def test_nan(oracle: Oracle, draw: Draw, dst: DType, post_ops: tuple[Eltwise, ...]) -> None:
    a, w = draw.data(U8, (16, 32)), draw.data(S8, (32, 64))
    attr = PrimitiveAttr(
        {"src": Scale((0.02,)), "weights": Scale((0.01,)), "dst": Scale((0.25,))}, {}, post_ops
    )
    oracle.compare(*one_step("matmul", "MatMul", [("src", a), ("weights", w)], dst, attr=attr))
