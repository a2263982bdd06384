"""Which nodes of the f32 model a finding names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ...ir.decision import Half
from ...ir.reach import FEW_CODES, JOIN, OPERAND, READER
from ..notation import layer_names
from .numbers import multiplies_by_infinity, rounds_too_coarsely
from .remedies import Tool
from .view import View

# in front of a path, as NNCF names quantizers, or in its last part; in between, it is a module's name
_QUANTIZING = re.compile(r"^(De)?[Qq]uantizeLinear|[Qq]uantizeLinear[^/]*$")

# NODE_PORT_NUMBER: NNCF's multiplication behind a node of the f32 model, which its options name
_SMOOTHING = re.compile(r"_\d+_\d+/nncf_smooth_quant$")


def layers_of(view: View, steps: Sequence[int], ms: Sequence[float] = ()) -> tuple[str, ...]:
    """The model's names of steps, each once, the costliest first: each step by its first node that is
    no quantizer, if it has one.
    """
    ordered = sorted(steps, key=lambda index: -ms[index]) if ms else steps  # stable
    return _without_quantizers(next(iter(_plain(view, index))) for index in ordered)


def layers_in_front(view: View, steps: Sequence[int], ms: Sequence[float]) -> tuple[str, ...]:
    """The nodes whose results these steps quantize, each once, the costliest first."""
    names = (_quantized_by(view, index) for index in sorted(steps, key=lambda index: -ms[index]))
    return _without_quantizers(names)


def _quantized_by(view: View, index: int) -> str:
    """The last node of a step that is no quantizer; of a step of quantizers alone, of the step in front."""
    own = _plain(view, index)[-1]
    fronts = [front for value in view.floats_read(index) for front in view.in_front(value)]
    return _plain(view, fronts[0])[-1] if _QUANTIZING.search(own) and fronts else own


def layers_around(view: View, steps: Sequence[int], tool: Tool) -> tuple[str, ...]:
    """The nodes to leave in f32 so that the quantizers go by which these steps round, or which they
    read where none of them rounds: of each, the node in front and those that read it. NNCF
    quantizes for readers alone, so that for it the node in front need not be named.
    """
    rounding = {index for index in steps if rounds_too_coarsely(view, index)}
    made, read = _quantizers_of(view)
    names: list[str] = []
    for index in steps:
        quantizer = made.get(index) if index in rounding else None
        fronts = (each for value in view.steps[index].inputs for each in view.in_front(value))
        if quantizer is not None:
            names += [] if tool is Tool.NNCF else [_in_front(view, index, quantizer)]
            names += read[quantizer]
        elif rounding.isdisjoint(fronts):
            names.append(_plain(view, index)[-1])
        if multiplies_by_infinity(
            view, index
        ):  # in f32 it is as large, and its readers' codes are not
            behind = (made.get(reading.step, "") for reading in view.readings(index))
            names += [name for each in behind for name in read.get(each, ())]
    return _without_quantizers(names)


def layers_of_few_codes(view: View, _steps: Sequence[int], tool: Tool) -> tuple[str, ...]:
    """The nodes to leave in f32: what joins the values that hardly a code stands for with others, or else gives
    them, and what reads them. NNCF quantizes for readers alone.
    """
    places: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for decision in view.plan.decision_records:
        if decision.rule == FEW_CODES:
            places[decision.reason][decision.found].append(decision.subject)
    found: list[str] = []
    for roles in places.values():
        read, made = roles[READER], roles[JOIN] or roles[OPERAND]
        found += read if read and tool is Tool.NNCF else [*made, *read]
    return tuple(dict.fromkeys(name_in_f32(name) for name in found))


def _quantizers_of(view: View) -> tuple[dict[int, str], dict[str, list[str]]]:
    """Step -> the last quantizer by which it rounds; quantizer -> the nodes that read what it gives."""
    made: dict[int, list[str]] = defaultdict(list)
    read: dict[str, list[str]] = defaultdict(list)
    for fate in view.plan.fate_records:
        if fate.half is Half.DEQUANTIZE:
            read[fate.quantizer].append(fate.consumer)
        elif fate.step is not None:
            made[fate.step].append(fate.quantizer)
    last: dict[int, str] = {}
    for index, quantizers in made.items():
        places = {name: place for place, name in enumerate(view.steps[index].origin)}
        last[index] = max(quantizers, key=lambda name: places.get(name, -1))
    return last, read


def _in_front(view: View, index: int, quantizer: str) -> str:
    """The node that makes what a step rounds: the quantizer itself where it is an operator on codes, one
    in front of it in the step, or the last of the step in front.
    """
    if quantizer in layer_names(view.plan, view.steps[index]):
        return quantizer
    origin = view.steps[index].origin
    inside = origin[: origin.index(quantizer)] if quantizer in origin else origin
    own = [name for name in inside if not _QUANTIZING.search(name)]
    if own:
        return own[-1]
    fronts = view.in_front(view.steps[index].inputs[0])
    return _plain(view, fronts[0])[-1] if fronts else _plain(view, index)[-1]


def _plain(view: View, index: int) -> list[str]:
    """The nodes of a step that are no quantizers, as the f32 model has them; where there is none,
    whatever it has.
    """
    step = view.steps[index]
    names = layer_names(view.plan, step) or list(step.origin) or [step.name]
    return list(map(name_in_f32, [n for n in names if not _QUANTIZING.search(n)] or names))


def name_in_f32(name: str, tool: Tool = Tool.ANY) -> str:
    """The node of the f32 model that a node stands behind which a quantizer added, or for which it
    put another one (ONNX Runtime: `conv_quant` for `conv`); else its own name.
    """
    replaced = tool in {Tool.ORT, Tool.ORT_DYNAMIC}
    return _SMOOTHING.sub("", name.removesuffix("_quant") if replaced else name)


def _without_quantizers(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once; quantizers only where there is nothing else."""
    found = list(dict.fromkeys(names))
    return tuple([name for name in found if not _QUANTIZING.search(name)] or found)
