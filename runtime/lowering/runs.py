"""The memory of one run of a bound program, with its argument arrays ready: nobody else uses it
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter_ns
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...aligned import aligned_bytes
from ...errors import InternalError
from ...ir.ops.spec import Array
from ...onednn.call_loop import CCall, Pointers, Tried, joined
from ...onednn.enums import Arg, DataType
from ...onednn.layouts import row_major
from ...onednn.library import Engine, Library, Stream
from ...onednn.memory import Memory, MemoryDesc, address_of, numpy_dtype, view
from ...onednn.primitive import ExecArgs, run_once
from ...onednn.primitive_desc import describe
from ...onednn.slabs import arena_bytes
from ...onednn.workers import making
from ...plan.shapes import bound_otherwise
from ...plan.types import Plan
from ..executor import StepTimes
from ..results import WORTHWHILE, ResultMemory
from .averages import AverageAction
from .coded import CodedAction
from .decoder import PartsAction, RowsAction, part_of
from .host import HostAction
from .host_calls import call_in_c, tried_in_c
from .program import Action, Buffer, Owner, PrimitiveAction, Program, Tensor
from .recurrent_f32 import StepsAction
from .rows import RowsProduct

A = TypeVar("A")
Key = str | Buffer


class Run:
    """An arena, a scratchpad, and for each action of a program a call without arguments.

    Args:
        plan: the plan.
        program: bound for the shapes that will be fed.
        engine: the engine.

    Attributes:
        plan, program: the same.
        library: the engine's.
        calls: for each action of the program a call that returns a status.
    """

    def __init__(self, plan: Plan, program: Program, engine: Engine) -> None:
        self.plan = plan
        self.program = program
        self._engine, self.library = engine, engine.library
        self._stream = Stream(engine)
        self._arena = arena_bytes(program.arena_bytes)
        self._memories: dict[Tensor, Memory] = {}
        self._results: dict[Buffer, ResultMemory] = {}
        # Of a buffer whose address each run sets anew; and what was fed, what NumPy steps
        # returned, and what will be handed out, in this run: see `_key`.
        self._loose: dict[Key, list[Memory]] = {}
        self._arrays: dict[Key, Array] = {}
        self._aimed: _Aimed | None = None
        scratchpad = aligned_bytes(max(program.scratchpad_bytes, 1))
        self._scratchpad = Memory(
            engine, row_major(engine.library, scratchpad.shape, DataType.u8), scratchpad
        )
        self._held: list[object] = []  # the calls point into these
        self.calls = [self._call(action) for action in program.actions]
        self._stretches = joined(engine.library, self.calls)
        self._outputs = [self._reader(name) for name in plan.outputs]
        self._settled = _read_in_a_run(plan, program)

    def execute(
        self, feeds: Mapping[str, Array], behind: Callable[[int], None] | None = None
    ) -> list[Array]:
        """The outputs of the plan, as new C-contiguous arrays. `behind` is called before the first call
        and behind each.

        Raises:
            OneDnnError: a primitive failed; the message names it and its place in the model.
            InvalidInput: a NumPy step cannot be computed.
        """
        try:
            if behind is not None:
                self._call_each(feeds, behind)
                return [read() for read in self._outputs]
            self._feed(feeds)
            for stretch in self._stretches:
                status = stretch.call()
                if status:
                    raise self._failure(stretch.failed(), status)
            return [read() for read in self._outputs]
        finally:
            self._release()

    def execute_all(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Every value that a step writes, read as soon as it is there: its memory may hold another
        value later.
        """
        found = {value: np.array(data) for value, data in self.program.settled.items()}

        def keep(index: int) -> None:
            for value in self.program.written.get(index, ()):
                if value not in self.program.settled:
                    found[value] = self._codes(value, self._reader(value, first=True)())

        try:
            self._call_each(feeds, keep)
        finally:
            self._release()
        return {value: found[value] for step in self.plan.steps for value in step.outputs if value}

    def execute_timed(self, feeds: Mapping[str, Array]) -> StepTimes:
        """Does what `execute` does, and looks at the clock behind each call."""
        stamps: list[int] = []
        try:
            self._call_each(feeds, lambda _: stamps.append(perf_counter_ns()))
            for read in self._outputs:
                read()
        finally:
            self._release()
        spent = [0] * (len(self.plan.steps) + 1)
        for step, (before, after) in zip(self.program.steps, pairwise(stamps), strict=True):
            spent[step] += after - before
        return StepTimes(stamps[0], tuple(spent[:-1]))

    def _call_each(self, feeds: Mapping[str, Array], behind: Callable[[int], None]) -> None:
        """Feeds, and makes one call after the other; `behind` comes before the first (-1) and behind each."""
        self._feed(feeds)
        behind(-1)
        for index, call in enumerate(self.calls):
            status = call()
            if status:
                raise self._failure(index, status)
            behind(index)

    def _failure(self, index: int, status: int) -> Exception:
        """What the status of a call means."""
        action = self.program.actions[index]
        if isinstance(action, PrimitiveAction):
            return action.primitive.execution_error(status)
        if isinstance(action, PartsAction):
            return action.parts[0][0].execution_error(status)
        return InternalError(f"a step on NumPy returned status {status}")

    # -- arrays of this run ------------------------------------------------------------------------

    def _feed(self, feeds: Mapping[str, Array]) -> None:
        """Begins a run with an array for each input, and with what their sizes settle."""
        arrays, aimed = self._arrays, self._aimed
        if aimed is None or aimed.known != len(self._memories):
            self._feed_first(feeds)
            return
        for name, array in (*feeds.items(), *self._settled):
            arrays[name] = array if array.flags.c_contiguous else np.array(array, order="C")
        addresses = list[int]()
        for key, memories in aimed.fed:
            array = arrays[key]
            _append(addresses, memories, array, address_of(array))
        for buffer, memories in aimed.results:
            array, address = self._results[buffer].take()
            arrays[buffer] = array
            _append(addresses, memories, array, address)
        aimed.pointers.point(addresses)

    def _feed_first(self, feeds: Mapping[str, Array]) -> None:
        """As `feed`, one memory by one: each looks whether its array, as large in each run, is large
        enough.
        """
        for name, array in (*feeds.items(), *self._settled):
            _keep(self._arrays, self._loose, name, array)
        for buffer, memory in self._results.items():
            _keep(self._arrays, self._loose, buffer, memory.take()[0])
        fed: list[Key] = [*feeds, *(name for name, _ in self._settled)]
        self._aimed = _Aimed.of(self.library, self._loose, fed, self._results, len(self._memories))

    def _release(self) -> None:
        """Forgets the arrays of the run; the memories' stale addresses are replaced before they are
        used again.
        """
        self._arrays.clear()
        for memories in self._loose.values():
            for memory in memories:
                memory.data = None

    def _reader(self, name: str, *, first: bool = False) -> Callable[[], Array]:
        """What copies a value into a new C-contiguous array of its logical shape.

        Args:
            name: the value or constant.
            first: read it as it was written, in whatever layout; otherwise the tensor that is kept
                for outputs.
        """
        if name in self.plan.constants:
            data = self.plan.constants[name]
            return lambda: np.array(data, order="C")
        tensor = (self.program.tensors if first else self.program.outputs).get(name)
        if tensor is not None and not tensor.desc.is_plain:
            shape = self.program.shapes[name]
            return lambda: self._straightened(tensor).reshape(shape)
        see = self._viewer(name, tensor)
        if self._stays(name, tensor) and see().nbytes < WORTHWHILE:
            return see().copy
        if tensor is None or first or tensor.desc.size < WORTHWHILE:
            return lambda: np.array(see(), order="C")
        memory = ResultMemory(self.program.shapes[name], self.plan.type(name).dtype.numpy)
        arrays, buffer = self._arrays, tensor.buffer
        if buffer.owner is Owner.RESULT and buffer not in self._results:
            self._results[buffer] = memory
            return lambda: arrays[buffer]

        def read() -> Array:
            result, _ = memory.take()
            np.copyto(result, see())
            return result

        return read

    def _codes(self, value: str, array: Array) -> Array:
        """A value as the plan has it, of what was written first: codes may lie in f32."""
        shift = self.program.lanes.get(value)
        if shift is None:
            return array
        codes: Array = np.add(array, np.float32(shift)).astype(self.plan.type(value).dtype.numpy)
        return codes

    def _straightened(self, tensor: Tensor) -> Array:
        """A value in a layout of the library's own, as a row-major array."""
        desc = row_major(self._engine.library, tensor.desc.dims, tensor.desc.dtype)
        target = Memory.allocate(self._engine, desc)
        with making():
            run_once(
                self._stream,
                describe(self._engine, "reorder", tensor.desc, desc),
                {Arg.SRC: self._memory(tensor), Arg.DST: target},
            )
        return target.view()

    # -- building ----------------------------------------------------------------------------------

    def _place(self, tensor: Tensor) -> NDArray[np.uint8]:
        start = self.program.offsets[tensor.buffer]
        return self._arena[start : start + tensor.buffer.size]

    def _memory(self, tensor: Tensor) -> Memory:
        memory = self._memories.get(tensor)
        if memory is None:
            if tensor.buffer.owner is Owner.ARENA:
                memory = Memory(self._engine, tensor.desc, self._place(tensor))
            else:
                memory, key = Memory(self._engine, tensor.desc), _key(tensor.buffer)
                self._loose.setdefault(key, []).append(memory)
                if key in self._arrays:  # in the middle of a run
                    memory.set_data(self._arrays[key])
            self._memories[tensor] = memory
        return memory

    def _call(self, action: Action) -> Callable[[], int]:
        if isinstance(action, PrimitiveAction):
            return self._primitive_call(action)
        if isinstance(action, PartsAction):
            return self._parts_call(action)
        if isinstance(action, RowsAction):
            return self._rows_call(action)
        if isinstance(action, StepsAction):
            return action.layer.call(self._memories_of(action.args))
        if isinstance(action, AverageAction):
            return action.call(self._memories_of(action.args), self._held)
        if isinstance(action, CodedAction):
            return self._coded_call(action)
        assert isinstance(action, HostAction)
        return self._host_call(action)

    def _memories_of(self, args: Mapping[A, Tensor | Memory]) -> dict[A, Memory]:
        return {arg: self._memory(of) if isinstance(of, Tensor) else of for arg, of in args.items()}

    def _primitive_call(self, action: PrimitiveAction) -> Callable[[], int]:
        desc = action.primitive.desc
        memories = self._memories_of(action.args)
        if desc.scratchpad_size:
            memories[Arg.SCRATCHPAD] = self._scratchpad
        args = ExecArgs(desc, memories)
        self._held.append(args)
        return action.primitive.call(self._stream, args)

    def _parts_call(self, action: PartsAction) -> Callable[[], int]:
        scratch = self._place(action.weights)
        calls = list[Callable[[], Any]]()
        for primitive, start in action.parts:
            desc, width = primitive.desc, primitive.desc.dst_md().dims[-1]
            memories = {
                arg: self._part(of, part_of(desc, arg, of.desc), start)
                for arg, of in action.args.items()
            }
            memories[Arg.WEIGHTS] = Memory(self._engine, desc.weights_md(), scratch)
            if desc.scratchpad_size:
                memories[Arg.SCRATCHPAD] = self._scratchpad
            args = ExecArgs(desc, memories)
            self._held.append(args)
            calls += [
                action.decoder.columns(start, width, scratch),
                primitive.call(self._stream, args),
            ]

        def call() -> int:
            for step in calls:
                status = step()
                if status:
                    return int(status)
            return 0

        return call

    def _part(self, of: Tensor | Memory, desc: MemoryDesc | None, start: int) -> Memory:
        """An argument from a column on, where a part reads or writes it so; else the whole."""
        if desc is None:
            return self._memory(of) if isinstance(of, Tensor) else of
        skipped = start * numpy_dtype(desc.dtype).itemsize
        if isinstance(of, Memory):
            assert of.data is not None
            return Memory(self._engine, desc, _bytes_from(of.data, skipped))
        if of.buffer.owner is Owner.ARENA:
            return Memory(self._engine, desc, self._place(of)[skipped:])
        memory = _Shifted(self._engine, desc, skipped)
        self._loose.setdefault(_key(of.buffer), []).append(memory)
        return memory

    def _rows_call(self, action: RowsAction) -> Callable[[], int]:
        decoder, rows = action.decoder, action.src.desc.dims[0]
        read = self._viewer(action.source, action.src)
        out = view(action.dst.desc, self._place(action.dst))
        size = decoder.blocks.size
        room = None
        if action.scratch is not None:
            room = view(action.scratch.desc, self._place(action.scratch))

        def filled() -> NDArray[Any]:
            source = read().reshape(rows, size)
            if room is None or size == room.shape[2]:
                return source
            room[0, :, :size], room[0, :, size:] = source, 0
            whole: NDArray[Any] = room[0]
            return whole

        if not decoder.reads_halves(rows):
            panels = None if action.panels is None else self._place(action.panels)
            multiply = decoder.product(rows, out, panels)
            in_c = self._in_c(multiply, action) if room is None else None
            if in_c is not None:
                return in_c

            def call() -> int:
                multiply(filled())
                return 0

            return call
        assert room is not None
        multiply_halves, halves = (
            decoder.halves_product(room[1], out),
            room[1].reshape(rows, -1, 2, 16),
        )

        def call_several() -> int:
            halves[:] = filled().reshape(rows, -1, 16, 2).swapaxes(2, 3)
            multiply_halves()
            return 0

        return call_several

    def _coded_call(self, action: CodedAction) -> Callable[[], int]:
        rows, size = action.src.desc.dims
        read = self._viewer(action.source, action.src)
        out = view(action.dst.desc, self._place(action.dst))
        multiply = action.weights.product(rows, out, self._place(action.scratch))

        def call() -> int:
            multiply(read().reshape(rows, size))
            return 0

        return self._in_c(multiply, action) or call

    def _in_c(self, multiply: RowsProduct, action: RowsAction | CodedAction) -> CCall | None:
        """A product of rows that stay where they are in C alone, where that can be."""
        if not self._stays(action.source, action.src):
            return None
        sources = view(action.src.desc, self._place(action.src))
        return multiply.in_c(self.library, sources, self._held)

    def _host_call(self, action: HostAction) -> Callable[[], int]:
        # What the calls refer to is named here: a reference to `self` would be a cycle, and keep
        # the arena until it is collected.
        runner, outputs, arrays, loose, plan = (
            action.runner,
            action.outputs,
            self._arrays,
            self._loose,
            self.plan,
        )
        readers = {value: self._viewer(value, action.inputs.get(value)) for value in runner.inputs}
        for tensor in outputs.values():
            self._memory(tensor)
        shapes = self.program.shapes
        made = {
            value: (shapes[value], plan.type(value).dtype.numpy)
            for value in runner.outputs
            if value in shapes
        }

        def general() -> int:
            found = runner.run({value: read() for value, read in readers.items()})
            for value, array in found.items():
                if value in made and (array.shape, array.dtype) != made[value]:
                    shape, dtype = made[value]
                    raise bound_otherwise(plan, value, array, f"{dtype}{list(shape)}")
                _keep(arrays, loose, value, array)
            return 0

        single = self._single_call(action, readers, general)
        return general if single is None else single

    def _single_call(
        self,
        action: HostAction,
        readers: Mapping[str, Callable[[], NDArray[Any]]],
        general: Callable[[], int],
    ) -> Callable[[], int] | None:
        """The one call that a step on NumPy comes to, in C where that can be, and `general` where it
        leaves the work undone; None where there is none.
        """
        runner, arrays, shapes = action.runner, self._arrays, self.program.shapes
        results = [action.outputs.get(value) for value in runner.outputs]
        placed = [of for of in results if of is not None and of.buffer.owner is Owner.ARENA]
        if runner.single_call is None or len(placed) < len(results):
            return None
        outs = [
            view(of.desc, self._place(of)).reshape(shapes[value])
            for of, value in zip(placed, runner.outputs, strict=True)
        ]
        source = runner.inputs[0]
        single, read = runner.single_call(*outs), readers[source]

        def evaluated() -> int:
            general()  # says what is wrong
            for out, value in zip(outs, runner.outputs, strict=True):
                np.copyto(out, arrays.pop(value))
            return 0

        if self._stays(source, action.inputs.get(source)):
            in_c, tried = call_in_c(single, read()), tried_in_c(single, read())
            if tried is not None:
                self._held.append(single)
                return Tried.of(tried, evaluated) if in_c is None else in_c

        def call() -> int:
            return 0 if single(read()) else evaluated()

        return call

    def _stays(self, value: str, tensor: Tensor | None) -> bool:
        """True of a value that lies in the arena, where it is in each run."""
        if tensor is None or value in self.program.host_views:
            return False
        return tensor.buffer.owner is Owner.ARENA

    def _viewer(self, value: str, tensor: Tensor | None) -> Callable[[], NDArray[Any]]:
        """What shows a value as an array of its logical shape, without a copy."""
        arrays = self._arrays
        if value in self.program.host_views:
            see, form = (
                self._viewer(self.program.host_views[value], None),
                self.program.shapes[value],
            )
            return lambda: see().reshape(form)
        if tensor is None or _key(tensor.buffer) == value:
            return lambda: arrays[value]
        shape, desc, base = self.program.shapes[value], tensor.desc, _key(tensor.buffer)
        if tensor.buffer.owner is Owner.ARENA:
            fixed = view(desc, self._place(tensor)).reshape(shape)
            return lambda: fixed
        return lambda: view(desc, arrays[base]).reshape(shape)


_Places = Sequence[tuple[Memory, int]]


def _append(addresses: list[int], memories: _Places, array: Array, address: int) -> None:
    """Adds where memories of an array begin, and tells them of it, as some actions ask them."""
    for memory, skipped in memories:
        memory.data = _bytes_from(array, skipped) if skipped else array
        addresses.append(address + skipped)


@dataclass(frozen=True)
class _Aimed:
    """The memories that each run points to what is fed and handed out, from its second on.

    Attributes:
        pointers: all of them, those of what is fed in front.
        fed, results: each with its memories, and where these begin: bytes behind its address.
        known: how many memories the run had: later ones are not among these.
    """

    pointers: Pointers
    fed: Sequence[tuple[Key, _Places]]
    results: Sequence[tuple[Buffer, _Places]]
    known: int

    @classmethod
    def of(
        cls,
        library: Library,
        loose: Mapping[Key, list[Memory]],
        fed: Sequence[Key],
        results: Iterable[Buffer],
        known: int,
    ) -> _Aimed:
        """Those of these values and buffers."""

        def places(key: Key) -> _Places:
            return [
                (memory, memory.skipped if isinstance(memory, _Shifted) else 0)
                for memory in loose.get(key, ())
            ]

        read = [key for key in fed if key in loose]
        written = list(results)
        aimed = [*read, *written]
        return cls(
            Pointers(library, [memory for key in aimed for memory in loose.get(key, ())]),
            [(key, places(key)) for key in read],
            [(buffer, places(buffer)) for buffer in written],
            known,
        )


class _Shifted(Memory):
    """A memory that begins some bytes behind the address that it is given.

    Attributes:
        skipped: how many.
    """

    __slots__ = ("skipped",)

    def __init__(self, engine: Engine, desc: MemoryDesc, skipped: int) -> None:
        super().__init__(engine, desc)
        self.skipped = skipped

    def set_data(self, data: NDArray[Any] | None) -> None:
        """Points behind the first bytes of an array."""
        super().set_data(None if data is None else _bytes_from(data, self.skipped))

    def set_contiguous(self, data: NDArray[Any], address: int) -> None:  # noqa: ARG002
        """As `set_data`."""
        self.set_data(data)


def _bytes_from(data: NDArray[Any], start: int) -> NDArray[np.uint8]:
    return data.reshape(-1).view(np.uint8)[start:]


def _read_in_a_run(plan: Plan, program: Program) -> list[tuple[str, Array]]:
    """The settled values that a step reads which is not settled itself."""
    running = [
        step
        for step in plan.steps
        if not all(value in program.settled for value in step.outputs if value)
    ]
    read = dict.fromkeys(value for step in running for value in step.inputs)
    return [(value, program.settled[value]) for value in read if value in program.settled]


def _key(buffer: Buffer) -> Key:
    """The name of a value that is fed or comes from NumPy; of other buffers no value has it alone."""
    return buffer.name if buffer.owner in (Owner.INPUT, Owner.HOST) else buffer


def _keep(
    arrays: dict[Key, Array], loose: Mapping[Key, Sequence[Memory]], key: Key, array: Array
) -> None:
    """Takes an array into a run, and lets the memories of its buffer point to it."""
    if not array.flags.c_contiguous:
        array = np.array(array, order="C")
    arrays[key] = array
    memories = loose.get(key)
    if memories:
        address = address_of(array)
        for memory in memories:
            memory.set_contiguous(array, address)
