"""The trips of a Loop or a Scan as calls of C functions, made in one go: a trip through a small
recurrent cell takes 10 to 20 microseconds, as much as Python needs to feed a run and to read it.

What changes from trip to trip lies in arrays of their own. Bytes are copied between trips: the number
of the trip and a row of each source into the body's inputs; what the trip leaves into the states; its
rows to where they are stacked. What runs on NumPy is called in between.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import numpy as np

from ...aligned import aligned_bytes
from ...ir.ops import OPS
from ...ir.ops.rows import integer
from ...ir.ops.spec import Array
from ...ir.types import DType
from ...onednn.call_loop import CCall, Repeated, Tried, copying
from ...onednn.kernels import Kernels, kernels
from ...onednn.library import Library
from ...plan.types import Plan
from ..budget import RunBudget
from ..trips import Trips, TripsDone
from .host import HostAction, HostStep
from .host_calls import SingleCall, tried_in_c
from .program import Action, Owner, Program, Tensor

_AT_ONCE: Final = 64
"""Trips whose addresses are laid out together."""

_OVER: Final = -1
"""Status of a condition that does not hold."""

_What = tuple[str, str]
"""What a call is for, and the value: names are the model's own, and may be any."""

_LOOK, _NEXT = ("python", "look"), ("python", "next")

_TO, _FROM = 1, 2
"""Words of a copy."""


class Repeatable(Protocol):
    """What is asked of a `Run`."""

    repeating: object
    plan: Plan
    program: Program
    library: Library
    calls: list[Callable[[], int]]
    singles: dict[HostAction, SingleCall]

    def root(self, value: str) -> str:
        """The value that another one, which only NumPy sees, is another shape of."""
        ...

    def fixed(self, value: str, tensor: Tensor | None) -> Array | None:
        """A value as a tensor in the arena holds it; None where it lies elsewhere."""
        ...

    def output(self, name: str) -> Array:
        """An output as it is now."""
        ...

    def failure(self, index: int, status: int) -> Exception:
        """What the status of a call means."""
        ...

    def feed(self, feeds: Mapping[str, Array]) -> None:
        """Begins a run."""
        ...

    def keep(self, value: str, array: Array) -> None:
        """Takes the array of a value into the run."""
        ...

    def release(self) -> None:
        """Ends a run."""
        ...


def _can_chain(run: Repeatable, trips: Trips) -> bool:
    """Whether the trips of a body can be made in one go: every trip's values have the sizes of the
    first one's, and our functions in C are there.
    """
    plan, shapes = run.plan, run.program.shapes
    front = int(trips.has_condition)
    types = [plan.type(name) for name in (*plan.inputs, *plan.outputs)]
    if any(type_.dtype is DType.STRING for type_ in types) or not all(
        name in shapes for name in plan.outputs
    ):
        return False
    told = math.prod(shapes[plan.outputs[0]]) == 1 if front else True
    same = all(
        shapes[plan.outputs[front + place]] == array.shape
        for place, array in enumerate(trips.states)
    )
    return told and same and kernels(run.library, "call_loop") is not None


def _picks(run: Repeatable, trips: Trips) -> dict[HostAction, str]:
    """The `Gather` of a row by the number of the trip, of what all trips share; with what it picks
    rows of.
    """
    if not trips.front:
        return {}
    inputs = run.plan.inputs
    shared = dict(zip(inputs[len(inputs) - len(trips.same) :], trips.same, strict=True))
    found = {}
    for action in run.program.actions:
        if not isinstance(action, HostAction) or not isinstance(action.runner, HostStep):
            continue
        step = action.runner.step
        if step.primitive != "onnx.Gather":
            continue
        (_, source), (_, index) = step.args
        axis = integer(OPS[step.op].known(step.params), "axis")
        if source in shared and run.root(index) == inputs[0] and axis % shared[source].ndim == 0:
            found[action] = source
    return found


class Chains:
    """The trips of one body for the shapes that a run is bound for.

    Args:
        run: nobody else uses it; holds this.
        trips: the first ones; all later ones have the same shapes.
        budget: how much memory the rows may take.
    """

    def __init__(self, run: Repeatable, trips: Trips, budget: RunBudget) -> None:
        # the run holds these: a reference to it would be a cycle, and keep its memory until it is collected
        self._run, self._budget = weakref.proxy(run), budget
        self._possible, self._picks = _can_chain(run, trips), _picks(run, trips)
        names = run.plan.inputs[len(run.plan.inputs) - len(trips.same) :]
        self._least = min(
            (len(trips.same[names.index(source)]) for source in self._picks.values()), default=0
        )
        self._made: dict[bool, Chained] = {}

    def execute(self, trips: Trips) -> TripsDone | None:
        """Runs the trips; None where they cannot be made in one go.

        Raises:
            OneDnnError, InvalidInput: as a run of its own does.
        """
        if not self._possible:
            return None
        inside = trips.most <= self._least  # no trip picks a row that is not there
        if inside not in self._made:
            picks = self._picks if inside else {}
            self._made[inside] = Chained(self._run, trips, self._budget, picks)
        return self._made[inside].execute(trips)


def run_trips(run: Repeatable, trips: Trips, budget: RunBudget) -> TripsDone | None:
    """Runs a body, trip after trip; None where they cannot be made in one go.

    Raises:
        OneDnnError, InvalidInput: as a run of its own does.
    """
    if not isinstance(run.repeating, Chains):
        run.repeating = Chains(run, trips, budget)
    return run.repeating.execute(trips)


class _Calls:
    """The calls of a trip, as they are laid out.

    Attributes:
        made: as `Repeated` takes them.
        others: place of a call of the body -> what is called where that in C does not do.
        places: copy, or what Python does -> its place.
        held: what they point into.
    """

    def __init__(self, found: Kernels) -> None:
        self._found = found
        self.made: list[CCall | None] = []
        self.others: dict[int, Callable[[], int]] = {}
        self.places: dict[_What, int] = {}
        self.held: list[Array] = []

    def copy(self, what: _What, to: Array, source: Array) -> None:
        """Adds a copy of as many bytes as `to` has."""
        self.held += [to, _straight(source)]
        start = self.held[-1].ctypes.data
        self.places[what] = len(self.made)
        self.made.append(copying(self._found, to.ctypes.data, start, to.nbytes))

    def python(self, what: _What) -> None:
        """Adds a call of Python."""
        self.places[what] = len(self.made)
        self.made.append(None)


class Chained:
    """Trips whose values have the same sizes.

    Args:
        run, trips, budget: as of `Chains`.
        picks: steps that pick a row by the number of the trip, and what they pick it of: copies here.
    """

    def __init__(
        self, run: Repeatable, trips: Trips, budget: RunBudget, picks: Mapping[HostAction, str]
    ) -> None:
        plan, front, has_condition = run.plan, len(trips.front), trips.has_condition
        first, behind = front + len(trips.states), has_condition + len(trips.states)
        last = first + len(trips.sources)
        self._run, self._budget = run, budget
        self._front, self._states = plan.inputs[:front], plan.inputs[front:first]
        self._scanned, self._same = plan.inputs[first:last], plan.inputs[last:]
        self._left, self._rows = plan.outputs[has_condition:behind], plan.outputs[behind:]
        self._picks = {action.runner.outputs[0]: source for action, source in picks.items()}
        self._picked = {name: self._empty(name) for name in self._picks}
        self._own = {name: self._empty(name) for name in plan.inputs[:last]}
        self._condition = plan.outputs[0] if front and not self._holds(plan.outputs[0]) else ""
        self._in_python = [
            name for name in (*self._left, *self._rows) if not self._is_in_memory(name)
        ]
        self._numbers = np.zeros(_AT_ONCE, np.int64)
        self._kept: dict[str, Array] = {}
        self._stacks: dict[str, Array] = {}
        self._moving: list[tuple[_What, int, Array]] = []
        self._done, self._last, self._goes = 0, 0, True
        self._held: list[Array] = []
        self._lies: list[Array] = []
        self._places: dict[_What, int] = {}
        self._others: dict[int, Callable[[], int]] = {}
        self._body = 0
        self._table: Repeated | None = None

    # -- once --------------------------------------------------------------------------------------

    def _empty(self, name: str) -> Array:
        kind, shape = self._run.plan.type(name).dtype.numpy, self._run.program.shapes[name]
        return aligned_bytes(math.prod(shape) * kind.itemsize).view(kind).reshape(shape)

    def _holds(self, condition: str) -> bool:
        """Whether the condition that a trip gives holds: a constant, or that of the trip before."""
        told = self._run.plan.constants.get(condition)
        if told is not None:
            return bool(told.reshape(-1)[0])
        return self._run.root(condition) == self._front[1]

    def _is_in_memory(self, name: str) -> bool:
        """Whether an output lies at an address that is known in front of the first trip."""
        run, tensor = self._run, self._run.program.outputs.get(name)
        if name in run.plan.constants:
            return True
        if tensor is None:
            return run.root(name) in self._own
        return tensor.buffer.owner is not Owner.HOST or tensor.buffer.name in self._picked

    def _stays(self, name: str) -> bool:
        """Whether an output that is in memory is there in each run."""
        tensor = self._run.program.outputs.get(name)
        if tensor is None or tensor.buffer.owner is Owner.ARENA:
            return True
        return tensor.buffer.name in {**self._own, **self._picked}

    def _is_fed(self, name: str) -> bool:
        """Whether an output lies where an input does: it may be a state, which the end of the trip
        writes over.
        """
        tensor = self._run.program.outputs.get(name)
        return tensor is None or tensor.buffer.owner is Owner.INPUT

    def _laid_out(self) -> Repeated:
        """The calls of a trip, in a run that has begun."""
        found = kernels(self._run.library, "call_loop")
        assert found is not None  # as `_can_chain` has it
        calls = _Calls(found)
        for name in (*self._front[:1], *self._scanned):
            calls.copy(("input", name), self._own[name], self._numbers)
        self._body = len(calls.made)
        for action, call in zip(self._run.program.actions, self._run.calls, strict=True):
            self._lay_action(calls, action, call)
        self._lay_results(calls)
        self._places, self._held, self._others = calls.places, calls.held, calls.others
        table = Repeated(found, calls.made, _AT_ONCE)
        for name in self._front[:1]:
            each = np.arange(_AT_ONCE) * self._numbers.itemsize
            table.words[:, self._places["input", name], _FROM] += each
        return table

    def _lay_action(self, calls: _Calls, action: Action, call: Callable[[], int]) -> None:
        """A call of the body."""
        if isinstance(call, CCall):
            if isinstance(call, Tried):
                calls.others[len(calls.made)] = call.otherwise
            calls.made.append(call)
        elif isinstance(action, HostAction) and action.runner.outputs[0] in self._picks:
            name = action.runner.outputs[0]
            calls.copy(("input", name), self._picked[name], self._numbers)
        else:
            calls.others[len(calls.made)] = call
            calls.made.append(self._in_c(action))

    def _lay_results(self, calls: _Calls) -> None:
        """What happens to what a trip leaves."""
        run, watched = self._run, self._in_python or self._condition
        for name in self._rows:
            if name not in self._in_python:
                calls.copy(("row", name), self._empty(name), run.output(name))
        if watched:
            calls.python(_LOOK)
        left = [
            (name, state)
            for name, state in zip(self._left, self._states, strict=True)
            if name not in self._in_python
        ]
        for name, state in left:
            if self._is_fed(name):
                self._kept[state] = self._empty(state)
                calls.copy(("kept", state), self._kept[state], run.output(name))
        for name, state in left:
            lies = self._kept[state] if state in self._kept else run.output(name)
            calls.copy(("state", state), self._own[state], lies)
        if watched:
            calls.python(_NEXT)

    def _in_c(self, action: Action) -> CCall | None:
        """What a step on NumPy comes to in C, where it does; its own call does what that refuses."""
        if not isinstance(action, HostAction) or action not in self._run.singles:
            return None
        source = action.runner.inputs[0]
        lies = self._run.fixed(source, action.inputs.get(source))
        array = {**self._own, **self._picked}.get(source, lies)
        return None if array is None else tried_in_c(self._run.singles[action], array)

    # -- in each run -------------------------------------------------------------------------------

    def execute(self, trips: Trips) -> TripsDone:
        """Runs the trips.

        Raises:
            OneDnnError, InvalidInput: as a run of its own does.
        """
        own, run = self._own, self._run
        shared = dict(zip(self._same, map(_straight, trips.same), strict=True))
        self._done = 0
        self._stacks = {name: self._stack(name, 0) for name in self._rows}
        try:
            run.feed({**own, **shared})
            for name, array in self._picked.items():
                run.keep(name, array)
            for name, array in zip(self._states, trips.states, strict=True):
                np.copyto(own[name], array)
            for name, array in zip(self._front, trips.front, strict=True):
                np.copyto(own[name], array)
            if self._table is None:
                self._table = self._laid_out()
            self._aim(trips, shared)
            while self._done < trips.most and self._go_on(trips):
                pass
            states = [np.array(own[name]) for name in self._states]
            return TripsDone(states, [_cut(stack, self._done) for stack in self._stacks.values()])
        finally:
            self._stacks, self._moving, self._lies = {}, [], []
            run.release()

    def _stack(self, name: str, count: int) -> Array:
        shape = self._run.program.shapes[name]
        return np.empty((count, *shape), self._run.plan.type(name).dtype.numpy)

    def _aim(self, trips: Trips, shared: Mapping[str, Array]) -> None:
        """Lets the copies of this run begin where its arrays lie."""
        self._moving = []
        for name, source in zip(self._scanned, trips.sources, strict=True):
            self._moving.append((("input", name), _FROM, _straight(source)))
        for name, of in self._picks.items():
            self._moving.append((("input", name), _FROM, shared[of]))
        for name in self._rows:
            self._read(("row", name), name)
        for name, state in zip(self._left, self._states, strict=True):
            self._read(("kept", state) if state in self._kept else ("state", state), name)

    def _read(self, what: _What, name: str) -> None:
        """Lets a copy, if there is one, read an output where it lies, if that is elsewhere in each run."""
        if what in self._places and not self._stays(name):
            self._lies.append(_straight(self._run.output(name)))
            self._words(what, _FROM)[:] = self._lies[-1].ctypes.data

    def _words(self, what: _What, word: int) -> Array:
        assert self._table is not None
        return self._table.words[:, self._places[what], word]

    def _go_on(self, trips: Trips) -> bool:
        """Makes the next trips; gives False where the condition does not hold any more."""
        first = self._done
        self._last = min(first + _AT_ONCE, trips.most)
        self._make_room(trips)
        trips.taken(1 if self._condition else self._last - first)
        self._numbers[:] = numbers = first + np.arange(_AT_ONCE)
        stacks = [(("row", name), _TO, stack) for name, stack in self._stacks.items()]
        for what, word, array in (*self._moving, *stacks):
            if what in self._places:
                self._words(what, word)[:] = array.ctypes.data + numbers * array.strides[0]
        assert self._table is not None
        others = dict(self._others)
        for what, call in ((_LOOK, self._look), (_NEXT, lambda: self._next(trips))):
            if what in self._places:
                others[self._places[what]] = call
        failed = self._table.run(self._last - first, others)
        if failed is None:
            self._done = self._last
        elif failed[1] != _OVER:
            raise self._run.failure(failed[0] - self._body, failed[1])
        return failed is None

    def _make_room(self, trips: Trips) -> None:
        """Memory for the rows of the next trips: of all trips where only their number ends them."""
        last = self._last
        if all(len(stack) >= last for stack in self._stacks.values()):
            return
        count = min(trips.most, 2 * last) if self._condition else trips.most
        rows = sum(math.prod(s.shape[1:]) * s.itemsize for s in self._stacks.values())
        self._budget.check_bytes(rows * count, f"the rows of {count} trips take", trips.where)
        for name, stack in self._stacks.items():
            self._stacks[name] = self._stack(name, count)
            self._stacks[name][: self._done] = stack[: self._done]

    # -- in each trip that Python has a part in ----------------------------------------------------

    def _look(self) -> int:
        """Reads what lies in no memory of ours, before the states are written over."""
        for name in self._rows:
            if name in self._in_python:
                self._stacks[name][self._done] = self._run.output(name)
        for name, state in zip(self._left, self._states, strict=True):
            if name in self._in_python:
                self._kept[state] = np.array(self._run.output(name))
        if self._condition:
            self._goes = bool(self._run.output(self._condition).reshape(-1)[0])
        return 0

    def _next(self, trips: Trips) -> int:
        """Hands on what was read."""
        for name, state in zip(self._left, self._states, strict=True):
            if name in self._in_python:
                np.copyto(self._own[state], self._kept[state])
        self._done += 1
        if not self._condition:
            return 0
        if not self._goes:
            return _OVER
        if self._done < self._last:
            trips.taken(1)
        return 0


def _straight(array: Array) -> Array:
    return np.asarray(array, order="C")


def _cut(stack: Array, count: int) -> Array:
    """The rows of so many trips, without memory for more."""
    return stack if len(stack) == count else np.array(stack[:count])
