"""Each step of a plan against the f32 arithmetic of the operations of the model that it replaced,
on the step's own real inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fqfuse.ir.graph import Graph
from fqfuse.ir.interpret import run_node
from fqfuse.ir.types import TensorType
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.session import InferenceSession

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Compared:
    """One step beside what it replaced: how many elements it writes, how many differ, and by how
    many steps of the destination's grid.
    """

    step: Step
    elements: int
    differing: int
    worst: float

    @property
    def share(self) -> float:
        return self.differing / max(self.elements, 1)


def compare_steps(graph: Graph, plan: Plan, feeds: Arrays) -> list[Compared]:
    """Runs the plan on the NumPy runtime, and each step's model operations on what that step read.

    Args:
        graph: as imported; its values are found by name (`y/codes` in a plan are the codes of the
            model's value `y`).
        plan: of that graph.
        feeds: real inputs.

    Returns:
        One row a step that computes something. Codes are compared as integers, f32 values in units
        of f32's resolution at the largest one.
    """
    live = {**feeds, **InferenceSession(plan, "numpy", 1).run_steps(feeds)}
    return [
        _compared(graph, plan, step, live)
        for step in plan.steps
        if _model_value(graph, step.output)
    ]


def report(rows: list[Compared]) -> str:
    """The rows as a table for people."""
    title = f"{'step':24} {'primitive':14} {'elements':>9} {'differ':>7} {'share':>10} {'worst':>6}"
    texts = (
        f"{row.step.name[:24]:24} {row.step.primitive:14} {row.elements:9d} {row.differing:7d} {row.share:10.5%} {row.worst:6.3g}"
        for row in rows
    )
    return "\n".join([title, *texts])


def _model_value(graph: Graph, value: str) -> str:
    """The model's value that a plan's value is, or holds the codes of; '' where there is none."""
    for name in (value, value.removesuffix("/codes")):
        if name in graph.values:
            return name
    return ""


def _compared(graph: Graph, plan: Plan, step: Step, live: Arrays) -> Compared:
    given = {}
    for value in dict.fromkeys(step.inputs):
        if value in live:
            name = _model_value(graph, value)
            assert name, f"{value} of step {step.name} is no value of the model"
            given[name] = _as(graph.type(name), plan.type(value), live[value])
    target = _model_value(graph, step.output)
    wanted = _computed(graph, target, given)
    kind = plan.type(step.output)
    found = live[step.output]
    if kind.dtype.is_integer and not graph.type(target).dtype.is_integer:
        wanted = _codes(kind, wanted)
    apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    unit = 1.0 if kind.dtype.is_integer else float(np.abs(wanted).max(initial=0)) * 2.0**-23
    return Compared(
        step,
        found.size,
        int(np.count_nonzero(apart > 0)),
        float(apart.max(initial=0) / (unit or 1.0)),
    )


def _as(wanted: TensorType, held: TensorType, array: np.ndarray) -> np.ndarray:
    """An array of the plan as the model's value: codes are decoded where the model has values."""
    if wanted.dtype is held.dtype:
        return array
    assert held.quant is not None, f"{held} does not say how its codes decode"
    scale, zero = held.quant.shaped(array.ndim)
    return (array.astype(np.float32) - zero) * scale


def _codes(kind: TensorType, values: np.ndarray) -> np.ndarray:
    """The codes of values that lie on the grid: exact, since |code| < 256 and f32 resolves 2^-24 of
    that.
    """
    assert kind.quant is not None
    scale, zero = kind.quant.shaped(values.ndim)
    return np.rint(values.astype(np.float64) / scale + zero)


def _computed(graph: Graph, target: str, given: Arrays) -> np.ndarray:
    """The value `target` of the model, from the given ones and constants, one operation after the
    other in f32.
    """
    held = dict(given)

    def value(name: str) -> np.ndarray | None:
        if not name:
            return None
        if name not in held:
            constant = graph.constant(name)
            if constant is not None:
                return constant
            node = graph.producer(name)
            assert node is not None, f"{name} is not computed from what the step reads"
            results = run_node(node, [value(v) for v in node.inputs])
            held.update(zip(node.outputs, results, strict=False))
        return held[name]

    found = value(target)
    assert found is not None
    return found
