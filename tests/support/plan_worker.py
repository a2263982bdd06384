"""Runs mutants of plans in a process of its own: it may crash, hang, or ask for too much.

    python plan_worker.py FOLDER FIRST COUNT

For each seed two lines go to standard output: `FIRST` when it starts, and `FIRST outcome message`
when it is done.
"""

from __future__ import annotations

import math
import resource
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
from laws.runtimes import RUNTIMES
from support.plan_mutations import mutant
from support.steps_compared import Difference, compare_steps

from fqfuse.errors import FqfuseError, PlanError
from fqfuse.ir.types import DType
from fqfuse.plan.file import read_plan
from fqfuse.plan.types import Plan
from fqfuse.runtime import fallback
from fqfuse.runtime.session import InferenceSession

RANDOM = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)
ADDRESSES = 4 << 30
FED = 1 << 22
RUN = 64 << 20
"""Addresses of a process, elements that are fed, and the byte budget of a run: work within it takes
a second at most.
"""


def feeds_for(plan: Plan, seed: int) -> dict[str, np.ndarray] | None:
    """Arrays for the inputs; None where nobody would feed arrays of that size."""
    rng = np.random.default_rng(seed)
    found, sizes = {}, {}
    for name in plan.inputs:
        kind = plan.type(name)
        shape = [
            d if isinstance(d, int) else sizes.setdefault(d, 2)
            for d in kind.shape or ("N",) * (2 if kind.shape is None else 0)
        ]
        if math.prod(shape) > FED or len(shape) > 32:
            return None
        if kind.dtype is DType.STRING:
            found[name] = np.full(shape, "a", object)
        elif kind.dtype.is_integer:
            low, high = kind.dtype.range if kind.dtype in (DType.U8, DType.S8) else (0, 2)
            found[name] = rng.integers(low, high + 1, shape).astype(kind.dtype.numpy)
        else:
            found[name] = (rng.standard_normal(shape) * 2).astype(kind.dtype.numpy)
    return {name: np.asarray(array) for name, array in found.items()}


def outcome(data: bytes, seed: int) -> tuple[str, str]:
    """What became of a mutant, in a word, and more about it."""
    try:
        plan = read_plan(data)
    except PlanError as error:
        return "refused", error.what[:300]
    try:
        sessions = [
            InferenceSession(plan, backend=backend, threads=1, run_bytes=RUN)
            for backend in _backends(plan)
        ]
    except FqfuseError as error:
        return "unbound", str(error)[:300]
    feeds = feeds_for(plan, seed)
    if feeds is None:
        return "unfed", ""
    answers, refusals = [], []
    for session in sessions:
        try:
            answers.append(session.run(None, feeds))
        except FqfuseError as error:
            refusals.append((session.backend, str(error)))
    # scratch counts, and the runtimes take other scratch
    if any("a run may take" in text for _, text in refusals):
        return "refused-at-run", refusals[0][1][:300]
    if refusals:
        return (
            ("FAILURE", f"only {refusals[0][0]} refuses: {refusals[0][1]}")
            if answers
            else ("refused-at-run", refusals[0][1][:300])
        )
    wrong = _misstated(plan, answers[0]) or (
        _difference(plan, sessions[1], feeds) if len(sessions) > 1 else ""
    )
    return ("FAILURE", wrong) if wrong else ("ran", "")


def _backends(plan: Plan) -> tuple[str, ...]:
    """Those that the machine has, and that run plans of the target."""
    return RUNTIMES if plan.target != "unified" else RUNTIMES[:1]


def _misstated(plan: Plan, answer: list[np.ndarray]) -> str:
    """Which output is of another type or shape than the plan says; empty where none is."""
    for name, array in zip(plan.outputs, answer, strict=True):
        stated = plan.type(name)
        shape = array.shape if stated.shape is None else stated.shape
        typed = array.dtype == stated.dtype.numpy or stated.dtype is DType.STRING
        if (
            not typed
            or len(shape) != array.ndim
            or any(isinstance(d, int) and d != s for d, s in zip(shape, array.shape, strict=True))
        ):
            return f"the output {name} of type {stated} is {array.dtype}{list(array.shape)}"
    return ""


def _difference(plan: Plan, session: InferenceSession, feeds: dict[str, np.ndarray]) -> str:
    """Where oneDNN does not agree with NumPy, step by step; empty where it does."""
    wrong = [
        difference
        for difference in compare_steps(plan, session._executor, feeds)
        if not _agrees(plan, difference)
    ]
    return f"the runtimes differ: {wrong[0]}" if wrong else ""


def _agrees(plan: Plan, difference: Difference) -> bool:
    """At most a code where a function is approximated or f32 numbers are added; nothing otherwise
    but the sign of a zero.
    """
    if difference.step.primitive.removeprefix("onnx.") in RANDOM or not _is_finite(plan):
        return True
    averages = (
        difference.step.primitive == "pooling"
        and not plan.type(difference.step.args[0][1]).dtype.is_integer
    )
    if difference.transcendental or averages:
        return difference.ulp > 0 or difference.largest <= 1
    return difference.largest == 0


def _is_finite(plan: Plan) -> bool:
    """Whether constants and parameters are numbers of ordinary size. What a NaN becomes on its way
    through f32 post-ops is no part of the agreement, and oneDNN's pooling stores what is beyond 32
    bits as 0, where NumPy saturates."""
    told = [
        value
        for step in plan.steps
        for op in step.attr.post_ops
        for value in vars(op).values()
        if isinstance(value, float)
    ]
    constants = [data for data in plan.constants.values() if data.dtype.kind == "f"]
    # not so of NaN
    return all(bool((np.abs(data) < 1e30).all()) for data in (*constants, np.asarray(told)))


# each mutant runs four times, and has ten seconds on a machine that does other things as well
fallback.MOST_TRIPS = 1 << 12


def main(folder: str, first: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    warnings.simplefilter("ignore")
    plans = [read_plan(path) for path in sorted(Path(folder).glob("*.onnx"))]
    for seed in range(first, first + count):
        print(seed, flush=True)
        data = mutant(plans[seed % len(plans)], seed)
        try:
            kind, message = ("unwritten", "") if data is None else outcome(data, seed)
        except BaseException as error:  # noqa: BLE001  # every one but PlanError and InvalidInput is what is looked for
            last = traceback.extract_tb(error.__traceback__)[-1]
            kind, message = (
                "FAILURE",
                f"{type(error).__name__}: {str(error)[:300]} ({last.filename.rpartition('/')[2]}:{last.lineno})",
            )
        print(seed, kind, message.replace("\n", " | "), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
