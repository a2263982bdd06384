"""This checkout against another one: did a change make the oneDNN runtime slower? Both run the same
file in alternating turns.

A shared machine drifts by more than a change costs, so only neighbouring turns are compared. Two
processes of one checkout differ, too (by as much as 5 %, by where their memory lies), so each ratio
comes from a pair of fresh ones: the median of a few rounds. The interval printed beside the median
of all is the one between two order statistics that holds the true median with at least 95 %
(binomial, no assumption about the distribution).
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fqfuse.measure.process import WorkerFailed
from fqfuse.measure.turns import Row, Settings, load_turn, median_interval, started, take_turns

from .build import Case
from .environment import commit_of

_ENGINE = "fqfuse-onednn"
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Comparison:
    """Time here over time there on one file: below 1 this checkout is faster. `low` and `high` hold
    the median ratio with 95 %.
    """

    file: str
    here_ms: float
    there_ms: float
    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        """One line of the report."""
        figures = f"{self.here_ms:9.3f} {self.there_ms:9.3f} {self.ratio:7.3f}   {self.low:.3f} to {self.high:.3f}"
        return f"{self.file:18} {figures}{'   slower' if self.low > 1 else ''}"


def versus(
    other: Path,
    wanted: Sequence[Case],
    settings: Settings,
    pairs: int,
    scratch: Path,
    log: Callable[[str], None],
) -> list[Comparison]:
    """Compare the checkouts on each file.

    Args:
        other: root of the other checkout of fqfuse.
        wanted: the files.
        settings: as for the benchmark.
        pairs: of processes for each file; each gives one ratio.
        scratch: takes the workers' stderr.
        log: gets one line for each file, with the reason where one of the two cannot run it: such a
            file is left out.

    Raises:
        ValueError: `other` is no checkout of fqfuse, or there are fewer than six pairs.
        WorkerFailed: no file runs on both.
    """
    if not (other / "inference.py").is_file():
        raise ValueError(f"{other} is no checkout of fqfuse")
    log(
        f"here {commit_of(_ROOT)}, there {commit_of(other)}\n{'file':18} {'here ms':>9} {'there ms':>9} {'ratio':>7}   95 % interval"
    )
    compared = []
    for case in wanted:
        try:
            compared.append(_compare(case, other.resolve(), settings, pairs, scratch))
        except WorkerFailed as failed:
            log(f"{case.name:18} left out: {failed}")
        else:
            log(str(compared[-1]))
    if not compared:
        raise WorkerFailed("no file runs on both checkouts")
    ratio = math.exp(statistics.fmean(math.log(one.ratio) for one in compared))
    log(f"geometric mean of the ratios: {ratio:.3f}")
    return compared


def _compare(case: Case, other: Path, settings: Settings, pairs: int, scratch: Path) -> Comparison:
    # who is started first and has two of three first turns is slower by a percent: pairs alternate
    roots = [("here", _ROOT), ("there", other)]
    times = [_pair(case, roots[:: (-1) ** index], settings, scratch) for index in range(pairs)]
    ratios = [
        statistics.median(one / another for one, another in zip(here, there, strict=True))
        for here, there in times
    ]
    here_ms, there_ms = (
        statistics.median(time for pair in times for time in pair[side]) for side in (0, 1)
    )
    return Comparison(
        case.name, here_ms, there_ms, statistics.median(ratios), *median_interval(ratios)
    )


def _pair(
    case: Case, roots: Sequence[tuple[str, Path]], settings: Settings, scratch: Path
) -> tuple[list[float], list[float]]:
    """Milliseconds of each round, here and there, in fresh processes that start in the order of
    `roots`: the checkouts by these two names.
    """
    with ExitStack() as stack:
        turns = {}
        for name, root in roots:
            # Under the package's own name: the root of a checkout is the package, whatever its
            # folder is called.
            path = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            (path / "fqfuse").symlink_to(root, target_is_directory=True)
            log = scratch / f"{case.name}-{name}.log"
            turns[name] = started(stack, Row(case.name, _ENGINE), settings, log, path)
            try:
                load_turn(turns[name], case.path, case.inputs_path, settings)
            except WorkerFailed as failed:
                raise WorkerFailed(f"{name} it does not run: {failed}") from failed
        take_turns([*turns.values()], settings)
    for name, turn in turns.items():
        if turn.row.reason:
            raise WorkerFailed(f"{name} it does not run: {turn.row.reason}")
    return turns["here"].row.rounds_ms, turns["there"].row.rounds_ms
