"""What the page shows, as one document: the verdict, the graph, and the tables.

Texts of a model are made printable here and stand once, in `texts`; elsewhere is their index. Keys
are those that `assets/` reads. Two thirds of it, `details`, are read when a story, a table or the
search first asks for them, so that a page of thousands of steps is ready without: its `texts` go on
where the others end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import InvalidInput, printable
from ...ir.decision import Decision, Outcome
from ...ir.types import Quantization
from ...masks import mask_text
from ...plan.attributes import Scale, ZeroPoint
from ...plan.open_sizes import NO_SIZES
from ...plan.types import Plan, Step, runs_in_int8
from ...plan.words import order_of
from ..fates import FACTOR
from ..notation import (
    Notation,
    bytes_text,
    count_text,
    cut_names,
    number_text,
    rounded,
    title_text,
    weights_by_step,
)
from ..tables import cost_of
from ..verdict.estimate import Costs, on_numpy
from ..verdict.findings import Verdict, verdict_of
from ..verdict.machine import Machine
from ..verdict.screen import answer_text, change_text, gain_text, is_shown
from ..verdict.work import (
    MOVES,
    bytes_of,
    elements_of,
    operator_of,
)
from .layout import laid_out

CATEGORIES = ("int8", "coded", "f32", "outside", "convert", "move", "end")
"""What a node is: computes on 8-bit codes, multiplies them in f32 on this CPU, computes on floats, runs
outside the primitives (the ONNX operator on NumPy), only converts, only moves data, is an input or
output of the model.
"""

_FEW = 8  # values of a scale that are written out
_PARAMETER = 200  # characters
_END, _BOX = 36, 33  # characters in the box of an input or output, of a step
_CHIPS = 6  # layers of a finding that have a button
_CHIP = 40  # columns on it


@dataclass(frozen=True)
class Measured:
    """What was measured, by the index of the step.

    Attributes:
        times: milliseconds of a step in one run.
        errors: signal to quantization noise of its output against f32, in dB.
    """

    times: Mapping[int, float] = field(default_factory=dict)
    errors: Mapping[int, float] = field(default_factory=dict)


def measured_from(
    plan: Plan, times: Mapping[int, float] | None, errors: Mapping[int, float] | None
) -> Measured:
    """What a caller measured, checked.

    Raises:
        InvalidInput: it is no mapping from indices of steps to numbers.
    """
    return Measured(
        _checked(plan, times, "times", "milliseconds"), _checked(plan, errors, "errors", "decibels")
    )


def _checked(plan: Plan, given: object, name: str, unit: str) -> dict[int, float]:
    hint = f"give a dictionary: the index of a step -> {unit}"
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{name} are of type {type(given).__name__}", hint=hint)
    for index, value in given.items():
        if not isinstance(index, int) or not 0 <= index < len(plan.steps):
            raise InvalidInput(
                f"{name} hold {index!r}, and the plan has {count_text(len(plan.steps), 'step')}",
                hint=hint,
            )
        if not isinstance(value, int | float) or math.isnan(value):
            raise InvalidInput(f"{name} hold {value!r} for step {index}", hint=hint)
    low = [index for index, value in given.items() if name == "times" and not 0 <= value < math.inf]
    if low:
        raise InvalidInput(f"{name} hold {given[low[0]]!r} for step {low[0]}", hint=hint)
    return {index: float(value) for index, value in given.items()}


class _Texts:
    """Each text once, printable."""

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}
        self.texts: list[str] = []

    def __call__(self, text: str) -> int:
        index = self._indices.get(text)
        if index is None:
            index = self._indices[text] = len(self.texts)
            self.texts.append(printable(text))
        return index

    def all(self, texts: Iterable[str]) -> list[int]:
        return [self(text) for text in texts]


def document(
    plan: Plan,
    *,
    title: str = "",
    machine: Machine | None = None,
    sizes: Mapping[str, int] = NO_SIZES,
    measured: Measured | None = None,
) -> dict[str, Any]:
    """The document of the page.

    Args:
        plan: any plan.
        title: what it is called; the plan's name if empty.
        machine: what times are estimated for; None: this one.
        sizes: of what the model leaves open; others are guessed.
        measured: times and errors, as `measured_from` checked them.
    """
    verdict = verdict_of(plan, machine, sizes)
    sized = verdict.costs.plan
    text = _Texts()
    notation = Notation(plan)
    indices = range(len(plan.steps))
    steps = [_step(plan, index, verdict, notation, text) for index in indices]
    measured = measured or Measured()
    for index, value in measured.times.items():
        steps[index]["time"] = rounded(value)
    for index, value in measured.errors.items():
        # JSON knows no infinities: without any difference the ratio is infinite
        steps[index]["error"] = rounded(max(-999.0, min(value, 999.0)))
    result = {
        "title": printable(title or title_text(plan.name) or "(a model without a name)"),
        "target": plan.target,
        "done": "converted" if "converted" in plan.options else "compiled",
        "categories": CATEGORIES,
        "verdict": _verdict(plan, verdict),
        "findings": [_finding(finding, verdict, text) for finding in verdict.findings],
        "steps": steps,
        **_graph(sized, notation, text),
        "decisions": len(plan.decision_records),
    }
    seen = len(text.texts)
    details = _details(plan, notation, text)
    return {
        **result,
        "texts": text.texts[:seen],
        "details": {**details, "texts": text.texts[seen:]},
    }


def _details(plan: Plan, notation: Notation, text: _Texts) -> dict[str, Any]:
    """What is read when it is asked for."""
    weights = weights_by_step(plan)
    return {
        "steps": [
            _step_details(step, notation, text, weights.get(index))
            for index, step in enumerate(plan.steps)
        ],
        "quantizers": [
            [text(name), text(quantizer.form), text(quantizer.value)]
            for name, quantizer in plan.quantizers.items()
        ],
        "fates": [
            [
                text(fate.quantizer),
                text(fate.half.value),
                text(fate.fate.value),
                -1 if fate.step is None else fate.step,
                text(fate.consumer),
                text(fate.reason),
            ]
            for fate in plan.fate_records
        ],
        "decisions": [_decision(decision, text) for decision in plan.decision_records],
    }


def _verdict(plan: Plan, verdict: Verdict) -> dict[str, Any]:
    shares = verdict.shares
    return {
        "answer": answer_text(verdict),
        "macs": [shares.int8_macs, shares.macs],
        "between": [shares.f32_between, shares.between],
        "arithmetic": shares.arithmetic,
        "handed": shares.handed_on,
        "ms": rounded(verdict.estimate.ms),
        "machine": verdict.machine.description,
        "timed": verdict.timed,
        "open": [f"{printable(name)}={size}" for name, size in verdict.guessed.items()],
        "loops": [printable(name) for name in verdict.loops],
        "quantizers": len(plan.quantizers),
    }


def _finding(finding: Any, verdict: Verdict, text: _Texts) -> dict[str, Any]:
    tool, change = change_text(finding, 3)
    return {
        "code": finding.kind.code,
        "what": finding.what,
        "why": finding.kind.why,
        "gain": finding.kind.gain.value,
        "saves": gain_text(finding, verdict),
        "change": change,
        "tool": tool,
        "remedy": not finding.kind.no_remedy,
        "shown": is_shown(finding, verdict),
        "layers": text.all(finding.layers),
        "chips": cut_names(list(map(printable, finding.layers[:_CHIPS])), _CHIP),
        "reasons": text.all(finding.reasons),
        "steps": finding.steps,
        "ms": rounded(finding.ms),
    }


def _decision(decision: Decision, text: _Texts) -> list[Any]:
    weighed = [
        f"{home.home}: {home.why_not or f'costs {number_text(home.cost)}'}"
        for home in decision.alternatives
    ]
    return [
        text(decision.rule),
        text(decision.subject),
        int(decision.outcome is Outcome.REFUSED),
        *text.all((decision.reason, decision.expected, decision.found, decision.hint)),
        text.all(weighed),
    ]


# -- steps -----------------------------------------------------------------------------------------


def _step(
    plan: Plan,
    index: int,
    verdict: Verdict,
    notation: Notation,
    text: _Texts,
) -> dict[str, Any]:
    step = plan.steps[index]
    return {
        "primitive": text(notation.primitive(step)),
        "category": CATEGORIES.index(_category(verdict.costs, index)),
        "name": text(next(iter(notation.origin(step)), step.name)),
        "types": text(notation.types(step)),
        "fused": text.all(notation.fused(step)),
        **cost_of(verdict.costs, index),
    }


def _step_details(
    step: Step, notation: Notation, text: _Texts, weights: Quantization | None
) -> dict[str, Any]:
    return {
        "origin": text.all(step.origin),
        "reads": [
            [text(role), text(value), text(notation.type(value))] for role, value in _read(step)
        ],
        "writes": [[text(value), text(notation.type(value))] for value in step.outputs if value],
        "facts": [[text(name), text(value)] for name, value in _facts(step, notation, weights)],
    }


def _category(costs: Costs, index: int) -> str:
    plan, step = costs.plan, costs.plan.steps[index]
    if costs.works[index].in_f32:
        return "coded"
    if on_numpy(step):
        return "outside"
    if step.primitive in MOVES or operator_of(step) == "Gather":
        return "move"
    if step.primitive == "reorder":
        return "convert"
    return "int8" if runs_in_int8(plan, step) else "f32"


def _read(step: Step) -> Iterator[tuple[str, str]]:
    yield from step.args
    yield from (("post-op", value) for value in step.attr.operands)


def _facts(
    step: Step, notation: Notation, weights: Quantization | None
) -> Iterator[tuple[str, str]]:
    """What the step holds besides its arguments: scales, zero points, post-ops, parameters. The
    weights' scale is the model's; what the step multiplies by instead has a name of its own.
    """
    attr = step.attr
    if weights is not None:
        yield "scale of weights", _numbers(weights.scale)
    for name, scale in attr.scales.items():
        if name != "weights":
            yield f"scale of {name}", _values(scale, order_of(step, name))
        elif weights is None or scale.values != weights.scale:
            yield FACTOR, _values(scale, order_of(step, name))
    for name, point in attr.zero_points.items():
        yield f"zero point of {name}", _values(point, order_of(step, name))
    for name in ("output_scales", "rnn_data_qparams", "rnn_weights_qparams"):
        found = getattr(attr, name)
        if found is not None:
            yield name, _values(found, order_of(step, "dst"))
    for number, op in enumerate(attr.post_ops, 1):
        yield f"post-op {number}", f"{op.kind}: {notation.post_op(op)}"
    for value in step.outputs:
        quant = notation.plan.type(value).quant if value else None
        if quant is not None:
            zero = "" if quant.symmetric else f", zero point {_numbers(quant.zero_point)}"
            yield "codes written", f"scale {_numbers(quant.scale)}{zero}"
    for name, parameter in step.params.items():
        shown = str(parameter)
        yield name, shown if len(shown) <= _PARAMETER else f"{shown[:_PARAMETER]}…"


def _values(held: Scale | ZeroPoint, order: str) -> str:
    mask = f" ({mask_text(held.mask, order)})" if held.mask else ""
    return f"{_numbers(held.values)}{mask}"


def _numbers(values: tuple[float, ...]) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:_FEW])
    if len(values) <= _FEW:
        return shown
    return f"{len(values):,} values from {min(values):.6g} to {max(values):.6g}: {shown}, …"


# -- graph -----------------------------------------------------------------------------------------


def _boxes(plan: Plan, notation: Notation) -> list[str]:
    """What stands in the box of each node: a step's first node of the model, an end's name and type."""
    inputs, outputs = (
        cut_names([f"{printable(value)}  {notation.type(value)}" for value in values], _END)
        for values in (plan.inputs, plan.outputs)
    )
    names = [next(iter(notation.origin(step)), step.name) for step in plan.steps]
    return [*inputs, *cut_names(list(map(printable, names)), _BOX), *outputs]


def _graph(plan: Plan, notation: Notation, text: _Texts) -> dict[str, Any]:
    """Nodes are the inputs, the steps, then the outputs of the model: `first` is the first step."""
    first = len(plan.inputs)
    outputs = first + len(plan.steps)
    writer = {value: number for number, value in enumerate(plan.inputs)}
    edges: dict[tuple[int, int], str] = {}
    for index, step in enumerate(plan.steps):
        for value in step.inputs:
            if value in writer:
                edges.setdefault((writer[value], first + index), value)
        writer |= {value: first + index for value in step.outputs if value}
    for number, value in enumerate(plan.outputs):
        if value in writer:
            edges.setdefault((writer[value], outputs + number), value)
    layout = laid_out(outputs + len(plan.outputs), edges)
    return {
        "first": first,
        "inputs": [[text(value), text(notation.type(value))] for value in plan.inputs],
        "outputs": [[text(value), text(notation.type(value))] for value in plan.outputs],
        "boxes": text.all(_boxes(plan, notation)),
        "places": layout.places,
        "edges": [
            [
                route.source,
                route.target,
                text(value := edges[route.source, route.target]),
                text(notation.type(value)),
                _kind(plan, value),
                bytes_text(bytes_of(plan, value)),
                int(route.far),
                [number for point in route.bends for number in point],
            ]
            for route in layout.routes
        ],
    }


def _kind(plan: Plan, value: str) -> int:
    """0: codes, 1: floats, 2: others, and single numbers, as scales at run time are."""
    dtype = plan.type(value).dtype
    if elements_of(plan.type(value)) == 1:
        return 2
    return 0 if dtype.is_code else 1 if dtype.is_float else 2
