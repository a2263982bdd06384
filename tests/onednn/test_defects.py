"""Each row of onednn/defects, shown on the bare library: where one of these fails, the library is
`mended` there, and the row says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from support.binding_library import NCHW16C, no_primitive_cache, tagged
from support.brgemm_cases import (
    DEPTHWISE_WINDOWS_OF_PADDING,
    HIGH_PADDING,
    OF_3_3,
    ONE_CHANNEL,
    ONE_CHANNEL_IN_ROWS,
    ONE_COLUMN,
    PADDED_PLANE,
    PADDED_ROWS,
    PADDING_ALONE,
    SOME_CHANNELS,
    SPREAD,
    SPREAD_PADDING_ALONE,
    UNREACHED,
    WINDOWS_OF_PADDING,
    Codes,
    drawn,
)

from fqfuse.aligned import aligned_bytes
from fqfuse.onednn.attributes import Attributes, Binary, Eltwise, PRelu, Sum
from fqfuse.onednn.capi import OneDnnError
from fqfuse.onednn.defects import DEFECTS, Defect, defect_of, defects_document
from fqfuse.onednn.defects.defect import BOTH
from fqfuse.onednn.enums import (
    AlgKind,
    Arg,
    CpuRuntime,
    DataType,
    NormalizationFlags,
    RnnDirection,
    arg_post_op,
    arg_scales,
    arg_zero_points,
)
from fqfuse.onednn.layouts import channels_last, row_major
from fqfuse.onednn.library import Engine, Library, Stream
from fqfuse.onednn.memory import Memory, MemoryDesc
from fqfuse.onednn.primitive import ExecArgs, Primitive, pack, with_gaps
from fqfuse.onednn.primitive_desc import PrimitiveDesc, describe

DOCUMENT = Path(__file__).parents[2] / "docs" / "contributing" / "onednn-defects.md"
THREADS = 2
GUARD = 4096  # bytes in front of a destination and behind it

Arrays = Mapping[int, np.ndarray]
Case = tuple[Callable[[], PrimitiveDesc], Arrays, np.ndarray]
"""Makes a descriptor anew; the arguments; and what the result must be."""


class Bare:
    """The library, without any lowering."""

    def __init__(self, engine: Engine, stream: Stream) -> None:
        self.engine, self.stream, self.library = engine, stream, engine.library
        self.rng = np.random.default_rng(5)

    def any(self, dims: tuple[int, ...], dtype: DataType) -> MemoryDesc:
        return MemoryDesc.any(self.library, dims, dtype)

    def last(self, dims: tuple[int, ...]) -> MemoryDesc:
        return channels_last(self.library, dims, DataType.f32)

    def plain(self, dims: tuple[int, ...], dtype: DataType = DataType.f32) -> MemoryDesc:
        return row_major(self.library, dims, dtype)

    def normal(self, *dims: int) -> np.ndarray:
        return self.rng.normal(size=dims).astype(np.float32)

    def small(self, *dims: int) -> np.ndarray:
        """Weights with which nothing saturates."""
        return (2 * self.rng.integers(-32, 33, dims)).astype(np.int8)

    def run(self, desc: PrimitiveDesc, arrays: Arrays) -> tuple[np.ndarray, bool]:
        """The result, and whether bytes beside it were overwritten."""
        wanted = desc.dst_md()
        room = aligned_bytes(wanted.size + 2 * GUARD)
        room[...] = 0x7F
        dst = Memory(self.engine, wanted, room[GUARD : GUARD + wanted.size])
        memories = {arg: self.memory(array, desc, arg) for arg, array in arrays.items()}
        self.execute(desc, {**memories, Arg.DST: dst})
        beside = bool((room[:GUARD] != 0x7F).any() or (room[GUARD + wanted.size :] != 0x7F).any())
        straight = Memory.allocate(self.engine, row_major(self.library, wanted.dims, wanted.dtype))
        self.execute(
            describe(self.engine, "reorder", wanted, straight.desc),
            {Arg.SRC: dst, Arg.DST: straight},
        )
        return straight.view().copy(), beside

    def memory(self, array: np.ndarray, desc: PrimitiveDesc, arg: int) -> Memory:
        """An array in the layout that an argument has; as it is where none is prescribed."""
        given = Memory.wrap(self.engine, np.ascontiguousarray(array))
        wanted = desc.exec_arg_md(arg)
        if (
            arg & (Arg.ATTR_ZERO_POINTS | Arg.ATTR_SCALES)
            or not wanted.dims
            or wanted == given.desc
        ):
            return given
        packed = Memory.allocate(self.engine, wanted)
        self.execute(
            describe(self.engine, "reorder", given.desc, wanted), {Arg.SRC: given, Arg.DST: packed}
        )
        return packed

    def execute(self, desc: PrimitiveDesc, memories: Mapping[int, Memory]) -> None:
        """Once, with a scratchpad that is not 0 by chance."""
        needed = dict(memories)
        if desc.scratchpad_size:
            room = aligned_bytes(desc.scratchpad_size)
            room[...] = 0x55
            needed[Arg.SCRATCHPAD] = Memory(self.engine, desc.scratchpad_md, room)
        Primitive(desc).execute(self.stream, ExecArgs(desc, needed))


def implementations(make: Callable[[], PrimitiveDesc]) -> Iterator[PrimitiveDesc]:
    """Each implementation that takes a request."""
    for place in range(20):
        desc = make()
        if not all(desc.next_impl() for _ in range(place)):
            return
        yield desc


def threads_of(library: Library) -> int:
    """How many threads a primitive has after `set_threads(1)`."""
    return (os.cpu_count() or 1) if library.version.cpu_runtime == CpuRuntime.sycl else 1


def spread(x: np.ndarray, w: np.ndarray, stride: int, rows: int) -> np.ndarray:
    """A deconvolution along the rows of [N, I, H, 1], without padding; w is [O, I, K, 1]."""
    height, kernel = x.shape[2], w.shape[2]
    full = np.zeros((x.shape[0], w.shape[0], max((height - 1) * stride + kernel, rows), 1))
    for tap in range(kernel):
        full[:, :, tap : tap + (height - 1) * stride + 1 : stride] += np.einsum(
            "oi,bihw->bohw", w[:, :, tap, 0].astype(float), x
        )
    return full[:, :, :rows]


def rows_of(bare: Bare, kernel: int, stride: int, extra: int, zero: int) -> Case:
    """A deconvolution of 6 rows of s8 codes with `extra` output_padding."""
    x, w = (
        bare.rng.integers(-128, 128, (1, 16, 6, 1)).astype(np.int8),
        bare.small(16, 16, kernel, 1),
    )
    rows = 5 * stride + kernel + extra
    zeros = {arg_zero_points(Arg.SRC): np.array([zero], np.int32)} if zero else {}

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "deconvolution",
            bare.any(x.shape, DataType.s8),
            bare.any(w.shape, DataType.s8),
            None,
            bare.any((1, 16, rows, 1), DataType.f32),
            strides=(stride, 1),
            dilations=(0, 0),
            padding_l=(0, 0),
            padding_r=(-extra, 0),
            attributes=Attributes(zero_points={Arg.SRC: 0} if zero else {}),
        )

    return (
        make,
        {Arg.SRC: x, Arg.WEIGHTS: w, **zeros},
        spread(x.astype(float) - zero, w, stride, rows),
    )


def depthwise(bare: Bare) -> Case:
    """7 channels and a number for each behind them."""
    x, w, shift = (
        bare.rng.integers(0, 256, (2, 7, 5, 5)).astype(np.uint8),
        bare.small(7, 1, 1, 1, 1),
        bare.normal(1, 7, 1, 1),
    )

    def make() -> PrimitiveDesc:
        chain = (Binary(AlgKind.binary_add, bare.last(shift.shape)),)
        return describe(
            bare.engine,
            "convolution",
            bare.any(x.shape, DataType.u8),
            bare.any(w.shape, DataType.s8),
            None,
            bare.any(x.shape, DataType.f32),
            strides=(1, 1),
            dilations=(0, 0),
            padding_l=(0, 0),
            padding_r=(0, 0),
            attributes=Attributes(post_ops=chain),
        )

    want = (x.astype(np.float32) * w.reshape(1, 7, 1, 1)) + shift
    return make, {Arg.SRC: x, Arg.WEIGHTS: w, arg_post_op(0, Arg.SRC_1): shift}, want


def depthwise_sum(bare: Bare) -> Case:
    """8 channels of 28 columns, added to twice what `Bare.run` fills destinations with."""
    x, w = (
        bare.rng.integers(8, 16, (1, 8, 28)).astype(np.uint8),
        np.full((8, 1, 1, 1), -16, np.int8),
    )

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "convolution",
            bare.any(x.shape, DataType.u8),
            bare.any(w.shape, DataType.s8),
            None,
            bare.any(x.shape, DataType.s8),
            strides=(1,),
            dilations=(0,),
            padding_l=(0,),
            padding_r=(0,),
            attributes=Attributes(post_ops=(Sum(2.0),)),
        )

    return make, {Arg.SRC: x, Arg.WEIGHTS: w}, 2 * 0x7F - 16 * x.astype(np.int64)


def three_tiles(bare: Bare) -> Case:
    """36 positions: three tiles of 12."""
    x, w = bare.rng.integers(0, 256, (1, 64, 6, 6)).astype(np.uint8), bare.small(32, 64, 1, 1)

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "convolution",
            bare.any(x.shape, DataType.u8),
            bare.any(w.shape, DataType.s8),
            None,
            bare.any((1, 32, 6, 6), DataType.f32),
            strides=(1, 1),
            dilations=(0, 0),
            padding_l=(0, 0),
            padding_r=(0, 0),
        )

    want = np.einsum("oi,nihw->nohw", w[..., 0, 0].astype(float), x)
    return make, {Arg.SRC: x, Arg.WEIGHTS: w}, want


def five_positions(bare: Bare, kind: str) -> Case:
    """Of 80 channels, or of 40 in two groups."""
    bare.library.set_threads(1)  # two would have half of the channels each
    threads = threads_of(bare.library)
    groups, inputs, outputs = (1, 16, 80 * threads) if kind == "convolution" else (2, 8, 20)
    x = bare.rng.integers(0, 256, (1, 16, 5)).astype(np.uint8)
    w = bare.small(groups, outputs, inputs, 1)
    given = w[0] if groups == 1 else w

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            kind,
            bare.any(x.shape, DataType.u8),
            bare.any(given.shape, DataType.s8),
            None,
            bare.any((1, groups * outputs, 5), DataType.f32),
            strides=(1,),
            dilations=(0,),
            padding_l=(0,),
            padding_r=(0,),
        )

    want = np.einsum("goi,gin->gon", w[..., 0].astype(float), x.reshape(groups, inputs, 5))
    return make, {Arg.SRC: x, Arg.WEIGHTS: given}, want.reshape(1, -1, 5)


def product_of_codes(
    bare: Bare, src: tuple[int, ...], columns: int, operand: tuple[int, ...]
) -> Case:
    """With one matrix for all samples, and an operand that is added; row-major."""
    x, w = bare.rng.integers(0, 256, src).astype(np.uint8), bare.small(1, 1, src[-1], columns)
    added = bare.rng.integers(-99, 99, operand).astype(np.float32)

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "matmul",
            bare.plain(src, DataType.u8),
            bare.plain(w.shape, DataType.s8),
            None,
            bare.plain((*src[:-1], columns)),
            attributes=Attributes(post_ops=(Binary(AlgKind.binary_add, bare.plain(operand)),)),
        )

    arrays = {Arg.SRC: x, Arg.WEIGHTS: w, arg_post_op(0, Arg.SRC_1): added}
    return make, arrays, x.astype(np.int64) @ w.astype(np.int64) + added


def weights_with_a_zero_point(bare: Bare) -> Case:
    """14 rows of 3 columns; another number than 0 in each place of the zero point's share."""
    x, w = bare.rng.integers(1, 256, (14, 5)).astype(np.uint8), bare.small(5, 3)

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "matmul",
            bare.plain(x.shape, DataType.u8),
            bare.plain(w.shape, DataType.s8),
            None,
            bare.plain((14, 3)),
            attributes=Attributes(zero_points={Arg.WEIGHTS: 0}),
        )

    arrays = {Arg.SRC: x, Arg.WEIGHTS: w, arg_zero_points(Arg.WEIGHTS): np.array([3], np.int32)}
    return make, arrays, x.astype(np.int64) @ (w.astype(np.int64) - 3)


def large_padding(bare: Bare) -> Case:
    """3 elements of padding and two windows: [-3, 1) and [1, 5) of 8. One of two samples is enough for 3.2, not for
    3.13.
    """
    bare.library.set_threads(1)
    x, w, half = (
        bare.rng.integers(0, 6, (2, 13, 8)).astype(np.uint8),
        bare.rng.integers(0, 2, (8, 13, 4)).astype(np.int8),
        np.float32(0.5),
    )

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "convolution",
            bare.any(x.shape, DataType.u8),
            bare.any(w.shape, DataType.s8),
            None,
            bare.any((2, 8, 2), DataType.u8),
            strides=(4,),
            dilations=(0,),
            padding_l=(3,),
            padding_r=(-3,),
            attributes=Attributes({Arg.SRC: 0}),
        )

    padded = np.pad(x, ((0, 0), (0, 0), (3, 0))).astype(float)
    windows = np.stack([padded[:, :, 0:4], padded[:, :, 4:8]], -1)
    sums = np.einsum("oik,biks->bos", w.astype(float), windows)
    return (
        make,
        {Arg.SRC: x, Arg.WEIGHTS: w, arg_scales(Arg.SRC): half.reshape(1)},
        np.rint(sums * half),
    )


def wide_padding(bare: Bare, *, turned: bool) -> Case:
    """Nine columns, six taps, four columns of padding on either side; or the deconvolution that is
    the same.
    """
    bare.library.set_threads(2)
    x, w = bare.rng.integers(-128, 128, (1, 55, 9)).astype(np.int8), bare.small(64, 55, 6)

    def make() -> PrimitiveDesc:
        kind, padding = ("deconvolution", 1) if turned else ("convolution", 4)
        return describe(
            bare.engine,
            kind,
            bare.any(x.shape, DataType.s8),
            bare.any(w.shape, DataType.s8),
            None,
            bare.any((1, 64, 12), DataType.f32),
            strides=(1,),
            dilations=(0,),
            padding_l=(padding,),
            padding_r=(padding,),
            attributes=Attributes(zero_points={Arg.SRC: 0}),
        )

    padded = np.pad(x.astype(float) - 127, ((0, 0), (0, 0), (4, 4)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 6, axis=2)
    want = np.einsum("oik,bisk->bos", (w[..., ::-1] if turned else w).astype(float), windows)
    return (
        make,
        {Arg.SRC: x, Arg.WEIGHTS: w, arg_zero_points(Arg.SRC): np.array([127], np.int32)},
        want,
    )


def wide_padding_of(bare: Bare, channels: int, positions: int, width: int, *, turned: bool) -> Case:
    """As many positions as columns, and so much padding on either side."""
    taps = 2 * width + 1
    x, w = (
        bare.rng.integers(0, 256, (1, 16, positions)).astype(np.uint8),
        bare.small(channels, 16, taps),
    )

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "deconvolution" if turned else "convolution",
            bare.any(x.shape, DataType.u8),
            bare.any(w.shape, DataType.s8),
            None,
            bare.any((1, channels, positions), DataType.f32),
            strides=(1,),
            dilations=(0,),
            padding_l=(width,),
            padding_r=(width,),
            attributes=Attributes(zero_points={Arg.SRC: 0}),
        )

    padded = np.pad(x.astype(float) - 7, ((0, 0), (0, 0), (width, width)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps, axis=2)
    want = np.einsum("oik,bisk->bos", (w[..., ::-1] if turned else w).astype(float), windows)
    zero = {arg_zero_points(Arg.SRC): np.array([7], np.int32)}
    return make, {Arg.SRC: x, Arg.WEIGHTS: w, **zero}, want


SIDE_BY_SIDE_ROW = "compensation of weights side by side"
SIDE_BY_SIDE = ((8, 8, 1), (17, 1, 1, 64), (17, 1, 1, 4, 4, 4), (48, 1, 1, 16, 16), (21, 16, 16, 1))
"""Shapes of weights, of which each is packed wrongly for an implementation on some CPU."""


def packed(bare: Bare, shape: tuple[int, ...]) -> Case:
    """Shown by the convolution that reads what was packed: one window of s8 codes with a zero point."""
    depthwise = shape[1:3] == (1, 1)
    kernel = shape[3:] if depthwise else shape[2:]
    channels = shape[0] if depthwise else shape[1]
    x, w = bare.rng.integers(-128, 128, (1, channels, *kernel)).astype(np.int8), bare.small(*shape)
    ones, zeros = (1,) * len(kernel), (0,) * len(kernel)

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "convolution",
            bare.any(x.shape, DataType.s8),
            bare.any(w.shape, DataType.s8),
            None,
            bare.any((1, shape[0], *ones), DataType.f32),
            strides=ones,
            dilations=zeros,
            padding_l=zeros,
            padding_r=zeros,
            attributes=Attributes(zero_points={Arg.SRC: 0}),
        )

    codes = x.astype(np.int64) - 3
    products = w.reshape(shape[0], -1, *kernel) * (
        codes.reshape(channels, 1, *kernel) if depthwise else codes
    )
    sums = products.reshape(shape[0], -1).sum(1).reshape(1, -1, *ones)
    zero = {arg_zero_points(Arg.SRC): np.array([3], np.int32)}
    return make, {Arg.SRC: x, Arg.WEIGHTS: w, **zero}, sums


def softmax_with_channels(bare: Bare) -> Case:
    x, factor = bare.normal(2, 5, 3, 6), bare.normal(1, 5, 1, 1)

    def make() -> PrimitiveDesc:
        desc = bare.plain(x.shape)
        chain = (Binary(AlgKind.binary_mul, bare.plain(factor.shape)),)
        return describe(
            bare.engine,
            "softmax",
            desc,
            desc,
            alg=AlgKind.softmax_accurate,
            axis=3,
            attributes=Attributes(post_ops=chain),
        )

    powers = np.exp(x - x.max(3, keepdims=True))
    return (
        make,
        {Arg.SRC: x, arg_post_op(0, Arg.SRC_1): factor},
        powers / powers.sum(3, keepdims=True) * factor,
    )


def vectors(bare: Bare) -> Case:
    a, b, shift = bare.normal(3, 17, 1, 1), bare.normal(3, 17, 1, 1), bare.normal(1, 17, 1, 1)

    def make() -> PrimitiveDesc:
        desc = bare.plain(a.shape)
        chain = (Binary(AlgKind.binary_add, bare.plain(shift.shape)),)
        return describe(
            bare.engine,
            "binary",
            desc,
            desc,
            desc,
            alg=AlgKind.binary_mul,
            attributes=Attributes(post_ops=chain),
        )

    return make, {Arg.SRC_0: a, Arg.SRC_1: b, arg_post_op(0, Arg.SRC_1): shift}, a * b + shift


def test_two_operands_for_the_last_dimension(bare: Bare) -> None:
    """Behind a linear one, row-major, which is right of one such operand."""
    x, ones = bare.normal(2, 5, 16), np.ones((1, 1, 1), np.float32)
    shifts = [bare.normal(1, 1, 16) for _ in range(2)]

    def make() -> PrimitiveDesc:
        desc, add = bare.plain(x.shape), Binary(AlgKind.binary_add, bare.plain((1, 1, 16)))
        return describe(
            bare.engine,
            "binary",
            desc,
            bare.plain(ones.shape),
            desc,
            alg=AlgKind.binary_mul,
            attributes=Attributes(post_ops=(Eltwise(AlgKind.eltwise_linear, 2.0, 0.0), add, add)),
        )

    given = {arg_post_op(1 + index, Arg.SRC_1): shift for index, shift in enumerate(shifts)}
    want = 2 * x + shifts[0] + shifts[1]
    for desc in implementations(make):
        result, _ = bare.run(desc, {Arg.SRC_0: x, Arg.SRC_1: ones, **given})
        right = np.allclose(result, want, rtol=1e-5, atol=1e-5)
        assert right or defect_of(desc) is not None, desc.impl_info


def last_dimension(bare: Bare) -> Case:
    a, b, shift = bare.normal(2, 17, 4, 3), bare.normal(2, 17, 4, 3), bare.normal(1, 1, 1, 3)

    def make() -> PrimitiveDesc:
        chain = (Binary(AlgKind.binary_add, bare.last(shift.shape)),)
        return describe(
            bare.engine,
            "binary",
            *[bare.last(a.shape)] * 3,
            alg=AlgKind.binary_mul,
            attributes=Attributes(post_ops=chain),
        )

    return make, {Arg.SRC_0: a, Arg.SRC_1: b, arg_post_op(0, Arg.SRC_1): shift}, a * b + shift


def pooled_rows(bare: Bare) -> Case:
    x, more = bare.normal(2, 16, 8, 8), bare.normal(2, 16, 4, 4)

    def make() -> PrimitiveDesc:
        chain = (Binary(AlgKind.binary_add, bare.plain(more.shape)),)
        return describe(
            bare.engine,
            "pooling",
            bare.plain(x.shape),
            bare.plain(more.shape),
            alg=AlgKind.pooling_max,
            kernel=(2, 2),
            strides=(2, 2),
            dilations=(0, 0),
            padding_l=(0, 0),
            padding_r=(0, 0),
            attributes=Attributes(post_ops=chain),
        )

    return (
        make,
        {Arg.SRC: x, arg_post_op(0, Arg.SRC_1): more},
        x.reshape(2, 16, 4, 2, 4, 2).max((3, 5)) + more,
    )


def pooled_comparison(bare: Bare) -> Case:
    x = bare.rng.integers(0, 9, (2, 40, 3, 3)).astype(np.uint8)
    least = np.full((1, 1, 1, 1), 4, np.float32)

    def make() -> PrimitiveDesc:
        chain = (Binary(AlgKind.binary_gt, bare.plain(least.shape)),)
        src, dst = (
            channels_last(bare.library, dims, DataType.u8) for dims in (x.shape, (2, 40, 1, 1))
        )
        return describe(
            bare.engine,
            "pooling",
            src,
            dst,
            alg=AlgKind.pooling_avg_include_padding,
            kernel=(3, 3),
            strides=(1, 1),
            dilations=(0, 0),
            padding_l=(0, 0),
            padding_r=(0, 0),
            attributes=Attributes(post_ops=chain),
        )

    want = (x.mean((2, 3), keepdims=True) > least).astype(np.uint8)
    return make, {Arg.SRC: x, arg_post_op(0, Arg.SRC_1): least}, want


def pooled_sum(bare: Bare) -> Case:
    x = bare.normal(1, 3, 4, 4)

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "pooling",
            bare.plain(x.shape),
            bare.plain(x.shape),
            alg=AlgKind.pooling_max,
            kernel=(1, 1),
            strides=(1, 1),
            dilations=(0, 0),
            padding_l=(0, 0),
            padding_r=(0, 0),
            attributes=Attributes(post_ops=(Sum(),)),
        )

    # what `Bare.run` fills destinations with
    return (
        make,
        {Arg.SRC: x},
        x + np.frombuffer(b"\x7f" * 4, np.float32),
    )


def resampled(bare: Bare) -> Case:
    x, more = bare.normal(2, 12, 3, 3), bare.normal(2, 12, 6, 6)

    def make() -> PrimitiveDesc:
        chain = (Binary(AlgKind.binary_add, bare.last(more.shape)),)
        return describe(
            bare.engine,
            "resampling",
            bare.last(x.shape),
            bare.last(more.shape),
            alg=AlgKind.resampling_nearest,
            attributes=Attributes(post_ops=chain),
        )

    return make, {Arg.SRC: x, arg_post_op(0, Arg.SRC_1): more}, x.repeat(2, 2).repeat(2, 3) + more


def resampled_vector(bare: Bare) -> Case:
    x, more = bare.normal(1, 12, 1, 1), bare.normal(1, 12, 1, 1)

    def make() -> PrimitiveDesc:
        chain = (Binary(AlgKind.binary_add, bare.plain(more.shape)),)
        return describe(
            bare.engine,
            "resampling",
            bare.plain(x.shape),
            bare.plain(x.shape),
            alg=AlgKind.resampling_nearest,
            attributes=Attributes(post_ops=chain),
        )

    return make, {Arg.SRC: x, arg_post_op(0, Arg.SRC_1): more}, x + more


def resampled_position(bare: Bare) -> Case:
    x = bare.normal(1, 15, 1)

    def make() -> PrimitiveDesc:
        desc, nearest = bare.plain(x.shape), AlgKind.resampling_nearest
        return describe(bare.engine, "resampling", desc, desc, alg=nearest)

    return make, {Arg.SRC: x}, x


def scales_apart(bare: Bare) -> Case:
    """Divided by a scale for each index of the first and the third dimension."""
    x, scales = bare.normal(2, 3, 4, 5), bare.rng.uniform(0.5, 4, (2, 1, 4, 1)).astype(np.float32)

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "reorder",
            bare.plain(x.shape),
            bare.plain(x.shape),
            attributes=Attributes({Arg.DST: 0b101}),
        )

    return make, {Arg.SRC: x, arg_scales(Arg.DST): scales.reshape(-1)}, x / scales


def matrices_with_gaps(bare: Bare) -> Case:
    a, b, more = bare.normal(2, 1, 32), bare.normal(1, 32, 64), bare.normal(1, 1, 64)

    def make() -> PrimitiveDesc:
        chain = (Binary(AlgKind.binary_mul, bare.plain(more.shape)),)
        apart = MemoryDesc.with_strides(bare.library, (2, 1, 64), DataType.f32, (65, 65, 1))
        return describe(
            bare.engine,
            "matmul",
            bare.plain(a.shape),
            bare.plain(b.shape),
            None,
            apart,
            attributes=Attributes(post_ops=chain),
        )

    arrays = {Arg.SRC: a, Arg.WEIGHTS: b, arg_post_op(0, Arg.SRC_1): more}
    return make, arrays, (a @ b) * more


_SIX = (1, 3, 2, 2, 2, 2)


def normalized_by_channels(bare: Bare) -> Case:
    x = bare.normal(*_SIX)
    axes = (0, 2, 3, 4, 5)
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)

    def make() -> PrimitiveDesc:
        desc = bare.plain(x.shape)
        none = NormalizationFlags.none
        return describe(bare.engine, "batch_normalization", desc, desc, epsilon=1e-5, flags=none)

    return make, {Arg.SRC: x}, (x - mean) / np.sqrt(variance + 1e-5)


def normalized_over_channels(bare: Bare) -> Case:
    x = bare.normal(*_SIX)

    def make() -> PrimitiveDesc:
        desc = bare.plain(x.shape)
        return describe(bare.engine, "lrn", desc, desc, local_size=1, alpha=0.5, beta=0.75, k=1.0)

    return make, {Arg.SRC: x}, x * (1 + 0.5 * x**2) ** -0.75


def eltwise_of_six(bare: Bare) -> Case:
    x, more = bare.normal(*_SIX), bare.normal(*_SIX)

    def make() -> PrimitiveDesc:
        desc = bare.plain(x.shape)
        attributes = Attributes(post_ops=(Binary(AlgKind.binary_add, desc),))
        alg = AlgKind.eltwise_linear
        return describe(
            bare.engine, "eltwise", desc, desc, alg=alg, alpha=1.0, beta=2.0, attributes=attributes
        )

    return make, {Arg.SRC: x, arg_post_op(0, Arg.SRC_1): more}, x + 2 + more


def matmul_of_six(bare: Bare) -> Case:
    a, b = bare.normal(3, 2, 1, 2, 3, 4), bare.normal(3, 2, 1, 2, 4, 3)
    product = a @ b
    slopes = bare.normal(*product.shape)

    def make() -> PrimitiveDesc:
        tensors = (bare.plain(a.shape), bare.plain(b.shape), None, bare.plain(product.shape))
        attributes = Attributes(post_ops=(PRelu(0b111111),))
        return describe(bare.engine, "matmul", *tensors, attributes=attributes)

    # slopes lie with the channels last
    given = np.ascontiguousarray(np.moveaxis(slopes, 1, -1)).reshape(-1)
    want = np.where(product < 0, product * slopes, product)
    return make, {Arg.SRC: a, Arg.WEIGHTS: b, arg_post_op(0, Arg.WEIGHTS): given}, want


def matmul_without_products(bare: Bare) -> Case:
    a, b = np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)

    def make() -> PrimitiveDesc:
        tensors = (bare.plain(a.shape), bare.plain(b.shape), None, bare.plain((2, 3)))
        return describe(bare.engine, "matmul", *tensors)

    return make, {Arg.SRC: a, Arg.WEIGHTS: b}, np.zeros((2, 3))


def none_with_scales(bare: Bare) -> Case:
    x = np.zeros((2, 0), np.float32)

    def make() -> PrimitiveDesc:
        attributes = Attributes({Arg.SRC: 0b10})
        desc = bare.plain(x.shape)
        return describe(bare.engine, "reorder", desc, desc, attributes=attributes)

    return make, {Arg.SRC: x, arg_scales(Arg.SRC): np.zeros(0, np.float32)}, x


def no_columns(bare: Bare, kind: str) -> Case:
    x = np.zeros((8, 1, 0), np.float32)

    def make() -> PrimitiveDesc:
        src, dst = bare.plain(x.shape), bare.plain(x.shape, DataType.u8)
        if kind == "concat":
            return describe(bare.engine, kind, src, dst, axis=2)
        return describe(bare.engine, kind, src, dst)

    return make, {Arg.SRC if kind == "reorder" else Arg.MULTIPLE_SRC: x}, x


def spread_into_nothing(bare: Bare) -> Case:
    x, w = np.zeros((0, 4, 3), np.uint8), bare.small(4, 4, 2)

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "deconvolution",
            bare.any(x.shape, DataType.u8),
            bare.any(w.shape, DataType.s8),
            None,
            bare.any((0, 4, 4), DataType.f32),
            strides=(1,),
            dilations=(0,),
            padding_l=(0,),
            padding_r=(0,),
        )

    return make, {Arg.SRC: x, Arg.WEIGHTS: w}, np.zeros((0, 4, 4))


def blocks_into_codes(bare: Bare) -> Case:
    x, one = (
        bare.rng.integers(0, 9, (1, 3, 4, 4)).astype(np.float32),
        np.ones((1, 1, 1, 1), np.float32),
    )

    def make() -> PrimitiveDesc:
        blocked, codes = (
            tagged(bare.library, x.shape, DataType.f32, NCHW16C),
            bare.any(x.shape, DataType.u8),
        )
        return describe(
            bare.engine, "binary", blocked, bare.plain(one.shape), codes, alg=AlgKind.binary_mul
        )

    return make, {Arg.SRC_0: x, Arg.SRC_1: one}, x.astype(np.uint8)


def inner_blocks(bare: Bare) -> Case:
    """17 channels in blocks of 16 that lie within the last dimension, as a concat along it makes."""
    x, y = bare.normal(2, 17, 2, 3), bare.normal(2, 17, 2, 3)

    def make() -> PrimitiveDesc:
        part = tagged(bare.library, (2, 17, 2, 1), DataType.f32, NCHW16C)
        lies = describe(bare.engine, "concat", part, part, part, None, axis=3).dst_md()
        chain = (Eltwise(AlgKind.eltwise_clip, -0.5, 9.0),)
        return describe(
            bare.engine,
            "binary",
            lies,
            lies,
            lies,
            alg=AlgKind.binary_max,
            attributes=Attributes(post_ops=chain),
        )

    return make, {Arg.SRC_0: x, Arg.SRC_1: y}, np.maximum(np.maximum(x, y), -0.5)


def pooled_blocks(bare: Bare) -> Case:
    x, more = bare.normal(2, 20, 4, 4), bare.normal(2, 20, 2, 2)

    def make() -> PrimitiveDesc:
        chain = (Binary(AlgKind.binary_add, bare.plain(more.shape)),)
        return describe(
            bare.engine,
            "pooling",
            tagged(bare.library, x.shape, DataType.f32, NCHW16C),
            bare.any(more.shape, DataType.f32),
            alg=AlgKind.pooling_max,
            kernel=(2, 2),
            strides=(2, 2),
            dilations=(0, 0),
            padding_l=(0, 0),
            padding_r=(0, 0),
            attributes=Attributes(post_ops=chain),
        )

    want = x.reshape(2, 20, 2, 2, 2, 2).max((3, 5)) + more
    return make, {Arg.SRC: x, arg_post_op(0, Arg.SRC_1): more}, want


LINEAR = Eltwise(AlgKind.eltwise_linear, 1.3363229036331177, 0.5486122965812683)


def linear(y: np.ndarray) -> np.ndarray:
    """Rounded once: the product is exact in f64, and no sum of these cases lies between two f32."""
    return (y.astype(np.float64) * LINEAR.alpha + LINEAR.beta).astype(np.float32)


def linear_behind(bare: Bare, kind: str) -> Case:
    """x with LINEAR: behind an operation that changes nothing, or sums of codes."""
    attributes = Attributes(post_ops=(LINEAR,))
    if kind in ("convolution", "deconvolution", "matmul"):
        return linear_behind_sums(bare, kind, attributes)
    x, zero = bare.normal(2, 16, 4, 4), np.zeros((1, 1, 1, 1), np.float32)
    desc, ones, zeros = bare.plain(x.shape), (1, 1), (0, 0)
    window = {"kernel": ones, "strides": ones, "dilations": zeros}

    def make() -> PrimitiveDesc:
        match kind:
            case "pooling":
                return describe(
                    bare.engine,
                    kind,
                    desc,
                    desc,
                    alg=AlgKind.pooling_max,
                    padding_l=zeros,
                    padding_r=zeros,
                    attributes=attributes,
                    **window,
                )
            case "resampling":
                nearest = AlgKind.resampling_nearest
                return describe(bare.engine, kind, desc, desc, alg=nearest, attributes=attributes)
            case "eltwise":
                terms = {"alg": LINEAR.alg, "alpha": LINEAR.alpha, "beta": LINEAR.beta}
                return describe(bare.engine, kind, desc, desc, **terms)
        add = AlgKind.binary_add
        one = bare.plain(zero.shape)
        return describe(bare.engine, kind, desc, one, desc, alg=add, attributes=attributes)

    arrays = {Arg.SRC: x, Arg.SRC_1: zero} if kind == "binary" else {Arg.SRC: x}
    return make, arrays, linear(x)


def linear_behind_sums(bare: Bare, kind: str, attributes: Attributes) -> Case:
    maps = kind != "matmul"
    x = bare.rng.integers(0, 64, (2, 16, 9) if maps else (9, 16)).astype(np.uint8)
    w = bare.small(16, 16, 1) if maps else bare.small(16, 16)
    result = x.shape if maps else (9, 16)
    window = {"strides": (1,), "dilations": (0,), "padding_l": (0,), "padding_r": (0,)}

    def make() -> PrimitiveDesc:
        weights = bare.any(w.shape, DataType.s8)
        source, target = (bare.any(x.shape, DataType.u8), bare.any(result, DataType.f32))
        if not maps:
            source, target = bare.plain(x.shape, DataType.u8), bare.plain(result)
        return describe(
            bare.engine,
            kind,
            source,
            weights,
            None,
            target,
            attributes=attributes,
            **(window if maps else {}),
        )

    sums = np.einsum("oi,bin->bon", w[..., 0].astype(int), x) if maps else x.astype(int) @ w
    return make, {Arg.SRC: x, Arg.WEIGHTS: w}, linear(sums)


def biased_by_bf16(bare: Bare) -> Case:
    """All products are 0: the result is the bias."""
    x, w = np.zeros((1, 4, 3, 3), np.uint8), np.zeros((8, 4, 1, 1), np.int8)
    bias = np.arange(1, 9, dtype=np.float32)

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "convolution",
            bare.any(x.shape, DataType.u8),
            bare.any(w.shape, DataType.s8),
            bare.plain(bias.shape, DataType.bf16),
            bare.any((1, 8, 3, 3), DataType.f32),
            strides=(1, 1),
            dilations=(0, 0),
            padding_l=(0, 0),
            padding_r=(0, 0),
        )

    result = np.broadcast_to(bias.reshape(1, 8, 1, 1), (1, 8, 3, 3))
    return make, {Arg.SRC: x, Arg.WEIGHTS: w, Arg.BIAS: bias}, result


def slopes_of_bf16(bare: Bare, kind: str) -> Case:
    """All products are negative whole numbers, and slopes count."""
    maps = kind == "convolution"
    x = np.ones((1, 4, 3, 3) if maps else (8, 12), np.float32)
    w = np.full((8, 4, 1, 1) if maps else (16, 12), -1, np.float32)
    result = (1, 8, 3, 3) if maps else (8, 16)
    slopes = np.arange(1, 73).reshape(result) if maps else np.arange(1, 17).reshape(1, 16)
    zeros = {"dilations": (0, 0), "padding_l": (0, 0), "padding_r": (0, 0)}

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            kind,
            bare.any(x.shape, DataType.bf16),
            bare.any(w.shape, DataType.bf16),
            None,
            bare.any(result, DataType.f32),
            attributes=Attributes(post_ops=(PRelu(14 if maps else 2),)),
            **({"strides": (1, 1), **zeros} if maps else {}),
        )

    last = np.moveaxis(slopes, 1, -1) if maps else slopes
    given = {arg_post_op(0, Arg.WEIGHTS): last.astype(np.float32).reshape(-1)}
    sums = -float(x.shape[1])
    return make, {Arg.SRC: x, Arg.WEIGHTS: w, **given}, np.broadcast_to(sums * slopes, result)


def negative_states(bare: Bare, kind: str) -> Case:
    """Weights are 0, and biases make every gate 0 or 1 and the state -tanh(1) or -1: as a code, -1."""
    gates, hidden = {"lstm": (9, 0, -9, 9), "gru": (-9, 9, -9)}[kind], 5
    bias = np.repeat(np.float32(gates), hidden).reshape(1, 1, len(gates), hidden)
    x, w = np.ones((1, 2, hidden), np.int8), np.zeros((1, 1, hidden, len(gates), hidden), np.int8)
    absent = {"lstm": 2, "gru": 1}[kind]

    def make() -> PrimitiveDesc:
        weights = [bare.any(w.shape, DataType.s8)] * 2
        return describe(
            bare.engine,
            kind,
            bare.plain(x.shape, DataType.s8),
            *[None] * absent,
            *weights,
            *[None] * (2 * (absent - 1)),
            bare.plain(bias.shape),
            bare.plain(x.shape),
            *[None] * absent,
            direction=RnnDirection.left2right,
        )

    arrays = {Arg.SRC_LAYER: x, Arg.BIAS: bias, Arg.WEIGHTS_LAYER: w, Arg.WEIGHTS_ITER: w}
    return make, arrays, np.full(x.shape, -1.0)


def tiles_of_two_sizes(bare: Bare, kind: str) -> Case:
    """Weights and biases are 0, and so is every state."""
    samples, inputs, hidden = 7, 16, 100  # other tiles for the inputs than for the hidden values
    gates, states = {"lstm": (4, 2), "gru": (3, 1), "augru": (3, 1)}[kind]
    x = np.zeros((1, samples, inputs), np.float32)
    result = (1, samples, hidden)
    layer, state = (np.zeros((1, 1, n, gates, hidden), np.float32) for n in (inputs, hidden))
    bias = np.zeros((1, 1, gates, hidden), np.float32)
    attention = kind == "augru"
    of_cells = {"lstm": 2, "gru": 0, "augru": 0}[kind]  # peepholes and projection

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            kind,
            bare.plain(x.shape, DataType.bf16),
            *[None] * states,
            *[bare.plain((1, samples, 1), DataType.bf16)] * attention,
            *[bare.any(w.shape, DataType.bf16) for w in (layer, state)],
            *[None] * of_cells,
            bare.plain(bias.shape),
            bare.plain(result, DataType.bf16),
            *[None] * states,
            direction=RnnDirection.left2right,
        )

    arrays = {Arg.SRC_LAYER: x, Arg.BIAS: bias, Arg.WEIGHTS_LAYER: layer, Arg.WEIGHTS_ITER: state}
    more = {Arg.ATTENTION: np.zeros((1, samples, 1), np.float32)} if attention else {}
    return make, {**arrays, **more}, np.zeros(result, np.uint16)


def projected_in_bf16(bare: Bare) -> Case:
    """Weights are 0, and biases make every state tanh(1), which the projection hands on."""
    hidden, outputs = 8, 16
    bias = np.repeat(np.float32((9, -9, 9, 9)), hidden).reshape(1, 1, 4, hidden)
    x = np.ones((1, 2, outputs), np.float32)
    w = np.zeros((1, 1, outputs, 4, hidden), np.float32)
    p = np.tile(np.eye(hidden, dtype=np.float32), (1, outputs // hidden)).reshape(1, 1, hidden, -1)

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "lstm",
            bare.plain(x.shape, DataType.bf16),
            *[None] * 2,
            *[bare.any(w.shape, DataType.bf16)] * 2,
            None,
            bare.any(p.shape, DataType.bf16),
            bare.plain(bias.shape),
            bare.plain(x.shape, DataType.bf16),
            *[None] * 2,
            direction=RnnDirection.left2right,
        )

    arrays = {Arg.SRC_LAYER: x, Arg.BIAS: bias, Arg.WEIGHTS_LAYER: w, Arg.WEIGHTS_ITER: w}
    tanh_1 = np.uint16(0x3F43)  # the bits of bf16's 0.7617
    return make, {**arrays, Arg.WEIGHTS_PROJECTION: p}, np.full(x.shape, tanh_1)


ROUNDED_TWICE = {
    f"{kind} that rounds twice": kind
    for kind in ("pooling", "resampling", "convolution", "deconvolution")
}
WITHOUT_FMA = {
    f"{kind} without FMA": kind
    for kind in (
        "binary",
        "eltwise",
        "convolution",
        "deconvolution",
        "matmul",
        "pooling",
        "resampling",
    )
}
LAST_BITS = ROUNDED_TWICE | WITHOUT_FMA
"""Rows whose results are wrong in their last bit -> the kind."""

CASES: dict[str, Callable[[Bare], Case]] = {
    "binary of inner blocks": inner_blocks,
    "pooling of blocks with a tensor": pooled_blocks,
    "deconvolution behind the last tap": lambda bare: rows_of(bare, 3, 3, 2, 0),
    "deconvolution between the taps": lambda bare: rows_of(bare, 2, 4, 0, 7),
    "1x1 in three tiles": three_tiles,
    "depthwise sum in vectors of 8": depthwise_sum,
    "depthwise sum in vectors of 4": depthwise_sum,
    "depthwise tail of 8": depthwise,
    "depthwise tail of 4": depthwise,
    "1x1 over five positions": lambda bare: five_positions(bare, "convolution"),
    "1x1 deconvolution over five positions": lambda bare: five_positions(bare, "deconvolution"),
    "padding as wide as what no window reads": large_padding,
    "convolution with zero points and wide padding": lambda bare: wide_padding(bare, turned=False),
    "deconvolution with zero points and wide padding": lambda bare: wide_padding(bare, turned=True),
    "softmax with an operand": softmax_with_channels,
    "binary of another order": vectors,
    "binary with an operand for the last dimension": last_dimension,
    "row-major pooling with a tensor": pooled_rows,
    "average of codes with a comparison": pooled_comparison,
    "pooling with a sum": pooled_sum,
    "resampling with a tensor": resampled,
    "resampling of one vector": resampled_vector,
    "resampling of one position": resampled_position,
    "reorder with scales of dimensions apart": scales_apart,
    "product of matrices with gaps": matrices_with_gaps,
    "binary of blocks into codes": blocks_into_codes,
    "product of codes with an operand that samples share": lambda bare: product_of_codes(
        bare, (3, 2, 17, 4), 33, (1, 1, 17, 33)
    ),
    "product of codes with row-major matrices": lambda bare: product_of_codes(
        bare, (3, 3, 7, 91), 100, (1, 1, 1, 1)
    ),
    "product by weights with a zero point": weights_with_a_zero_point,
    "product of codes between the versions": lambda bare: product_of_codes(
        bare, (2, 1, 33, 16), 2, (1, 1, 1, 1)
    ),
    "batch_normalization of more than five dimensions": normalized_by_channels,
    "lrn of more than five dimensions": normalized_over_channels,
    "eltwise of more than five dimensions with post-ops": eltwise_of_six,
    "matmul of more than five dimensions with slopes": matmul_of_six,
    "matmul without products": matmul_without_products,
    "reorder of none with scales": none_with_scales,
    "reorder of codes without columns": lambda bare: no_columns(bare, "reorder"),
    "concat of codes without columns": lambda bare: no_columns(bare, "concat"),
    "deconvolution into nothing": spread_into_nothing,
    "convolution of codes with a bias of bf16": biased_by_bf16,
    "inner_product of bf16 with slopes": lambda bare: slopes_of_bf16(bare, "inner_product"),
    "convolution of bf16 with slopes": lambda bare: slopes_of_bf16(bare, "convolution"),
    "windows of padding alone": lambda bare: drawn(bare, "convolution", WINDOWS_OF_PADDING),
    "convolution of one channel": lambda bare: drawn(bare, "convolution", ONE_CHANNEL),
    "deconvolution with strides and compensation": lambda bare: drawn(
        bare, "deconvolution", SPREAD
    ),
    "convolution with zero points and high padding": lambda bare: drawn(
        bare, "convolution", HIGH_PADDING
    ),
    "convolution of padding alone": lambda bare: drawn(bare, "convolution", PADDING_ALONE),
    "deconvolution of padding alone": lambda bare: drawn(
        bare, "deconvolution", SPREAD_PADDING_ALONE
    ),
    "convolution of one padded plane": lambda bare: drawn(bare, "convolution", PADDED_PLANE),
    "convolution by brgemm with AMX": lambda bare: drawn(bare, "convolution", SOME_CHANNELS),
    "deconvolution where no tap reaches": lambda bare: drawn(bare, "deconvolution", UNREACHED),
    "convolution of codes by brgemm between the versions": lambda bare: drawn(
        bare, "convolution", OF_3_3
    ),
    "lstm of s8": lambda bare: negative_states(bare, "lstm"),
    "lstm of bf16 with a projection": projected_in_bf16,
    "gru of s8": lambda bare: negative_states(bare, "gru"),
    **{
        f"{kind} on AMX": lambda bare, kind=kind: tiles_of_two_sizes(bare, kind)
        for kind in ("lstm", "gru", "augru")
    },
    **{name: lambda bare, kind=kind: linear_behind(bare, kind) for name, kind in LAST_BITS.items()},
}

SUM_OF_F16 = "convolution of codes with a sum of f16"
ENDS_THE_PROCESS = {
    "product of codes between the versions": (signal.SIGSEGV, signal.SIGABRT),
    "convolution with zero points and high padding": (signal.SIGSEGV, signal.SIGABRT),
    "convolution of one padded plane": (signal.SIGSEGV,),
    "convolution of padding alone": (signal.SIGSEGV,),
    "deconvolution of padding alone": (signal.SIGSEGV,),
    "binary of blocks into codes": (signal.SIGSEGV,),
    "convolution of codes by brgemm between the versions": (signal.SIGSEGV,),
    **dict.fromkeys(
        (
            "reorder of none with scales",
            "reorder of codes without columns",
            "concat of codes without columns",
            "deconvolution into nothing",
        ),
        (signal.SIGFPE,),
    ),
    **dict.fromkeys(("lstm on AMX", "gru on AMX", "augru on AMX"), (signal.SIGILL,)),
    **dict.fromkeys(
        (
            "batch_normalization of more than five dimensions",
            "lrn of more than five dimensions",
            "eltwise of more than five dimensions with post-ops",
        ),
        (signal.SIGSEGV, signal.SIGABRT),  # or wrong numbers, by what lies behind the tensors
    ),
}
"""Cases of which a process may die, and by which signals."""

ALONE = "FQFUSE_TEST_DEFECT"
"""The case that a process of its own runs."""

UNDER = {
    "1x1 over five positions": "AVX512_CORE",
    "1x1 deconvolution over five positions": "AVX512_CORE",
    "strided 1x1 in vectors of 16": "AVX2",
    "strided 1x1 in vectors of 8": "SSE41",
    "product by weights with a zero point": "AVX2_VNNI",
    **dict.fromkeys(WITHOUT_FMA, "SSE41"),
}
"""Cases whose implementation the library passes over where it has a better instruction set."""


def wrong_by_the_row(bare: Bare, defect: Defect) -> list[bool]:
    """For each implementation that the row concerns, or did before it was mended: is the result wrong?
    Empty where a version that the row was not seen in refuses the request.
    """
    make, arrays, want = CASES[defect.name](bare)
    defect = dataclasses.replace(defect, mended=None)
    try:
        make()
    except OneDnnError:
        if str(bare.library.version) in defect.versions:
            raise
        return []
    found = []
    for desc in filter(defect.concerns, implementations(make)):
        result, beside = bare.run(desc, arrays)
        # far from what the defects do, but for those of the last bit
        near = 0 if defect.name in LAST_BITS else 1e-5
        found.append(beside or not np.allclose(result, want, rtol=near, atol=near))
    return found


@pytest.fixture
def bare(engine: Engine, stream: Stream) -> Iterator[Bare]:
    with no_primitive_cache(engine.library):
        yield Bare(engine, stream)
    engine.library.set_threads(THREADS)


def test_each_row_is_shown() -> None:
    elsewhere = {SIDE_BY_SIDE_ROW, SUM_OF_F16, *STRIDED}
    assert {defect.name for defect in DEFECTS} == CASES.keys() | elsewhere


@pytest.mark.parametrize("name", CASES)
def test_the_bare_library_is_wrong(bare: Bare, name: str) -> None:
    if os.environ.get(ALONE) != name and (name in UNDER or name in ENDS_THE_PROCESS):
        ran = in_a_process_of_its_own(name)
        if -ran.returncode in ENDS_THE_PROCESS.get(name, ()):
            return
        shown_elsewhere(ran, name)
        return
    defect = next(defect for defect in DEFECTS if defect.name == name)
    found = wrong_by_the_row(bare, defect)
    if not found:
        make, *_ = CASES[name](bare)
        there = []
        with contextlib.suppress(OneDnnError):  # of a request that this version refuses
            there = [desc.impl_info for desc in implementations(make)]
        mine = [info for info in there if re.match(defect.implementation, info)]
        assert name not in UNDER or defect.mended or not mine, "the row leaves out its own case"
        pytest.skip("no implementation of this kind on this CPU")
    hold_to_the_row(bare.library, defect, any(found))


def hold_to_the_row(library: Library, defect: Defect, wrong: bool) -> None:
    """What a row says of the library's version."""
    version = library.version
    if defect.mended is not None and version.triple >= defect.mended:
        assert not wrong, f"{version} computes it wrongly, in which it is `mended`"
        return
    if not wrong and str(version) not in (*BOTH, *defect.versions):
        pytest.skip(f"the rows were not measured with {version}")
    assert wrong, f"{version} computes it right: it is `mended` in this version"


@pytest.mark.parametrize("name", ROUNDED_TWICE)
def test_other_implementations_round_once(bare: Bare, name: str) -> None:
    """What the row does not name, but for references: taken instead, it must be right."""
    if not bare.library.effective_isa().has_fma:
        pytest.skip("this CPU has no instruction that rounds once")
    make, arrays, want = CASES[name](bare)
    others = [d for d in implementations(make) if not d.is_reference and defect_of(d) is None]
    if not others:
        pytest.skip("no implementation of this kind on this CPU")
    for desc in others:
        result, _ = bare.run(desc, arrays)
        assert np.array_equal(result, want), desc.impl_info


def shown_elsewhere(ran: subprocess.CompletedProcess[str], name: str) -> None:
    assert ran.returncode == 0, ran.stdout[-4000:]
    alone = name in UNDER or name in ENDS_THE_PROCESS
    skipped = any(why in ran.stdout for why in ("no implementation", "were not measured"))
    assert skipped or (alone and "passed" in ran.stdout), "it is `mended` in this version"


def in_a_process_of_its_own(
    name: str, test: str = "test_the_bare_library_is_wrong"
) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        f"{__file__}::{test}[{name}]",
    ]
    isa = {"ONEDNN_MAX_CPU_ISA": UNDER[name]} if name in UNDER else {}
    return subprocess.run(
        command, env={**os.environ, **isa, ALONE: name}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("channels", "positions", "width"), [(16, 26, 14), (32, 13, 8), (48, 13, 8), (64, 6, 4)]
)
def test_wide_padding_of_blocks(
    bare: Bare, channels: int, positions: int, width: int, turned: bool
) -> None:
    """The fewer channels, the more rows has a block, and the wider is the padding that it cannot take:
    the first that it cannot, with VNNI.
    """
    bare.library.set_threads(1)
    make, arrays, want = wide_padding_of(bare, channels, positions, width, turned=turned)
    name = f"{'deconvolution' if turned else 'convolution'} with zero points and wide padding"
    defect = next(defect for defect in DEFECTS if defect.name == name)
    results = [(d, bare.run(d, arrays)[0]) for d in implementations(make) if not d.is_reference]
    assert all(np.array_equal(y, want) for d, y in results if defect_of(d) is None)
    named = dataclasses.replace(defect, mended=None)
    concerned = [y for d, y in results if named.concerns(d)]
    if not concerned:
        pytest.skip("no implementation of this kind on this CPU")
    hold_to_the_row(bare.library, defect, not all(np.array_equal(y, want) for y in concerned))


def test_weights_packed_side_by_side(bare: Bare) -> None:
    """Where the compensation is left out, and that it never is of the same weights with gaps."""
    defect = next(defect for defect in DEFECTS if defect.name == SIDE_BY_SIDE_ROW)
    named = dataclasses.replace(defect, mended=None)
    wrong = []
    for shape in SIDE_BY_SIDE:
        make, arrays, want = packed(bare, shape)
        wide = with_gaps(arrays[Arg.WEIGHTS])
        for desc in implementations(make):
            wanted, given = desc.weights_md(), MemoryDesc.like(bare.library, arrays[Arg.WEIGHTS])
            if not named.concerns(describe(bare.engine, "reorder", given, wanted)):
                continue
            wrong.append(not np.array_equal(bare.run(desc, arrays)[0], want))
            weights = Memory.allocate(bare.engine, wanted)
            pack(bare.stream, wide, MemoryDesc.like(bare.library, wide), weights)
            dst = Memory.allocate(bare.engine, desc.dst_md())
            zero = arg_zero_points(Arg.SRC)
            others = {arg: bare.memory(arrays[arg], desc, arg) for arg in (Arg.SRC, zero)}
            bare.execute(desc, {**others, Arg.WEIGHTS: weights, Arg.DST: dst})
            assert np.array_equal(dst.view(), want), desc
    if not wrong or not bare.library.effective_isa().has_fma:
        pytest.skip("no implementation of this kind on this CPU")
    hold_to_the_row(bare.library, defect, any(wrong))


STRIDED = {"strided 1x1 in vectors of 16": 24, "strided 1x1 in vectors of 8": 20}
"""Name -> input channels that fill all but the last vector. A thread's room has them in multiples of
8 (AVX2) or 4 (SSE4.1) for each position, so that of 17 channels the rest of the room would do.
"""


@pytest.mark.parametrize("name", STRIDED)
def test_gathered_rows_are_longer_than_their_room(bare: Bare, name: str) -> None:
    """Wrong numbers come only where two threads meet; one thread shows what it writes too much."""
    if os.environ.get(ALONE) != name:
        shown_elsewhere(
            in_a_process_of_its_own(name, "test_gathered_rows_are_longer_than_their_room"), name
        )
        return
    bare.library.set_threads(1)
    channels = STRIDED[name]
    code, x, w = 7, np.full((4, channels, 8), 7, np.uint8), bare.small(64, channels, 1)
    defect = next(defect for defect in DEFECTS if defect.name == name)
    found = []
    for desc in filter(defect.concerns, implementations(lambda: strided_1x1(bare, x, w))):
        room = aligned_bytes(desc.scratchpad_size)
        room[...] = 0xEE
        memories = {
            Arg.SRC: bare.memory(x, desc, Arg.SRC),
            Arg.WEIGHTS: bare.memory(w, desc, Arg.WEIGHTS),
            Arg.DST: Memory.allocate(bare.engine, desc.dst_md()),
            Arg.SCRATCHPAD: Memory(bare.engine, desc.scratchpad_md, room),
        }
        Primitive(desc).execute(bare.stream, ExecArgs(desc, memories))
        place = 4 * channels  # of a thread: the positions that stay of a sample
        found.append(np.count_nonzero(room == code) > place)
    if not found:
        pytest.skip("no implementation of this kind on this CPU")
    hold_to_the_row(bare.library, defect, all(found))


def strided_1x1(bare: Bare, x: np.ndarray, w: np.ndarray) -> PrimitiveDesc:
    return describe(
        bare.engine,
        "convolution",
        bare.any(x.shape, DataType.u8),
        bare.any(w.shape, DataType.s8),
        None,
        bare.any((x.shape[0], w.shape[0], x.shape[2] // 2), DataType.f32),
        strides=(2,),
        dilations=(0,),
        padding_l=(0,),
        padding_r=(0,),
    )


def test_convolutions_whose_padding_behind_is_negative(bare: Bare) -> None:
    """One-dimensional, of codes into codes, on several threads: no implementation that the lowering
    would take writes where another thread does.
    """
    bare.library.set_threads(4)
    taken = 0
    for _ in range(150):
        kernel, stride, windows = (int(bare.rng.integers(low, 7)) for low in (1, 1, 2))
        begin = int(bare.rng.integers(1, 4))
        length = (windows - 1) * stride + kernel + int(bare.rng.integers(0, 2))
        windows = (length + begin - kernel) // stride + 1
        unread = length + begin - kernel - (windows - 1) * stride
        x = bare.rng.integers(-128, 128, (2, 5, length)).astype(np.int8)
        w = bare.small(3, 5, kernel)
        padded = np.pad(x, ((0, 0), (0, 0), (begin, 0))).astype(np.int64)
        spans = np.lib.stride_tricks.sliding_window_view(padded, kernel, 2)[:, :, ::stride]
        sums = np.einsum("nciK,ocK->noi", spans, w.astype(np.int64))
        scale = np.float32(np.abs(sums).max() / 100 + 1)
        make = functools.partial(
            describe,
            bare.engine,
            "convolution",
            bare.any(x.shape, DataType.s8),
            bare.any(w.shape, DataType.s8),
            None,
            bare.any(sums.shape, DataType.s8),
            strides=(stride,),
            dilations=(0,),
            padding_l=(begin,),
            padding_r=(-unread,),
            attributes=Attributes({Arg.DST: 0}),
        )
        right = (desc for desc in implementations(make) if defect_of(desc) is None)
        desc = next(right, None)
        if desc is None or desc.is_reference:
            continue
        taken += 1
        arrays = {Arg.SRC: x, Arg.WEIGHTS: w, arg_scales(Arg.DST): np.array([scale], np.float32)}
        for _ in range(3):
            result, beside = bare.run(desc, arrays)
            assert not beside, desc.request
            # one code at ties
            assert np.abs(result - sums / scale).max() < 0.51, desc.request
    assert taken > 50


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        ("convolution", WINDOWS_OF_PADDING),
        ("convolution", DEPTHWISE_WINDOWS_OF_PADDING),
        ("convolution", ONE_CHANNEL),
        ("convolution", ONE_CHANNEL_IN_ROWS),
        ("convolution", SOME_CHANNELS),
        ("convolution", ONE_COLUMN),
        ("convolution", PADDED_ROWS),
        ("convolution", PADDED_PLANE),
        ("convolution", PADDING_ALONE),
        ("deconvolution", SPREAD_PADDING_ALONE),
        ("convolution", OF_3_3),
        ("deconvolution", SPREAD),
        ("deconvolution", UNREACHED),
    ],
    ids=str,
)
def test_what_brgemm_gets_wrong_is_right_in_what_is_taken(
    bare: Bare, kind: str, codes: Codes
) -> None:
    """On every version: each implementation that no row objects to, but the reference."""
    make, arrays, want = drawn(bare, kind, codes)
    taken = [d for d in implementations(make) if not d.is_reference and defect_of(d) is None]
    if not taken and not bare.library.effective_isa().has_vnni:
        pytest.skip("no implementation of this kind on this CPU")
    assert taken
    for desc in taken:
        result, beside = bare.run(desc, arrays)
        assert not beside
        assert np.array_equal(result, want), desc.impl_info


def test_resampling_of_blocks_with_an_operand_for_each_sample(bare: Bare) -> None:
    """The row of resampling names two layouts; `resampled` shows the other one."""
    x, more = bare.normal(3, 20, 3, 3), bare.normal(3, 1, 1, 1)

    def make() -> PrimitiveDesc:
        chain = (Binary(AlgKind.binary_add, bare.plain(more.shape)),)
        return describe(
            bare.engine,
            "resampling",
            tagged(bare.library, x.shape, DataType.f32, NCHW16C),
            bare.any((3, 20, 6, 6), DataType.f32),
            alg=AlgKind.resampling_nearest,
            attributes=Attributes(post_ops=chain),
        )

    want = x.repeat(2, 2).repeat(2, 3) + more
    wrong, taken = [], []
    for desc in implementations(make):
        result, _ = bare.run(desc, {Arg.SRC: x, arg_post_op(0, Arg.SRC_1): more})
        right = np.allclose(result, want, rtol=1e-5, atol=1e-5)
        assert right or defect_of(desc) is not None, desc.impl_info
        wrong.append(not right)
        taken.append(desc.impl_info)
    if any(implementation.startswith("simple:") for implementation in taken):
        assert any(wrong), f"{bare.library.version} computes it right: it is `mended`"


def test_a_sum_that_reads_f16(bare: Bare) -> None:
    """All products are 0, and the destination holds 1 as bf16, which as f16 is 1.875."""
    x, w = np.zeros((1, 4, 1, 8), np.uint8), np.zeros((8, 4, 1, 1), np.int8)
    old = np.ones((1, 8, 1, 8), np.float32)

    def make() -> PrimitiveDesc:
        return describe(
            bare.engine,
            "convolution",
            bare.any(x.shape, DataType.u8),
            bare.any(w.shape, DataType.s8),
            None,
            bare.any(old.shape, DataType.bf16),
            strides=(1, 1),
            dilations=(0, 0),
            padding_l=(0, 0),
            padding_r=(0, 0),
            attributes=Attributes(post_ops=(Sum(dtype=DataType.f16),)),
        )

    defect = next(defect for defect in DEFECTS if defect.name == SUM_OF_F16)
    concerned = [*filter(defect.concerns, implementations(make))]
    if not concerned:
        pytest.skip("no implementation of this kind on this CPU")
    for desc in concerned:
        arrays = {Arg.SRC: x, Arg.WEIGHTS: w, Arg.DST: old}
        memories = {arg: bare.memory(array, desc, arg) for arg, array in arrays.items()}
        bare.execute(desc, memories)
        found = Memory.allocate(bare.engine, bare.plain(old.shape))
        back = describe(bare.engine, "reorder", desc.dst_md(), found.desc)
        bare.execute(back, {Arg.SRC: memories[Arg.DST], Arg.DST: found})
        assert not (found.view() == 1.875).any(), f"{bare.library.version} computes it right"


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == defects_document(), (
        "run `make docs` to write docs/contributing/onednn-defects.md anew"
    )
