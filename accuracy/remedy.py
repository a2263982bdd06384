"""Seven bits for the layers whose sums a CPU without VNNI may get wrong, and for no others: what to
change, and the model with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ..compiler import compile as compile_model
from ..errors import UnsupportedOp
from ..exporter.seven_bits import Channels, activation_in_7_bits, weights_in_7_bits
from ..exporting import split_graph, written
from ..frontend import DEFAULT, Budgets, ModelSource, graph_from_onnx
from ..inference import InferenceSession
from ..ir.decision import DequantizeFate, Half, Quantizer
from ..ir.types import DType
from ..plan.saturation import StepSums, sums_of_plan
from ..plan.summation import ISAS
from ..plan.types import Plan
from .data import Samples
from .simulation import EXACT, Answer, Subject, layer_of, outputs_of

_ROUNDS = 3
"""Weights that are to be of 7 bits and even become so one behind the other, and fewer bits may let a step
fuse otherwise, which is looked at once more.
"""


class What(StrEnum):
    """What changes."""

    WEIGHTS = "weights"  # to 7 bits
    EVEN = "even-weights"  # that the CPU can halve
    ACTIVATION = "activation"  # to the codes 0..127


@dataclass(frozen=True)
class Change:
    """One quantizer, changed.

    Attributes:
        what: how.
        quantizer: of the model.
        layers: that need it, by name.
        channels: output channels that need it, of how many there are; all of an activation.
        of: how many there are.
    """

    what: What
    quantizer: Quantizer
    layers: tuple[str, ...]
    channels: frozenset[int]
    of: int


@dataclass(frozen=True)
class Fixed:
    """The model with the changes.

    Attributes:
        model: the ONNX model, as `export` writes it.
        plan: compiled; no step is left that may saturate on that CPU.
        changes: that were made.
        rounded: layers whose sums may pass 2^24.
        left: other instruction set without VNNI -> the layers that may saturate there.
    """

    model: Any
    plan: Plan
    changes: tuple[Change, ...]
    rounded: tuple[str, ...]
    left: Mapping[str, tuple[str, ...]]


def changes_for(plan: Plan, at_risk: Iterable[StepSums]) -> list[Change]:
    """What each step needs that may saturate; a step without a quantizer that could be
    changed needs nothing here.
    """
    found: dict[tuple[What, str], Change] = {}
    for sums in at_risk:
        for change in _changes(plan, sums):
            # all that reads the same weights changes with them
            whole = change.what is What.ACTIVATION or not change.quantizer.value
            key = change.what, change.quantizer.name if whole else change.quantizer.value
            found[key] = _joined(found[key], change) if key in found else change
    return list(found.values())


def _joined(one: Change, other: Change) -> Change:
    layers = tuple(dict.fromkeys((*one.layers, *other.layers)))
    if one.of != other.of:  # parts of one tensor: all of it
        return replace(one, layers=layers, channels=frozenset(), of=0)
    return replace(one, layers=layers, channels=one.channels | other.channels)


def _changes(plan: Plan, sums: StepSums) -> Iterator[Change]:
    layer = (layer_of(plan, sums),)
    if sums.step.bodies is not None:
        return
    if _has_constant_weights(plan, sums):
        for what in _whats(sums):
            for quantizer in _quantizers(plan, sums.index, DequantizeFate.WEIGHTS_SCALE):
                yield Change(what, quantizer, layer, frozenset(sums.channels), sums.of)
    elif plan.type(sums.step.arg("src") or "").dtype is DType.U8:
        for quantizer in _quantizers(plan, sums.index, DequantizeFate.SOURCE_SCALE):
            yield Change(What.ACTIVATION, quantizer, layer, frozenset(sums.channels), sums.of)


def _whats(sums: StepSums) -> list[What]:
    """What makes constant weights safe by each law that is not; where no weights are, none."""
    laws = sums.at_risk or (sums.law,)
    if any(law.turned for law in laws):
        return []
    found = (What.EVEN if law.halved else What.WEIGHTS for law in laws)
    return list(dict.fromkeys(found))


def _has_constant_weights(plan: Plan, sums: StepSums) -> bool:
    """Of a recurrent layer those of the input and of the hidden state."""
    roles = ("w", "r") if sums.step.primitive == "rnn" else ("weights",)
    return all(sums.step.arg(role) in plan.constants for role in roles)


def _quantizers(plan: Plan, index: int, fate: DequantizeFate) -> list[Quantizer]:
    """Those whose decoding half a step took in this way."""
    names = [
        record.quantizer
        for record in plan.fate_records
        if record.step == index and record.half is Half.DEQUANTIZE and record.fate is fate
    ]
    return [plan.quantizers[name] for name in dict.fromkeys(names) if name in plan.quantizers]


def fixed(subject: Subject, budgets: Budgets = DEFAULT) -> Fixed:
    """Changes quantizers until no step is left that may saturate.

    Raises:
        UnsupportedOp: a step needs a change that its quantizer has no form for, or standard ONNX cannot
            say the model; the node is named.
    """
    plan, source = subject.plan, subject.source
    made: list[Change] = []
    at_risk: Sequence[StepSums] = subject.at_risk
    for _ in range(_ROUNDS):
        changes = changes_for(plan, at_risk)
        halved = {change.quantizer.value for change in changes if change.what is What.WEIGHTS}
        changes = [c for c in changes if c.what is not What.EVEN or c.quantizer.value not in halved]
        model = _changed(source, changes, budgets)
        made += changes
        plan, source = compile_model(model, budgets=budgets), model
        every = sums_of_plan(plan, subject.isa)
        at_risk = [sums for sums in every if sums.saturates]
        if not at_risk:
            rounded = tuple(layer_of(plan, sums) for sums in every if sums.rounded)
            return Fixed(model, plan, tuple(made), rounded, _left_elsewhere(plan, subject.isa))
        if not changes:
            break
    raise _left(plan, at_risk)


def _changed(source: ModelSource, changes: Iterable[Change], budgets: Budgets) -> Any:
    """A model with changes, as Q/DQ."""
    graph = split_graph(graph_from_onnx(source, budgets=budgets))
    for change in changes:
        if change.what is What.ACTIVATION:
            activation_in_7_bits(graph, change.quantizer)
        else:
            channels, even = Channels(change.channels, change.of), change.what is What.EVEN
            weights_in_7_bits(graph, change.quantizer, channels, even=even)
    return written(graph).model


def _left_elsewhere(plan: Plan, isa: str) -> dict[str, tuple[str, ...]]:
    return {
        other: tuple(layer_of(plan, s) for s in sums_of_plan(plan, other) if s.saturates)
        for other in ISAS
        if other not in ("vnni", isa)
    }


def _left(plan: Plan, at_risk: Sequence[StepSums]) -> UnsupportedOp:
    names = [layer_of(plan, sums) for sums in at_risk]
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    what = f"7 bits cannot be written for this layer{more}: its weights are computed, and nothing cuts its source to 0..127"
    if any(law.turned for law in at_risk[0].at_risk):
        what = f"no weights are proven safe for this layer{more}: oneDNN may add 128 to them there, and pairs of these saturate"
    elif _has_constant_weights(plan, at_risk[0]):
        what = f"7 bits cannot be written for this layer{more}: which quantizer its weights come from is not known"
    if at_risk[0].step.bodies is not None:
        what = (
            f"7 bits cannot be written for this layer{more}: it lies in a body of If, Loop or Scan"
        )
    hint = "quantize it anew with weights of 7 bits or unsigned activations, or leave it in f32"
    return UnsupportedOp(what, where=names[0], hint=hint)


# -- what it costs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What the changed model computes.

    Attributes:
        fixed: the model.
        answers: each output, exact, against that of the model as it was (`there` is the changed one).
        agree: on all samples the emulation of that CPU gives the bits of exact sums. Code for f32 it has
            but one of, for all CPUs.
    """

    fixed: Fixed
    answers: Mapping[str, Answer]
    agree: bool


def outcome_of(subject: Subject, fixed: Fixed, samples: Samples) -> Outcome:
    """Runs the model as it was and as it is now."""
    there: Any = subject.isa
    before, *after = (
        InferenceSession(plan, "numpy", isa=isa)
        for plan, isa in ((subject.plan, EXACT), (fixed.plan, EXACT), (fixed.plan, there))
    )
    reference = None if subject.reference is None else InferenceSession(subject.reference)
    found = {name: Answer() for name in subject.plan.outputs}
    agree = True
    for feeds in samples.feeds:
        old, new, own = (outputs_of(session, feeds) for session in (before, *after))
        f32 = {} if reference is None else outputs_of(reference, feeds)
        agree = agree and all(new[name].tobytes() == own[name].tobytes() for name in found)
        for name, answer in found.items():
            answer.add(old[name], new[name], f32.get(name), subject.plan.type(name))
    return Outcome(fixed, found, agree)
