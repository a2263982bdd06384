"""What every kernel is: bound once for concrete shapes, run many times into buffers of the caller.

Values have their logical shape everywhere (NCHW); where a kernel likes channels last, the array it
writes is a *view* with that memory order (`Layout.CHANNELS_LAST`), so nothing but speed depends on
it.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ...aligned import aligned, aligned_bytes
from ...errors import InternalError
from ...ir.ops.spec import Array
from ...ir.types import DType
from ...plan.types import Step
from ..numerics import F32Array, NumericsProfile

Tile = tuple[slice, ...]
"""A box in physical dimension order."""

Values = Mapping[str, Array]
"""Arrays by the names of values."""

Call = Callable[[], object]


class Layout(enum.Enum):
    """Memory order of a value."""

    PLAIN = "plain"
    """Row-major in the logical order."""
    CHANNELS_LAST = "channels_last"
    """Dimension 1 is the innermost one (rank 3 and more)."""

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape in memory order."""
        return (*shape[:1], *shape[2:], shape[1]) if self is Layout.CHANNELS_LAST else tuple(shape)

    def physical(self, array: Array) -> Array:
        """A view of a logical array in memory order."""
        return np.moveaxis(array, 1, -1) if self is Layout.CHANNELS_LAST else array

    def logical(self, array: Array) -> Array:
        """The logical view of an array in memory order."""
        return np.moveaxis(array, -1, 1) if self is Layout.CHANNELS_LAST else array


def nbytes(shape: Sequence[int], dtype: npt.DTypeLike) -> int:
    """Bytes that `Scratch.take` uses for such an array."""
    return aligned(math.prod(shape) * np.dtype(dtype).itemsize)


class Scratch:
    """Memory that one worker uses while it runs a task: views are taken one behind the other, and
    `release` forgets the last ones.
    """

    def __init__(self, size: int) -> None:
        self._memory = aligned_bytes(size)
        self._used = 0

    def mark(self) -> int:
        """The place that `release` goes back to."""
        return self._used

    def release(self, mark: int) -> None:
        """Forgets the views taken since `mark`."""
        self._used = mark

    def take(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An uninitialized array.

        Raises:
            InternalError: the kernel announced less when it was bound.
        """
        start, self._used = self._used, self._used + nbytes(shape, dtype)
        if self._used > self._memory.size:
            raise InternalError(
                f"a kernel uses {self._used} bytes of scratch and announced {self._memory.size}"
            )
        return np.ndarray(tuple(shape), np.dtype(dtype), self._memory, start)


class Recorder:
    """Takes down the NumPy calls of one task, with every view already made: running them leaves
    little for the interpreter to do.

    The views are made once for fixed buffers. That matters most to threads: whatever Python does
    between two NumPy calls, it does alone.

    Args:
        scratch: of the worker that will run the calls.

    Attributes:
        calls: the calls, in order.
    """

    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch
        self.calls: list[Call] = []

    def __call__(
        self, function: Callable[..., object], *args: object, out: Array | None = None
    ) -> None:
        """Takes down function(*args), or function(*args, out=out); positional is faster, where
        NumPy allows it.
        """
        # NumPy would make an array at every call
        args = tuple(np.asarray(arg) if isinstance(arg, np.generic) else arg for arg in args)
        self.calls.append(
            partial(function, *args) if out is None else partial(function, *args, out=out)
        )

    def take(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Scratch for the calls that follow."""
        return self.scratch.take(shape, dtype)

    def copy(self, target: Array, source: Array) -> None:
        """Takes down target[...] = source, converting the element type as C does."""
        # np.copyto dispatches in Python first
        self.calls.append(partial(target.__setitem__, ..., source))


@dataclass(frozen=True, slots=True)
class Block:
    """Where a tile lies, and what is read while it is finished.

    Attributes:
        tile: its box in the destination, physical order.
        operands: the run-time operands of the epilogue, physical views.
        record: takes the calls down, gives scratch.
    """

    tile: Tile
    operands: Sequence[Array]
    record: Recorder


@dataclass(frozen=True)
class Tasks:
    """What a kernel does with one set of arrays: independent tasks.

    Attributes:
        count: how many.
        record: (index of the task, recorder): takes down its calls.
        prepare: takes down what every worker does before its first task (into scratch that stays);
            None: nothing.
        then: what follows when all are done; None: nothing.
    """

    count: int
    record: Callable[[int, Recorder], None]
    prepare: Callable[[Recorder], None] | None = None
    then: Tasks | None = None


@dataclass(frozen=True)
class Operand:
    """A value that a step reads, as binding knows it; `data` where it is a constant."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    layout: Layout = Layout.PLAIN
    data: Array | None = None

    @classmethod
    def of(cls, data: F32Array) -> Operand:
        """A constant that is no value of the plan."""
        return cls("", DType.F32, data.shape, data=data)

    def read(self, values: Values) -> Array:
        """The array, logical shape."""
        return self.data if self.data is not None else values[self.name]


@dataclass(frozen=True)
class Result:
    """A value that a step writes."""

    dtype: DType
    shape: tuple[int, ...]
    layout: Layout = Layout.PLAIN

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.dtype.numpy.itemsize

    def view(self, memory: npt.NDArray[np.uint8]) -> Array:
        """The logical array over memory of `size` bytes."""
        return self.layout.logical(
            np.ndarray(self.layout.physical_shape(self.shape), self.dtype.numpy, memory)
        )

    def empty(self) -> Array:
        """A new array."""
        return self.view(aligned_bytes(self.size))


@dataclass(frozen=True)
class Binding:
    """Everything a kernel is bound from.

    Attributes:
        step: the step.
        target: of the plan: `onednn-v3`'s or `onednn-v2`'s attribute order.
        operands: the values that the step reads, by name.
        dtypes: element types of the outputs.
        shapes: their shapes.
        profile: the float order.
        threads: how many workers will share the tiles.
    """

    step: Step
    target: str
    operands: Mapping[str, Operand]
    dtypes: tuple[DType, ...]
    shapes: tuple[tuple[int, ...], ...]
    profile: NumericsProfile
    threads: int

    def arg(self, role: str) -> Operand | None:
        """The operand in a role, or None."""
        name = self.step.arg(role)
        return None if name is None else self.operands[name]

    def need(self, role: str) -> Operand:
        """The operand in a role.

        Raises:
            InternalError: the step has none.
        """
        operand = self.arg(role)
        if operand is None:
            raise InternalError(
                f"step {self.step.name} ({self.step.primitive}) has no argument {role}"
            )
        return operand

    def constant(self, role: str) -> Array:
        """The data of the constant in a role.

        Raises:
            InternalError: it is computed at run time.
        """
        data = self.need(role).data
        if data is None:
            raise self.refuse(f"{role} that are no constant")
        return data

    def result(self, layout: Layout = Layout.PLAIN) -> Result:
        """The output, in a layout."""
        return Result(self.dtypes[0], self.shapes[0], layout)

    def number(self, param: str, default: float) -> float:
        """A numeric parameter."""
        value = self.step.params.get(param)
        return float(value) if isinstance(value, int | float) else default

    def refuse(self, what: str) -> InternalError:
        """The error for a step that no plan should hold."""
        return InternalError(f"step {self.step.name} ({self.step.primitive}): {what}")


class Kernel(ABC):
    """A bound step.

    Attributes:
        results: the outputs it writes; empty for a kernel that returns arrays of its own
            (`evaluate`).
        local_bytes: scratch for each worker.
        own_bytes: further memory of a run.
    """

    results: tuple[Result, ...] = ()
    local_bytes: int = 0
    own_bytes: int = 0

    @abstractmethod
    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """The work for these arrays: reads `values`, writes `outputs` (logical shape, in the
        layouts that `results` announce).
        """


def as_f32(array: Array, record: Recorder) -> F32Array:
    """The array, or a copy of it in scratch where it is of another type."""
    if array.dtype == np.float32:
        return array  # type: ignore[return-value]
    copy = record.take(array.shape, np.float32)
    record.copy(copy, array)
    return copy


def record_choice(keeps: np.ufunc, y: F32Array, other: F32Array, record: Recorder) -> None:
    """Takes down y = y where keeps(y, 0), else `other`, which is used as scratch."""
    keep = record.take(y.shape, np.bool_)
    record(keeps, y, np.float32(0), keep)
    record(np.copyto, other, y, "same_kind", keep)
    record(np.copyto, y, other)


BETWEEN = "#between"
"""What `InTurn` calls the result of its first kernel: no value of a plan, those are the user's names
without a number sign in front.
"""


class InTurn(Kernel):
    """Two kernels, the second of which reads what the first writes."""

    def __init__(self, first: Kernel, second: Kernel) -> None:
        self._first, self._second, self.results = first, second, second.results
        self.local_bytes = max(first.local_bytes, second.local_bytes)
        self.own_bytes = first.results[0].size

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """Those of the first, then those of the second."""
        between = self._first.results[0].empty()
        second = self._second.tasks({**values, BETWEEN: between}, outputs)
        return replace(self._first.tasks(values, [between]), then=second)


def share(size: int, threads: int, most: int, least: int) -> int:
    """Elements of a tile: what each worker gets of `size`, but at most `most`, and at least
    `least`.

    Handing a task to another thread costs some ten microseconds: a smaller task is done sooner
    where it is.
    """
    return max(least, min(most, -(-size // threads)))


def extent(tile: Tile) -> tuple[int, ...]:
    """The shape of a box."""
    return tuple(cut.stop - cut.start for cut in tile)


def cells(tile: Tile) -> int:
    """How many elements a box has."""
    return math.prod(extent(tile))


def part_of(array: Array, tile: Sequence[slice]) -> Array:
    """The part of an array that belongs to a box, as a view: dimensions of length 1 are broadcast
    against the box, and so is a number.
    """
    if array.ndim == 0:
        return array
    return array[
        tuple(
            cut if size != 1 else slice(None) for size, cut in zip(array.shape, tile, strict=True)
        )
    ]


def widened(array: Array, rank: int) -> Array:
    """The array with leading dimensions of 1, up to `rank`, as NumPy broadcasts."""
    return array if array.ndim >= rank else array.reshape((1,) * (rank - array.ndim) + array.shape)


def tiles(shape: Sequence[int], limit: int, workers: int = 1) -> list[Tile]:
    """Boxes of at most about `limit` elements that cover a row-major shape, each contiguous in
    memory.

    The box spans whole trailing dimensions, a piece of one dimension, and single indices of the
    leading ones. Where there is more than one, every worker gets as many as the others, if that
    dimension has the indices for it.
    """
    if math.prod(shape) == 0:
        return []
    inner, axis = 1, len(shape)
    while axis > 0 and inner * shape[axis - 1] <= limit:
        axis -= 1
        inner *= shape[axis]
    tail = tuple(slice(0, d) for d in shape[axis:])
    if axis == 0:
        return [tail]
    axis -= 1
    count = -(-shape[axis] // max(1, limit // inner))
    if math.prod(shape[:axis]) % workers:
        count = min(-(-count // workers) * workers, shape[axis])
    cuts = [shape[axis] * i // count for i in range(count + 1)]
    pieces = [slice(a, b) for a, b in pairwise(cuts)]
    return [
        (*(slice(i, i + 1) for i in lead), piece, *tail)
        for lead in np.ndindex(*shape[:axis])
        for piece in pieces
    ]
