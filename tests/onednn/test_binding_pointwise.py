"""eltwise, binary, prelu, concat, reorder, shuffle, resampling and reduction on the real library
against NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.binding_order import (
    BINARY,
    EXACT,
    F32,
    TRANSCENDENTAL,
    Runner,
    apply_post_ops,
    f32,
    fma,
    saturate,
)

from fqfuse.onednn.attributes import Attributes, Binary, Eltwise, Sum
from fqfuse.onednn.capi import Unimplemented
from fqfuse.onednn.enums import (
    AlgKind,
    Arg,
    DataType,
    arg_multiple_src,
    arg_post_op,
    arg_scales,
    arg_zero_points,
)
from fqfuse.onednn.layouts import channels_last, row_major
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.memory import Memory, MemoryDesc, numpy_dtype
from fqfuse.onednn.primitive import run_once
from fqfuse.onednn.primitive_desc import describe

U8, S8, S32, FLOAT = DataType.u8, DataType.s8, DataType.s32, DataType.f32
SHAPE = (2, 16, 5, 6)


@pytest.fixture
def run(engine: Engine, stream: Stream) -> Runner:
    return Runner(engine, stream)


@pytest.fixture(params=[0, 1, 2], ids=lambda seed: f"seed{seed}")
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(request.param)


def data(rng: np.random.Generator, dtype: DataType, shape: tuple[int, ...] = SHAPE) -> Any:
    if dtype == FLOAT:
        return rng.normal(0, 3, shape).astype(F32)
    limits = np.iinfo(numpy_dtype(dtype))
    low, high = (limits.min, limits.max) if dtype != S32 else (-100000, 100000)
    return rng.integers(low, high, shape, endpoint=True).astype(numpy_dtype(dtype))


def types_id(types: tuple[DataType, ...]) -> str:
    return "-".join(dtype.name for dtype in types)


def nhwc(run: Runner, dtype: DataType, shape: tuple[int, ...] = SHAPE) -> MemoryDesc:
    return channels_last(run.engine.library, shape, dtype)


# ---- eltwise ----

PARAMETERS = {
    AlgKind.eltwise_relu: (0.25, 0.0),
    AlgKind.eltwise_linear: (1.7, -0.3),
    AlgKind.eltwise_clip: (-1.5, 2.25),
    AlgKind.eltwise_elu: (0.5, 0.0),
    AlgKind.eltwise_swish: (1.3, 0.0),
    AlgKind.eltwise_hardswish: (1 / 6, 0.5),
    AlgKind.eltwise_hardsigmoid: (0.2, 0.5),
}


@pytest.mark.parametrize("alg", EXACT, ids=lambda a: a.name)
def test_eltwise_f32(run: Runner, rng: np.random.Generator, alg: AlgKind) -> None:
    x = data(rng, FLOAT)
    if alg == AlgKind.eltwise_sqrt:
        x = np.abs(x)
    alpha, beta = PARAMETERS.get(alg, (0.0, 0.0))
    desc = describe(
        run.engine, "eltwise", nhwc(run, FLOAT), nhwc(run, FLOAT), alg=alg, alpha=alpha, beta=beta
    )
    np.testing.assert_array_equal(
        run(desc, {Arg.SRC: x}), EXACT[alg](x, alpha, beta), err_msg=desc.impl_info
    )


@pytest.mark.parametrize("alg", TRANSCENDENTAL, ids=lambda a: a.name)
def test_eltwise_f32_transcendental(run: Runner, rng: np.random.Generator, alg: AlgKind) -> None:
    x = data(rng, FLOAT)
    alpha, beta = PARAMETERS.get(alg, (0.0, 0.0))
    desc = describe(
        run.engine, "eltwise", nhwc(run, FLOAT), nhwc(run, FLOAT), alg=alg, alpha=alpha, beta=beta
    )
    want = TRANSCENDENTAL[alg](x.astype(np.float64), alpha, beta)
    # The library's polynomials: 1e-6 absolute where the result is near 0, a few ulp (6e-8 each)
    # elsewhere.
    np.testing.assert_allclose(run(desc, {Arg.SRC: x}), want, rtol=1e-6, atol=1.5e-6)


@pytest.mark.parametrize("dtype", [U8, S8, S32], ids=lambda d: d.name)
@pytest.mark.parametrize(
    "alg", [AlgKind.eltwise_relu, AlgKind.eltwise_linear], ids=lambda a: a.name
)
def test_eltwise_integers(
    run: Runner, rng: np.random.Generator, alg: AlgKind, dtype: DataType
) -> None:
    x = data(rng, dtype)
    # 0.5: every odd number is a tie
    alpha, beta = (0.5, 0.0) if alg == AlgKind.eltwise_relu else (0.5, 1.0)
    desc = describe(
        run.engine, "eltwise", nhwc(run, dtype), nhwc(run, dtype), alg=alg, alpha=alpha, beta=beta
    )
    want = saturate(f32(EXACT[alg](x.astype(F32), alpha, beta)), dtype)
    np.testing.assert_array_equal(run(desc, {Arg.SRC: x}), want, err_msg=desc.impl_info)


# ---- binary ----


@pytest.mark.parametrize(
    "types",
    [(U8, S8, U8), (S8, S8, S8), (U8, U8, FLOAT), (FLOAT, U8, S8), (FLOAT, FLOAT, FLOAT)],
    ids=types_id,
)
@pytest.mark.parametrize("alg", BINARY, ids=lambda a: a.name)
def test_binary_scales(
    run: Runner, rng: np.random.Generator, alg: AlgKind, types: tuple[DataType, DataType, DataType]
) -> None:
    first, second, dst = types
    a, b = data(rng, first), data(rng, second)
    if alg == AlgKind.binary_div:
        b = np.where(b == 0, 1, b).astype(b.dtype)
    s0, s1 = f32([0.5]), f32([rng.uniform(0.1, 0.9)])
    desc = describe(
        run.engine,
        "binary",
        nhwc(run, first),
        nhwc(run, second),
        nhwc(run, dst),
        alg=alg,
        attributes=Attributes({Arg.SRC_0: 0, Arg.SRC_1: 0}),
    )
    got = run(
        desc, {Arg.SRC_0: a, Arg.SRC_1: b, arg_scales(Arg.SRC_0): s0, arg_scales(Arg.SRC_1): s1}
    )
    want = saturate(f32(BINARY[alg](a.astype(F32) * s0, b.astype(F32) * s1)), dst)
    np.testing.assert_array_equal(got, want, err_msg=desc.impl_info)
    assert desc.is_reference == (first != FLOAT and dst == FLOAT), (
        "an int8 first source into f32 has no fast code, all else has"
    )


def test_binary_broadcast_and_post_ops(run: Runner, rng: np.random.Generator) -> None:
    a, b, c, old = (
        data(rng, U8),
        data(rng, FLOAT, (1, 16, 1, 1)),
        data(rng, FLOAT, (1, 16, 1, 1)),
        data(rng, U8),
    )
    chain = (
        Sum(0.25, 0),
        Eltwise(AlgKind.eltwise_linear, 0.37, 1.5),
        Binary(AlgKind.binary_mul, nhwc(run, FLOAT, (1, 16, 1, 1))),
        Eltwise(AlgKind.eltwise_relu),
    )
    desc = describe(
        run.engine,
        "binary",
        nhwc(run, U8),
        nhwc(run, FLOAT, (1, 16, 1, 1)),
        nhwc(run, U8),
        alg=AlgKind.binary_add,
        attributes=Attributes({Arg.SRC_0: 0}, post_ops=chain),
    )
    arguments = {
        Arg.SRC_0: a,
        Arg.SRC_1: b,
        arg_scales(Arg.SRC_0): f32([0.3]),
        arg_post_op(2, Arg.SRC_1): c,
    }
    y = a.astype(F32) * F32(0.3) + b
    want = saturate(apply_post_ops(y, chain, {2: c}, old), U8)
    np.testing.assert_array_equal(run(desc, arguments, old), want, err_msg=desc.impl_info)
    assert not desc.is_reference


def test_binary_refuses_a_destination_scale(run: Runner) -> None:
    with pytest.raises(Unimplemented):
        describe(
            run.engine,
            "binary",
            nhwc(run, U8),
            nhwc(run, U8),
            nhwc(run, U8),
            alg=AlgKind.binary_add,
            attributes=Attributes({Arg.DST: 0}),
        )


# ---- prelu ----


@pytest.mark.parametrize("dtype", [FLOAT, S8, U8], ids=lambda d: d.name)
def test_prelu(run: Runner, rng: np.random.Generator, dtype: DataType) -> None:
    x, slopes = data(rng, dtype), f32(rng.uniform(-0.5, 0.5, (1, 16, 1, 1)))
    desc = describe(
        run.engine,
        "prelu",
        nhwc(run, dtype),
        MemoryDesc.any(run.engine.library, slopes.shape, FLOAT),
        nhwc(run, dtype),
    )
    y = x.astype(F32)
    np.testing.assert_array_equal(
        run(desc, {Arg.SRC: x, Arg.WEIGHTS: slopes}),
        saturate(np.where(y > 0, y, y * slopes), dtype),
    )


# ---- concat ----


@pytest.mark.parametrize("dst", [U8, S8, FLOAT], ids=lambda d: d.name)
def test_concat_scales(run: Runner, rng: np.random.Generator, dst: DataType) -> None:
    parts = [data(rng, U8), data(rng, U8, (2, 24, 5, 6))]
    scales = [f32([0.5]), f32([rng.uniform(0.2, 0.9)])]
    desc = describe(
        run.engine,
        "concat",
        *[nhwc(run, U8, part.shape) for part in parts],
        nhwc(run, dst, (2, 40, 5, 6)),
        axis=1,
        attributes=Attributes({arg_multiple_src(0): 0, arg_multiple_src(1): 0}),
    )
    arguments = {arg_multiple_src(index): part for index, part in enumerate(parts)}
    arguments |= {arg_scales(arg_multiple_src(index)): scale for index, scale in enumerate(scales)}
    want = np.concatenate(
        [part.astype(F32) * scale for part, scale in zip(parts, scales, strict=True)], axis=1
    )
    np.testing.assert_array_equal(run(desc, arguments), saturate(want, dst))
    assert desc.impl_info == "ref:any"
    assert not desc.is_reference, "it runs a compiled reorder for each source"


def test_concat_lets_the_library_choose_the_destination(
    run: Runner, rng: np.random.Generator
) -> None:
    parts = [data(rng, S8), data(rng, S8)]
    desc = describe(run.engine, "concat", *[nhwc(run, S8)] * 2, None, axis=1)
    assert desc.dst_md() == nhwc(run, S8, (2, 32, 5, 6))
    np.testing.assert_array_equal(
        run(desc, {arg_multiple_src(0): parts[0], arg_multiple_src(1): parts[1]}),
        np.concatenate(parts, 1),
    )


# ---- reorder ----


def requantize_reorder(run: Runner, x: Any, dst: DataType, numbers: dict[str, float]) -> Any:
    """Reorder row-major to nhwc with the scales and zero points that are given."""
    given = {
        "ss": (Arg.SRC, arg_scales),
        "ds": (Arg.DST, arg_scales),
        "szp": (Arg.SRC, arg_zero_points),
        "dzp": (Arg.DST, arg_zero_points),
    }
    masks: dict[Any, dict[int, int]] = {arg_scales: {}, arg_zero_points: {}}
    memories = {
        Arg.SRC: Memory.wrap(run.engine, x),
        Arg.DST: Memory.allocate(run.engine, nhwc(run, dst)),
    }
    for name, value in numbers.items():
        arg, kind = given[name]
        masks[kind][arg] = 0
        memories[kind(arg)] = Memory.wrap(
            run.engine, np.array([value], F32 if kind is arg_scales else np.int32)
        )
    desc = describe(
        run.engine,
        "reorder",
        memories[Arg.SRC].desc,
        nhwc(run, dst),
        attributes=Attributes(masks[arg_scales], masks[arg_zero_points]),
    )
    run_once(run.stream, desc, memories)
    return memories[Arg.DST].view(), desc


@pytest.mark.parametrize(
    "types",
    [(FLOAT, U8), (FLOAT, S8), (U8, FLOAT), (S8, U8), (U8, S8), (S32, S8), (S32, FLOAT)],
    ids=types_id,
)
def test_reorder_requantizes(
    run: Runner, rng: np.random.Generator, types: tuple[DataType, DataType]
) -> None:
    src, dst = types
    x = data(rng, src)
    numbers: dict[str, float] = {"ss": 0.37, "ds": 1.3}
    if src != FLOAT:
        numbers["szp"] = 7
    if dst != FLOAT:
        numbers["dzp"] = 11
    got, desc = requantize_reorder(run, x, dst, numbers)
    y = F32(0.37) * (x.astype(F32) - F32(numbers.get("szp", 0)))
    want = saturate(y * (F32(1) / F32(1.3)) + F32(numbers.get("dzp", 0)), dst)
    np.testing.assert_array_equal(got, want, err_msg=desc.impl_info)


def test_reorder_adds_the_zero_point_before_it_rounds(run: Runner) -> None:
    """0.5 + 1 rounds to 2, where ONNX's QuantizeLinear rounds 0.5 to 0 first and answers 1."""
    x = np.resize(f32([0.5, 1.5, 2.5, np.nextafter(F32(0.5), F32(0))]), SHAPE)
    got, _ = requantize_reorder(run, x, U8, {"dzp": 1})
    np.testing.assert_array_equal(np.ascontiguousarray(got).ravel()[:4], [2, 2, 4, 2])


def test_reorder_with_a_sum(run: Runner, rng: np.random.Generator) -> None:
    x, old = data(rng, FLOAT), data(rng, FLOAT)
    desc = describe(
        run.engine,
        "reorder",
        MemoryDesc.like(run.engine.library, x),
        nhwc(run, FLOAT),
        attributes=Attributes(post_ops=(Sum(0.5),)),
    )
    got = run(desc, {Arg.SRC: x}, old)
    np.testing.assert_array_equal(got, fma(0.5, old, x), err_msg=desc.impl_info)


# ---- shuffle, resampling, reduction ----


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("dtype", [U8, S8, FLOAT], ids=lambda d: d.name)
def test_shuffle(run: Runner, rng: np.random.Generator, dtype: DataType, size: int) -> None:
    """The group size is the length of a group, not how many there are."""
    x = data(rng, dtype)
    desc = describe(
        run.engine, "shuffle", nhwc(run, dtype), nhwc(run, dtype), axis=1, group_size=size
    )
    want = x.reshape(2, 16 // size, size, 5, 6).swapaxes(1, 2).reshape(SHAPE)
    np.testing.assert_array_equal(run(desc, {Arg.SRC: x}), want)


@pytest.mark.parametrize("dtype", [U8, S8, FLOAT], ids=lambda d: d.name)
def test_resampling_nearest(run: Runner, rng: np.random.Generator, dtype: DataType) -> None:
    x = data(rng, dtype)
    desc = describe(
        run.engine,
        "resampling",
        nhwc(run, dtype),
        nhwc(run, dtype, (2, 16, 10, 12)),
        alg=AlgKind.resampling_nearest,
    )
    np.testing.assert_array_equal(run(desc, {Arg.SRC: x}), x.repeat(2, axis=2).repeat(2, axis=3))


def test_resampling_linear(run: Runner, rng: np.random.Generator) -> None:
    x = data(rng, FLOAT)
    desc = describe(
        run.engine,
        "resampling",
        nhwc(run, FLOAT),
        nhwc(run, FLOAT, (2, 16, 10, 12)),
        alg=AlgKind.resampling_linear,
    )
    got = run(desc, {Arg.SRC: x})
    # Along an axis of factor 2, half-pixel: 0.75 and 0.25 of the two neighbours; borders repeat.
    rows = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge").astype(np.float64)
    up = np.empty((2, 16, 10, 8))
    up[:, :, 0::2], up[:, :, 1::2] = (
        0.25 * rows[:, :, :-2] + 0.75 * rows[:, :, 1:-1],
        0.75 * rows[:, :, 1:-1] + 0.25 * rows[:, :, 2:],
    )
    want = np.empty((2, 16, 10, 12))
    want[..., 0::2], want[..., 1::2] = (
        0.25 * up[..., :-2] + 0.75 * up[..., 1:-1],
        0.75 * up[..., 1:-1] + 0.25 * up[..., 2:],
    )
    # f32 sums of four products, in an order of the library's own
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


REDUCTIONS = {
    AlgKind.reduction_max: np.max,
    AlgKind.reduction_min: np.min,
    AlgKind.reduction_sum: np.sum,
    AlgKind.reduction_mean: np.mean,
}


@pytest.mark.parametrize("dtype", [U8, S8], ids=lambda d: d.name)
@pytest.mark.parametrize("alg", REDUCTIONS, ids=lambda a: a.name)
def test_reduction(run: Runner, rng: np.random.Generator, alg: AlgKind, dtype: DataType) -> None:
    x = data(rng, dtype)
    desc = describe(
        run.engine, "reduction", nhwc(run, dtype), nhwc(run, FLOAT, (2, 16, 1, 1)), alg=alg
    )
    total = x.astype(np.int64)
    if alg == AlgKind.reduction_mean:
        want = f32(total.sum((2, 3), keepdims=True)) / F32(30)
    else:
        want = REDUCTIONS[alg](total, (2, 3), keepdims=True)
    np.testing.assert_array_equal(run(desc, {Arg.SRC: x}), f32(want))


@pytest.mark.parametrize("channels", [1, 16])
def test_reduction_post_ops(run: Runner, rng: np.random.Generator, channels: int) -> None:
    x, factor = data(rng, U8), f32(np.resize([0.5, -1, 2], (1, channels, 1, 1)))
    operand = row_major(run.engine.library, factor.shape, FLOAT)
    chain = (Binary(AlgKind.binary_mul, operand), Eltwise(AlgKind.eltwise_relu))
    desc = describe(
        run.engine,
        "reduction",
        nhwc(run, U8),
        nhwc(run, U8, (2, 16, 1, 1)),
        alg=AlgKind.reduction_mean,
        attributes=Attributes(post_ops=chain),
    )
    mean = f32(x.sum((2, 3), keepdims=True, dtype=np.int64)) / F32(30)
    got = run(desc, {Arg.SRC: x, arg_post_op(0, Arg.SRC_1): factor})
    np.testing.assert_array_equal(got, saturate(np.maximum(mean * factor, F32(0)), U8))


@pytest.mark.parametrize("channels", [1, 16])
def test_resampling_post_ops(run: Runner, rng: np.random.Generator, channels: int) -> None:
    x, factor = data(rng, S8), f32(np.resize([0.5, -1, 2], (1, channels, 1, 1)))
    operand = row_major(run.engine.library, factor.shape, FLOAT)
    desc = describe(
        run.engine,
        "resampling",
        nhwc(run, S8),
        nhwc(run, S8, (2, 16, 10, 12)),
        alg=AlgKind.resampling_nearest,
        attributes=Attributes(post_ops=(Binary(AlgKind.binary_mul, operand),)),
    )
    got = run(desc, {Arg.SRC: x, arg_post_op(0, Arg.SRC_1): factor})
    want = saturate(x.repeat(2, axis=2).repeat(2, axis=3) * factor, S8)
    np.testing.assert_array_equal(got, want)
