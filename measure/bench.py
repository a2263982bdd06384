"""How fast fqfuse runs a model, beside other runtimes and step by step.

Every engine has a process of its own, so that no thread pool disturbs another, and they take turns:
see `turns`. The process of fqfuse then times the steps.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import errors
from ..errors import BackendUnavailable, FqfuseError, InternalError, InvalidInput
from ..files import archive_member
from ..frontend import ModelSource, serialized
from ..inference import plan_of
from ..plan.file import save_plan
from ..plan.open_sizes import NO_SIZES, sizes_at, symbols_of
from ..plan.seal import is_plan
from ..plan.shapes import symbol_sizes
from ..plan.types import Plan, codes_source
from ..report.notation import Notation
from ..report.verdict.estimate import costs_of
from ..report.verdict.machine import Machine, this_machine
from ..report.verdict.work import at_sizes, bytes_of
from ..runtime.processors import machine_bytes
from ..runtime.session import check_backend, checked_threads
from .arrays import Feeds, save_arrays
from .engines import AUTO, PEERS
from .feeds import made_feeds
from .process import WorkerFailed, WorkerTimedOut
from .turns import (
    IDLE_LOAD,
    Row,
    Settings,
    Turn,
    attempt,
    load_turn,
    median_interval,
    started,
    take_turns,
)

Say = Callable[[str], None]
Sizes = Mapping[str, int]

_ENGINES = {"auto": AUTO, "numpy": "fqfuse-numpy", "onednn": "fqfuse-onednn"}
_MOST_SECONDS = 86_400  # a day
_PROFILE_SECONDS = 1.5
_PROFILE_RUNS = (4, 200)
_LEAST_ROUNDS = 6  # for an interval, see `median_interval`
_MOST_CASES = 64
_SHARE_OF_MEMORY = 8  # each engine's process has the inputs, too


@dataclass(frozen=True)
class Measurement:
    """What to measure, and how.

    Attributes:
        against: names of other runtimes, of `PEERS`.
        sizes: of what the inputs leave open: one, or several that are measured one after the other.
        feeds: the inputs; None: made up, see `made_feeds`.
        threads: of each engine; None: one for each processor that the process may use.
        backend: of fqfuse.
        rounds: how many turns each engine gets.
        seconds: of a turn, about.
        timeout: seconds that an engine may take to load the model, or for a turn; one that takes longer is
            ended, and reported as failed.
        say: is told what is being done.

    Raises:
        InvalidInput: one of them is wrong.
        BackendUnavailable: another runtime is not installed.
    """

    against: Sequence[str] = ()
    sizes: Mapping[str, int | Sequence[int]] = field(default_factory=dict)
    feeds: Mapping[str, npt.ArrayLike] | None = None
    threads: int | None = None
    backend: str = "auto"
    rounds: int = 7
    seconds: float = 0.3
    timeout: float = 600.0
    say: Say = lambda _text: None

    def __post_init__(self) -> None:
        check_backend(self.backend)
        _check_peers(self.against)
        _check_number(self.rounds, int, 1000, "rounds", "a whole number from 1 to 1000")
        _check_number(self.seconds, (int, float), 60, "seconds", "seconds of a turn, at most 60")
        check_timeout(self.timeout)

    def settings(self) -> Settings:
        """As the turns want it."""
        return Settings(
            threads=checked_threads(self.threads),
            rounds=self.rounds,
            turn_seconds=self.seconds,
            min_runs=1,
            max_runs=10_000,
            timeout=self.timeout,
        )


def bench(
    model: Plan | ModelSource,
    *,
    against: Sequence[str] = (),
    sizes: Mapping[str, int | Sequence[int]] = NO_SIZES,
    feeds: Mapping[str, npt.ArrayLike] | None = None,
    threads: int | None = None,
    backend: str = "auto",
    rounds: int = 7,
    seconds: float = 0.3,
    timeout: float = 600.0,
) -> dict[str, Any]:
    """Measures how fast a model runs, beside other runtimes and step by step, as `fqfuse bench`.

    Args:
        model: a plan, a plan file, or an ONNX model (path, bytes or `onnx.ModelProto`).
        against: other runtimes to take turns with: `onnxruntime`, `openvino`.
        sizes: of what the inputs leave open, such as `{"batch": [1, 8]}`; each combination is
            measured; others are guessed.
        feeds: an array for each input; None: made up.
        threads: of each engine; None: one for each processor that the process may use.
        backend: `auto`, `numpy` or `onednn`.
        rounds: how many turns each engine gets; from 6 on ratios have an interval.
        seconds: how long a turn is, about.
        timeout: seconds that an engine may take to load the model, or for a turn.

    Returns:
        The document that docs/contributing/json-schema.md describes: `cases`, one for each combination of sizes,
        with `engines`, `profile` and `steps`.

    Raises:
        FqfuseError: the model or an argument is wrong, or a runtime is not installed.
    """
    asked = Measurement(against, sizes, feeds, threads, backend, rounds, seconds, timeout)
    is_file = not isinstance(model, Plan) and not (
        isinstance(model, str | os.PathLike | bytes) and is_plan(model)
    )
    label = os.fspath(model) if isinstance(model, str | os.PathLike) else ""
    plan = plan_of(model)
    return measured(plan, model if is_file else None, label or plan.name, asked)


def measured(plan: Plan, original: Any, label: str, asked: Measurement) -> dict[str, Any]:
    """Measures a plan.

    Args:
        plan: the plan.
        original: the model that it was compiled from, for other runtimes; None: not at hand.
        label: what it is called.
        asked: how.
    """
    if asked.against and original is None:
        raise InvalidInput(
            f"{asked.against[0]} cannot run a plan of fqfuse",
            where=label,
            hint="give the ONNX model that it was compiled from",
        )
    settings = asked.settings()
    machine = this_machine()
    machine = replace(machine.at_peak, cores=min(settings.threads, machine.cores))
    load = [round(one, 2) for one in os.getloadavg()]
    cases = list(_cases(plan, asked))
    with tempfile.TemporaryDirectory(prefix="fqfuse-bench-") as folder:
        files = _Files(Path(folder), plan, original if asked.against else None)
        found = [_measure(plan, case, files, asked, settings, machine) for case in cases]
    return {
        "schema": "fqfuse.bench/1",
        "model": label,
        "target": plan.target,
        "machine": machine.description,
        "threads": settings.threads,
        "load_average": load,
        "idle": load[0] <= IDLE_LOAD,
        "rounds": settings.rounds,
        "turn_seconds": settings.turn_seconds,
        "cases": found,
    }


# -- what is measured ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Case:
    """Sizes, and what is fed; `guessed` are the sizes that nobody gave."""

    sizes: Sizes
    guessed: tuple[str, ...]
    feeds: Feeds
    made: bool


class _Files:
    """What the processes read, in a folder of their own."""

    def __init__(self, folder: Path, plan: Plan, original: Any) -> None:
        self.folder = folder
        self.plan = folder / "plan.onnx"
        save_plan(plan, self.plan)
        self.model = self.plan
        if isinstance(original, str | os.PathLike):
            self.model = Path(original)
        elif original is not None:
            self.model = folder / "model.onnx"
            self.model.write_bytes(serialized(original))


def _cases(plan: Plan, asked: Measurement) -> Iterator[_Case]:
    """What to feed, one case after the other."""
    symbols = symbols_of(plan)
    if asked.feeds is not None:
        if asked.sizes:
            raise InvalidInput(
                "sizes are given, and arrays, which have theirs", hint="leave one of them out"
            )
        arrays = _named_feeds(plan, asked.feeds)
        sizes = symbol_sizes(plan, {name: array.shape for name, array in arrays.items()})
        yield _Case({name: sizes[name] for name in symbols if name in sizes}, (), arrays, False)
        return
    for given in _combinations(asked.sizes):
        known, guesses = sizes_at(plan, given)
        _check_memory(plan, known)
        guessed = tuple(guesses)
        at = {name: known.get(name, 1) for name in symbols}
        yield _Case(at, guessed, made_feeds(plan, known), True)


def _combinations(sizes: object) -> list[dict[str, int]]:
    if not isinstance(sizes, Mapping):
        raise InvalidInput(
            f"sizes are of type {type(sizes).__name__}", hint='give sizes={"name": [1, 8]}'
        )
    listed = {
        name: list(given) if isinstance(given, list | tuple) else [given]
        for name, given in sizes.items()
    }
    found = [
        dict(zip(listed, values, strict=True)) for values in itertools.product(*listed.values())
    ]
    if not 1 <= len(found) <= _MOST_CASES:
        raise InvalidInput(
            f"there are {len(found):,} combinations of sizes",
            hint=f"ask for 1 to {_MOST_CASES} at a time",
        )
    return found


def _check_memory(plan: Plan, sizes: Sizes) -> None:
    sized = at_sizes(plan, sizes)
    needed = sum(bytes_of(sized, name) for name in sized.inputs)
    room = machine_bytes() // _SHARE_OF_MEMORY
    if needed > room:
        raise InvalidInput(
            f"the inputs take {needed:,} bytes, and there is room for {room:,} in each process",
            where=", ".join(f"{name}={size}" for name, size in sizes.items()),
            hint="give smaller sizes",
        )


def _named_feeds(plan: Plan, feeds: object) -> dict[str, npt.NDArray[Any]]:
    """The arrays that were given; whether they fit is for the session to say."""
    if not isinstance(feeds, Mapping) or set(feeds) != set(plan.inputs):
        raise InvalidInput(
            "the feeds are not those of the model",
            hint=f"give a dictionary with an array for each of: {', '.join(plan.inputs)}",
        )
    return {name: np.asarray(feeds[name]) for name in plan.inputs}


def check_timeout(value: object) -> None:
    """Refuses what is no time that an engine may be given.

    Raises:
        InvalidInput: it is no number above 0 and up to a day.
    """
    allowed = "seconds that an engine may take, at most 86400"
    _check_number(value, (int, float), _MOST_SECONDS, "seconds of the timeout", allowed)


def _check_number(
    value: object, kinds: type | tuple[type, ...], most: float, name: str, wanted: str
) -> None:
    """Refuses what is no number above 0, and up to `most`."""
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    if not is_number or not 0 < float(str(value)) <= most:
        raise InvalidInput(f"{name} are {value!r}", hint=f"give {wanted}")


def _check_peers(names: object) -> None:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidInput(
            "the runtimes to compare with are no list", hint='give against=["onnxruntime"]'
        )
    for name in names:
        if name not in PEERS:
            raise InvalidInput(
                f"there is no runtime {name!r} to compare with",
                hint=f"choose of: {', '.join(PEERS)}",
            )
        if find_spec(name) is None:
            raise BackendUnavailable(
                f"{name} is not installed, so that nothing can be measured against it",
                hint=f"pip install {name}",
            )


# -- measuring -------------------------------------------------------------------------------------


def _measure(
    plan: Plan,
    case: _Case,
    files: _Files,
    asked: Measurement,
    settings: Settings,
    machine: Machine,
) -> dict[str, Any]:
    feeds = files.folder / "feeds.npz"
    for name in case.feeds:  # which processes of all engines read
        archive_member(name)
    save_arrays(feeds, case.feeds)
    coded = _coded(plan)
    with ExitStack() as stack:
        turns: list[Turn] = []
        for engine in (_ENGINES[asked.backend], *dict.fromkeys(asked.against)):
            asked.say(f"loading into {_shown(engine)}")
            log = files.folder / f"{engine}.log"
            turn = started(stack, Row(files.model.name, engine), settings, log)
            path = files.model if turns else files.plan
            load = partial(load_turn, path=path, feeds=feeds, settings=settings, stacked=False)
            if turns:
                attempt(turn, partial(load, coded=coded))
            else:
                _ours(lambda turn=turn, load=load: load(turn))  # type: ignore[misc]
            turns.append(turn)
        asked.say("measuring in turns" if asked.against else "measuring")
        take_turns(turns, settings)
        first = turns[0]
        if not first.alive:
            raise InternalError(f"fqfuse failed between runs: {first.row.reason}")
        asked.say("timing steps")
        low, high = _PROFILE_RUNS
        median_ms = median(first.row.rounds_ms)
        runs = max(low, min(high, round(_PROFILE_SECONDS * 1e3 / max(2 * median_ms, 1e-3))))
        profile = _ours(lambda: first.worker.ask("profile", settings.timeout, runs=runs))
    return {
        "sizes": dict(case.sizes),
        "guessed_sizes": {name: case.sizes[name] for name in case.guessed},
        "made_up": case.made,
        "inputs": [{"name": name, "type": _type_text(array)} for name, array in case.feeds.items()],
        "backend": profile.pop("backend"),
        "backend_reason": profile.pop("backend_reason"),
        "engines": [
            _engine(turn.row, first.row) | ({"note": _OURS[coded]} if turn is first else {})
            for turn in turns
        ],
        **_steps(plan, case.sizes, profile, machine),
    }


_OURS = {
    None: "",
    False: "sources of packed products in f32",
    True: "sources of packed products in s8, by blocks",
}


def _coded(plan: Plan) -> bool | None:
    """Whether products with packed weights make codes of their sources, which the others shall do as
    well; None where there are none.
    """
    packed = [step for step in plan.steps if step.op == "MatMulBlocks"]
    return any(map(codes_source, packed)) if packed else None


def _ours(ask: Callable[[], Any]) -> Any:
    """What fqfuse's process answers; its errors become errors here."""
    try:
        return ask()
    except WorkerTimedOut as failure:
        hint = "give it more seconds, or fewer inputs at once"
        raise InvalidInput(
            f"fqfuse is too slow: {failure}", where="timeout", hint=hint
        ) from failure
    except WorkerFailed as failure:
        kind = getattr(errors, failure.details.get("kind", ""), None)
        if isinstance(kind, type) and issubclass(kind, FqfuseError):
            what, where, hint = (failure.details[name] for name in ("what", "where", "hint"))
            raise kind(what, where=where, hint=hint) from failure
        raise InternalError(f"fqfuse's process failed: {failure}") from failure


def _shown(engine: str) -> str:
    return "fqfuse" if engine in _ENGINES.values() else engine


def _type_text(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype}{list(array.shape)}".replace(" ", "")


def _engine(row: Row, ours: Row) -> dict[str, Any]:
    """One engine of a case, as plain data."""
    times = row.rounds_ms if not row.reason else []
    found: dict[str, Any] = {
        "engine": _shown(row.engine),
        "version": row.version,
        "note": row.note,
        "reason": row.reason,
        "ms": median(times) if times else None,
        "low_ms": min(times, default=None),
        "high_ms": max(times, default=None),
        "runs_per_second": 1e3 / median(times) if times else None,
        "rounds_ms": times,
        "time_ratio": None,
        "time_ratio_low": None,
        "time_ratio_high": None,
    }
    if row is not ours and times:
        ratios = [theirs / mine for theirs, mine in zip(times, ours.rounds_ms, strict=True)]
        found["time_ratio"] = median(ratios)
        if len(ratios) >= _LEAST_ROUNDS:
            found["time_ratio_low"], found["time_ratio_high"] = median_interval(ratios)
    return found


def _steps(plan: Plan, sizes: Sizes, profile: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """The profile, with what each step is, and the least time that the machine takes for it."""
    notation, costs = Notation(plan), costs_of(at_sizes(plan, sizes), machine)
    steps = profile.pop("steps")
    for step in steps:
        least = costs.least_ms(step["index"])
        step["what"] = notation.primitive(plan.steps[step["index"]])
        step["codes_in_f32"] = bool(costs.works[step["index"]].in_f32)
        step["limit_ms"] = least if step["runtime"] != "view" else 0.0
        step["limit_share"] = least / step["ms"] if step["ms"] else None
    return {
        "profile": profile,
        "limit_ms": sum(step["limit_ms"] for step in steps),
        "steps": steps,
    }
