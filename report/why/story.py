"""The story of one name: the answer in a sentence or two, then all that is known of how it came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.decision import Decision, Fate, Half, Outcome
from ...plan.open_sizes import NO_SIZES
from ...plan.types import Plan
from ..notation import Notation, count_text, cut_names, layer_names, middle_cut
from ..summary import COSTLY
from ..verdict.findings import Finding, Verdict, decoded_outside_bodies, verdict_of
from ..verdict.kind import Gain
from ..verdict.layers import name_in_f32
from .endings import (
    Place,
    anchor_of,
    gone,
    half_text,
    own_function,
    places_of,
    precision,
    step_text,
    steps_text,
    with_article,
)
from .index import Index

_NAME = 60
_FEW = 3


@dataclass(frozen=True)
class Story:
    """All that a plan knows of one name.

    Attributes:
        name: as the model or plan has it.
        kind: `node`, `quantizer`, `value` or `step`.
        operator: the ONNX operator, or the form of a quantizer; '' where nobody tells.
        answer: where it ended, in one to three sentences.
        places: the steps that do its work, and as what.
        fates: where halves of quantizers went: its own, or those around it.
        decisions: of rules about it, in the order in which they were made.
        behind: refusals of what comes next to be fused into it.
        findings: those that its steps belong to, each about it alone.
        unknown: what cannot be told, and how to find out.
        body: the plan of the body that it lies in, whose steps `places` count; '' outside of bodies.
    """

    name: str
    kind: str
    operator: str
    answer: str
    places: tuple[Place, ...]
    fates: tuple[Fate, ...]
    decisions: tuple[Decision, ...]
    behind: tuple[Decision, ...]
    findings: tuple[Finding, ...]
    unknown: tuple[str, ...]
    body: str = ""


def story_of(
    index: Index, name: str, verdict: Verdict | None = None, sizes: Mapping[str, int] = NO_SIZES
) -> Story:
    """The story of a node, quantizer, value or step.

    Args:
        index: of the plan.
        name: one that `Index.matching` gave.
        verdict: on the plan that it lies in, if there is one already.
        sizes: else, of what the model leaves open; others are guessed.
    """
    whole, index = index, index.home(name)
    if not index.around:
        return _story(index, verdict or verdict_of(index.plan, sizes=sizes), name)
    if verdict is None:  # a body has sizes of its own
        given = decoded_outside_bodies(whole.plan)[whole.bodies.index(index)]
        verdict = verdict_of(index.plan, decoded_outside=given)
    story = _story(index, verdict, name)
    where = f"In a body of {middle_cut(index.around, _NAME)}, which has a plan of its own"
    return replace(story, answer=f"{where}: {story.answer}", body=index.plan.name)


def _story(index: Index, verdict: Verdict, name: str) -> Story:
    if index.is_node(name):
        return _node(index, verdict, name)
    if index.is_value(name):
        return _value(index, verdict, name)
    number = index.step_called(name)
    assert number is not None, "a name that `matching` gives is one of the three"
    return _step(index, verdict, number, name)


def ending_of(index: Index, name: str) -> str:
    """Where a node ended, in a few words, as a list of nodes has it."""
    index = index.home(name)
    inside = f"in a body of {middle_cut(index.around, _NAME)}: " if index.around else ""
    return f"{inside}{_ending(index, name)}"


def _ending(index: Index, name: str) -> str:
    places = places_of(index, name)
    if places:
        step = index.plan.steps[places[0].step]
        more = f", and {len(places) - 1} more" if len(places) > 1 else ""
        return f"step {places[0].step} ({step.primitive}): {places[0].role}{more}"
    quantizer = index.quantizer_of(name)
    fates = index.fates.get(quantizer, [])
    if fates:
        halves = [fate for fate in fates if quantizer == name or fate.half is Half.DEQUANTIZE]
        return half_text(index.plan, halves)
    return gone(index, name).why


# -- nodes -----------------------------------------------------------------------------------------


def _node(index: Index, verdict: Verdict, name: str) -> Story:
    quantizer = index.quantizer_of(name)
    if quantizer:
        return _quantizer(index, verdict, name, quantizer)
    plan, places, ending = index.plan, tuple(places_of(index, name)), None
    decisions = tuple(index.decisions.get(name, ()))
    silent = not places and not decisions and bool(index.nodes.get(name))
    steps = [place.step for place in places]
    if places:
        answer = _placed(index, verdict, name, places)
    else:
        ending = gone(index, name)
        steps = list(ending.steps)
        goes = f" {ending.relation} {_into(plan, steps)}." if steps else ""
        answer = f"{_called(name)} has no step: {ending.why}.{goes}"
    anchored = [n for n in steps if places and name == anchor_of(plan, plan.steps[n])]
    around = [
        fate
        for number in anchored
        for fate in plan.fate_records
        if fate.step == number and fate.consumer in ("", name)
    ]
    around += [
        fate for fate in plan.fate_records if fate.half is Half.QUANTIZE and fate.step in anchored
    ]
    fates = _in_order([*index.read.get(name, ()), *around])
    findings = _findings(index.plan, verdict, name, anchored or [place.step for place in places])
    behind = _behind(index, anchored)
    return Story(
        name,
        "node",
        index.op(name),
        f"{answer}{_obstacle(findings, decisions)}",
        places,
        fates,
        decisions,
        behind,
        findings,
        _unknown(index, silent=silent and ending is not None and not ending.known),
    )


def _called(name: str) -> str:
    return middle_cut(name, _NAME) if name else "The node without a name"


def _how(verdict: Verdict, number: int) -> str:
    """In which numbers a step computes on the machine of the verdict."""
    in_f32 = verdict.costs.works[number].in_f32
    return "on codes in f32" if in_f32 else precision(verdict.costs.plan, number)


def _placed(index: Index, verdict: Verdict, name: str, places: Sequence[Place]) -> str:
    plan = index.plan
    anchored = [place for place in places if name == anchor_of(plan, plan.steps[place.step])]
    if not anchored:
        place = places[0]
        how = _how(verdict, place.step)
        more = (
            f" So it is in {count_text(len(places) - 1, 'other step')}." if len(places) > 1 else ""
        )
        return (
            f"{_called(name)} has no step of its own: it is in {step_text(plan, place.step)}"
            f"{f', {how}' if how else ''}, as {place.role}.{more}"
        )
    if len(anchored) > 1:
        numbers = [place.step for place in anchored]
        kinds = ", ".join(
            f"{number} ({Notation(plan).primitive(plan.steps[number])})"
            for number in numbers[:_FEW]
        )
        left = f" and {len(numbers) - _FEW} more" if len(numbers) > _FEW else ""
        return f"{_called(name)} became {count_text(len(numbers), 'step')}: {kinds}{left}."
    (place,) = anchored
    step = plan.steps[place.step]
    how = _how(verdict, place.step)
    if own := own_function(step):
        what = f"runs as {own}{f', {how}' if how else ''}, step {place.step}"
    elif step.primitive.startswith("onnx."):
        what = f"runs as the ONNX operator itself{f', {how}' if how else ''}, step {place.step}"
    else:
        what = f"runs {f'{how} ' if how else ''}as step {place.step}, {with_article(Notation(plan).primitive(step))}"
    return f"{_called(name)} {what}{_company(index, name, place.step)}."


def _company(index: Index, name: str, number: int) -> str:
    """What is in the same step: other nodes, and the quantizer that is its store."""
    plan = index.plan
    step = plan.steps[number]
    stores = {
        fate.quantizer
        for fate in plan.fate_records
        if fate.step == number and fate.half is Half.QUANTIZE and fate.fate.value == "dst_scale"
    }
    nodes = [
        other
        for other in step.origin
        if other != name and other not in plan.quantizers and not index.quantizer_of(other)
    ]
    parts = []
    if nodes:
        shown = ", ".join(cut_names(nodes[:_FEW], _NAME))
        left = f" and {len(nodes) - _FEW} more" if len(nodes) > _FEW else ""
        parts.append(f"{shown}{left}")
    if len(stores) == 1:
        parts.append("the quantizer behind it as its store")
    return f", with {' and '.join(parts)}" if parts else ""


def _into(plan: Plan, steps: Sequence[int]) -> str:
    return step_text(plan, steps[0]) if len(steps) == 1 else steps_text(steps)


def _behind(index: Index, steps: Sequence[int]) -> tuple[Decision, ...]:
    """Refusals to fuse what reads a step into it."""
    refused = (d for d in index.plan.decision_records if d.outcome is Outcome.REFUSED)
    return tuple(decision for decision in refused if decision.step in steps)


def _findings(plan: Plan, verdict: Verdict, name: str, steps: Sequence[int]) -> tuple[Finding, ...]:
    """The findings of the steps, and those that name the node, as one on a quantizer names its
    neighbours; each about the node alone, or about those of its steps, if it names them.
    """
    around = {name, *(node for number in steps for node in plan.steps[number].origin)}
    around |= set(map(name_in_f32, around))
    found = []
    called = name_in_f32(name)
    for finding in verdict.findings:
        if set(finding.steps) & set(steps) or called in finding.layers:
            own = (
                [called] if called in finding.layers else [n for n in finding.layers if n in around]
            )
            found.append(replace(finding, layers=tuple(own) or finding.layers))
    return tuple(found)


def _obstacle(findings: Sequence[Finding], decisions: Sequence[Decision]) -> str:
    useful = [finding for finding in findings if not finding.kind.no_remedy]
    if useful:
        kind = useful[0].kind
        return f" What stands in the way of better: {kind.why} ({kind.code})."
    if findings:
        code = findings[0].kind.code
        if findings[0].kind.gain is Gain.NOTHING:
            return f" It belongs to the finding {code}, which costs nothing to speak of."
        return f" It belongs to the finding {code}: no setting of a quantizer pays there."
    refused = [d for d in decisions if d.outcome is Outcome.REFUSED and d.rule.endswith(" in int8")]
    return f" What stands in the way of better: {refused[-1].reason}." if refused else ""


def _in_order(fates: Iterable[Fate]) -> tuple[Fate, ...]:
    """Each once: the quantize half of each quantizer in front, quantizers as they come."""
    groups: dict[str, dict[Fate, None]] = {}
    for fate in fates:
        groups.setdefault(fate.quantizer, {})[fate] = None
    return tuple(
        fate
        for group in groups.values()
        for fate in sorted(group, key=lambda item: item.half is Half.DEQUANTIZE)
    )


def _unknown(index: Index, *, silent: bool = False) -> tuple[str, ...]:
    found = []
    if silent:
        found.append("which rule rewrote it: none left a word at its name")
    if not index.nodes:
        found.append(
            "what the model looked like around it: a plan keeps no graph of the model; ask with "
            "the model instead of the plan"
        )
    return tuple(found)


# -- quantizers ------------------------------------------------------------------------------------


def _quantizer(index: Index, verdict: Verdict, name: str, quantizer: str) -> Story:
    plan = index.plan
    fates = _in_order(index.fates.get(quantizer, ()))
    encoded = [fate for fate in fates if fate.half is Half.QUANTIZE]
    decoded = [fate for fate in fates if fate.half is Half.DEQUANTIZE]
    own = sorted({f.step for f in fates if f.fate in COSTLY and f.step is not None})
    cost = f"costs {steps_text(own)}" if own else "costs no step of its own"
    who = f"The quantizer {_called(quantizer)}"
    if name != quantizer:
        who = f"{_called(name)} is the dequantize half of {_called(quantizer)}, which"
    halves = [
        f"its {half} half is {half_text(plan, group)}"
        for half, group in (("quantize", encoded), ("dequantize", decoded))
        if group
    ]
    answer = f"{who} {cost}: {'; '.join(halves)}."
    why = [f.reason for f in fates if f.fate in COSTLY]
    if why:
        answer += (
            f" It has its own because {why[0]}."
            if why[0].startswith("it ")
            else (f" Why: {why[0]}.")
        )
    decisions = tuple(
        dict.fromkeys([*index.decisions.get(quantizer, ()), *index.decisions.get(name, ())])
    )
    places = tuple(dict.fromkeys([*places_of(index, name), *places_of(index, quantizer)]))
    findings = _findings(index.plan, verdict, quantizer, own)
    layers = [p.step for p in places if name in layer_names(plan, plan.steps[p.step])]
    if layers:  # an operator on codes is a layer, too
        findings = _findings(index.plan, verdict, name, layers)
        answer = f"{_placed(index, verdict, name, places)} {answer}{_obstacle(findings, decisions)}"
    return Story(
        name,
        "quantizer",
        plan.quantizers[quantizer].form,
        answer,
        places,
        fates,
        decisions,
        (),
        findings,
        _unknown(index),
    )


# -- values and steps ------------------------------------------------------------------------------


def _value(index: Index, verdict: Verdict, name: str) -> Story:
    """A value is what its maker became; one without a maker, what reads it."""
    plan = index.plan
    maker = index.maker.get(name)
    quantizers = [q.name for q in plan.quantizers.values() if q.value == name]
    if maker is not None:
        told = _node(index, verdict, maker.name)
        answer = f"The value {_called(name)} is written by {_called(maker.name)}. {told.answer}"
        return replace(told, name=name, kind="value", answer=answer)
    if name in index.producer:
        return _step(index, verdict, index.producer[name], name, kind="value")
    readers = index.readers.get(name, [])
    steps = list(index.readers_in_plan.get(name, ()))
    steps = steps or sorted({n for node in readers for n in index.steps.get(node.name, ())})
    kind = "an input of the model" if name in plan.inputs else "a constant of the model"
    parts = [f"The value {_called(name)} is {kind}"]
    parts += [f"it is quantized by {_called(quantizers[0])}"] if quantizers else []
    parts += [f"read by {_into(plan, steps)}"] if steps else ["no step reads it as it is"]
    told_by = [_quantizer(index, verdict, q, q) for q in quantizers]
    more = f" {told_by[0].answer}" if told_by else ""
    return Story(
        name,
        "value",
        "",
        f"{', '.join(parts)}.{more}",
        tuple(Place(number, "reads it") for number in steps),
        tuple(fate for story in told_by for fate in story.fates),
        tuple(decision for story in told_by for decision in story.decisions),
        (),
        (),
        _unknown(index),
    )


def _step(index: Index, verdict: Verdict, number: int, name: str, kind: str = "step") -> Story:
    plan = index.plan
    step = plan.steps[number]
    how = _how(verdict, number)
    who = f"The value {_called(name)} is written by step" if kind == "value" else "Step"
    what = Notation(plan).primitive(step)
    nodes = Notation(plan).origin(step)
    shown = ", ".join(cut_names(nodes[:_FEW], _NAME))
    left = f" and {len(nodes) - _FEW} more" if len(nodes) > _FEW else ""
    of = f", made of {shown}{left}" if nodes else ", which no node of the model asked for by name"
    decisions = tuple(d for node in step.origin for d in index.decisions.get(node, ()))
    findings = _findings(index.plan, verdict, anchor_of(plan, step), [number])
    text = f"{who} {number} is" if kind == "step" else f"{who} {number},"
    answer = f"{text} {with_article(what)}{f' {how}' if how else ''}{of}.{_obstacle(findings, decisions)}"
    return Story(
        name,
        kind,
        "",
        answer,
        (Place(number, "the step"),),
        _in_order(fate for fate in plan.fate_records if fate.step == number),
        decisions,
        _behind(index, [number]),
        findings,
        _unknown(index),
    )
