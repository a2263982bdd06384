"""Memory descriptors (shape, data type, layout) and memories (a descriptor and an address).

Addresses come from NumPy: `Memory` wraps an array without copying and keeps it alive. Buffers for
layouts that the library chooses are raw bytes, aligned to a cache line (`aligned_bytes`); `view`
shows a plain layout as an ordinary NumPy array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..aligned import aligned_bytes
from .capi import failure, int64_array
from .enums import DataType, FormatKind, Query
from .library import Engine, Handle, Library, create
from .strides import settled_strides

_ANY = 1  # dnnl_format_tag_any
_KEPT = 1024  # descriptors that a library keeps: a binding asks for each many times
_NUMPY: dict[DataType, np.dtype[Any]] = {
    DataType.f32: np.dtype(np.float32),
    DataType.s32: np.dtype(np.int32),
    DataType.s8: np.dtype(np.int8),
    DataType.u8: np.dtype(np.uint8),
}
_ONEDNN = {dtype: kind for kind, dtype in _NUMPY.items()}
# NumPy has no bf16: views hold its bits
_NUMPY |= {DataType.f16: np.dtype(np.float16), DataType.bf16: np.dtype(np.uint16)}


def data_type_of(dtype: DTypeLike) -> DataType:
    """The oneDNN type of a NumPy type. Raises ValueError where none is used here."""
    try:
        return _ONEDNN[np.dtype(dtype)]
    except KeyError:
        raise ValueError(f"oneDNN has no data type for NumPy's {np.dtype(dtype)}") from None


def numpy_dtype(data_type: DataType) -> np.dtype[Any]:
    """The NumPy type of a oneDNN type, of bf16 that of its bits. Raises ValueError where none is used here."""
    try:
        return _NUMPY[data_type]
    except KeyError:
        raise ValueError(f"no NumPy type for oneDNN's {data_type.name}") from None


class MemoryDesc(Handle):
    """`dnnl_memory_desc_t`, immutable. Equality is the library's: same shape, type and layout,
    hidden flags included.

    Make one by `any`, `with_strides`, `like`, or the functions of `layouts`; primitive descriptors
    hand out the rest.

    Attributes:
        dims: logical shape.
        dtype: element type.
        is_any: whether the primitive chooses the layout.
    """

    __slots__ = ("_place", "_plain", "_size", "_steps", "dims", "dtype", "is_any")

    def __init__(
        self,
        library: Library,
        pointer: int,
        dims: tuple[int, ...] | None = None,
        dtype: DataType | None = None,
    ) -> None:
        super().__init__(library, "memory_desc", pointer)
        self.dims = self._query_dims(Query.dims) if dims is None else dims
        self.dtype = DataType(self._query_int(Query.data_type)) if dtype is None else dtype
        self.is_any = False
        self._size: int | None = None
        self._plain: bool | None = None
        self._place: tuple[int, int, tuple[int, ...]] | None = None
        self._steps: tuple[int, ...] | None = None  # strides, of a plain one without an offset

    @classmethod
    def any(cls, library: Library, dims: Sequence[int], dtype: DataType) -> MemoryDesc:
        """A descriptor whose layout the primitive chooses (`dnnl_format_tag_any`). Raises
        OneDnnError where the shape is refused.
        """
        function, shape = library.c.dnnl_memory_desc_create_with_tag, tuple(map(int, dims))
        made = cls._described(library, function, shape, dtype, None, lambda: "in layout any")
        made.is_any = True
        return made

    @classmethod
    def with_strides(
        cls, library: Library, dims: Sequence[int], dtype: DataType, strides: Sequence[int]
    ) -> MemoryDesc:
        """A plain descriptor with `strides` in *elements*, one for each dimension.

        Those of dimensions of length 1 are no part of a layout, but the library compares them and
        takes them at face value: they are settled here, see `settled_strides`.

        Raises:
            ValueError: the number of strides is not that of the dimensions.
            OneDnnError: the library refuses (strides that overlap, negative strides).
        """
        shape, steps = tuple(map(int, dims)), tuple(map(int, strides))
        if len(steps) != len(shape):
            raise ValueError(f"{len(steps)} strides for {len(shape)} dimensions")
        return cls._with_strides_as_given(library, shape, dtype, settled_strides(shape, steps))

    @classmethod
    def _with_strides_as_given(
        cls, library: Library, shape: tuple[int, ...], dtype: DataType, steps: tuple[int, ...]
    ) -> MemoryDesc:
        function = library.c.dnnl_memory_desc_create_with_strides
        return cls._described(
            library, function, shape, dtype, steps, lambda: f"with strides {list(steps)}"
        )

    @classmethod
    def _described(
        cls,
        library: Library,
        function: Any,
        shape: tuple[int, ...],
        dtype: DataType,
        steps: tuple[int, ...] | None,
        text: Callable[[], str],
    ) -> MemoryDesc:
        """One that was made before, or a new one; without strides in layout `any`."""

        def what() -> str:
            return f"memory descriptor {_shaped(dtype, shape)} {text()}"

        kept: dict[object, MemoryDesc] = library.descs
        key = shape, dtype, steps
        found = kept.get(key)
        if found is None:
            layout = _ANY if steps is None else int64_array(steps)
            made = create(function, what, len(shape), int64_array(shape), dtype, layout)
            if len(kept) >= _KEPT:
                kept.clear()
            found = kept[key] = cls(library, made, shape, dtype)
            found._steps = steps
        return found

    @classmethod
    def like(cls, library: Library, array: NDArray[Any]) -> MemoryDesc:
        """The descriptor of a NumPy array as it lies in memory; a 0-d array becomes shape [1].

        Raises:
            ValueError: its type has no counterpart, or its strides are no multiples of the element.
        """
        source = array.reshape(1) if array.ndim == 0 else array
        item = source.itemsize
        if any(stride % item for stride in source.strides):
            raise ValueError(
                f"strides {source.strides} are no multiples of the {item}-byte element"
            )
        return cls.with_strides(
            library,
            source.shape,
            data_type_of(source.dtype),
            [stride // item for stride in source.strides],
        )

    @classmethod
    def clone(cls, library: Library, pointer: int, like: MemoryDesc | None = None) -> MemoryDesc:
        """An owned copy of a descriptor that belongs to a C object, such as a primitive
        descriptor.

        Args:
            library: the library.
            pointer: to the C object.
            like: has its shape and type, if they are known.
        """
        function = library.c.dnnl_memory_desc_clone
        made = create(function, lambda: "copying a memory descriptor", pointer)
        return cls(library, made) if like is None else cls(library, made, like.dims, like.dtype)

    def reshape(self, dims: Sequence[int]) -> MemoryDesc:
        """The same bytes under another logical shape, where the layout allows it (OneDnnError
        otherwise).
        """
        shape, function = tuple(map(int, dims)), self.library.c.dnnl_memory_desc_reshape
        made = create(
            function,
            lambda: f"reshaping the layout of {self} to {list(shape)}",
            self,
            len(shape),
            int64_array(shape),
        )
        found = MemoryDesc(self.library, made, shape, self.dtype)
        found.is_any = self.is_any
        return found

    def submemory(self, dims: Sequence[int], offsets: Sequence[int]) -> MemoryDesc:
        """The box of shape `dims` at `offsets` inside this descriptor; the address stays that of
        the whole.
        """
        shape, start, function = (
            tuple(dims),
            tuple(offsets),
            self.library.c.dnnl_memory_desc_create_submemory,
        )
        made = create(
            function,
            lambda: f"box {list(shape)} at {list(start)} of {self}",
            self,
            int64_array(shape),
            int64_array(start),
        )
        return MemoryDesc(self.library, made, shape, self.dtype)

    @property
    def size(self) -> int:
        """Bytes a buffer needs, with padding and whatever compensation the layout carries; 0 for
        `any`.

        For strides with gaps the library counts the gap behind the last element too; `span` does
        not.
        """
        if self._size is None:
            self._size = int(self.library.c.dnnl_memory_desc_get_size(self))
            if self.format_kind == FormatKind.blocked and self.offset:
                # of a box inside a larger buffer (`submemory`) 3.2 says 0, and 3.13 leaves out the
                # offset
                self._size = self.span
        return self._size

    @property
    def span(self) -> int:
        """Bytes from the address of a memory to the end of its last element, or `size` where
        strides do not tell.
        """
        if self.format_kind != FormatKind.blocked or 0 in self.dims:
            return 0
        if self.inner_blocks or self.padded_dims != self.dims:
            return self.size
        last = sum(
            (length - 1) * step for length, step in zip(self.dims, self.strides, strict=True)
        )
        return (self.offset + last + 1) * numpy_dtype(self.dtype).itemsize

    @property
    def format_kind(self) -> FormatKind:
        """How the layout is described."""
        if self._steps is not None:
            return FormatKind.blocked
        return FormatKind(self._query_int(Query.format_kind))

    @property
    def padded_dims(self) -> tuple[int, ...]:
        """Shape including the padding that a blocked layout adds."""
        return self.dims if self._steps is not None else self._query_dims(Query.padded_dims)

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements of the (outer) dimensions of a blocked layout. OneDnnError for `any`
        and opaque layouts.
        """
        return self._query_dims(Query.strides) if self._steps is None else self._steps

    @property
    def inner_blocks(self) -> tuple[tuple[int, int], ...]:
        """(dimension, block length) of the inner blocks, outermost first; empty for a plain
        layout.
        """
        count = self._query_int(Query.inner_nblks_s32) if self._steps is None else 0
        if not count:
            return ()
        return tuple(
            zip(
                self._query_dims(Query.inner_idxs, count),
                self._query_dims(Query.inner_blks, count),
                strict=True,
            )
        )

    @property
    def offset(self) -> int:
        """First element, counted from the address of the memory; not 0 for a `submemory`."""
        if self._steps is not None:
            return 0
        return int(self._query(Query.submemory_offset_s64, ctypes.c_int64()).value)

    @property
    def is_plain(self) -> bool:
        """True where strides alone describe the bytes: no inner blocks, no padding, no hidden
        compensation.
        """
        if self._plain is None:
            self._plain = self._steps is not None or self._is_told_by_strides()
        return self._plain

    @property
    def place(self) -> tuple[int, int, tuple[int, ...]]:
        """Of a plain layout: `span`, `offset` and `strides`, which are asked for once; the latter
        two in bytes.
        """
        if self._place is None:
            size = numpy_dtype(self.dtype).itemsize
            strides = tuple(step * size for step in self.strides)
            self._place = self.span, self.offset * size, strides
        return self._place

    def _is_told_by_strides(self) -> bool:
        if (
            self.format_kind != FormatKind.blocked
            or self.inner_blocks
            or self.padded_dims != self.dims
        ):
            return False
        # Compensation lives in flags that no query shows; a plain descriptor with the same strides
        # lacks them.
        return self.offset > 0 or self == MemoryDesc._with_strides_as_given(
            self.library, self.dims, self.dtype, self.strides
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryDesc):
            return NotImplemented
        return other is self or bool(self.library.c.dnnl_memory_desc_equal(self, other))

    def __hash__(self) -> int:
        return hash((self.dims, self.dtype))

    def __repr__(self) -> str:
        text, kind = _shaped(self.dtype, self.dims), self.format_kind
        if kind != FormatKind.blocked:
            return f"{text}:{kind.name}"
        letters = sorted(range(len(self.dims)), key=lambda axis: -self.strides[axis])
        blocks = "".join(f"{length}{chr(97 + axis)}" for axis, length in self.inner_blocks)
        return f"{text}:{''.join(chr(97 + axis) for axis in letters)}{blocks}"

    def _query(self, what: Query, result: Any) -> Any:
        status = self.library.c.dnnl_memory_desc_query(self, what, ctypes.byref(result))
        if status:
            raise failure(status, f"query {what.name} of a memory descriptor")
        return result

    def _query_int(self, what: Query) -> int:
        return int(self._query(what, ctypes.c_int()).value)

    def _query_dims(self, what: Query, count: int | None = None) -> tuple[int, ...]:
        # points into the descriptor: copy before it can be freed
        values = self._query(what, ctypes.POINTER(ctypes.c_int64)())
        return tuple(values[: self._query_int(Query.ndims_s32) if count is None else count])


def _shaped(dtype: DataType, dims: tuple[int, ...]) -> str:
    return f"{dtype.name}[{','.join(map(str, dims))}]"


class Memory(Handle):
    """`dnnl_memory_t`: a descriptor, an engine and an address.

    Args:
        engine: the engine.
        desc: shape, type and layout of the bytes.
        data: a NumPy array (kept alive, never copied), or None for one that comes later by
            `set_data`.

    Raises:
        ValueError: the array is too small.
        OneDnnError: the library refuses, for example a descriptor of layout `any`.
    """

    __slots__ = ("_size", "data", "desc", "engine")

    def __init__(self, engine: Engine, desc: MemoryDesc, data: NDArray[Any] | None = None) -> None:
        function = engine.library.c.dnnl_memory_create
        super().__init__(
            engine.library,
            "memory",
            create(function, lambda: f"memory for {desc}", desc, engine, _address(desc, data)),
        )
        self.engine = engine
        self.desc = desc
        self.data = data
        self._size = desc.size

    @classmethod
    def wrap(cls, engine: Engine, array: NDArray[Any]) -> Memory:
        """A memory over a NumPy array as it lies, see `MemoryDesc.like`."""
        return cls(engine, MemoryDesc.like(engine.library, array), array)

    @classmethod
    def allocate(cls, engine: Engine, desc: MemoryDesc) -> Memory:
        """A memory with a new, uninitialised, aligned buffer of `desc.size` bytes, reachable as
        `data`.
        """
        return cls(engine, desc, aligned_bytes(desc.size))

    def set_data(self, data: NDArray[Any] | None) -> None:
        """Point to other bytes, for every prebuilt argument array that holds this memory. Not while
        it is executing.

        Raises:
            ValueError: the array is too small.
            OneDnnError: the library refuses.
        """
        self._point(data, _address(self.desc, data))

    def set_contiguous(self, data: NDArray[Any], address: int) -> None:
        """As `set_data`, of a C-contiguous array whose `address_of` is known: several memories may lie
        in it, and each run asks once.
        """
        if data.nbytes < self._size:  # strides with gaps may need less
            address = _address(self.desc, data) or 0
        self._point(data, address)

    def _point(self, data: NDArray[Any] | None, address: int | None) -> None:
        status = self.library.c.dnnl_memory_set_data_handle(self, address)
        if status:
            raise failure(status, f"set_data_handle of a memory for {self.desc}")
        self.data = data

    def view(self) -> NDArray[Any]:
        """The bytes as a NumPy array of the logical shape, without a copy; the layout must be plain
        (ValueError).
        """
        if self.data is None:
            raise ValueError("this memory holds no NumPy array")
        return view(self.desc, self.data)


def _address(desc: MemoryDesc, data: NDArray[Any] | None) -> int | None:
    if data is None:
        return None
    available = data.nbytes if data.flags.c_contiguous else _span(data)
    if available < desc.size and available < _least(desc):
        raise ValueError(f"{desc} needs {_least(desc)} bytes, the array spans {available}")
    return address_of(data)


def address_of(data: NDArray[Any]) -> int:
    """Where an array begins."""
    flags = data.flags
    if data.nbytes and flags.writeable and flags.c_contiguous:
        # a third of the time that `ctypes.data` takes
        return ctypes.addressof(ctypes.c_char.from_buffer(data.data))
    return int(data.ctypes.data)


def _least(desc: MemoryDesc) -> int:
    """Bytes that must be there: `size`, or for strides with gaps the smaller span."""
    return desc.span if desc.is_plain else desc.size


def _span(array: NDArray[Any]) -> int:
    """Bytes from an array's first element to the end of its last; ValueError for negative
    strides.
    """
    if any(stride < 0 for stride in array.strides):
        raise ValueError("oneDNN takes no negative strides")
    if array.size == 0:
        return 0
    last = sum(
        (length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True)
    )
    return int(last) + array.itemsize


def view(desc: MemoryDesc, buffer: NDArray[Any]) -> NDArray[Any]:
    """`buffer` as an array of the logical shape of `desc`, without a copy.

    Args:
        desc: a plain layout.
        buffer: a C-contiguous array of at least `desc.span` bytes.

    Raises:
        ValueError: the layout is not plain, or the buffer is too small or not contiguous.
    """
    if not desc.is_plain:
        raise ValueError(f"{desc} is not a plain layout: reorder it first")
    span, offset, strides = desc.place
    if not buffer.flags.c_contiguous or buffer.nbytes < span:
        raise ValueError(f"{desc} needs a contiguous buffer of {span} bytes")
    return np.ndarray(
        desc.dims,
        numpy_dtype(desc.dtype),
        buffer.reshape(-1).view(np.uint8).data,
        offset,
        strides,
    )
