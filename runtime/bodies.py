"""Runs the plans in the bodies of If, Loop and Scan, each by an executor of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import InvalidInput
from ..ir.ops import dims
from ..ir.ops.spec import Array
from ..ir.types import DType
from ..locks import ProcessLock
from ..plan.shapes import symbol_sizes
from ..plan.types import Bodies, Plan, Step
from .budget import MOST_TRIPS, RunBudget
from .executor import Executor

NO_BODIES: Mapping[str, BodyRunner] = MappingProxyType({})
"""Of a plan without If, Loop and Scan."""

MakeExecutor = Callable[[Plan], Executor]

_run = threading.local()


def body_runners(plan: Plan, make: MakeExecutor, budget: RunBudget) -> dict[str, BodyRunner]:
    """What runs the bodies of a plan, by the names of their steps.

    Args:
        plan: the plan.
        make: makes the executor of a body.
        budget: how much memory a run may take.
    """
    return {
        step.name: BodyRunner(step, step.bodies, make, budget)
        for step in plan.steps
        if step.bodies is not None
    }


class BodyRunner:
    """Runs one If, Loop or Scan.

    Args:
        step: the step.
        bodies: its bodies.
        make: makes the executor of a body, when it runs for the first time.
        budget: how much memory the rows of a run may take.
    """

    def __init__(self, step: Step, bodies: Bodies, make: MakeExecutor, budget: RunBudget) -> None:
        self._step, self._bodies, self._make, self._budget = step, bodies, make, budget
        self._where = ", ".join(step.origin) or step.name
        self._executors: dict[int, Executor] = {}
        self._lock = ProcessLock()
        self._op = str(step.params["op_type"])

    def __call__(self, arrays: Sequence[Array | None]) -> list[Array]:
        """The outputs of the step for its inputs by position (None: absent).

        Raises:
            InvalidInput: the inputs do not fit the bodies, or a loop has no end.
        """
        run = {"If": self._if, "Loop": self._loop, "Scan": self._scan}[self._op]
        with _counted_trips():
            found = run(arrays)
        return found[: len(self._step.outputs)]

    def _if(self, arrays: Sequence[Array | None]) -> list[Array]:
        condition, *given = arrays
        index = 0 if self._truth(condition) else 1
        plan, fed = self._bodies.plans[index], _whole(given)
        self._check(plan, fed)
        return self._executor(index).run(dict(zip(plan.inputs, fed, strict=True)))

    def _loop(self, arrays: Sequence[Array | None]) -> list[Array]:
        count, states, plan = arrays[0], self._bodies.states, self._bodies.plans[0]
        most = MOST_TRIPS + 1
        if count is not None:
            most = min(most, int(self._single(count, "the number of trips")))
        going = self._truth(arrays[1])
        given = _whole(arrays[2:])
        number, condition = (plan.type(name).static_shape for name in plan.inputs[:2])
        return self._trips(
            _Trips(
                front=[np.zeros(number, np.int64), np.full(condition, going)],
                states=given[:states],
                sources=(),
                same=given[states:],
                most=most if going else 0,
            )
        )

    def _scan(self, arrays: Sequence[Array | None]) -> list[Array]:
        given, states = _whole(arrays), self._bodies.states
        split = states + self._bodies.scanned
        sources = given[states:split]
        counts = {len(source) if source.ndim else -1 for source in sources}
        if len(counts) != 1 or counts == {-1}:
            shapes = ", ".join(str(list(source.shape)) for source in sources)
            raise self._refusal(f"a Scan runs over {shapes}, which have no one number of rows")
        (count,) = counts
        return self._trips(
            _Trips(
                front=[],
                states=given[:states],
                sources=sources,
                same=given[split:],
                most=count,
            )
        )

    # -- trips -------------------------------------------------------------------------------------

    def _trips(self, trips: _Trips) -> list[Array]:
        """What the last trip leaves, and the rows of all; each is a run of its own."""
        if trips.most < 1:
            return [*trips.states, *self._no_rows(trips)]
        plan, executor = self._bodies.plans[0], self._executor(0)
        front, count = int(trips.has_condition), len(trips.states)
        rows = _Rows(plan.outputs[front + count :], self._budget, self._where)
        states, known = trips.states, list[object]()
        for number in range(trips.most):
            self._count(1)
            given = trips.given(number, states)
            kinds: list[object] = [(array.dtype, array.shape) for array in given]
            if kinds != known:
                self._check(plan, given)
                known = kinds
            found = executor.run(dict(zip(plan.inputs, given, strict=True)))
            states = found[front : front + count]
            rows.add(found[front + count :])
            if front and not self._truth(found[0]):
                break
        return [*states, *(self._stacked(*row) for row in rows.found.items())]

    def _stacked(self, name: str, rows: Sequence[Array]) -> Array:
        if len({row.shape for row in rows}) > 1:
            raise self._refusal(f"the rows of {name} have different shapes")
        return np.stack(rows)

    def _no_rows(self, trips: _Trips) -> Iterator[Array]:
        """No rows, of the sizes that the body's inputs tell."""
        plan = self._bodies.plans[0]
        rows = [np.empty(source.shape[1:], source.dtype) for source in trips.sources]
        given = [*trips.states, *rows, *trips.same]
        shapes = {name: plan.type(name).static_shape for name in plan.inputs[: len(trips.front)]}
        for name, array in zip(plan.inputs[len(trips.front) :], given, strict=True):
            shapes[name] = array.shape
        sizes = symbol_sizes(plan, shapes)
        for name in plan.outputs[trips.has_condition + len(trips.states) :]:
            type_ = plan.type(name)
            row = tuple(_size(dim, sizes) for dim in type_.shape or ())
            yield np.empty((0, *row), type_.dtype.numpy)

    def _executor(self, index: int) -> Executor:
        with self._lock:
            if index not in self._executors:
                self._executors[index] = self._make(self._bodies.plans[index])
            return self._executors[index]

    def _check(self, plan: Plan, given: Sequence[Array]) -> None:
        for name, array in zip(plan.inputs, given, strict=True):
            type_ = plan.type(name)
            shape = array.shape if type_.shape is None else type_.shape
            texts = type_.dtype is DType.STRING and array.dtype.kind in "OU"
            fits = len(shape) == array.ndim and all(
                isinstance(dim, str) or dim == size
                for dim, size in zip(shape, array.shape, strict=True)
            )
            if not fits or not (texts or array.dtype == type_.dtype.numpy):
                raise self._refusal(
                    f"its body is given {array.dtype}{list(array.shape)} as {name}, and takes {type_}"
                )

    def _count(self, trips: int) -> None:
        _run.left -= trips
        if _run.left < 0:
            raise self._refusal(f"it takes more than {MOST_TRIPS} trips")

    def _truth(self, condition: Array | None) -> bool:
        return condition is None or bool(self._single(condition, "the condition"))

    def _single(self, array: Array, what: str) -> Any:
        if array.size != 1:
            raise self._refusal(f"{what} has {array.size} elements, and has to have one")
        return array.reshape(-1)[0]

    def _refusal(self, what: str) -> InvalidInput:
        return InvalidInput(
            f"{self._op} cannot be computed: {what}",
            where=self._where,
            hint="check the inputs of this node",
        )


@dataclass(frozen=True)
class _Trips:
    """What the body of a Loop or a Scan is run for; what it takes and gives in which order, `Bodies`
    says.

    Attributes:
        front: of a Loop the number of the first trip, 0, and the condition in front of it; else none.
        states: what the first trip is given.
        sources: each trip is given a row of each.
        same: what all trips are given.
        most: how many trips at most.
    """

    front: Sequence[Array]
    states: Sequence[Array]
    sources: Sequence[Array]
    same: Sequence[Array]
    most: int

    @property
    def has_condition(self) -> bool:
        """Whether a trip gives a condition in front of what it hands on."""
        return bool(self.front)

    def given(self, number: int, states: Sequence[Array]) -> list[Array]:
        """What a trip is given, in the order of the body's inputs; the condition holds."""
        front = [
            np.full_like(array, number if k == 0 else True) for k, array in enumerate(self.front)
        ]
        return [*front, *states, *(source[number, ...] for source in self.sources), *self.same]


class _Rows:
    """What the trips of a run give to be stacked, within the budget."""

    def __init__(self, names: Sequence[str], budget: RunBudget, where: str) -> None:
        self.found: dict[str, list[Array]] = {name: [] for name in names}
        self.trips = 0
        self._budget, self._where, self._bytes = budget, where, 0

    def add(self, rows: Sequence[Array]) -> None:
        self.trips += 1
        self._bytes += sum(row.nbytes for row in rows)
        self._budget.check_bytes(self._bytes, f"the rows of {self.trips} trips take", self._where)
        for found, row in zip(self.found.values(), rows, strict=True):
            found.append(row)


def _whole(arrays: Sequence[Array | None]) -> list[Array]:
    """The arrays, none of which is absent: only counters and conditions may be."""
    return [array for array in arrays if array is not None]


def _size(dim: int | str, sizes: Mapping[str, int]) -> int:
    try:
        return dims.evaluate(dim, sizes)
    except (KeyError, ZeroDivisionError):
        return 0


@contextmanager
def _counted_trips() -> Iterator[None]:
    """Counts the trips of a run, those of loops in loops with it."""
    outermost = getattr(_run, "left", None) is None
    if outermost:
        _run.left = MOST_TRIPS
    try:
        yield
    finally:
        if outermost:
            _run.left = None
