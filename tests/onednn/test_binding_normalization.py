"""softmax, layer_normalization, batch_normalization and lrn on the real library against NumPy in
f64.

Their sums run in an order of the library's own and some use polynomials, so f32 results carry a
tolerance, and int8 results may differ by 1 LSB where a rounding flips.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.binding_order import F32, Runner, f32, saturate

from fqfuse.onednn.attributes import Attributes, Eltwise
from fqfuse.onednn.capi import Unimplemented
from fqfuse.onednn.enums import AlgKind, Arg, DataType, NormalizationFlags, arg_scales
from fqfuse.onednn.layouts import channels_last, row_major
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.memory import MemoryDesc, numpy_dtype
from fqfuse.onednn.primitive_desc import describe
from fqfuse.plan.targets import TARGETS

U8, S8, FLOAT = DataType.u8, DataType.s8, DataType.f32
FLAGS = NormalizationFlags


@pytest.fixture
def run(engine: Engine, stream: Stream) -> Runner:
    return Runner(engine, stream)


@pytest.fixture(params=[0, 1, 2], ids=lambda seed: f"seed{seed}")
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(request.param)


def assert_within_one_lsb(got: Any, want: Any) -> None:
    difference = np.abs(got.astype(np.int64) - want.astype(np.int64))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.02  # a flip is rare; a wrong formula is not
    assert len(np.unique(want)) > 10


def softmax_f64(x: Any, axis: int) -> Any:
    exponentials = np.exp(x - x.max(axis, keepdims=True))
    return exponentials / exponentials.sum(axis, keepdims=True)


def test_softmax_f32(run: Runner, rng: np.random.Generator) -> None:
    x = rng.normal(0, 3, (4, 6, 50)).astype(F32)
    md = MemoryDesc.like(run.engine.library, x)
    got = run(
        describe(run.engine, "softmax", md, md, alg=AlgKind.softmax_accurate, axis=2), {Arg.SRC: x}
    )
    np.testing.assert_allclose(got, softmax_f64(x.astype(np.float64), 2), rtol=2e-6, atol=1e-7)
    log = run(
        describe(run.engine, "softmax", md, md, axis=2, alg=AlgKind.softmax_log), {Arg.SRC: x}
    )
    # its log: 4e-6
    np.testing.assert_allclose(
        log, np.log(softmax_f64(x.astype(np.float64), 2)), rtol=2e-6, atol=5e-6
    )


def test_softmax_f32_into_u8(run: Runner, rng: np.random.Generator) -> None:
    x = rng.normal(0, 1, (4, 6, 50)).astype(F32)
    library = run.engine.library
    desc = describe(
        run.engine,
        "softmax",
        MemoryDesc.like(library, x),
        row_major(library, x.shape, U8),
        alg=AlgKind.softmax_accurate,
        axis=2,
        attributes=Attributes({Arg.DST: 0}, post_ops=(Eltwise(AlgKind.eltwise_linear, 2.0, 0.0),)),
    )
    got = run(desc, {Arg.SRC: x, arg_scales(Arg.DST): f32([1 / 512])})
    assert_within_one_lsb(got, saturate(f32(softmax_f64(x.astype(np.float64), 2) * 2 * 512), U8))


def test_softmax_source_scale_multiplies_the_result(run: Runner, rng: np.random.Generator) -> None:
    """The trap: it is no dequantization of the logits."""
    x = rng.integers(-4, 5, (4, 6, 50)).astype(np.int8)
    library = run.engine.library
    md, dst = MemoryDesc.like(library, x), row_major(library, x.shape, FLOAT)
    got = run(
        describe(
            run.engine,
            "softmax",
            md,
            dst,
            alg=AlgKind.softmax_accurate,
            axis=2,
            attributes=Attributes({Arg.SRC: 0}),
        ),
        {Arg.SRC: x, arg_scales(Arg.SRC): f32([0.25])},
    )
    np.testing.assert_allclose(got, softmax_f64(x.astype(np.float64), 2) * 0.25, rtol=2e-6)


def normalize(x: Any, epsilon: float, axis: Any) -> Any:
    wide = x.astype(np.float64)
    return (wide - wide.mean(axis, keepdims=True)) / np.sqrt(
        wide.var(axis, keepdims=True) + epsilon
    )


def test_layer_normalization_f32(run: Runner, rng: np.random.Generator) -> None:
    x = rng.normal(1, 3, (4, 6, 64)).astype(F32)
    gamma, beta = f32(rng.uniform(0.5, 1.5, 64)), f32(rng.normal(0, 1, 64))
    md = MemoryDesc.like(run.engine.library, x)
    desc = describe(
        run.engine,
        "layer_normalization",
        md,
        md,
        epsilon=1e-5,
        flags=FLAGS.use_scale | FLAGS.use_shift,
    )
    got = run(desc, {Arg.SRC: x, Arg.SCALE: gamma, Arg.SHIFT: beta})
    np.testing.assert_allclose(got, normalize(x, 1e-5, 2) * gamma + beta, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("src", [S8, U8, FLOAT], ids=lambda d: d.name)
def test_layer_normalization_into_int8(
    run: Runner, rng: np.random.Generator, src: DataType
) -> None:
    shape = (4, 6, 64)
    x = (
        rng.normal(1, 3, shape).astype(F32)
        if src == FLOAT
        else rng.integers(0, 100, shape).astype(numpy_dtype(src))
    )
    library = run.engine.library
    scales = {Arg.DST: 0} if src == FLOAT else {Arg.SRC: 0, Arg.DST: 0}
    desc = describe(
        run.engine,
        "layer_normalization",
        MemoryDesc.like(library, x),
        row_major(library, x.shape, S8),
        epsilon=1e-5,
        attributes=Attributes(scales),
        flags=NormalizationFlags.none,
    )
    got = run(
        desc, {Arg.SRC: x, arg_scales(Arg.SRC): f32([0.5]), arg_scales(Arg.DST): f32([1 / 32])}
    )
    assert_within_one_lsb(
        got, saturate(f32(normalize(x, 1e-5, 2) * (1 if src == FLOAT else 0.5) * 32), S8)
    )
    # version 2 has none
    assert TARGETS["onednn-v3"].capability("layer_normalization").dst_scale
    old = TARGETS["onednn-v2"].capability("layer_normalization")
    assert not (old.src_scale)
    assert not (old.dst_scale)
    assert not (old.output_scale)


@pytest.mark.of_3_2("later versions make what 3.2 cannot")
def test_layer_normalization_refuses_post_ops(run: Runner) -> None:
    md = row_major(run.engine.library, (4, 64), FLOAT)
    with pytest.raises(Unimplemented):
        describe(
            run.engine,
            "layer_normalization",
            md,
            md,
            epsilon=1e-5,
            attributes=Attributes(post_ops=(Eltwise(AlgKind.eltwise_relu),)),
            flags=NormalizationFlags.none,
        )


@pytest.mark.parametrize("dtype", [FLOAT, S8], ids=lambda d: d.name)
def test_batch_normalization(run: Runner, rng: np.random.Generator, dtype: DataType) -> None:
    shape = (2, 16, 5, 6)
    x = (
        rng.normal(1, 3, shape).astype(F32)
        if dtype == FLOAT
        else rng.integers(-128, 128, shape).astype(np.int8)
    )
    mean, variance = f32(rng.normal(0, 2, 16)), f32(rng.uniform(0.5, 4, 16))
    gamma, beta = f32(rng.uniform(0.5, 1.5, 16)), f32(rng.normal(0, 1, 16))
    flags = FLAGS.use_global_stats | FLAGS.use_scale | FLAGS.use_shift
    md = channels_last(run.engine.library, shape, dtype)
    desc = describe(run.engine, "batch_normalization", md, md, epsilon=1e-3, flags=flags)
    got = run(
        desc,
        {Arg.SRC: x, Arg.MEAN: mean, Arg.VARIANCE: variance, Arg.SCALE: gamma, Arg.SHIFT: beta},
    )
    column = (1, 16, 1, 1)
    factor = gamma.astype(np.float64) / np.sqrt(variance + 1e-3)
    want = (x - mean.reshape(column).astype(np.float64)) * factor.reshape(column) + beta.reshape(
        column
    )
    if dtype == FLOAT:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6)
    else:
        assert_within_one_lsb(got, saturate(f32(want), S8))


def test_lrn(run: Runner, rng: np.random.Generator) -> None:
    x = rng.normal(0, 2, (2, 16, 5, 6)).astype(F32)
    md = channels_last(run.engine.library, x.shape, FLOAT)
    got = run(
        describe(run.engine, "lrn", md, md, local_size=5, alpha=0.3, beta=0.75, k=1.5), {Arg.SRC: x}
    )
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (2, 2), (0, 0), (0, 0)))
    total = sum(squares[:, start : start + 16] for start in range(5))
    np.testing.assert_allclose(got, x * (1.5 + 0.3 / 5 * total) ** -0.75, rtol=1e-5)
