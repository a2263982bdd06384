"""Each primitive of a plan through the oneDNN runtime, alone: the bytes of the NumPy runtime, and a
compiled implementation.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

import numpy as np
import pytest
from support.codes import has_vnni
from support.runtime_draws import CHAINS, TRANSCENDENTAL, Draw, attributes
from support.runtime_plans import one_step
from support.steps_compared import Difference, compare_steps
from support.versions import is_3_2, nan_or

from fqfuse.errors import BackendUnavailable
from fqfuse.ir.types import DType, TensorType
from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Library
from fqfuse.onednn.loading import load
from fqfuse.plan.attributes import Binary, Eltwise, PrimitiveAttr, Scale, Sum, ZeroPoint
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.numpy_runtime import run_step
from fqfuse.runtime.placement import Placement
from fqfuse.runtime.session import InferenceSession

U8, S8, S32, F32 = DType.U8, DType.S8, DType.S32, DType.F32
TYPES = (U8, S8, F32)
SHAPE = (2, 16, 6, 5)


@pytest.fixture(params=["random-0", "ties-1"])
def draw(request: pytest.FixtureRequest) -> Draw:
    kind, seed = request.param.split("-")
    return Draw(np.random.default_rng(int(seed)), kind == "ties")


def name(value: object) -> str:
    return value.value if isinstance(value, DType) else str(value)


def _has_avx512() -> bool:
    try:
        isa = load().effective_isa()
    except BackendUnavailable:  # each test is skipped, and says so
        return True
    return isa & CpuIsa.avx512_core == CpuIsa.avx512_core


WIDE = has_vnni() and _has_avx512()
"""False under an instruction set without VNNI, or without AVX-512 (`test_isa.py`): what may saturate is NumPy's,
and kernels are others; bytes are the same.
"""

IMPLEMENTATIONS: list[str] = []
"""Of the steps that were compared, empty where NumPy ran one."""


def differences(plan: Plan, feeds: Mapping[str, np.ndarray]) -> tuple[list[Difference], Placement]:
    executor = OneDnnExecutor(plan, 2)
    found, placement = compare_steps(plan, executor, feeds), executor.placement()[0]
    IMPLEMENTATIONS.append(placement.implementation if placement.runtime == "onednn" else "")
    return found, placement


def check(
    case: tuple[Plan, object, Mapping[str, np.ndarray]], *, lsb: float = 0, runtime: str = "onednn"
) -> Placement:
    """Same bytes as NumPy (or at most `lsb` codes off), on the runtime expected."""
    plan, _, feeds = case
    found, placement = differences(plan, feeds)
    assert [str(d) for d in found if d.largest > lsb] == []
    assert placement.runtime == runtime or not WIDE, placement.reason
    return placement


# -- convolution, deconvolution, matmul ------------------------------------------------------------

WINDOWS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, object]]] = {
    "3x3": ("Conv", (2, 32, 9, 7), (48, 32, 3, 3), {"pads": (1, 1, 1, 1)}),
    "1x1": ("Conv", (1, 64, 5, 6), (24, 64, 1, 1), {}),
    "strided": ("Conv", (1, 64, 9, 9), (24, 64, 1, 1), {"strides": (2, 2)}),
    "first layer": (
        "Conv",
        (1, 3, 20, 18),
        (16, 3, 7, 7),
        {"strides": (2, 2), "pads": (3, 3, 3, 3)},
    ),
    "dilated": (
        "Conv",
        (1, 16, 11, 9),
        (32, 16, 3, 3),
        {"dilations": (2, 2), "pads": (2, 2, 2, 2)},
    ),
    "odd channels": ("Conv", (1, 5, 8, 8), (7, 5, 3, 3), {"pads": (1, 1, 1, 1)}),
    "uneven pads": (
        "Conv",
        (1, 16, 8, 8),
        (16, 16, 3, 3),
        {"pads": (0, 2, 1, 0), "strides": (2, 1)},
    ),
    "a rest": ("Conv", (1, 16, 8, 9), (16, 16, 2, 2), {"strides": (3, 3)}),
    "same upper": (
        "Conv",
        (1, 16, 8, 7),
        (16, 16, 4, 4),
        {"auto_pad": "SAME_UPPER", "strides": (2, 2)},
    ),
    "same lower": (
        "Conv",
        (1, 16, 8, 7),
        (16, 16, 4, 4),
        {"auto_pad": "SAME_LOWER", "strides": (2, 2)},
    ),
    "valid": ("Conv", (1, 16, 8, 7), (16, 16, 3, 3), {"auto_pad": "VALID"}),
    "groups": ("Conv", (1, 32, 6, 5), (32, 16, 3, 3), {"group": 2, "pads": (1, 1, 1, 1)}),
    "depthwise": ("Conv", (2, 32, 9, 7), (32, 1, 3, 3), {"group": 32, "pads": (1, 1, 1, 1)}),
    "1-D": ("Conv", (2, 16, 20), (24, 16, 5), {"pads": (2, 2), "strides": (2,)}),
    "3-D": ("Conv", (1, 16, 5, 6, 7), (24, 16, 3, 3, 3), {"pads": (1,) * 6}),
    "transposed": ("ConvTranspose", (2, 16, 5, 6), (16, 24, 3, 3), {"pads": (1, 1, 1, 1)}),
    "transposed, strided": (
        "ConvTranspose",
        (1, 16, 5, 6),
        (16, 24, 4, 4),
        {"strides": (2, 2), "pads": (1, 1, 1, 1)},
    ),
    "transposed, uneven": (
        "ConvTranspose",
        (1, 16, 5, 6),
        (16, 24, 3, 3),
        {"strides": (2, 3), "pads": (1, 0, 1, 2)},
    ),
    "transposed, more": (
        "ConvTranspose",
        (1, 16, 5, 6),
        (16, 24, 3, 3),
        {"strides": (2, 2), "output_padding": (1, 1)},
    ),
    "transposed, shape": (
        "ConvTranspose",
        (1, 16, 5, 6),
        (16, 24, 3, 3),
        {"strides": (2, 2), "output_shape": (10, 12)},
    ),
    "transposed, same": (
        "ConvTranspose",
        (1, 16, 5, 6),
        (16, 24, 3, 3),
        {"strides": (2, 2), "auto_pad": "SAME_UPPER"},
    ),
    "transposed, groups": (
        "ConvTranspose",
        (1, 16, 5, 6),
        (16, 12, 3, 3),
        {"strides": (2, 2), "group": 2},
    ),
}


def windowed(
    draw: Draw, case: str, src: DType, dst: DType, chain: str
) -> tuple[Plan, object, dict[str, np.ndarray]]:
    op, shape, weights, params = WINDOWS[case]
    groups = int(params.get("group", 1))  # type: ignore[call-overload]
    channels = weights[0] if op == "Conv" else weights[1] * groups
    primitive = "convolution" if op == "Conv" else "deconvolution"
    args = [("src", draw.data(src, shape)), ("weights", draw.data(S8, weights))]
    plan, step, live = one_step(primitive, op, args, F32, params=params)
    (bare,) = run_step(plan, step, live)
    span = float(np.abs(bare).mean()) * 0.03 * 0.005 + 1e-3
    post_ops = draw.chain(chain, bare.shape, 1, dst)
    attr = attributes(draw, src, dst, channels, 1 if groups == 1 else 3, span, post_ops)
    args.append(("bias", draw.bias(channels, span / 4)))
    return one_step(
        primitive,
        op,
        args,
        dst,
        params=params,
        attr=attr,
        operands=draw.operands,
        constants=constants(draw),
    )


def constants(draw: Draw) -> tuple[str, ...]:
    """Operands of post-ops are constants, but for sums and whole tensors."""
    return (
        "weights",
        "bias",
        *(key for key in draw.operands if key != "old" and draw.operands[key].size < 100),
    )


@pytest.mark.parametrize("src", [U8, S8], ids=name)
@pytest.mark.parametrize("case", WINDOWS)
def test_windows(draw: Draw, case: str, src: DType) -> None:
    chain = "sum_scale_relu" if WINDOWS[case][0] == "Conv" else "relu"
    placement = check(windowed(draw, case, src, U8, chain))
    assert "ref" not in placement.implementation


@pytest.mark.parametrize("dst", TYPES, ids=name)
@pytest.mark.parametrize("chain", CHAINS)
def test_post_ops_of_a_convolution(draw: Draw, chain: str, dst: DType) -> None:
    check(windowed(draw, "3x3", U8, dst, chain))


@pytest.mark.parametrize("chain", ["sum", "sum_zero_point", "linear_sum", "mul_add", "prelu"])
def test_post_ops_of_a_deconvolution(draw: Draw, chain: str) -> None:
    # The library's first choice for the strided one may saturate: the next is taken, or NumPy.
    for case in ("transposed", "transposed, strided"):
        draw.operands.clear()
        plan, _, feeds = windowed(draw, case, U8, U8, chain)
        found, placement = differences(plan, feeds)
        assert found == []
        # newer libraries have one of AVX2 with VNNI, which does not
        assert not re.search("avx2(?!_vnni)", placement.implementation) or not WIDE


MATMULS = {
    "2-D": ((37, 129), (129, 70)),
    "one row": ((1, 300), (300, 257)),
    "flattened": ((2, 12, 64), (64, 96)),
    "flattened twice": ((2, 3, 5, 64), (64, 48)),
    "batched": ((2, 3, 33, 48), (2, 3, 48, 17)),
    "broadcast": ((2, 3, 33, 48), (1, 1, 48, 17)),
    "broadcast rows": ((33, 48), (2, 48, 17)),
}


def product(
    draw: Draw, case: str, src: DType, dst: DType, chain: str, *, live: bool
) -> tuple[Plan, object, dict[str, np.ndarray]]:
    left, right = MATMULS[case]
    shape = (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
    span = 128 * 74 * np.sqrt(right[-2]) * 0.03 * 0.005
    post_ops = draw.chain(chain, shape, len(shape) - 1, dst)
    attr = attributes(
        draw, src, dst, right[-1], 0 if live else 1 << (len(right) - 1), span, post_ops
    )
    args = [
        ("src", draw.data(src, left)),
        ("weights", draw.data(S8, right)),
        ("bias", draw.bias(right[-1], span / 4)),
    ]
    held = tuple(key for key in constants(draw) if not (live and key == "weights"))
    return one_step(
        "matmul", "MatMul", args, dst, attr=attr, operands=draw.operands, constants=held
    )


@pytest.mark.parametrize("live", [False, True], ids=["constant", "live"])
@pytest.mark.parametrize("src", [U8, S8], ids=name)
@pytest.mark.parametrize("case", MATMULS)
def test_matmul(draw: Draw, case: str, src: DType, live: bool) -> None:
    check(product(draw, case, src, U8, "sum_scale_relu", live=live))


# Without comparisons: behind a matmul whose N is no multiple of 16, oneDNN 3.2 fails to generate
# their code (see below).
@pytest.mark.parametrize("case", ["2-D", "flattened"])
@pytest.mark.parametrize("chain", [chain for chain in CHAINS if chain != "compare"])
def test_post_ops_of_a_matmul(draw: Draw, chain: str, case: str) -> None:
    check(product(draw, case, U8, S8, chain, live=False))


def test_an_operand_along_a_leading_dimension_keeps_the_matmul_whole(draw: Draw) -> None:
    args = [("src", draw.data(U8, (2, 12, 64))), ("weights", draw.data(S8, (64, 96)))]
    attr = PrimitiveAttr(
        {"src": Scale((0.02,)), "weights": Scale((0.01,)), "dst": Scale((0.5,))},
        {},
        (Binary("add", "rows"),),
    )
    operands = {"rows": draw.data(F32, (1, 12, 1))}
    check(
        one_step(
            "matmul",
            "MatMul",
            args,
            U8,
            attr=attr,
            operands=operands,
            constants=("weights", "rows"),
        )
    )


def test_code_that_cannot_be_generated_sends_its_step_to_numpy_and_spoils_nothing(
    draw: Draw,
) -> None:
    # oneDNN's code generator remembers a failure for as long as its thread lives.
    draw.operands.clear()
    plan, _, feeds = product(draw, "2-D", U8, U8, "compare", live=False)
    found, placement = differences(plan, feeds)
    assert found == []
    if WIDE and is_3_2():  # later versions make it
        assert placement.runtime == "numpy"
        assert "runtime_error" in placement.reason
    check(windowed(Draw(draw.rng, draw.ties), "3x3", U8, U8, "relu"))


@pytest.mark.parametrize("chain", TRANSCENDENTAL)
def test_transcendental_post_ops(draw: Draw, chain: str) -> None:
    alpha, beta = {
        "elu": (1.0, 0.0),
        "swish": (1.0, 0.0),
        "soft_relu": (1.0, 0.0),
        "pow": (1.0, 0.5),
    }.get(chain, (0.0, 0.0))
    before = Eltwise("abs") if chain == "pow" else Eltwise("clip", -8.0, 8.0)
    scales = {"src": Scale((0.02,)), "weights": Scale((0.01,)), "dst": Scale((0.05,))}
    attr = PrimitiveAttr(scales, {}, (before, Eltwise(chain, alpha, beta)))
    args = [("src", draw.data(U8, (9, 64))), ("weights", draw.data(S8, (64, 32)))]
    # the polynomials are a few ulp off, which flips a rounding
    check(one_step("matmul", "MatMul", args, S8, attr=attr), lsb=1)


@pytest.mark.parametrize("primitive", ["convolution", "matmul", "grouped"])
def test_f32(primitive: str) -> None:
    rng = np.random.default_rng(3)
    left, right, params = {
        "convolution": ((1, 16, 8, 8), (24, 16, 3, 3), {"pads": (1, 1, 1, 1)}),
        "grouped": ((1, 16, 8, 8), (16, 8, 3, 3), {"pads": (1, 1, 1, 1), "group": 2}),
        "matmul": ((2, 9, 32), (32, 24), {}),
    }[primitive]
    args = [
        ("src", rng.normal(size=left).astype(np.float32)),
        ("weights", rng.normal(size=right).astype(np.float32)),
    ]
    kind, op = ("matmul", "MatMul") if primitive == "matmul" else ("convolution", "Conv")
    shape = (2, 9, 24) if primitive == "matmul" else (1, right[0], 8, 8)
    operands = {
        "old": rng.normal(size=shape).astype(np.float32),
        "full": rng.normal(size=shape).astype(np.float32),
    }
    attr = PrimitiveAttr(post_ops=(Sum("old"), Eltwise("relu"), Binary("add", "full")))
    # Hundreds of f32 products in another order: rounding errors of at most 2**-24 of the largest
    # sum, times their number.
    check(
        one_step(kind, op, args, F32, params=params, attr=attr, operands=operands),
        lsb=144 * 2.0**-24 * 40,
    )


def test_zero_point_of_weights(draw: Draw) -> None:
    args = [("src", draw.data(U8, (37, 129))), ("weights", draw.data(S8, (129, 70)))]
    points = {"src": draw.zero_point(U8), "weights": ZeroPoint((7,)), "dst": draw.zero_point(U8)}
    attr = PrimitiveAttr(
        {
            "src": draw.scale(0.01, 0.06),
            "weights": draw.scale(0.002, 0.01),
            "dst": draw.scale(0.5, 1),
        },
        points,
    )
    check(one_step("matmul", "MatMul", args, U8, attr=attr))


STEMS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]] = {
    "7x7": ((2, 3, 20, 18), (16, 3, 7, 7), {"pads": (3, 3, 3, 3)}),
    "5x5": ((1, 3, 20, 18), (16, 3, 5, 5), {"pads": (2, 2, 2, 2)}),
    "6x5": ((1, 1, 20, 18), (16, 1, 6, 5), {"pads": (2, 1, 2, 1)}),
    "no pads": ((1, 4, 20, 18), (16, 4, 7, 7), {}),
    "uneven pads": ((1, 3, 20, 18), (16, 3, 7, 7), {"pads": (1, 0, 3, 2)}),
    "wide pads": ((1, 3, 20, 18), (16, 3, 5, 7), {"pads": (4, 4, 4, 5)}),
    "same upper": ((1, 3, 20, 18), (16, 3, 7, 7), {"auto_pad": "SAME_UPPER"}),
    "a rest": ((1, 3, 20, 18), (16, 3, 6, 6), {}),
    "odd size": ((1, 3, 21, 18), (16, 3, 7, 7), {"pads": (3, 3, 3, 3)}),
}


@pytest.mark.parametrize("src", [U8, S8], ids=name)
@pytest.mark.parametrize("case", STEMS)
def test_the_first_convolution_of_an_image_network(
    draw: Draw, library: Library, case: str, src: DType
) -> None:
    shape, weights, params = STEMS[case]
    attr = attributes(draw, src, U8, 16, 1, 60.0, (Eltwise("relu"),))
    args = [
        ("src", draw.data(src, shape)),
        ("weights", draw.data(S8, weights)),
        ("bias", draw.bias(16, 20)),
    ]
    placement = check(
        one_step("convolution", "Conv", args, U8, params=params | {"strides": (2, 2)}, attr=attr)
    )
    # By blocks of 2x2 pixels, where those fit; four channels are too few for the faster kernel. With AMX the
    # library has code of its own.
    by_blocks = case not in ("odd size", "6x5")
    chosen = ("brgconv" in placement.implementation) == by_blocks
    assert chosen or library.effective_isa().has_amx or not WIDE


# -- elementwise -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm", ["add", "mul", "sub", "max", "min", "div", "ge", "gt", "le", "lt", "eq", "ne"]
)
@pytest.mark.parametrize(
    "types", list(itertools.product(TYPES, TYPES, TYPES)), ids=lambda t: "-".join(map(name, t))
)
def test_binary(draw: Draw, types: tuple[DType, DType, DType], algorithm: str) -> None:
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
    placement = check(
        one_step(
            "binary",
            "Add",
            [("src_0", a), ("src_1", b)],
            types[2],
            params={"algorithm": algorithm},
            attr=attr,
        )
    )
    assert "ref" not in placement.implementation


@pytest.mark.parametrize(
    "shapes",
    [(SHAPE, (1, 16, 1, 1)), ((1, 16, 1, 1), SHAPE), (SHAPE, (1, 1, 1, 1)), (SHAPE, (16, 1, 1))],
    ids=str,
)
def test_binary_broadcasts(draw: Draw, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    attr = PrimitiveAttr({"src_0": draw.scale(0.1, 1), "src_1": draw.scale(0.1, 1)})
    args = [("src_0", draw.data(U8, shapes[0])), ("src_1", draw.data(S8, shapes[1]))]
    check(one_step("binary", "Mul", args, U8, params={"algorithm": "mul"}, attr=attr))


def test_what_no_compiled_binary_broadcasts_runs_on_numpy(draw: Draw) -> None:
    args = [("src_0", draw.data(U8, (1, 16, 1, 1))), ("src_1", draw.data(S8, SHAPE) | 1)]
    placement = check(
        one_step("binary", "Div", args, U8, params={"algorithm": "div"}), runtime="numpy"
    )
    assert "its first source is broadcast" in placement.reason


@pytest.mark.parametrize("dst", [U8, S8], ids=name)
def test_binary_with_a_sum(draw: Draw, dst: DType) -> None:
    attr = PrimitiveAttr(
        {"src_0": draw.scale(0.1, 1), "src_1": draw.scale(0.1, 1)},
        {},
        (Sum("old", 0.25 if draw.ties else 0.3),),
    )
    args = [("src_0", draw.data(U8, SHAPE)), ("src_1", draw.data(U8, SHAPE))]
    case = one_step(
        "binary",
        "Add",
        args,
        dst,
        params={"algorithm": "add"},
        attr=attr,
        operands={"old": draw.data(dst, SHAPE)},
    )
    # compiled only where the destination has the first source's type
    check(case, runtime="onednn" if dst is U8 else "numpy")


@pytest.mark.parametrize("src", [*TYPES, S32], ids=name)
@pytest.mark.parametrize("dst", [*TYPES, S32], ids=name)
def test_reorder(draw: Draw, src: DType, dst: DType) -> None:
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
        attr = PrimitiveAttr(
            {role: draw.scale(0.02, 0.1) for role in scaled},
            {role: ZeroPoint((23,)) for role in zero},
        )
        check(one_step("reorder", "Identity", [("src", draw.data(src, SHAPE))], dst, attr=attr))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    "types", [(F32, U8), (U8, F32), (F32, S8), (S8, F32)], ids=lambda t: "-".join(map(name, t))
)
def test_reorder_per_axis(draw: Draw, types: tuple[DType, DType], axis: int) -> None:
    role = "dst" if types[0] is F32 else "src"
    attr = PrimitiveAttr({role: draw.scale(0.02, 0.1, SHAPE[axis], 1 << axis)})
    check(
        one_step("reorder", "Identity", [("src", draw.data(types[0], SHAPE))], types[1], attr=attr)
    )


@pytest.mark.parametrize("role", ["src", "dst"])
@pytest.mark.parametrize("dst", [U8, S8], ids=name)
def test_quantizing_by_one_scale(draw: Draw, dst: DType, role: str) -> None:
    x = draw.data(F32, SHAPE)
    x.ravel()[:9] = [nan_or(1.5), np.inf, -np.inf, 1e30, -1e30, -0.0, 3e38, 1e-40, 0.5]
    for zero in (0, 3, -128):
        attr = PrimitiveAttr(
            {role: draw.scale(0.02, 0.1)}, {"dst": ZeroPoint((zero,))} if zero else {}
        )
        check(one_step("reorder", "Identity", [("src", x)], dst, attr=attr))


@pytest.mark.parametrize("scales", [(None, None), (0.3, 1.7), (None, 0.5)], ids=str)
@pytest.mark.parametrize("dst", [U8, S8], ids=name)
@pytest.mark.parametrize("axis", [0, 1, 3])
def test_concat(
    draw: Draw, axis: int, dst: DType, scales: tuple[float | None, float | None]
) -> None:
    other = tuple(n + 16 if i == axis else n for i, n in enumerate(SHAPE))
    args = [("src_0", draw.data(U8, SHAPE)), ("src_1", draw.data(U8, other))]
    attr = PrimitiveAttr(
        {f"src_{i}": Scale((float(np.float32(s)),)) for i, s in enumerate(scales) if s is not None}
    )
    check(one_step("concat", "Concat", args, dst, params={"axis": axis}, attr=attr))


@pytest.mark.parametrize(
    "algorithm", ["relu", "linear", "abs", "sqrt", "square", "clip", "round", "hardswish"]
)
def test_eltwise(draw: Draw, algorithm: str) -> None:
    ends = {"linear": (1.3, 0.7), "clip": (-0.5, 0.7), "hardswish": (1 / 6, 0.5)}
    alpha, beta = map(float, np.float32(ends.get(algorithm, (0, 0))))
    x = draw.data(F32, SHAPE) / 20
    params = {"algorithm": algorithm, "alpha": alpha, "beta": beta}
    check(
        one_step(
            "eltwise",
            "Identity",
            [("src", np.abs(x) if algorithm == "sqrt" else x)],
            F32,
            params=params,
        )
    )


@pytest.mark.parametrize("dst", [F32, U8], ids=name)
@pytest.mark.parametrize("algorithm", ["linear", "relu", "abs", "round", "hardswish"])
def test_eltwise_with_post_ops(draw: Draw, algorithm: str, dst: DType) -> None:
    ends = {"linear": (1.3, 0.7), "hardswish": (1 / 6, 0.5)}
    alpha, beta = map(float, np.float32(ends.get(algorithm, (0, 0))))
    x = draw.data(F32, SHAPE) / 20
    x.ravel()[:5] = [0.0, -0.0, 1e30, -1e30, 0.5]
    attr = PrimitiveAttr(
        post_ops=(
            Eltwise("round"),
            Eltwise("clip", 0.0, 3.0),
            Binary("mul", "rows"),
            Eltwise("linear", 0.3, 0.1),
        )
    )
    operands = {"rows": draw.data(F32, (1, SHAPE[1], 1, 1))}
    params = {"algorithm": algorithm, "alpha": alpha, "beta": beta}
    placement = check(
        one_step(
            "eltwise",
            "Identity",
            [("src", x)],
            dst,
            params=params,
            attr=attr,
            operands=operands,
            constants=("rows",),
        )
    )
    assert placement.implementation == "jit:uni"


# -- the rest --------------------------------------------------------------------------------------

POOLS: dict[str, tuple[tuple[int, ...], dict[str, object]]] = {
    "3x3": ((2, 32, 15, 15), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "uneven": ((1, 16, 9, 9), {"kernel_shape": (5, 3), "strides": (1, 2), "pads": (2, 1, 2, 1)}),
    "ceil": ((1, 16, 8, 9), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
    "ceil with pads": (
        (1, 16, 9, 8),
        {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "ceil_mode": 1},
    ),
    "dilated": ((1, 16, 9, 9), {"kernel_shape": (2, 2), "dilations": (2, 2)}),
    "1-D": ((2, 16, 11), {"kernel_shape": (3,), "strides": (2,), "pads": (1, 1)}),
    "3-D": ((1, 16, 5, 6, 7), {"kernel_shape": (3, 2, 3), "strides": (2, 2, 2)}),
}


@pytest.mark.parametrize("dtype", [U8, S8], ids=name)
@pytest.mark.parametrize("op", ["max", "exclude", "include", "exclude_linear"])
@pytest.mark.parametrize("window", POOLS)
def test_pooling(draw: Draw, window: str, op: str, dtype: DType) -> None:
    shape, params = POOLS[window]
    attr = PrimitiveAttr(post_ops=(Eltwise("linear", 0.7, 3.25),) if op.endswith("linear") else ())
    kind = "MaxPool" if op == "max" else "AveragePool"
    if op != "max":
        params = params | {"count_include_pad": int(op.startswith("include"))}
    plan, _, feeds = one_step(
        "pooling", kind, [("src", draw.data(dtype, shape))], dtype, params=params, attr=attr
    )
    found, placement = differences(plan, feeds)
    assert found == []
    # Dilated windows have reference code only; windows that hang over count pads that ONNX does
    # not.
    alone = window == "dilated" or (op == "include" and window.startswith("ceil"))
    assert placement.runtime == ("numpy" if alone else "onednn"), placement.reason


@pytest.mark.parametrize("dtype", [U8, S8], ids=name)
@pytest.mark.parametrize("alpha", [1e10, -1e10, 1e20])
@pytest.mark.parametrize("op", ["AveragePool", "GlobalAveragePool"])
def test_averages_beyond_s32_saturate(draw: Draw, op: str, alpha: float, dtype: DType) -> None:
    attr = PrimitiveAttr(post_ops=(Eltwise("linear", alpha, 3.25),))
    params = {"kernel_shape": (2, 2)} if op == "AveragePool" else {}
    data = draw.data(dtype, (2, 16, 4, 4))
    check(one_step("pooling", op, [("src", data)], dtype, params=params, attr=attr))


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("spatial", [(7, 7), (11,), (3, 4, 5)], ids=str)
def test_global_pooling(draw: Draw, spatial: tuple[int, ...], op: str) -> None:
    check(one_step("pooling", op, [("src", draw.data(U8, (2, 64, *spatial)))], U8))


@pytest.mark.parametrize("dst", TYPES, ids=name)
@pytest.mark.parametrize("op", ["Softmax", "LayerNormalization"])
def test_normalizing(draw: Draw, op: str, dst: DType) -> None:
    x = draw.data(F32, (2, 16, 33)) / 20
    attr = PrimitiveAttr() if dst is F32 else PrimitiveAttr({"dst": draw.scale(0.005, 0.05)})
    args, primitive = [("src", x)], "softmax"
    if op == "LayerNormalization":
        primitive = "layer_normalization"
        args += [
            ("scale", draw.rng.normal(1, 0.3, 33).astype(np.float32)),
            ("bias", draw.rng.normal(0, 0.3, 33).astype(np.float32)),
        ]
    # exp, and sums of 33 terms in another order: 1 LSB, or a few units in the last place of values
    # up to 4
    check(
        one_step(
            primitive, op, args, dst, params={"axis": -1}, attr=attr, constants=("scale", "bias")
        ),
        lsb=2e-6 if dst is F32 else 1,
    )


def test_layer_normalization_over_two_dimensions_without_a_bias(draw: Draw) -> None:
    args = [("src", draw.data(F32, (2, 3, 8, 5))), ("scale", np.ones((8, 5), np.float32))]
    check(
        one_step(
            "layer_normalization",
            "LayerNormalization",
            args,
            F32,
            params={"axis": 2},
            constants=("scale",),
        ),
        lsb=2e-6,
    )


@pytest.mark.parametrize("shape", [(2, 9), (3, 1000), (2, 21, 5, 7)])
@pytest.mark.parametrize("axis", [-1, 1])
def test_log_softmax(draw: Draw, shape: tuple[int, ...], axis: int) -> None:
    """The library's logarithm is off by 4e-6, whatever the result is: e^y by 4e-6 of itself."""
    check(
        one_step(
            "softmax",
            "LogSoftmax",
            [("src", draw.data(F32, shape) / 20)],
            F32,
            params={"axis": axis},
        ),
        lsb=6e-6,
    )


@pytest.mark.parametrize(
    ("op", "dtype", "runtime"),
    [("ReduceMax", U8, "onednn"), ("ReduceMean", U8, "onednn"), ("ReduceL1", S8, "numpy")],
)
def test_reduction(draw: Draw, op: str, dtype: DType, runtime: str) -> None:
    args = [("src", draw.data(dtype, SHAPE)), ("axes", np.array([2, 3]))]
    check(one_step("reduction", op, args, dtype, constants=("axes",)), runtime=runtime)


@pytest.mark.parametrize("dst", [F32, U8, S8])
@pytest.mark.parametrize("src", [F32, U8, S8])
@pytest.mark.parametrize("axes", [(-1,), (2, 3), (1, 2, 3), ()], ids=str)
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"])
def test_a_reduction_of_the_last_dimensions(
    draw: Draw, op: str, keepdims: int, axes: tuple[int, ...], src: DType, dst: DType
) -> None:
    """Sums of codes are exact; of f32 they are added in another order."""
    data = draw.data(src, (2, 3, 5, 7))
    if op == "ReduceProd":  # of two numbers, and of ones
        data[:, 1:], data[:, :, 1:], data[..., 1:] = 1, 1, 1
    if src is F32:
        data = data / 16
    attr = PrimitiveAttr(post_ops=(Eltwise("linear", 0.5, 0.25),))
    args = [("src", data), *([("axes", np.array(axes))] if axes else [])]
    params = {"keepdims": keepdims}
    case = one_step("reduction", op, args, dst, params=params, attr=attr, constants=("axes",))
    pooled = op == "ReduceMax" and keepdims and axes == (2, 3) and dst is F32
    extreme = op in ("ReduceMax", "ReduceMin") and src is F32 and not pooled
    lsb = 1 if dst is not F32 else 210 * 2.0**-24 * float(np.abs(data).sum() / 6)
    check(case, lsb=0 if src is not F32 else lsb, runtime="numpy" if extreme else "onednn")


def test_where_the_largest_element_is_no_number_numpy_looks_for_it() -> None:
    """oneDNN's maximum drops NaN, or not, by its place."""
    data = np.array([[1, np.nan, 3], [-np.inf] * 3], np.float32)
    args = [("src", data), ("axes", np.array([1]))]
    placement = check(
        one_step("reduction", "ReduceMax", args, F32, constants=("axes",)), runtime="numpy"
    )
    assert "drop NaN" in placement.reason


@pytest.mark.parametrize("sources", [{}, {"src_1": Scale((2.0,))}], ids=["plain", "scaled"])
@pytest.mark.parametrize("zero", [{}, {"dst": ZeroPoint((3,))}], ids=["no zero", "zero"])
@pytest.mark.parametrize("scale", [{}, {"dst": Scale((0.5,))}], ids=["no scale", "scale"])
def test_parameters_of_a_concats_destination_are_not_left_out(
    draw: Draw, scale: dict[str, Scale], zero: dict[str, ZeroPoint], sources: dict[str, Scale]
) -> None:
    """`unified` has them, oneDNN has not."""
    args = [(f"src_{i}", draw.data(S8, SHAPE)) for i in range(2)]
    attr = PrimitiveAttr({**sources, **scale}, zero)
    check(
        one_step("concat", "Concat", args, S8, params={"axis": 1}, attr=attr, target="unified"),
        runtime="numpy" if scale or zero else "onednn",
    )


def test_a_mean_over_the_feature_map_is_a_pooling(draw: Draw) -> None:
    args = [("src", draw.data(F32, SHAPE)), ("axes", np.array([2, 3]))]
    # 30 additions in another order, of values up to 160
    placement = check(
        one_step("reduction", "ReduceMean", args, F32, constants=("axes",)), lsb=30 * 2.0**-24 * 160
    )
    assert "jit" in placement.implementation or not WIDE


@pytest.mark.parametrize(
    ("mode", "scale", "runtime"),
    [("nearest", 2, "onednn"), ("nearest", 1.5, "numpy"), ("cubic", 2, "numpy")],
)
def test_resampling(draw: Draw, mode: str, scale: float, runtime: str) -> None:
    args = [("src", draw.data(U8, SHAPE)), ("scales", np.array([1, 1, scale, scale], np.float32))]
    check(
        one_step("resampling", "Resize", args, U8, params={"mode": mode}, constants=("scales",)),
        runtime=runtime,
    )


@pytest.mark.parametrize(
    ("coordinates", "sizes", "runtime"),
    [
        ("half_pixel", [12, 10], "onednn"),
        ("half_pixel", [1, 10], "onednn"),
        ("pytorch_half_pixel", [12, 10], "onednn"),
        ("pytorch_half_pixel", [1, 10], "numpy"),  # the first element, not the middle
        ("align_corners", [12, 10], "numpy"),
    ],
)
def test_linear_resampling(draw: Draw, coordinates: str, sizes: list[int], runtime: str) -> None:
    args = [("src", draw.data(F32, SHAPE)), ("sizes", np.array([*SHAPE[:2], *sizes]))]
    params = {"mode": "linear", "coordinate_transformation_mode": coordinates}
    # four terms in another order, of values up to 160
    check(
        one_step("resampling", "Resize", args, F32, params=params, constants=("sizes",)),
        runtime=runtime,
        lsb=4 * 2.0**-23 * 160,
    )


def test_prelu(draw: Draw) -> None:
    slope = draw.rng.normal(0, 0.5, (1, 16, 1, 1)).astype(np.float32)
    check(
        one_step(
            "prelu",
            "PRelu",
            [("src", draw.data(F32, SHAPE)), ("slope", slope)],
            F32,
            constants=("slope",),
        )
    )


def test_batch_normalization(draw: Draw) -> None:
    parameters = {
        key: draw.rng.normal(0, 1, 16).astype(np.float32) for key in ("scale", "bias", "mean")
    }
    parameters["var"] = draw.rng.uniform(0.5, 2, 16).astype(np.float32)
    args = [("src", draw.data(F32, SHAPE)), *parameters.items()]
    # the library multiplies by scale / sqrt(var), ONNX divides: a few units in the last place of
    # values up to 600
    check(
        one_step(
            "batch_normalization", "BatchNormalization", args, F32, constants=tuple(parameters)
        ),
        lsb=4 * 2.0**-23 * 600,
    )


def test_lrn(draw: Draw) -> None:
    params = {"size": 5, "alpha": 1e-3, "beta": 0.75, "bias": 1.0}
    # pow, and five squares in another order, of values up to 160
    check(
        one_step("lrn", "LRN", [("src", draw.data(F32, SHAPE))], F32, params=params),
        lsb=8 * 2.0**-23 * 160,
    )


def test_a_primitive_without_a_lowering_runs_on_numpy(draw: Draw) -> None:
    placement = check(
        one_step("onnx.Relu", "Relu", [("x", draw.data(F32, SHAPE))], F32), runtime="numpy"
    )
    assert placement.reason == "oneDNN has no primitive for Relu"


def test_most_steps_ran_on_onednn_elsewhere_too() -> None:
    """Of those that this process has run: two runtimes that are both NumPy would always agree."""
    if WIDE or len(IMPLEMENTATIONS) < 100:
        pytest.skip("each test above says where its step runs, or another process ran them")
    ran = [implementation for implementation in IMPLEMENTATIONS if implementation]
    assert len(ran) >= 0.85 * len(IMPLEMENTATIONS)
    assert any("int8" in implementation for implementation in ran)


@pytest.mark.parametrize("algorithm", ["max", "min"])
@pytest.mark.parametrize("primitive", ["binary", "post-op", "constant"])
def test_a_maximum_of_nan_is_the_second_operand(primitive: str, algorithm: str) -> None:
    nan = np.float32(np.nan)
    x = np.resize(np.asarray([nan, 1, nan, -2], np.float32), SHAPE)
    other = np.resize(np.asarray([5, nan, nan, 7], np.float32), SHAPE)
    args, params, attr, operands = (
        [("src_0", x), ("src_1", other)],
        {"algorithm": algorithm},
        PrimitiveAttr(),
        {},
    )
    if primitive != "binary":
        other = other if primitive == "post-op" else np.full((1, 1, 1, 1), 3, np.float32)
        args, params = [("src", x)], {"algorithm": "linear", "alpha": 1.0, "beta": 0.0}
        attr, operands = PrimitiveAttr(post_ops=(Binary(algorithm, "other"),)), {"other": other}
    kind = "binary" if primitive == "binary" else "eltwise"
    constants = ("other",) if primitive == "constant" else ()
    op = "Add" if kind == "binary" else "Identity"
    case = one_step(
        kind, op, args, F32, params=params, attr=attr, operands=operands, constants=constants
    )
    check(case)
    plain = np.maximum if algorithm == "max" else np.minimum
    expected = np.where(np.isnan(x), other, plain(x, other))
    np.testing.assert_array_equal(run_step(*case)[0], expected)


@pytest.mark.parametrize("count", [3072, 3073])
def test_concat_of_more_sources_than_the_library_has_names_for(count: int) -> None:
    """Argument 1024 + 3072 is the mark of a scale."""
    names = [f"x{i}" for i in range(count)]
    values = {name: TensorType(DType.F32, (1, 2)) for name in names}
    args = tuple((f"src_{i}", name) for i, name in enumerate(names))
    step = Step("c", "concat", "Concat", args, ("y",), {"axis": 0}, PrimitiveAttr(), ("c",))
    values["y"] = TensorType(DType.F32, (count, 2))
    plan = Plan("net", "onednn-v3", tuple(names), ("y",), values, {}, (step,))
    feeds = {name: np.full((1, 2), i, np.float32) for i, name in enumerate(names)}
    (y,) = InferenceSession(plan, backend="onednn").run(None, feeds)
    np.testing.assert_array_equal(y[:, 1], np.arange(count, dtype=np.float32))
