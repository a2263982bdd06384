"""What a repair did: the steps that were tried and their scores, and the same as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .data import Samples
from .simulation import Subject


@dataclass(frozen=True)
class Score:
    """What a file gives.

    Attributes:
        sqnr: the smallest of an output or a part of one, in dB; NaN where the runtime does not load it.
        ms: of a run.
        bytes: of the file.
    """

    sqnr: float
    ms: float
    bytes: int


@dataclass(frozen=True)
class Step:
    """A remedy that was tried.

    Attributes:
        code: of the finding, or `layout`, `range`, `suggest`.
        what: was wrong, for a person.
        done: what was changed, or would have been.
        kept: it helped.
        why: it was refused; empty where it was kept.
        before, after: scores; None where nothing was made.
    """

    code: str
    what: str
    done: str
    kept: bool
    why: str
    before: Score | None = None
    after: Score | None = None


@dataclass(frozen=True)
class Repair:
    """What came out.

    Attributes:
        subject: the file as it was.
        samples: on what.
        target: for which runtime.
        told: what outputs are held against.
        before, after: scores of the file, and of what was made; the same where nothing was kept.
        steps: in the order in which they were tried.
        model: the repaired ONNX model; None where nothing was kept.
    """

    subject: Subject
    samples: Samples
    target: str
    told: str
    before: Score
    after: Score
    steps: tuple[Step, ...]
    model: Any = None


def as_data(found: Repair) -> dict[str, Any]:
    """The document `fqfuse.fix/1`, with infinite numbers as they are."""
    return {
        "schema": "fqfuse.fix/1",
        "model": found.subject.plan.name,
        "for": found.target,
        "changed": found.model is not None,
        "data": found.samples.told,
        "random": found.samples.random,
        "samples": len(found.samples.feeds),
        "reference": found.told,
        "before": _score(found.before),
        "after": _score(found.after),
        "steps": [
            {
                "code": step.code,
                "what": step.what,
                "done": step.done,
                "kept": step.kept,
                "why": step.why or None,
                "before": None if step.before is None else _score(step.before),
                "after": None if step.after is None else _score(step.after),
            }
            for step in found.steps
        ],
    }


def _score(score: Score) -> dict[str, Any]:
    return {"sqnr": score.sqnr, "ms": score.ms, "bytes": score.bytes}
