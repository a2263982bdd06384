"""Two runtimes, step by step: what a bound plan computes in each step against the NumPy runtime on
identical inputs.

Over a whole network a difference in the last bit grows; a step by itself is exact, or off by a
stated amount.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fqfuse.ir.algorithms import ELTWISE
from fqfuse.ir.ops.spec import Array
from fqfuse.plan.attributes import Eltwise
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.executor import Executor
from fqfuse.runtime.numpy_runtime import run_step

_APPROXIMATE = frozenset(
    {"softmax", "layer_normalization", "batch_normalization", "lrn", "resampling", "rnn"}
)
"""Primitives of f32 arithmetic in an order of the library's own."""

_SUMMED = ("ReduceMean", "ReduceSum", "ReduceProd")


@dataclass(frozen=True)
class Difference:
    """A value that two runtimes compute differently.

    Attributes:
        step: the step.
        value: its output.
        elements: how many elements differ, of how many.
        size: elements of the value.
        largest: the largest difference: in codes where the value is integer, else absolute.
        ulp: the largest difference in units in the last place of f32 (0 for integers; infinite
        where one is NaN or infinite and the other not).
        magnitude: the largest one that NumPy computed, of what is finite.
        transcendental: the step holds an operation that libraries approximate, or adds f32 products
            in an order of their own.
    """

    step: Step
    value: str
    elements: int
    size: int
    largest: float
    ulp: float
    magnitude: float
    transcendental: bool

    def __str__(self) -> str:
        unit = f"{self.largest:g}" if self.ulp == 0 else f"{self.largest:.3g} ({self.ulp:g} ulp)"
        where = ", ".join(self.step.origin) or self.step.name
        return f"{self.step.primitive} {self.value}: {self.elements} of {self.size} elements differ, by at most {unit} ({where})"


def is_transcendental(step: Step, plan: Plan) -> bool:
    """True for a step whose result is not defined to the bit: it holds an approximated function, or
    sums f32 products.
    """
    algorithms = {op.algorithm for op in step.attr.post_ops if isinstance(op, Eltwise)}
    if isinstance(own := step.params.get("algorithm"), str) and step.primitive == "eltwise":
        algorithms.add(own)
    sums = (
        step.primitive in ("convolution", "deconvolution", "matmul") or step.op in _SUMMED
    ) and not plan.type(step.args[0][1]).dtype.is_integer
    return (
        any(ELTWISE[name].transcendental for name in algorithms)
        or step.primitive in _APPROXIMATE
        or sums
    )


def compare_steps(
    plan: Plan, executor: Executor, feeds: Mapping[str, Array], *, threads: int = 1
) -> list[Difference]:
    """Runs the plan on a runtime, and each step again on NumPy, on what the runtime itself gave to
    the step.

    So layouts that are carried, memory that is shared and operands that are overwritten are all
    under test.

    Args:
        plan: the plan.
        executor: the runtime.
        feeds: an array for each input.
        threads: of the NumPy runtime.

    Returns:
        Every value that is not the same in type, shape and each byte.
    """
    found = executor.run_all(feeds)
    values = {**feeds, **found}
    differences: list[Difference] = []
    for step in plan.steps:
        inputs = {name: values[name] for name in step.inputs if name not in plan.constants}
        expected = run_step(plan, step, inputs, threads=threads)
        # a step may leave out outputs at the end
        for name, reference in zip(step.outputs, expected, strict=False):
            if not name:
                continue
            difference = _difference(
                step, name, found[name], reference, is_transcendental(step, plan)
            )
            if difference is not None:
                differences.append(difference)
    return differences


def _difference(
    step: Step, name: str, found: Array, expected: Array, transcendental: bool
) -> Difference | None:
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return Difference(
            step, name, found.size, found.size, math.inf, math.inf, 0.0, transcendental
        )
    if found.tobytes() == expected.tobytes():
        return None
    known = np.abs(expected[np.isfinite(expected)].astype(np.float64))
    magnitude = float(known.max(initial=0.0))
    if found.dtype.kind != "f":
        gap = np.abs(found.astype(np.int64) - expected.astype(np.int64))
        return Difference(
            step,
            name,
            int(np.count_nonzero(gap)),
            gap.size,
            float(gap.max()),
            0.0,
            magnitude,
            transcendental,
        )
    same = found.view(f"u{found.itemsize}") == expected.view(f"u{found.itemsize}")
    a, b = found[~same].astype(np.float64), expected[~same].astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    off = np.abs(a[finite] - b[finite])
    ulps = _ulps(found[~same][finite], expected[~same][finite])
    odd = not finite.all()
    largest = math.inf if odd else float(off.max(initial=0.0))
    return Difference(
        step,
        name,
        int(np.count_nonzero(~same)),
        found.size,
        largest,
        math.inf if odd else ulps,
        magnitude,
        transcendental,
    )


def _ulps(found: Array, expected: Array) -> float:
    """The largest difference in units in the last place of the larger magnitude."""
    spacing = np.spacing(np.maximum(np.abs(found), np.abs(expected)).astype(np.float32)).astype(
        np.float64
    )
    gap: npt.NDArray[np.float64] = (
        np.abs(found.astype(np.float64) - expected.astype(np.float64)) / spacing
    )
    return float(gap.max(initial=0.0))
