"""Judges every step of a plan from what the step itself read: whatever stands in front of it, and
however much that is off, hides nothing.

The reference is the imported graph on intervals (`laws.cones`). A value of the plan that is none of
the model's, such as rows of one or codes of a quantizer that was moved, is judged together with
what reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from laws.boxes import Box, exactly
from laws.cones import Boxes, Cone, Held, Unjudged

from fqfuse.ir.graph import Graph
from fqfuse.ir.interpret import run_graph
from fqfuse.ir.ops.spec import Trait
from fqfuse.ir.types import Quantization, TensorType
from fqfuse.plan.types import Plan, Step

_FORM = re.compile(r"/(codes|u8|s8)(\.\d+)?$")

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Verdict:
    """A value of the model that a step wrote.

    Attributes:
        step: the step.
        among: names of the steps that are judged by it: this one, and those in front of it whose
            values are none of the model's.
        value: its name in the model.
        op: that makes it in the model.
        unjudged: why there is no judging it; '' where it was judged.
        loose: the share of elements whose limits say little: more than two codes, or more than
            2^-12 of the largest one.
        told: the first element outside of its limits, and how many there are; '': none.
    """

    step: Step
    among: frozenset[str]
    value: str
    op: str
    unjudged: str = ""
    loose: float = 0.0
    told: str = ""

    def __str__(self) -> str:
        return f"{self.step.primitive} {self.step.name}: {self.value} of {self.op or 'an input'}: {self.unjudged or self.told or 'right'}"


def judge(graph: Graph, plan: Plan, feeds: Arrays, live: Arrays) -> list[Verdict]:
    """Judges what a runtime wrote.

    Args:
        graph: as imported.
        plan: of that graph.
        feeds: what the runtime was given.
        live: what each step wrote (`InferenceSession.run_steps`).

    Returns:
        A row for each value of the model that a step wrote.
    """
    known = {
        name: exactly(data) for name, data in graph.constants.items() if data.dtype.kind in "fiub"
    } | _of_shapes(graph, feeds)
    read = {
        name: {name: Held(name, graph.type(name), plan.type(name), feeds[name])}
        for name in plan.inputs
    }
    behind: dict[str, frozenset[str]] = {}
    verdicts = []
    for step in plan.steps:
        given = {k: v for value in step.inputs for k, v in read.get(value, {}).items()}
        among = frozenset({step.name}).union(*(behind.get(v, frozenset()) for v in step.inputs))
        for value in filter(None, step.outputs):
            name = model_value(graph, plan, value)
            if name:
                held = Held(name, graph.type(name), plan.type(value), live[value])
                read[value] = {name: held}
                verdicts.append(_verdict(graph, (step, among), known, given, held))
            else:
                read[value], behind[value] = given, among
    return verdicts


def model_value(graph: Graph, plan: Plan, value: str) -> str:
    """The model's value that a plan's value is, or holds the codes of; '' where there is none."""
    name = value
    while name not in graph.values and _FORM.search(name):
        name = _FORM.sub("", name)
    if name not in graph.values:
        return ""
    model, kind = graph.type(name), plan.type(value)
    if kind.dtype is model.dtype and name == value:
        return name
    coded = kind.quant is not None and kind.dtype.is_integer
    return name if coded and (model.quant or _is_grid_of(graph, name, kind)) else ""


def _is_grid_of(graph: Graph, value: str, kind: TensorType) -> bool:
    """Whether codes of that type are the very ones that the model's value is decoded from; those of
    a quantizer that was moved are of a value that lies on no grid.
    """
    node = graph.producer(value)
    while node is not None and node.has(Trait.LAYOUT_ONLY):
        node = graph.producer(node.inputs[0])
    if node is None or node.op not in ("Dequantize", "FakeQuantize") or kind.quant is None:
        return False
    if node.op == "Dequantize":
        quant = node.attr("quant", Quantization)
        scale, zero = quant.scales, quant.zero_points
    else:
        low, high, *behind = (graph.constant(end) for end in node.inputs[1:])
        if low is None or high is None or not all(map(np.array_equal, (low, high), behind)):
            return False
        if (low > high).any():
            return False
        scale = ((high - low) / (node.attr("levels", int) - 1)).ravel()
        zero = (-low.ravel() / scale).round(1)
    # u8 codes as s8, or the other way round
    apart = np.isin(np.ravel(kind.quant.zero_points - zero), (0, 128, -128))
    return bool(apart.all() and np.allclose(kind.quant.scales / scale, 1, 1e-5))


def _of_shapes(graph: Graph, feeds: Arrays) -> dict[str, Box]:
    """The integers of the model that follow from its shapes."""
    found: dict[str, Box] = {}
    if not any(node.op == "Shape" for node in graph.nodes()):
        return found
    arrays = run_graph(graph, feeds, keep_all=True)
    for node in graph.nodes():
        if node.op == "Shape" or all(v in graph.constants or v in found for v in node.inputs if v):
            for value in filter(None, node.outputs):
                if not graph.type(value).dtype.is_float:
                    found[value] = exactly(arrays[value])
    return found


def _verdict(
    graph: Graph,
    steps: tuple[Step, frozenset[str]],
    known: Boxes,
    given: Mapping[str, Held],
    held: Held,
) -> Verdict:
    node = graph.producer(held.name)
    about = (*steps, held.name, node.op if node else "")
    try:
        box = held.limits(Cone(graph, known, given, held).wanted())
    except (Unjudged, NotImplementedError, AssertionError) as error:
        return Verdict(*about, unjudged=str(error) or type(error).__name__)
    array = held.array
    if box.low.shape != array.shape:
        return Verdict(*about, told=f"shape {array.shape} for {box.low.shape}")
    much = 2 if array.dtype.kind in "iu" else 2.0**-12 * np.abs(box.middle).max(initial=0.0)
    loose = float(np.mean(box.high - box.low >= much)) if array.size and much else 0.0
    bad = ~box.holds(array)
    if not bad.any():
        return Verdict(*about, loose=loose)
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    limits = f"{float(box.low[at])!r}..{float(box.high[at])!r}"
    told = f"{int(bad.sum())} of {bad.size} elements, {at} is {array[at]!r}, not in {limits}"
    return Verdict(*about, loose=loose, told=told)
