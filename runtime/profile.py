"""How long the steps of a plan take, measured in runs of their own.

Times are means over the middle half of the runs (those whose whole time is neither among the
shortest quarter nor among the longest): so the steps and the rest add up to the run, and a run that
another program disturbed does not count.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter_ns
from typing import Any, TypeVar

from ..errors import InvalidInput, printable
from .executor import StepTimes
from .placement import Placement

T = TypeVar("T")

_MOST_RUNS = 100_000


@dataclass(frozen=True)
class TimedRun:
    """One run.

    Attributes:
        ms: the whole run.
        lead_ms: what went by before the first step: feeds were checked and taken.
        steps_ms: each step, one after the other.
    """

    ms: float
    lead_ms: float
    steps_ms: tuple[float, ...]


@dataclass(frozen=True, repr=False)
class StepTime:
    """How long a step takes, and where it runs.

    Attributes:
        index: its place in the plan.
        placement: the step, its runtime and its implementation.
        ms: a run's milliseconds; with the layout changes in front of it, which it asked for. 0 for
            a view.
        share: of the whole run, 0 to 1.
    """

    index: int
    placement: Placement
    ms: float
    share: float

    def __repr__(self) -> str:
        where = self.placement
        kernel = f" by {where.implementation}" if where.implementation else ""
        name = printable(self._layer)
        return f"<StepTime {self.index} {name}: {self.ms:.4f} ms on {where.runtime}{kernel}>"

    @property
    def _layer(self) -> str:
        step = self.placement.step
        return step.origin[0] if step.origin else step.name

    def as_dict(self) -> dict[str, Any]:
        """Plain data: `index`, `name`, `primitive`, `op`, `layers` (names of the model's nodes),
        `runtime`, `implementation`, `reason`, `ms`, `share`.
        """
        step = self.placement.step
        return {
            "index": self.index,
            "name": step.name,
            "primitive": step.primitive,
            "op": step.op,
            "layers": list(step.origin),
            "runtime": self.placement.runtime,
            "implementation": self.placement.implementation,
            "reason": self.placement.reason,
            "ms": self.ms,
            "share": self.share,
        }


@dataclass(frozen=True, repr=False)
class Profile:
    """What the steps of a run cost.

    Attributes:
        runs: how many were timed step by step.
        ms: such a run, as the mean over the middle half of them; `rest_ms` and the steps add up to
            it.
        plain_ms: a run of `session.run` in between, which looks at no clock, likewise.
        rest_ms: what no step took: feeds were checked, outputs copied, calls made.
        steps: in the order of the plan.
        timeline: the run whose whole time is the median.
    """

    runs: int
    ms: float
    plain_ms: float
    rest_ms: float
    steps: tuple[StepTime, ...]
    timeline: TimedRun

    def __repr__(self) -> str:
        slowest = max(self.steps, key=lambda step: step.ms, default=None)
        told = "" if slowest is None else f", the slowest {slowest!r}"
        rest = f"{self.rest_ms:.4f} ms outside of {len(self.steps)} steps"
        return f"<Profile: {self.ms:.4f} ms a run, {rest}{told}>"

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it: `runs`, `ms`, `plain_ms`, `rest_ms`, `steps` (a list of
        dictionaries, which pandas takes, see `StepTime.as_dict`) and `timeline`.
        """
        line = self.timeline
        return {
            "runs": self.runs,
            "ms": self.ms,
            "plain_ms": self.plain_ms,
            "rest_ms": self.rest_ms,
            "steps": [step.as_dict() for step in self.steps],
            "timeline": {"ms": line.ms, "lead_ms": line.lead_ms, "steps_ms": list(line.steps_ms)},
        }


def checked_runs(runs: object) -> int:
    """How many runs a caller asks for.

    Raises:
        InvalidInput: no number of runs.
    """
    try:
        count = operator.index(runs)  # type: ignore[arg-type]  # what is none raises TypeError
    except TypeError:
        count = 0
    if not 1 <= count <= _MOST_RUNS:
        raise InvalidInput(
            f"runs must be an integer from 1 to {_MOST_RUNS:,}, found {count or repr(runs)}",
            hint="leave it out for 20",
        )
    return count


def measure(
    run: Callable[[], object],
    timed: Callable[[], StepTimes],
    placement: Callable[[], Sequence[Placement]],
    runs: int,
) -> Profile:
    """Times steps.

    Args:
        run: runs the plan.
        timed: runs it, looking at the clock.
        placement: tells, after a run, where each step runs.
        runs: how often each of the two is called, in turns.
    """
    for _ in range(2):  # threads and caches wake up, and what is bound for these shapes is there
        run()
        timed()
    plain, found = [], []
    for _ in range(runs):
        started = perf_counter_ns()
        run()
        plain.append((perf_counter_ns() - started) / 1e6)
        started = perf_counter_ns()
        times = timed()
        whole = (perf_counter_ns() - started) / 1e6
        lead = (times.started - started) / 1e6
        found.append(TimedRun(whole, lead, tuple(spent / 1e6 for spent in times.nanoseconds)))
    found.sort(key=operator.attrgetter("ms"))
    middle = _middle(found)
    ms = fmean(one.ms for one in middle)
    means = [fmean(column) for column in zip(*(one.steps_ms for one in middle), strict=True)]
    return Profile(
        runs=runs,
        ms=ms,
        plain_ms=fmean(_middle(sorted(plain))),
        rest_ms=ms - sum(means),
        steps=tuple(
            StepTime(index, where, mean, mean / ms)
            for index, (where, mean) in enumerate(zip(placement(), means, strict=True))
        ),
        timeline=found[len(found) // 2],
    )


def _middle(ordered: Sequence[T]) -> Sequence[T]:
    """Without the first quarter and the last."""
    cut = len(ordered) // 4
    return ordered[cut : len(ordered) - cut]
