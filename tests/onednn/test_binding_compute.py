"""convolution, deconvolution, matmul and pooling on the real library, bit for bit against NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.binding_cases import (
    CHAINS,
    TRANSCENDENTAL_CHAINS,
    Case,
    Draw,
    convolve,
    deconvolve,
    relu,
    windows,
)
from support.binding_order import F32, Runner, dequantize, f32, requantize
from support.codes import has_vnni

from fqfuse.onednn.attributes import Attributes, Depthwise, Sum
from fqfuse.onednn.enums import AlgKind, Arg, DataType, arg_scales, arg_zero_points
from fqfuse.onednn.layouts import channels_last, row_major
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.memory import Memory, MemoryDesc
from fqfuse.onednn.primitive_desc import describe
from fqfuse.onednn.saturation import may_saturate

U8, S8, S32, FLOAT = DataType.u8, DataType.s8, DataType.s32, DataType.f32


@pytest.fixture
def run(engine: Engine, stream: Stream) -> Runner:
    if (engine.library.version.major, engine.library.version.minor) != (3, 2):
        pytest.skip(
            f"the float order here is that of oneDNN 3.2, not {engine.library.version}: later ones multiply the scales one by one"
        )
    return Runner(engine, stream)


@pytest.fixture(params=["random-0", "random-1", "ties-2", "ties-3"])
def draw(request: pytest.FixtureRequest) -> Draw:
    kind, seed = request.param.split("-")
    return Draw(np.random.default_rng(int(seed)), kind == "ties")


# ---- convolution ----


@dataclass(frozen=True)
class Geometry:
    src: tuple[int, ...]
    weights: tuple[int, ...]  # OIHW, or GOIHW
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (0, 0)
    padding: tuple[int, int] = (1, 1)


GEOMETRIES = {
    "3x3": Geometry((2, 32, 9, 7), (48, 32, 3, 3)),
    "1x1": Geometry((1, 64, 5, 6), (24, 64, 1, 1), padding=(0, 0)),
    "stride2_first_layer": Geometry((1, 3, 20, 18), (16, 3, 7, 7), strides=(2, 2), padding=(3, 3)),
    "dilated": Geometry((1, 16, 11, 9), (32, 16, 3, 3), dilations=(1, 1), padding=(2, 2)),
    "odd_channels": Geometry((1, 5, 8, 8), (7, 5, 3, 3)),
    "groups": Geometry((1, 32, 6, 5), (2, 16, 16, 3, 3)),
    "depthwise": Geometry((2, 32, 9, 7), (32, 1, 1, 3, 3)),
}


def conv_case(
    run: Runner, draw: Draw, g: Geometry, src: DataType, zero_points: bool = True
) -> tuple[Case, Any]:
    x, w = draw.integers(src, g.src), draw.integers(S8, g.weights)
    szp = draw.zero_point(src) if zero_points else 0
    grouped = len(g.weights) == 5
    acc = convolve(
        x.astype(np.int64) - szp, w if grouped else w[None], g.strides, g.dilations, g.padding
    )
    case = Case(run, draw, x, w, acc, acc.shape, acc.shape[1], 3 if grouped else 1, szp)

    def build(attributes: Attributes, dst: DataType, bias: bool) -> Any:
        library = run.engine.library
        return describe(
            run.engine,
            "convolution",
            MemoryDesc.any(library, g.src, src),
            MemoryDesc.any(library, g.weights, S8),
            MemoryDesc.any(library, (acc.shape[1],), FLOAT) if bias else None,
            MemoryDesc.any(library, acc.shape, dst),
            strides=g.strides,
            dilations=g.dilations,
            padding_l=g.padding,
            padding_r=g.padding,
            attributes=attributes,
        )

    return case, build


@pytest.mark.parametrize("src", [U8, S8], ids=lambda d: d.name)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_convolution_geometries(run: Runner, draw: Draw, geometry: str, src: DataType) -> None:
    case, build = conv_case(run, draw, GEOMETRIES[geometry], src)
    desc = case.check(build, (Sum(0.4, 3), relu()), U8)
    assert not desc.is_reference, desc.impl_info
    assert not may_saturate(desc) or not run.engine.library.effective_isa().has_vnni
    assert Arg.SRC in run.packed, (
        "the library chose the layout that NumPy has: nothing was reordered"
    )


@pytest.mark.parametrize("dst", [U8, S8, FLOAT], ids=lambda d: d.name)
@pytest.mark.parametrize("chain", CHAINS)
def test_convolution_post_ops(run: Runner, draw: Draw, chain: str, dst: DataType) -> None:
    case, build = conv_case(run, draw, GEOMETRIES["3x3"], U8)
    desc = case.check(build, CHAINS[chain], dst)
    assert not desc.is_reference, desc.impl_info


@pytest.mark.parametrize("chain", TRANSCENDENTAL_CHAINS)
def test_convolution_transcendental(run: Runner, draw: Draw, chain: str) -> None:
    case, build = conv_case(run, draw, GEOMETRIES["1x1"], U8)
    # One LSB: the library's polynomials are a few ulp off, which flips a rounding now and then.
    case.check(build, (TRANSCENDENTAL_CHAINS[chain],), U8, lsb=1)


def test_convolution_without_zero_points_or_bias(run: Runner, draw: Draw) -> None:
    case, build = conv_case(run, draw, GEOMETRIES["3x3"], U8, zero_points=False)
    case.check(build, (), S8, zero_points=False, bias=False)


def test_convolution_sum_reads_the_destination_as_another_type(run: Runner, draw: Draw) -> None:
    case, build = conv_case(run, draw, GEOMETRIES["1x1"], U8)
    case.check(build, (Sum(0.5, 3, S8), relu()), U8)


def test_convolution_into_s32_is_the_exact_accumulator(run: Runner, draw: Draw) -> None:
    case, build = conv_case(run, draw, GEOMETRIES["3x3"], U8, zero_points=False)
    desc = build(Attributes(), S32, False)
    np.testing.assert_array_equal(
        run(desc, {Arg.SRC: case.src, Arg.WEIGHTS: case.weights}), case.acc
    )


@pytest.mark.usefixtures("without_amx")
def test_packed_weights_carry_compensation(run: Runner) -> None:
    """s8 sources are shifted to u8 inside: behind the packed weights, which are those for u8 sources,
    the reorder puts -128 times their sum for each output channel, in s32, which get_size counts.
    """
    case, build = conv_case(
        run, Draw(np.random.default_rng(0), ties=False), GEOMETRIES["3x3"], S8, zero_points=False
    )
    wanted = build(Attributes(), S8, False).weights_md()
    assert not wanted.is_plain
    packed = Memory.allocate(run.engine, wanted)
    run.reorder(Memory.wrap(run.engine, case.weights), packed)
    assert isinstance(packed.data, np.ndarray)
    _, for_u8 = conv_case(run, case.draw, GEOMETRIES["3x3"], U8)
    codes = for_u8(Attributes(), S8, False).weights_md()
    assert str(codes) == str(wanted)
    sums = case.weights.sum((1, 2, 3), dtype=np.int64)
    if not has_vnni():  # there it halves the weights
        sums //= 2
    behind = packed.data[codes.size :].view(np.int32)
    np.testing.assert_array_equal(behind[: len(sums)], -128 * sums)


@pytest.mark.parametrize("end", [U8, S8], ids=lambda d: d.name)
@pytest.mark.parametrize("between", [U8, S8], ids=lambda d: d.name)
def test_depthwise_post_op(run: Runner, draw: Draw, between: DataType, end: DataType) -> None:
    """1x1 convolution, stored in the type of the destination descriptor with its own DST scale,
    which is also the source scale of the depthwise convolution; that one's result has the type in
    the post-op."""
    channels, library = 48, run.engine.library
    x, w = draw.integers(U8, (1, 32, 9, 7)), draw.integers(S8, (channels, 32, 1, 1))
    dw = draw.integers(S8, (channels, 1, 1, 3, 3))
    ss, ws, mid = draw.scale(0.01, 0.06), draw.scale(0.002, 0.01, channels), draw.scale(0.05, 0.2)
    dws, ds = draw.scale(0.002, 0.01, channels), draw.scale(0.1, 0.3)
    bias, dbias = draw.bias(channels, 3.0), draw.bias(channels, 3.0)
    dw_weights = Arg.ATTR_POST_OP_DW | Arg.WEIGHTS
    attributes = Attributes(
        scales={
            Arg.SRC: 0,
            Arg.WEIGHTS: 1,
            Arg.DST: 0,
            dw_weights: 3,
            Arg.ATTR_POST_OP_DW | Arg.DST: 0,
        },
        post_ops=(relu(), Depthwise(S8, FLOAT, end, 3, 1, 1), relu()),
    )
    desc = describe(
        run.engine,
        "convolution",
        MemoryDesc.any(library, x.shape, U8),
        MemoryDesc.any(library, w.shape, S8),
        MemoryDesc.any(library, (channels,), FLOAT),
        MemoryDesc.any(library, (1, channels, 9, 7), between),
        strides=(1, 1),
        dilations=(0, 0),
        padding_l=(0, 0),
        padding_r=(0, 0),
        attributes=attributes,
    )
    scales = {arg_scales(Arg.SRC): [ss], arg_scales(Arg.WEIGHTS): ws, arg_scales(Arg.DST): [mid]}
    scales |= {arg_scales(dw_weights): dws, arg_scales(Arg.ATTR_POST_OP_DW | Arg.DST): [ds]}
    operands = {
        Arg.SRC: x,
        Arg.WEIGHTS: w,
        Arg.BIAS: bias,
        dw_weights: dw,
        Arg.ATTR_POST_OP_DW | Arg.BIAS: dbias,
    }
    got = run(desc, operands | {arg: f32(values) for arg, values in scales.items()})

    def column(values: Any) -> Any:
        return values.reshape(1, -1, 1, 1)

    first = np.maximum(
        dequantize(convolve(x, w[None], (1, 1), (0, 0), (0, 0)), ss, column(ws), column(bias)),
        F32(0),
    )
    stored = requantize(first, mid, 0, between)
    second = dequantize(
        convolve(stored, dw, (1, 1), (0, 0), (1, 1)), mid, column(dws), column(dbias)
    )
    np.testing.assert_array_equal(got, requantize(np.maximum(second, F32(0)), ds, 0, end))
    assert desc.impl_info.startswith("ref_fused_convolution")
    assert not desc.is_reference


# ---- deconvolution ----


def deconv_case(
    run: Runner, draw: Draw, strides: tuple[int, int], src: DataType, limit: int | None = None
) -> tuple[Case, Any]:
    shape, kernel, padding = (1, 32, 5, 4), (48, 32, 3, 3), (1, 1)
    x, w, szp = draw.integers(src, shape), draw.integers(S8, kernel, limit), draw.zero_point(src)
    acc = deconvolve(x.astype(np.int64) - szp, w, strides, padding)
    case = Case(run, draw, x, w, acc, acc.shape, 48, 1, szp)

    def build(attributes: Attributes, dst: DataType, bias: bool) -> Any:
        library = run.engine.library
        return describe(
            run.engine,
            "deconvolution",
            MemoryDesc.any(library, shape, src),
            MemoryDesc.any(library, kernel, S8),
            MemoryDesc.any(library, (48,), FLOAT) if bias else None,
            MemoryDesc.any(library, acc.shape, dst),
            strides=strides,
            dilations=(0, 0),
            padding_l=padding,
            padding_r=padding,
            attributes=attributes,
        )

    return case, build


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)], ids=["stride1", "stride2"])
@pytest.mark.parametrize("src", [U8, S8], ids=lambda d: d.name)
@pytest.mark.parametrize("chain", ["none", "sum", "mul_add", "prelu", "linear"])
def test_deconvolution(
    run: Runner, draw: Draw, chain: str, src: DataType, strides: tuple[int, int]
) -> None:
    case, build = deconv_case(run, draw, strides, src)
    case.check(build, CHAINS[chain], U8)


@pytest.mark.parametrize("chain", ["sum_scale_zp", "linear_then_sum"])
def test_strided_deconvolution_with_such_a_sum(run: Runner, draw: Draw, chain: str) -> None:
    """The one request here for which AVX-512 has no kernel: without AVX2_VNNI it falls to AVX2
    code, which saturates.
    """
    # where every |weight| <= 64 nothing saturates
    small, build = deconv_case(run, draw, (2, 2), U8, limit=64)
    desc = small.check(build, CHAINS[chain], U8)
    full, build = deconv_case(run, draw, (2, 2), U8, limit=127)
    if not may_saturate(desc):
        full.check(build, CHAINS[chain], U8)
        return
    assert desc.impl_info == "jit_uni_int8:avx2"
    with pytest.raises(AssertionError, match="not equal"):
        full.check(build, CHAINS[chain], U8)


# ---- matmul ----


MATMULS = {
    "2d": ((5, 70), (70, 33)),
    "batch": ((3, 5, 70), (3, 70, 33)),
    "broadcast": ((3, 5, 70), (1, 70, 33)),
}


@pytest.mark.parametrize("dst", [U8, S8, FLOAT], ids=lambda d: d.name)
@pytest.mark.parametrize("shapes", MATMULS)
@pytest.mark.parametrize(
    "chain", ["none", "relu", "sum_scale_zp", "mul_add", "add_full", "fake_quantize"]
)
@pytest.mark.parametrize("src", [U8, S8], ids=lambda d: d.name)
def test_matmul(
    run: Runner, draw: Draw, chain: str, shapes: str, src: DataType, dst: DataType
) -> None:
    left, right = MATMULS[shapes]
    x, w, szp = draw.integers(src, left), draw.integers(S8, right), draw.zero_point(src)
    acc = np.matmul(x.astype(np.int64) - szp, w.astype(np.int64))
    case = Case(run, draw, x, w, acc, acc.shape, 33, 1 << (len(left) - 1), szp)

    def build(attributes: Attributes, dst: DataType, bias: bool) -> Any:
        library = run.engine.library
        bias_md = row_major(library, (1,) * (len(left) - 1) + (33,), FLOAT)
        return describe(
            run.engine,
            "matmul",
            MemoryDesc.any(library, left, src),
            MemoryDesc.any(library, right, S8),
            bias_md if bias else None,
            MemoryDesc.any(library, acc.shape, dst),
            attributes=attributes,
        )

    assert not case.check(build, CHAINS[chain], dst).is_reference


def test_matmul_weights_zero_point(run: Runner, draw: Draw) -> None:
    x, w = draw.integers(U8, (5, 70)), draw.integers(S8, (70, 33))
    szp, wzp = draw.zero_point(U8), draw.zero_point(S8)
    descs = [
        MemoryDesc.any(run.engine.library, shape, dtype)
        for shape, dtype in ((x.shape, U8), (w.shape, S8), ((5, 33), FLOAT))
    ]
    desc = describe(
        run.engine,
        "matmul",
        descs[0],
        descs[1],
        None,
        descs[2],
        attributes=Attributes(zero_points={Arg.SRC: 0, Arg.WEIGHTS: 0}),
    )
    zps = {
        arg_zero_points(Arg.SRC): np.array([szp], np.int32),
        arg_zero_points(Arg.WEIGHTS): np.array([wzp], np.int32),
    }
    acc = (x.astype(np.int64) - szp) @ (w.astype(np.int64) - wzp)
    np.testing.assert_array_equal(run(desc, {Arg.SRC: x, Arg.WEIGHTS: w} | zps), acc.astype(F32))


# ---- pooling ----


@pytest.mark.parametrize("dtype", [U8, S8], ids=lambda d: d.name)
@pytest.mark.parametrize(
    "alg",
    [AlgKind.pooling_max, AlgKind.pooling_avg_exclude_padding, AlgKind.pooling_avg_include_padding],
)
def test_pooling(run: Runner, draw: Draw, alg: AlgKind, dtype: DataType) -> None:
    x = draw.integers(dtype, (2, 16, 9, 8))
    library = run.engine.library
    desc = describe(
        run.engine,
        "pooling",
        channels_last(library, x.shape, dtype),
        MemoryDesc.any(library, (2, 16, 5, 4), dtype),
        alg=alg,
        kernel=(3, 3),
        strides=(2, 2),
        dilations=(0, 0),
        padding_l=(1, 1),
        padding_r=(1, 0),
    )
    got = run(desc, {Arg.SRC: x})
    edge = ((0, 0), (0, 0), (1, 1), (1, 0))
    if alg == AlgKind.pooling_max:
        padded = np.pad(x.astype(np.int64), edge, constant_values=-1000)
        want = windows(padded, (3, 3), (2, 2), (0, 0)).max((4, 5))
    else:
        total = windows(np.pad(x.astype(np.int64), edge), (3, 3), (2, 2), (0, 0)).sum((4, 5))
        count = windows(np.pad(np.ones_like(x, np.int64), edge), (3, 3), (2, 2), (0, 0)).sum((4, 5))
        divisor = f32(count if alg == AlgKind.pooling_avg_exclude_padding else 9)
        want = np.rint(total.astype(F32) / divisor)
    np.testing.assert_array_equal(got, want)
    assert not desc.is_reference
