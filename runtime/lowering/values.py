"""The tensors of a plan's values while a program is bound: one for each layout that a reader asked
for, made by reorders, once each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InternalError
from ...onednn.attributes import Attributes
from ...onednn.capi import OneDnnError
from ...onednn.enums import AlgKind, Arg, DataType, arg_zero_points
from ...onednn.layouts import dense_order, relaid, row_major, viewed
from ...onednn.library import Engine, Library
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive import Primitive
from ...onednn.primitive_desc import PrimitiveDesc, describe
from ...plan.shapes import StaticShape
from ...plan.types import Plan
from .constants import Constants
from .joining import wide
from .program import Action, Buffer, Owner, PrimitiveAction, Tensor, data_type
from .scales import MovedToNumPy

_LARGEST_WRITTEN_OUT = 128 << 20
"""Bytes of constants that one program may hold in a larger shape than the plan's."""

_MOST_DIMENSIONS = 12
"""Of a memory descriptor."""

_LARGEST_MADE = 1 << 30
"""Bytes of constants that one program may hold which are made for its shapes: in their place stands
a step on NumPy, which makes them too."""


class NotLowered(Exception):
    """No primitive runs this step as it should; the message is the reason."""


@dataclass(frozen=True)
class Wanted:
    """A value as an argument of a primitive: `desc` has the primitive's own view of the shape, and
    the layout that it was made for.
    """

    value: str
    desc: MemoryDesc


Args = Mapping[int, Wanted | Tensor | Memory]
"""Execution argument -> what a primitive reads there."""

Zero = int | str
"""A zero point: a constant, or the value that holds it at run time."""


@dataclass(frozen=True)
class Offer:
    """A primitive for a step.

    Attributes:
        desc: the descriptor.
        args: what it reads.
        sum_operand: the value that a `sum` post-op expects in the destination.
        zero_point: the primitive writes codes less this number, in f32; None: it writes the type of the
            step's output.
    """

    desc: PrimitiveDesc
    args: Args
    sum_operand: str | None = None
    zero_point: int | None = None

    def reading(self, args: Args) -> Offer:
        """The same with further arguments."""
        return replace(self, args={**self.args, **args})


def beyond_reach(shape: StaticShape) -> str:
    """Why primitives take no tensor of a shape; '' where they do."""
    if 0 in shape:
        return "has no elements"
    most = _MOST_DIMENSIONS
    return f"has more than {most} dimensions" if len(shape) > most else ""


class Values:
    """The tensors of every value, and the actions that make them.

    Args:
        plan: the plan.
        shapes: the shape of every value that is known.
        engine: the engine.
        constants: the plan's constants.

    Attributes:
        index: of the step that is being lowered.
    """

    def __init__(
        self, plan: Plan, shapes: Mapping[str, StaticShape], engine: Engine, constants: Constants
    ) -> None:
        self.plan = plan
        self.engine = engine
        self.constants = constants
        self.index = 0
        self._shapes = shapes
        self._tensors: dict[str, list[Tensor]] = {}
        self._first: dict[str, Tensor] = {}
        self._actions: list[Action] = []
        self._reorders = 0
        self._written: dict[int, list[str]] = {}
        self._seen: list[tuple[int, Tensor]] = []
        self._spread_names: dict[str, tuple[str, Spread]] = {}
        self._less: dict[str, tuple[str, Zero]] = {}
        self._cut: dict[str, tuple[str, int, range]] = {}
        self._lanes: dict[str, tuple[str, int]] = {}
        self._spread: dict[tuple[str, MemoryDesc], Tensor] = {}
        self._written_out: dict[tuple[str, tuple[int, ...], MemoryDesc], Memory] = {}
        self._written_bytes = {False: 0, True: 0}
        self._impl: list[str] = []
        self._last_use = {
            value: index for index, step in enumerate(plan.steps) for value in step.inputs
        }
        self._last_use |= dict.fromkeys(plan.outputs, len(plan.steps))

    @property
    def library(self) -> Library:
        """The library."""
        return self.engine.library

    @property
    def made_bytes(self) -> int:
        """Bytes of constants that were made for the shapes, such as a bias by position."""
        return self._written_bytes[True]

    def dims(self, value: str) -> tuple[int, ...]:
        """The shape of a value or constant, 0-d as [1].

        Raises:
            NotLowered: data decides it, or primitives take none of that shape.
        """
        if value in self._cut:
            of, axis, places = self._cut[value]
            dims = self.dims(of)
            return (*dims[:axis], len(places), *dims[axis + 1 :])
        shape = self._shapes.get(self._less[value][0] if value in self._less else value)
        if shape is None:
            raise NotLowered(f"the shape of {value} depends on data")
        if outside := beyond_reach(shape):
            raise NotLowered(f"{value} {outside}")
        return shape or (1,)

    def dtype(self, value: str) -> DataType:
        """The element type of a value or constant.

        Raises:
            NotLowered: primitives take none of that type.
        """
        if value in self._less or value in self._cut:
            return DataType.f32
        kind = self.plan.type(value).dtype
        found = data_type(kind)
        if found is None:
            raise NotLowered(f"no primitive takes {kind.value}")
        return found

    def is_constant(self, value: str) -> bool:
        """True for a constant of the plan."""
        return value in self.constants

    def desc(self, value: str) -> MemoryDesc:
        """The layout in which a value lies first of all; row-major for constants.

        Raises:
            NotLowered: primitives cannot read it.
        """
        if self.is_constant(value):
            return row_major(self.library, self.dims(value), self.dtype(value))
        if self.in_lanes(value):
            return self._dense(self._tensors[self._lanes[value][0]][0].desc, self.dtype(value))[1]
        found = self._found(value)
        if not found:
            raise NotLowered(f"{value} lies outside of oneDNN's reach")
        return found[0].desc

    def fetch(self, need: Wanted) -> Tensor | Memory:
        """The value in this layout: as it lies, seen under another shape, or through a reorder."""
        if self.is_constant(need.value):
            array = self.constants.data(need.value).reshape(need.desc.dims)
            return self.constants.packed(need.value, f"{list(need.desc.dims)}", array, need.desc)
        if need.value in self._spread_names:
            return self._spread_out(*self._spread_names[need.value], need.desc)
        known = self._found(need.value)
        for tensor in known:
            view = viewed(tensor.desc, need.desc.dims)
            if view is not None and view == need.desc:
                return tensor if view is tensor.desc else Tensor(tensor.buffer, need.desc)
        tensor = self._reordered(need.value, self._viewable(need.value, need.desc.dims), need.desc)
        back = viewed(need.desc, self.dims(need.value))
        if back is not None:
            known.append(tensor if back is need.desc else Tensor(tensor.buffer, back))
        return tensor

    def convert(self, value: str, desc: MemoryDesc) -> Wanted:
        """The value converted to another type (and layout), under a name of its own that can be
        fetched.
        """
        name = f"{value} as {desc.dtype.name}"
        if name not in self._tensors:
            tensor = self._reordered(value, self._viewable(value, desc.dims), desc)
            self._tensors[name] = [tensor]
        return Wanted(name, desc)

    def written_out(
        self, value: str, dims: Sequence[int], desc: MemoryDesc, data: NDArray[Any] | None = None
    ) -> Memory:
        """A constant broadcast to a larger shape, and kept with the program: it depends on the
        shapes that the program is bound for.

        Args:
            value: the constant.
            dims: the shape.
            desc: how it is written: type, and layout of a shape of as many elements.
            data: the constant's, where it is none of the plan's, but made for these shapes.

        Raises:
            NotLowered: the layout is not plain, or with those written so far it takes more than a
                program may keep.
        """
        if not desc.is_plain:
            raise NotLowered(f"{value} is not written out in blocks, as {desc}")
        key, made = (value, tuple(dims), desc), data is not None
        if key not in self._written_out:
            limit = _LARGEST_MADE if made else _LARGEST_WRITTEN_OUT
            self._written_bytes[made] += desc.size
            if self._written_bytes[made] > limit:
                self._written_bytes[made] -= desc.size
                raise NotLowered(
                    f"{value} written out as {list(dims)} takes {desc.size >> 20} MiB more than a program keeps for such"
                )
            memory = Memory.allocate(self.engine, desc)
            np.copyto(
                memory.view(),
                np.broadcast_to(
                    self.constants.data(value) if data is None else data, tuple(dims)
                ).reshape(desc.dims),
                casting="unsafe",
            )
            self._written_out[key] = memory
        return self._written_out[key]

    def spread(self, value: str, whole: Sequence[int], desc: MemoryDesc) -> Wanted:
        """A value broadcast to the shape of a step's output, under a name of its own; made when it is fetched.

        Args:
            value: the value.
            whole: the shape in the plan.
            desc: the layout, with the shape that the primitive sees.

        Raises:
            NotLowered: elements of this layout are repeated along other axes than primitives repeat.
        """
        if math.prod(self.dims(value)) == math.prod(desc.dims):
            return Wanted(value, desc)
        spread = self._repeats(value, tuple(whole), desc)
        name = f"{value} over {desc}"
        self._spread_names[name] = value, spread
        return Wanted(name, desc)

    def _repeats(self, value: str, whole: tuple[int, ...], desc: MemoryDesc) -> Spread:
        """How often bytes are repeated to broadcast a value; never where its spatial dimensions are of length 1."""
        dims, dtype = self.dims(value), desc.dtype
        given = wide(dims, len(whole))
        order = dense_order(desc) if desc.dims == whole else None
        if order is None:
            if desc != row_major(self.library, desc.dims, dtype):
                raise NotLowered(f"no primitive spreads {value} {list(dims)} over {desc}")
            order = list(range(len(whole)))
        lies = relaid(desc, given, dtype) or row_major(self.library, given, dtype)
        if 3 <= len(dims) == len(desc.dims) <= 5 and dims[:2] == whole[:2]:
            return Spread(lies, ())
        source = viewed(lies, dims)
        if source is None:
            raise NotLowered(f"{value} {list(dims)} does not lie as {desc}")
        found: list[tuple[int, int, int]] = []
        for place, axis in enumerate(order):
            if given[axis] == whole[axis]:
                continue
            outer = math.prod(whole[before] for before in order[:place])
            inner = math.prod(given[behind] for behind in order[place + 1 :])
            count = whole[axis]
            if found and found[-1][0] * found[-1][1] == outer:  # neighbours are repeated at once
                outer, more, _ = found.pop()
                count *= more
            found.append((outer, count, inner))
        return Spread(source, tuple(found))

    def _spread_out(self, value: str, spread: Spread, desc: MemoryDesc) -> Tensor:
        """See `spread`: the nearest element of a resampling is the only one, of a row as of an image."""
        found = self._spread.get((value, desc))
        if found is not None:
            return found
        found = self._spread[value, desc] = Tensor(_buffer(value, desc), desc)
        source = self.fetch(Wanted(value, spread.source))
        if not spread.repeats:
            self._resample(value, source, found)
        for index, (outer, count, inner) in enumerate(spread.repeats):
            assert isinstance(source, Tensor)  # a constant is written out
            seen, target = (
                row_major(self.library, (1, outer, size, inner), desc.dtype) for size in (1, count)
            )
            last = index == len(spread.repeats) - 1
            buffer = found.buffer if last else Buffer(f"{value} {target}", Owner.ARENA, target.size)
            made = Tensor(buffer, target)
            self._resample(value, Tensor(source.buffer, seen), made)
            source = made
        return found

    def _resample(self, value: str, source: Tensor | Memory, target: Tensor) -> None:
        made = describe(
            self.engine,
            "resampling",
            source.desc,
            target.desc,
            alg=AlgKind.resampling_nearest,
            origin=f"broadcast of {value}",
        )
        self._run(made, {Arg.SRC: source, Arg.DST: target})

    def rearranged(
        self, value: str, name: str, view: MemoryDesc, target: MemoryDesc, seen: MemoryDesc
    ) -> Wanted:
        """A copy of a value in another order of elements, under a name of its own that can be
        fetched.

        Args:
            value: the value.
            name: of the copy.
            view: the value's row-major bytes under a finer shape.
            target: that shape in the new order.
            seen: the copy's bytes as the primitive sees them.
        """
        if name not in self._tensors:
            source = Tensor(self._straight(value).buffer, view)
            buffer = Buffer(name, Owner.ARENA, target.size, {value})
            self._moved(source, target, buffer, f"layout of {value}")
            self._tensors[name] = [Tensor(buffer, seen)]
        return Wanted(name, seen)

    def seen_as(self, value: str, desc: MemoryDesc) -> Wanted:
        """A value through a descriptor that differs from that of its first tensor by the strides of
        dimensions of length 1 alone, under a name of its own that can be fetched: the same bytes.
        """
        if self.is_constant(value):
            return Wanted(value, desc)
        name = f"{value} as {desc.strides}"
        self._tensors[name] = [Tensor(self._found(value)[0].buffer, desc)]
        return Wanted(name, desc)

    def flattened(self, value: str, lies: MemoryDesc) -> Wanted:
        """A value's elements in the order of their addresses, as [count], under a name of its own
        that can be fetched.

        Args:
            value: the value.
            lies: a dense layout of it without offset.
        """
        flat = row_major(self.library, (math.prod(lies.dims),), lies.dtype)
        if self.is_constant(value):  # row-major
            return Wanted(value, flat)
        name = f"{value} as it lies"
        found = self.fetch(Wanted(value, lies))
        assert isinstance(found, Tensor)
        self._tensors[name] = [Tensor(found.buffer, flat)]
        return Wanted(name, flat)

    def less(self, value: str, zero_point: Zero) -> str:
        """The name of a value's codes less a zero point in f32, which is exact; made when it is fetched.

        Args:
            value: u8, s8 or s32.
            zero_point: an integer.
        """
        for needed in (value, zero_point):
            if isinstance(needed, str) and not (self.is_constant(needed) or self.reaches(needed)):
                raise NotLowered(f"{needed} lies outside of oneDNN's reach")
        name = self._less_name(value, zero_point)
        if self.is_constant(value) and isinstance(zero_point, int):
            data = self.constants.data(value).astype(np.float32) - np.float32(zero_point)
            self.constants.derive(name, data)
        self._less[name] = value, zero_point
        return name

    def _less_name(self, value: str, zero_point: Zero) -> str:
        return self._own_name(f"{value} less {zero_point}")

    def _own_name(self, name: str) -> str:
        """A name that no value of the plan has."""
        while name in self.plan.values or name in self.plan.constants:
            name += "'"
        return name

    def derived(self, name: str, value: str, tensor: Tensor) -> None:
        """Defines f32 numbers of the shape of a value, under a name of their own that can be fetched."""
        tensor.buffer.values.add(name)
        self._less[name] = self._less[value]
        self._tensors[name] = [tensor]

    def part(self, value: str, axis: int, places: range) -> str:
        """The name of some of a value's numbers in f32: those at `places` of an axis, copied when they are fetched.

        Args:
            value: computed, no constant.
            axis, places: which of its numbers, side by side.
        """
        name = self._own_name(f"{value}, {places.start} to {places.stop} of axis {axis}")
        self._cut[name] = value, axis, places
        return name

    def in_lanes(self, value: str) -> bool:
        """True for codes that lie in f32 alone."""
        return value in self._lanes and value not in self._tensors

    def reaches(self, value: str) -> bool:
        """True while primitives can read the bytes of a value, which is no constant: nothing was written
        over them.
        """
        return bool(self._tensors[value]) if value in self._tensors else value in self._lanes

    def _found(self, value: str) -> list[Tensor]:
        """The tensors of a value. Codes that a product left in f32, and those less a zero point, are made
        of each other when they are first asked for.
        """
        if value not in self._tensors:
            if value in self._less:
                self._tensors[value] = [self._shifted(value)]
            elif value in self._lanes:
                self._tensors[value] = [self._codes_of_lanes(value)]
            elif value in self._cut:
                self._tensors[value] = [self._copied(value)]
        return self._tensors.get(value, [])

    def _shifted(self, name: str) -> Tensor:
        """Codes less a zero point, in f32."""
        value, zero_point = self._less[name]
        if isinstance(zero_point, str) and self.is_constant(value):
            return self._constant_less(name, self.less(value, 0), zero_point)
        return self._in_type(value, DataType.f32, Arg.SRC, zero_point, {value, name})

    def _copied(self, name: str) -> Tensor:
        """What `part` named, in the value's order of dimensions."""
        of, axis, places = self._cut[name]
        lies, _ = self._dense(self.desc(of), DataType.f32)
        whole = self.fetch(Wanted(of, lies))
        offsets = [places.start if at == axis else 0 for at in range(len(lies.dims))]
        dims = self.dims(name)
        target = relaid(lies, dims, DataType.f32)
        assert target is not None
        assert isinstance(whole, Tensor)
        box = Tensor(whole.buffer, lies.submemory(dims, offsets))
        return self._moved(box, target, _buffer(name, target), f"part of {of}")

    def _constant_less(self, name: str, constant: str, zero_point: str) -> Tensor:
        """A constant in f32 less a zero point that is computed."""
        layout = self.desc(constant)
        scalar = row_major(self.library, (1,) * len(layout.dims), DataType.f32)
        shift = Wanted(zero_point, scalar)
        if self.dtype(zero_point) != DataType.f32:
            shift = self.convert(zero_point, scalar)
        made = describe(
            self.engine, "binary", layout, scalar, layout, alg=AlgKind.binary_sub, origin=name
        )
        target = Tensor(Buffer(name, Owner.ARENA, layout.size, {name}), layout)
        given = self.fetch(Wanted(constant, layout))
        args: dict[int, Tensor | Memory] = {
            Arg.SRC_0: given,
            Arg.SRC_1: self.fetch(shift),
            Arg.DST: target,
        }
        self._run(made, args)
        return target

    def _codes_of_lanes(self, value: str) -> Tensor:
        """The codes that lie in f32 lanes, in their own type."""
        lanes, zero_point = self._lanes[value]
        return self._in_type(lanes, self.dtype(value), Arg.DST, zero_point, {value})

    def _in_type(
        self, value: str, dtype: DataType, arg: Arg, zero_point: Zero, held: set[str]
    ) -> Tensor:
        """A value in another type, element by element in the order of addresses: a reorder of several
        dimensions may be a hundred times as slow.

        Args:
            value: dense, or brought into row-major order first.
            dtype: of the result.
            arg: whose zero point it is: that of the source is subtracted, that of the destination added.
            zero_point: of the codes.
            held: the names under which the result is used.
        """
        lies, _ = self._dense(self.desc(value), dtype)
        source = self.fetch(Wanted(value, lies))
        assert isinstance(source, Tensor)  # constants are derived
        read: dict[int, Tensor | Memory] = {}
        if zero_point:
            read[arg] = self._zero_point(zero_point)
        return self._retyped(source, dtype, held, read)

    def _dense(self, lies: MemoryDesc, dtype: DataType) -> tuple[MemoryDesc, MemoryDesc]:
        """A layout without gaps, and the same of another type: that which is given, or row-major."""
        layout = relaid(lies, lies.dims, dtype) if lies.is_plain and not lies.offset else None
        if layout is not None:
            return lies, layout
        straight, other = (row_major(self.library, lies.dims, kind) for kind in (lies.dtype, dtype))
        return straight, other

    def _retyped(
        self,
        source: Tensor,
        dtype: DataType,
        held: set[str],
        zero_points: Mapping[int, Tensor | Memory],
    ) -> Tensor:
        """A dense tensor in another type; see `_in_type`."""
        lies = source.desc
        layout, count = relaid(lies, lies.dims, dtype), (math.prod(lies.dims),)
        assert layout is not None
        buffer = Buffer(min(held), Owner.ARENA, layout.size, set(held))
        given, target = (row_major(self.library, count, kind) for kind in (lies.dtype, dtype))
        attributes = Attributes(zero_points=dict.fromkeys(zero_points, 0))
        origin = f"codes of {buffer.name}"
        made = describe(self.engine, "reorder", given, target, attributes=attributes, origin=origin)
        args: dict[int, Tensor | Memory] = {
            Arg.SRC: Tensor(source.buffer, given),
            Arg.DST: Tensor(buffer, target),
        }
        args |= {arg_zero_points(arg): zero for arg, zero in zero_points.items()}
        self._run(made, args)
        return Tensor(buffer, layout)

    def _zero_point(self, zero_point: Zero) -> Tensor | Memory:
        """As the library reads it."""
        if not isinstance(zero_point, str):
            return self.constants.vector(np.asarray([zero_point], np.int32))
        desc = row_major(self.library, (1,), DataType.s32)
        as_is = self.is_constant(zero_point) or self.dtype(zero_point) == DataType.s32
        return self.fetch(Wanted(zero_point, desc) if as_is else self.convert(zero_point, desc))

    def _define_lanes(self, value: str, zero_point: int, tensor: Tensor) -> None:
        """Defines a value of codes by these less a zero point, in f32."""
        name = self._less_name(value, zero_point)
        self._less[name] = value, zero_point
        tensor.buffer.values |= {value, name}
        self._tensors[name] = [tensor]
        self._lanes[value] = name, zero_point
        self._record(value, tensor)

    def _define(self, value: str, tensor: Tensor) -> None:
        tensor.buffer.values.add(value)
        self._tensors[value] = [tensor]
        self._record(value, tensor)

    def _record(self, value: str, tensor: Tensor) -> None:
        """Notes where a value was first written, behind which action."""
        self._first[value] = tensor
        self._written.setdefault(len(self._actions) - 1, []).append(value)
        self._seen.append((len(self._actions) - 1, tensor))

    def _readable(self, value: str) -> Tensor:
        """A tensor of a value that NumPy can read: any plain layout."""
        for tensor in self._found(value):
            if tensor.desc.is_plain:
                return tensor
        return self._straight(value)

    def _straight(self, value: str) -> Tensor:
        """A row-major tensor of a value: the library transposes faster than NumPy copies."""
        first = self._found(value)[0]
        found = self.fetch(
            Wanted(value, row_major(self.library, first.desc.dims, first.desc.dtype))
        )
        assert isinstance(found, Tensor)
        return found

    def _viewable(self, value: str, dims: Sequence[int]) -> Tensor:
        """A tensor of the value under another shape; brought into row-major order first where its
        layout does not allow that.
        """
        first = self._found(value)[0]
        view = viewed(first.desc, dims)
        if view is None:
            if math.prod(dims) != math.prod(first.desc.dims):
                raise InternalError(
                    f"{value} {list(first.desc.dims)} was asked for as {list(dims)}"
                )
            plain = row_major(self.library, first.desc.dims, first.desc.dtype)
            straight = self.fetch(Wanted(value, plain))
            assert isinstance(straight, Tensor)
            view, first = viewed(plain, dims), straight
            assert view is not None
        return first if view is first.desc else Tensor(first.buffer, view)

    def _reordered(self, value: str, source: Tensor | Memory, desc: MemoryDesc) -> Tensor:
        """A copy in another layout or type."""
        self._reorders += 1
        return self._moved(source, desc, _buffer(value, desc), f"layout of {value}")

    def _moved(
        self, source: Tensor | Memory, desc: MemoryDesc, buffer: Buffer, origin: str
    ) -> Tensor:
        tensor = Tensor(buffer, desc)
        made = describe(self.engine, "reorder", source.desc, desc, origin=origin)
        self._run(made, {Arg.SRC: source, Arg.DST: tensor})
        return tensor

    def _in_place(self, operand: Wanted, read: set[Buffer]) -> Buffer:
        """The buffer of a destination that holds the operand of `sum`: the operand's own where
        nothing reads it later, else a copy.
        """
        if not self.is_constant(operand.value):
            for tensor in self._found(operand.value):
                view = viewed(tensor.desc, operand.desc.dims)
                if (
                    view is not None
                    and view == operand.desc
                    and self._dies_here(tensor.buffer)
                    and tensor.buffer not in read
                ):
                    for value in tensor.buffer.values:
                        self._tensors[value] = []
                    return tensor.buffer
        source = (
            self.fetch(operand)
            if self.is_constant(operand.value)
            else self._viewable(operand.value, operand.desc.dims)
        )
        buffer = Buffer(operand.value, Owner.ARENA, operand.desc.size)
        self._moved(source, operand.desc, buffer, f"copy of {operand.value}")
        self._reorders += 1
        return buffer

    def _dies_here(self, buffer: Buffer) -> bool:
        return buffer.owner is Owner.ARENA and all(
            self._last_use.get(value, -1) <= self.index for value in buffer.values
        )

    def _made(self, desc: PrimitiveDesc) -> Primitive:
        try:
            return Primitive(desc)
        except OneDnnError as error:
            raise MovedToNumPy(self.index, error.what) from error

    def _run(self, desc: PrimitiveDesc, args: Mapping[int, Tensor | Memory]) -> None:
        primitive = self._made(desc)
        self._impl.append(desc.impl_info)
        self._actions.append(PrimitiveAction(primitive, args))


def _buffer(value: str, desc: MemoryDesc) -> Buffer:
    """Memory for a value in a layout."""
    return Buffer(value, Owner.ARENA, desc.size, {value})


@dataclass(frozen=True)
class Spread:
    """How a value is broadcast.

    Attributes:
        source: how it lies first.
        repeats: broadcasts of its bytes, one after the other: seen as [outer, 1, inner], they become
            [outer, count, inner].
    """

    source: MemoryDesc
    repeats: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Weights:
    """The weights argument.

    Attributes:
        name: the plan's constant or value.
        dims, dtype: what the primitive sees.
        form: how the constant becomes it, in words: with the name it identifies the content.
        data: gives the weights in the primitive's shape; None where they are computed at run time.
    """

    name: str
    dims: tuple[int, ...]
    dtype: DataType
    form: str
    data: Callable[[], NDArray[Any]] | None

    @classmethod
    def of(
        cls,
        binder: Values,
        name: str,
        dims: tuple[int, ...],
        view: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
        form: str = "weights",
    ) -> Weights:
        """Weights of the plan, reshaped or seen by `view`."""

        def data() -> NDArray[Any]:
            array = binder.constants.data(name)
            return array.reshape(dims) if view is None else view(array)

        constant = data if binder.is_constant(name) else None
        return cls(name, dims, binder.dtype(name), f"{form} {list(dims)}", constant)

    def argument(self, binder: Values, desc: MemoryDesc) -> Wanted | Memory:
        """The weights in the layout `desc`: packed once when constant."""
        if self.data is None:
            return Wanted(self.name, desc)
        return binder.constants.packed(self.name, self.form, self.data(), desc)


def distinct(*layouts: MemoryDesc | None) -> list[MemoryDesc]:
    """Those that there are, once each."""
    return list(dict.fromkeys(layout for layout in layouts if layout is not None))
