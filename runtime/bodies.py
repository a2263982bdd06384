"""Runs the plans in the bodies of If, Loop and Scan, each by an executor of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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

MOST_SHAPES = 64
"""Shapes of its inputs for which a body stays bound: a state that grows has another one in each trip."""

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
        condition, *fed = arrays
        return self._trip(0 if self._truth(condition) else 1, fed)

    def _loop(self, arrays: Sequence[Array | None]) -> list[Array]:
        count, states, plan = arrays[0], self._bodies.states, self._bodies.plans[0]
        most = None if count is None else int(self._single(count, "the number of trips"))
        going = self._truth(arrays[1])
        handed, fed = list(arrays[2 : 2 + states]), arrays[2 + states :]
        counters = [plan.type(name).static_shape for name in plan.inputs[:2]]
        rows = _Rows(plan.outputs[1 + states :], self._budget, self._where)
        step = 0
        while going and (most is None or step < most):
            self._count()
            front = np.full(counters[0], step, np.int64), np.full(counters[1], going)
            found = self._trip(0, [*front, *handed, *fed])
            going, handed = self._truth(found[0]), list(found[1 : 1 + states])
            rows.add(found[1 + states :])
            step += 1
        return [*_whole(handed), *self._stacked(rows, plan, [*handed, *fed], 2)]

    def _scan(self, arrays: Sequence[Array | None]) -> list[Array]:
        states, plan = self._bodies.states, self._bodies.plans[0]
        split = states + self._bodies.scanned
        handed, sources, fed = list(arrays[:states]), _whole(arrays[states:split]), arrays[split:]
        counts = {len(source) if source.ndim else -1 for source in sources}
        if len(counts) != 1 or counts == {-1}:
            shapes = ", ".join(str(list(source.shape)) for source in sources)
            raise self._refusal(f"a Scan runs over {shapes}, which have no one number of rows")
        rows = _Rows(plan.outputs[states:], self._budget, self._where)
        for place in range(counts.pop()):
            found = self._trip(0, [*handed, *(source[place, ...] for source in sources), *fed])
            handed = list(found[:states])
            rows.add(found[states:])
        given = [*handed, *(np.empty(source.shape[1:], source.dtype) for source in sources), *fed]
        return [*_whole(handed), *self._stacked(rows, plan, given, 0)]

    # -- one trip ----------------------------------------------------------------------------------

    def _trip(self, index: int, arrays: Sequence[Array | None]) -> list[Array]:
        plan = self._bodies.plans[index]
        feeds = dict(zip(plan.inputs, _whole(arrays), strict=True))
        for name, array in feeds.items():
            self._check(plan, name, array)
        return self._executor(index).run(feeds)

    def _executor(self, index: int) -> Executor:
        with self._lock:
            if index not in self._executors:
                self._executors[index] = self._make(self._bodies.plans[index])
            return self._executors[index]

    def _check(self, plan: Plan, name: str, array: Array) -> None:
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

    def _count(self) -> None:
        _run.left -= 1
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

    def _stacked(
        self, rows: _Rows, plan: Plan, given: Sequence[Array | None], skipped: int
    ) -> Iterator[Array]:
        """The rows of all trips; without a trip, no rows of the sizes that the body's inputs tell."""
        if rows.trips:
            for name, found in rows.found.items():
                if len({row.shape for row in found}) > 1:
                    raise self._refusal(f"the rows of {name} have different shapes")
                yield np.stack(found)
            return
        shapes = {
            name: array.shape
            for name, array in zip(plan.inputs[skipped:], given, strict=True)
            if array is not None
        }
        shapes |= {name: plan.type(name).static_shape for name in plan.inputs[:skipped]}
        sizes = symbol_sizes(plan, shapes)
        for name in rows.found:
            type_ = plan.type(name)
            row = tuple(_size(dim, sizes) for dim in type_.shape or ())
            yield np.empty((0, *row), type_.dtype.numpy)


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
