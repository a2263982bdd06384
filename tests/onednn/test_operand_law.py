"""The operand law: wherever tensors lie, an implementation of the bare library applies a binary
post-op rightly, or a row of onednn/defects passes it over.

Layouts are those that the lowering hands over: row-major, channels last, and blocks of channels;
operands lie in the destination's order, row-major where that is in blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.budget import examples
from support.binding_library import NCHW16C, no_primitive_cache, tagged

from fqfuse.aligned import aligned_bytes
from fqfuse.onednn.attributes import Attributes, Binary, Eltwise, PostOp
from fqfuse.onednn.capi import OneDnnError
from fqfuse.onednn.defects import defect_of
from fqfuse.onednn.enums import AlgKind, Arg, DataType, arg_post_op
from fqfuse.onednn.layouts import channels_last, row_major
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.memory import Memory, MemoryDesc
from fqfuse.onednn.primitive import run_once
from fqfuse.onednn.primitive_desc import PrimitiveDesc, describe

POISON = 0x7F
ROOM = 8192  # bytes behind each buffer that hold the poison

LAYOUTS = ("row-major", "channels last", "blocks")


@dataclass
class Drawn:
    """One primitive with a post-op that has an operand.

    Attributes:
        src: its source, [N, C, H, W].
        dst: the shape of its result.
        want: the result without post-ops.
        make: asks for the primitive, with these post-ops and layouts.
    """

    src: np.ndarray
    dst: tuple[int, ...]
    want: np.ndarray
    make: Callable[[MemoryDesc, MemoryDesc, Attributes], PrimitiveDesc]


class Bench:
    """The bare library, and sources in any layout."""

    def __init__(self, engine: Engine, stream: Stream) -> None:
        self.engine, self.stream, self.library = engine, stream, engine.library

    def laid(self, layout: str, dims: tuple[int, ...]) -> MemoryDesc:
        """A descriptor in a layout of `LAYOUTS`."""
        if layout == "blocks":
            return tagged(self.library, dims, DataType.f32, NCHW16C)
        like = channels_last if layout == "channels last" else row_major
        return like(self.library, dims, DataType.f32)

    def any(self, dims: tuple[int, ...]) -> MemoryDesc:
        return MemoryDesc.any(self.library, dims, DataType.f32)

    def put(self, array: np.ndarray, lies: MemoryDesc) -> Memory:
        """An array in a layout, with poison behind it."""
        room = aligned_bytes(lies.size + ROOM)
        room[...] = POISON
        memory, given = Memory(self.engine, lies, room[: lies.size]), self.wrapped(array)
        run_once(
            self.stream,
            describe(self.engine, "reorder", given.desc, lies),
            {Arg.SRC: given, Arg.DST: memory},
        )
        return memory

    def wrapped(self, array: np.ndarray) -> Memory:
        return Memory.wrap(self.engine, np.ascontiguousarray(array))

    def got(self, memory: Memory) -> np.ndarray:
        out = Memory.allocate(
            self.engine, row_major(self.library, memory.desc.dims, memory.desc.dtype)
        )
        run_once(
            self.stream,
            describe(self.engine, "reorder", memory.desc, out.desc),
            {Arg.SRC: memory, Arg.DST: out},
        )
        return out.view().copy()


def pooled(bench: Bench, src: np.ndarray, maximum: bool) -> Drawn:
    n, c, h, w = src.shape
    dst = (n, c, h, w - 1)
    first, second = src[..., :-1], src[..., 1:]
    alg = AlgKind.pooling_max if maximum else AlgKind.pooling_avg_include_padding

    def make(lies: MemoryDesc, out: MemoryDesc, attributes: Attributes) -> PrimitiveDesc:
        return describe(
            bench.engine,
            "pooling",
            lies,
            out,
            alg=alg,
            kernel=(1, 2),
            strides=(1, 1),
            dilations=(0, 0),
            padding_l=(0, 0),
            padding_r=(0, 0),
            attributes=attributes,
        )

    return Drawn(src, dst, np.maximum(first, second) if maximum else (first + second) / 2, make)


def resampled(bench: Bench, src: np.ndarray, twice: bool) -> Drawn:
    n, c, h, w = src.shape
    times = 2 if twice else 1

    def make(lies: MemoryDesc, out: MemoryDesc, attributes: Attributes) -> PrimitiveDesc:
        return describe(
            bench.engine,
            "resampling",
            lies,
            out,
            alg=AlgKind.resampling_nearest,
            attributes=attributes,
        )

    return Drawn(src, (n, c, h, times * w), src.repeat(times, 3), make)


def binary(bench: Bench, src: np.ndarray, maximum: bool) -> Drawn:
    alg = AlgKind.binary_max if maximum else AlgKind.binary_add

    def make(lies: MemoryDesc, _out: MemoryDesc, attributes: Attributes) -> PrimitiveDesc:
        return describe(bench.engine, "binary", lies, lies, lies, alg=alg, attributes=attributes)

    return Drawn(src, src.shape, src if maximum else src + src, make)


def normalized(bench: Bench, src: np.ndarray, last: bool) -> Drawn:
    axis = 3 if last else 1
    powers = np.exp(src - src.max(axis, keepdims=True))

    def make(lies: MemoryDesc, _out: MemoryDesc, attributes: Attributes) -> PrimitiveDesc:
        return describe(
            bench.engine,
            "softmax",
            lies,
            lies,
            alg=AlgKind.softmax_accurate,
            axis=axis,
            attributes=attributes,
        )

    return Drawn(src, src.shape, powers / powers.sum(axis, keepdims=True), make)


KINDS = {"pooling": pooled, "resampling": resampled, "binary": binary, "softmax": normalized}


def trusted(desc: PrimitiveDesc) -> PrimitiveDesc | None:
    """The first implementation that the lowering would take; None where it would take none."""
    while desc.is_reference or defect_of(desc) is not None:
        if not desc.next_impl():
            return None
    return desc


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", KINDS)
def test_operands_of_post_ops(engine: Engine, stream: Stream, kind: str) -> None:
    bench = Bench(engine, stream)

    @examples(150, fuzz=3_000)
    @given(seed=st.integers(0, 2**40))
    def run(seed: int) -> None:
        rng = np.random.default_rng(seed)
        src = rng.normal(
            size=[rng.choice(sizes) for sizes in ((1, 2, 3), (1, 2, 3, 16, 17, 20, 33))]
            + list(rng.integers(1, 5, 2))
        ).astype(np.float32)
        if kind == "pooling" and src.shape[3] == 1:
            src = src.repeat(2, 3)
        case = KINDS[kind](bench, src, bool(rng.integers(2)))
        for layout in LAYOUTS:
            shape = tuple(size if rng.integers(2) else 1 for size in case.dst)
            check(bench, case, layout, rng.normal(size=shape).astype(np.float32), rng)

    with no_primitive_cache(engine.library):
        run()


def check(
    bench: Bench, case: Drawn, layout: str, operand: np.ndarray, rng: np.random.Generator
) -> None:
    """One primitive: what it stores, against float64."""
    lies = bench.laid(layout, case.src.shape)
    blocks = layout == "blocks"
    out = bench.any(case.dst) if blocks else bench.laid(layout, case.dst)
    whole = operand.shape == case.src.shape == case.dst
    like = bench.laid("row-major" if blocks and not whole else layout, operand.shape)
    least = float(rng.normal())
    chain: list[PostOp] = [Eltwise(AlgKind.eltwise_clip, least, 9.0)] * int(rng.integers(2))
    want = np.clip(case.want, least, 9.0) if chain else case.want
    chain.append(Binary(AlgKind.binary_sub, like))
    try:
        desc = trusted(case.make(lies, out, Attributes(post_ops=tuple(chain))))
    except OneDnnError:  # the library has no such primitive
        return
    if desc is None:
        return
    wanted = desc.dst_md()
    room = aligned_bytes(wanted.size + ROOM)
    room[...] = POISON
    dst, src = Memory(bench.engine, wanted, room[: wanted.size]), bench.put(case.src, lies)
    argument = arg_post_op(len(chain) - 1, Arg.SRC_1)
    args = {Arg.SRC: src, Arg.DST: dst, argument: bench.put(operand, like)}
    if desc.kind == "binary":
        args[Arg.SRC_1] = src
    run_once(bench.stream, desc, args)
    # f32 of numbers below 9 after at most five roundings
    right = np.allclose(bench.got(dst), want - operand, rtol=1e-5, atol=1e-5)
    assert right, f"{desc.impl_info} in {layout}: {desc.request}"
    assert (room[wanted.size :] == POISON).all(), f"{desc.request} wrote behind its result"
