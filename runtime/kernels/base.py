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
from dataclasses import dataclass
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
from ..numerics import NumericsProfile

__all__ = [
    "Binding",
    "Call",
    "Kernel",
    "Layout",
    "Operand",
    "Recorder",
    "Result",
    "Scratch",
    "Tasks",
    "Tile",
    "Values",
    "nbytes",
    "part_of",
    "share",
    "tiles",
]


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
        args = tuple(
            np.asarray(arg) if isinstance(arg, np.generic) else arg for arg in args
        )  # NumPy would make an array at every call
        self.calls.append(
            partial(function, *args) if out is None else partial(function, *args, out=out)
        )

    def take(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Scratch for the calls that follow."""
        return self.scratch.take(shape, dtype)

    def copy(self, target: Array, source: Array) -> None:
        """Takes down target[...] = source, converting the element type as C does."""
        self.calls.append(
            partial(target.__setitem__, ..., source)
        )  # np.copyto dispatches in Python first


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

    def ints(self, param: str, default: Sequence[int]) -> tuple[int, ...]:
        """A parameter that is a tuple of integers; the default where it is absent or empty."""
        value = self.step.params.get(param)
        if not isinstance(value, tuple) or not value:
            return tuple(default)
        return tuple(v for v in value if isinstance(v, int))

    def number(self, param: str, default: float) -> float:
        """A numeric parameter."""
        value = self.step.params.get(param)
        return float(value) if isinstance(value, int | float) else default

    def text(self, param: str, default: str) -> str:
        """A parameter that is text."""
        value = self.step.params.get(param)
        return value if isinstance(value, str) else default

    def refuse(self, what: str) -> InternalError:
        """The error for a step that no plan should hold."""
        return InternalError(f"step {self.step.name} ({self.step.primitive}): {what}")


class Kernel(ABC):
    """A bound step.

    Attributes:
        results: the outputs it writes; empty for a kernel that returns arrays of its own
            (`evaluate`).
        local_bytes: scratch for each worker.
    """

    results: tuple[Result, ...] = ()
    local_bytes: int = 0

    @abstractmethod
    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """The work for these arrays: reads `values`, writes `outputs` (logical shape, in the
        layouts that `results` announce).
        """


def share(size: int, threads: int, most: int, least: int) -> int:
    """Elements of a tile: what each worker gets of `size`, but at most `most`, and at least
    `least`.

    Handing a task to another thread costs some ten microseconds: a smaller task is done sooner
    where it is.
    """
    return max(least, min(most, -(-size // threads)))


def part_of(array: Array, tile: Sequence[slice]) -> Array:
    """The box as a view, also of a number: without the dots, indexing would take it out of its
    array.
    """
    box: Any = (*tile, ...)
    part: Array = array[box]
    return part


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
