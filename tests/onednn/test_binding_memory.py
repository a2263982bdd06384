"""Memory descriptors and memories: layouts, sizes, equality, round trips through every layout, and
what is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.binding_library import NCHW8C, tagged
from support.binding_order import Runner

from fqfuse.aligned import aligned_bytes
from fqfuse.onednn.capi import OneDnnError, Status
from fqfuse.onednn.enums import Arg, DataType, FormatKind
from fqfuse.onednn.layouts import channels_last, row_major
from fqfuse.onednn.library import Engine, Handle, Library, Stream
from fqfuse.onednn.memory import Memory, MemoryDesc, data_type_of, numpy_dtype, view
from fqfuse.onednn.primitive import ExecArgs, Primitive
from fqfuse.onednn.primitive_desc import describe

TYPES = [DataType.u8, DataType.s8, DataType.s32, DataType.f32]


def values(dtype: DataType, shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 100, shape).astype(numpy_dtype(dtype))


def blocked(library: Library, shape: tuple[int, ...], dtype: DataType) -> MemoryDesc:
    return tagged(library, shape, dtype, NCHW8C)


# ---- descriptors ----


def test_queries(library: Library) -> None:
    md = channels_last(library, (2, 3, 4, 5), DataType.s8)
    assert md.dims == (2, 3, 4, 5)
    assert md.dtype is DataType.s8
    assert md.size == 120
    assert md.strides == (60, 1, 15, 3)
    assert md.format_kind is FormatKind.blocked
    assert md.inner_blocks == ()
    assert md.is_plain
    assert repr(md) == "s8[2,3,4,5]:acdb"
    copy = MemoryDesc.clone(library, md.pointer)  # asks the library for everything
    assert (copy.dims, copy.dtype, copy.size, copy.strides) == (
        md.dims,
        md.dtype,
        md.size,
        md.strides,
    )
    assert copy == md
    assert hash(copy) == hash(md)


def test_a_padded_layout(library: Library) -> None:
    md = blocked(library, (1, 3, 4, 5), DataType.u8)
    assert md.padded_dims == (1, 8, 4, 5)
    assert md.inner_blocks == ((1, 8),)
    assert md.size == 160
    assert not md.is_plain
    assert repr(md) == "u8[1,3,4,5]:abcd8b"


def test_any_has_no_layout_yet(library: Library) -> None:
    md = MemoryDesc.any(library, (2, 3), DataType.f32)
    assert md.format_kind is FormatKind.any
    assert md.size == 0
    assert not md.is_plain
    assert repr(md) == "f32[2,3]:any"


def test_equality_is_about_layout_and_type(library: Library) -> None:
    nhwc = channels_last(library, (2, 3, 4, 5), DataType.s8)
    assert nhwc == MemoryDesc.with_strides(library, (2, 3, 4, 5), DataType.s8, (60, 1, 15, 3))
    assert nhwc != row_major(library, (2, 3, 4, 5), DataType.s8)
    assert nhwc != channels_last(library, (2, 3, 4, 5), DataType.u8)
    assert nhwc != "s8[2,3,4,5]:acdb"


@pytest.mark.usefixtures("without_amx")
def test_hidden_compensation_makes_a_layout_unequal_and_not_plain(engine: Engine) -> None:
    library = engine.library

    def weights_md(src: DataType) -> MemoryDesc:
        return describe(
            engine,
            "convolution",
            MemoryDesc.any(library, (1, 32, 6, 6), src),
            MemoryDesc.any(library, (32, 32, 3, 3), DataType.s8),
            None,
            MemoryDesc.any(library, (1, 32, 4, 4), DataType.s8),
            strides=(1, 1),
            dilations=(0, 0),
            padding_l=(0, 0),
            padding_r=(0, 0),
        ).weights_md()

    plain, compensated = weights_md(DataType.u8), weights_md(DataType.s8)
    assert plain != compensated
    assert compensated.size > plain.size


CUTS = {
    "whole": lambda array: array,
    "transposed": lambda array: array.transpose(0, 2, 3, 1),
    "strided": lambda array: array[:, :, ::2, 1:],
    "first": lambda array: array[:1],
}


@pytest.mark.parametrize("make", CUTS.values(), ids=CUTS)
def test_like_describes_arrays_as_they_lie(engine: Engine, stream: Stream, make: Any) -> None:
    array = make(values(DataType.s32, (2, 3, 4, 5), 0))
    memory = Memory.wrap(engine, array)
    assert memory.desc.dims == array.shape
    np.testing.assert_array_equal(Runner(engine, stream).plain(memory), array)


def test_like_scalars_and_empty_arrays(library: Library) -> None:
    assert MemoryDesc.like(library, np.array(3.0, np.float32)).dims == (1,)
    assert MemoryDesc.like(library, np.zeros((0, 3), np.int8)).size == 0


def test_reshape_and_submemory(library: Library) -> None:
    md = row_major(library, (2, 3, 4, 5), DataType.f32)
    assert md.reshape((6, 20)) == row_major(library, (6, 20), DataType.f32)
    box = md.submemory((1, 2, 2, 5), (1, 1, 2, 0))
    array = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    np.testing.assert_array_equal(view(box, array), array[1:2, 1:3, 2:4, :])
    assert box.offset == 1 * 60 + 1 * 20 + 2 * 5
    assert box.size == 120 * 4, (
        "up to the last element of the box, counted from the start of the whole"
    )
    with pytest.raises(OneDnnError, match="reshaping"):
        md.reshape((7, 17))
    with pytest.raises(OneDnnError, match="box"):
        md.submemory((1, 4, 2, 5), (1, 1, 2, 0))


@pytest.mark.parametrize(
    ("shape", "strides", "settled"),
    [
        ((5, 1, 1, 5), (5, 25, 25, 1), (5, 5, 5, 1)),  # row-major but for ones
        ((2, 4, 1, 16), (64, 16, 64, 1), (64, 16, 16, 1)),
        ((2, 3, 1, 4), (12, 1, 7, 3), (12, 1, 12, 3)),  # channels last but for ones
        # channels last to the letter, and row-major as well
        (
            (5, 3, 1, 1),
            (3, 1, 3, 3),
            (3, 1, 3, 3),
        ),
        ((5, 3, 1), (3, 1, 1), (3, 1, 1)),
        ((2, 1, 3, 4), (1, 24, 2, 6), (1, 6, 2, 6)),  # neither: outside of the right neighbour
        # a batch of 1 is outside of everything
        (
            (1, 12, 128, 32),
            (384, 32, 384, 1),
            (49152, 32, 384, 1),
        ),
        ((1, 1, 2, 3), (9, 9, 1, 2), (6, 6, 1, 2)),
        ((2, 3), (1, 2), (1, 2)),
    ],
)
def test_strides_of_length_1_are_settled(
    library: Library, shape: tuple[int, ...], strides: tuple[int, ...], settled: tuple[int, ...]
) -> None:
    md = MemoryDesc.with_strides(library, shape, DataType.f32, strides)
    assert md.strides == settled
    assert md.is_plain


def test_refusals_of_descriptors(library: Library) -> None:
    with pytest.raises(
        OneDnnError, match=r"u8\[2,-3\] in layout any failed with invalid_arguments"
    ) as caught:
        MemoryDesc.any(library, (2, -3), DataType.u8)
    assert caught.value.status is Status.invalid_arguments
    with pytest.raises(ValueError, match="1 strides for 2 dimensions"):
        MemoryDesc.with_strides(library, (2, 3), DataType.u8, (1,))
    with pytest.raises(OneDnnError, match="invalid_arguments"):
        MemoryDesc.like(library, np.zeros((4, 6), np.float32)[::-1])
    with pytest.raises(ValueError, match="no data type for NumPy's int64"):
        MemoryDesc.like(library, np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="no multiples of the 4-byte element"):
        MemoryDesc.like(library, np.zeros(4, [("a", np.int8), ("b", np.int32)])["b"])
    with pytest.raises(OneDnnError, match="query strides"):
        _ = MemoryDesc.any(library, (2, 3), DataType.f32).strides


def test_types_map_both_ways() -> None:
    for dtype in TYPES:
        assert data_type_of(numpy_dtype(dtype)) is dtype
    with pytest.raises(ValueError, match="no NumPy type for oneDNN's undef"):
        numpy_dtype(DataType.undef)


# ---- memories ----


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 16, 7, 7), (3, 33, 1, 2)], ids=str)
def test_round_trip_through_layouts(
    engine: Engine, stream: Stream, shape: tuple[int, ...], dtype: DataType, seed: int
) -> None:
    run, library, array = Runner(engine, stream), engine.library, values(dtype, shape, seed)
    n, _, h, w = shape
    turned = MemoryDesc.with_strides(library, shape, dtype, (1, h * w * n, w * n, n))  # chwn
    layouts = [channels_last(library, shape, dtype), row_major(library, shape, dtype), turned]
    memory = Memory.wrap(engine, array)
    for layout in [*layouts, blocked(library, shape, dtype), layouts[0]]:
        target = Memory.allocate(engine, layout)
        run.reorder(memory, target)
        memory = target
    np.testing.assert_array_equal(run.plain(memory), array)
    np.testing.assert_array_equal(memory.view(), array)
    assert memory.view().base is not None, "a view, not a copy"


def test_buffers_are_aligned() -> None:
    for count in (0, 1, 63, 64, 65, 1000):
        buffer = aligned_bytes(count)
        assert buffer.nbytes == count
        assert buffer.ctypes.data % 64 == 0 or count == 0, (
            "NumPy shows no address for an empty array"
        )


def test_set_data_moves_a_prepared_argument(engine: Engine, stream: Stream) -> None:
    first, second = np.arange(8, dtype=np.float32), np.arange(8, 16, dtype=np.float32)
    out = np.zeros(8, np.float32)
    source = Memory.wrap(engine, first)
    primitive = Primitive(describe(engine, "reorder", source.desc, source.desc))
    args = ExecArgs(primitive.desc, {Arg.SRC: source, Arg.DST: Memory.wrap(engine, out)})
    primitive.execute(stream, args)
    np.testing.assert_array_equal(out, first)
    source.set_data(second)
    primitive.execute(stream, args)
    np.testing.assert_array_equal(out, second)
    source.set_data(None)
    assert source.data is None


def test_refusals_of_memories(engine: Engine) -> None:
    md = row_major(engine.library, (4, 4), DataType.f32)
    with pytest.raises(ValueError, match=r"f32\[4,4\]:ab needs 64 bytes, the array spans 60"):
        Memory(engine, md, np.zeros(15, np.float32))
    with pytest.raises(ValueError, match="negative strides"):
        Memory(engine, md, np.zeros((4, 4), np.float32)[::-1])
    memory = Memory(engine, md)
    with pytest.raises(ValueError, match="needs 64 bytes"):
        memory.set_data(np.zeros((2, 8), np.float32)[:, ::4])
    with pytest.raises(ValueError, match="holds no NumPy array"):
        memory.view()
    with pytest.raises(OneDnnError, match="memory for"):
        Memory(engine, MemoryDesc.any(engine.library, (4, 4), DataType.f32))


def test_views_need_a_plain_layout_and_room(library: Library) -> None:
    with pytest.raises(ValueError, match="not a plain layout"):
        view(blocked(library, (1, 3, 2, 2), DataType.u8), np.zeros(64, np.uint8))
    with pytest.raises(ValueError, match="contiguous buffer of 16 bytes"):
        view(row_major(library, (4, 4), DataType.u8), np.zeros(15, np.uint8))


def test_a_memory_keeps_its_array_alive(engine: Engine) -> None:
    memory = Memory.wrap(engine, np.full(1000, 7, np.int32))
    np.full(1000, 8, np.int32)  # would reuse the freed bytes
    assert memory.view().sum() == 7000


# ---- handles ----


def test_handles_are_slotted() -> None:
    """Thousands live in a session: no dictionary for each."""
    assert "__dict__" not in dir(Handle)
    assert "__dict__" not in dir(MemoryDesc)
    assert "__dict__" not in dir(Primitive)
