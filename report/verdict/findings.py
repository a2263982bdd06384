"""The findings of a plan: what costs most, or makes numbers wrong, with what to change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import TypedDict

from ...ir.decision import QuantizeFate
from ...ir.reach import FEW_CODES
from ...plan.open_sizes import NO_SIZES, sizes_at
from ...plan.saturation import steps_at_risk
from ...plan.types import Plan, check_is_plan
from .catalogue import CATALOGUE
from .changes import change_of, touched
from .circumstances import circumstances_of
from .estimate import Costs, Estimate, costs_of
from .kind import Effect, Gain, Kind
from .layers import (
    layers_around,
    layers_in_front,
    layers_of,
    layers_of_few_codes,
    name_in_f32,
)
from .machine import Machine, this_machine
from .numbers import about_numbers
from .recognize import CORES, claims, is_quantized
from .remedies import Tool, tool_of
from .shares import Shares, shares_of
from .view import View
from .work import (
    are_batches,
    at_sizes,
    bytes_of,
    parts_of,
)

_SMALL = 0.03  # of the time of a run
_WITHOUT_VNNI = "saturation-without-vnni"


@dataclass(frozen=True)
class Finding:
    """Steps of one kind.

    Attributes:
        kind: of the catalogue.
        steps: indices of all that belong to it.
        layers: names in the model of those that it is about, the costliest first.
        ms, bytes: the estimate of what the remedy saves, or, where there is none, of what these
            steps cost beyond int8; 0 for what is about numbers.
        tool: whose words the remedy is in.
        reasons: why the composer did not multiply or store codes there, in its own words; may be
            empty.
        handed_on: bytes of floats that these steps write and others read.
        circumstances: those that hold, of what the remedy depends on.
        seven_bits: the gain takes weights of 7 bits: other codes would be multiplied in f32 on this CPU.
    """

    kind: Kind
    steps: tuple[int, ...]
    layers: tuple[str, ...]
    ms: float
    bytes: int
    tool: Tool
    reasons: tuple[str, ...] = ()
    handed_on: int = 0
    circumstances: frozenset[str] = frozenset()
    seven_bits: bool = False

    @property
    def what(self) -> str:
        """`6 convolutions and matmuls in f32`."""
        count = len(self.layers)
        return f"{count:,} {self.kind.one if count == 1 else self.kind.many}"

    def saves_calls(self, timed: bool) -> bool:
        """True where the gain is that of steps which are called for nothing, and times, of which calls are
        a part, are not known.
        """
        return self.kind.effect is Effect.FUSED and not timed

    def change(self, names: int | None = None, rest: str = "") -> str:
        """What to change, or why nothing helps, with layers as the quantizer's options name them.

        Args:
            names: about so many layers are named, one more where it is the last; None: all.
            rest: stands behind the number of those that are not: where to find them.
        """
        _, text = self.kind.remedy(self.tool, self.circumstances)
        called = list(dict.fromkeys(name_in_f32(layer, self.tool) for layer in self.layers))
        few = names if names is None or len(called) > names + 1 else None
        shown = [repr(name) for name in called[:few]]
        left = f" and {len(called) - len(shown):,} more{rest}" if len(called) > len(shown) else ""
        parts = (part.replace("{{", "{").replace("}}", "}") for part in text.split("{names}"))
        bits = f"; with weights of 7 bits ({_WITHOUT_VNNI})" if self.seven_bits else ""
        return (", ".join(shown) + left).join(parts) + bits


@dataclass(frozen=True)
class Verdict:
    """What a plan costs on a machine, and why.

    Attributes:
        machine: the machine.
        quantized: the model holds quantizers, or codes.
        shares: of the arithmetic in int8, and of the bytes between steps in f32.
        costs: the work of each step, and its time at best.
        guessed: sizes that the model leaves open and nobody gave, see `sizes_for`.
        timed: the times mean something: no size was guessed as 1 but that of a batch. Where they do
            not, calls count nothing, so that the work alone ranks the findings.
        without_vnni: layers whose int8 sums may be others on CPUs that saturate pairs of products;
            empty where this machine is one, which a finding tells.
        loops: nodes with a body whose trips nobody knows before it runs: counted as one.
        findings: what a change mends in front: wrong numbers, then time, the most first, then
            accuracy, then less than 3 % of the time; behind it what costs and cannot be changed, and what
            costs nothing.
    """

    machine: Machine
    quantized: bool
    shares: Shares
    costs: Costs
    guessed: Mapping[str, int]
    timed: bool
    without_vnni: tuple[str, ...]
    loops: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def estimate(self) -> Estimate:
        """Of a whole run."""
        return self.costs.estimate


def findings(plan: Plan, *, sizes: Mapping[str, int] = NO_SIZES) -> list[FindingData]:
    """What costs most in a plan or makes its numbers wrong, as `fqfuse inspect` tells it.

    Args:
        plan: the plan.
        sizes: of what the model leaves open, such as `{"sequence_length": 128}`; others are guessed.

    Returns:
        One dictionary a finding, the most important first, with the keys of docs/contributing/json-schema.md:
        `code`, `what`, `why`, `reasons`, `gain`, `remedy`, `change`, `tool`, `layers`, `steps`, `bytes`,
        `f32_bytes`, `ms`. Times are
        estimates for this machine, not measurements.

    Raises:
        InvalidInput: it is no plan, or has no such size.
    """
    check_is_plan(plan)
    return [as_data(finding) for finding in verdict_of(plan, sizes=sizes).findings]


class FindingData(TypedDict):
    """A finding as plain data."""

    code: str
    what: str
    why: str
    reasons: list[str]
    gain: str
    remedy: bool
    change: str
    tool: str
    layers: list[str]
    steps: list[int]
    bytes: int
    f32_bytes: int
    ms: float


def as_data(finding: Finding) -> FindingData:
    """A finding as plain data."""
    return {
        "code": finding.kind.code,
        "what": finding.what,
        "why": finding.kind.why,
        "reasons": list(finding.reasons),
        "gain": finding.kind.gain.value,
        "remedy": not finding.kind.no_remedy,
        "change": finding.change(),
        "tool": finding.kind.remedy(finding.tool)[0].value,
        "layers": list(finding.layers),
        "steps": list(finding.steps),
        "bytes": finding.bytes,
        "f32_bytes": finding.handed_on,
        "ms": float(f"{finding.ms:.4g}"),
    }


def verdict_of(
    plan: Plan,
    machine: Machine | None = None,
    sizes: Mapping[str, int] = NO_SIZES,
    decoded_outside: frozenset[str] = frozenset(),
) -> Verdict:
    """The verdict on a plan.

    Args:
        plan: any plan.
        machine: what it is estimated for; None: this one.
        sizes: of what the model leaves open; others are guessed, see `sizes_for`.
        decoded_outside: see `View`.

    Raises:
        InvalidInput: the model has no such size, or it is none.
    """
    machine = machine or this_machine()
    found, guessed = sizes_at(plan, sizes)
    timed = are_batches(plan, [name for name, size in guessed.items() if size == 1])
    plan = at_sizes(plan, found)
    view = View(plan, machine.isa, decoded_outside)
    without_calls = replace(machine, call=0.0, numpy_call=0.0)
    costs = costs_of(plan, machine if timed else without_calls, view.works)
    inside = _parts(view)
    open_ended = [index for index, work in enumerate(costs.works) if work.once]
    return Verdict(
        machine,
        is_quantized(view),
        shares_of(plan, view),
        costs,
        guessed,
        timed,
        _at_risk([view, *(part for _, part, _ in inside)]) if machine.exact_int8 else (),
        layers_of(view, open_ended),
        _findings(view, inside, costs, timed),
    )


_NAMED: Mapping[str, Callable[[View, Sequence[int], Tool], tuple[str, ...]]] = MappingProxyType(
    {"absurd-scale": layers_around, "few-codes": layers_of_few_codes}
)
"""Kinds whose remedy is a list of nodes that are not those of the steps."""

_Part = tuple[int, View, int]
"""The step of a plan, a plan in one of its bodies, and how often that runs."""


def _parts(view: View) -> list[_Part]:
    """The plans in bodies, those in bodies of bodies as well."""
    found: list[_Part] = []
    for index, step in enumerate(view.steps):
        for part in parts_of(view.plan, step).parts:
            inner = View(part.plan, view.isa, view.decoded_for(index, part.plan))
            found.append((index, inner, part.times))
            found += [(index, deeper, part.times * times) for _, deeper, times in _parts(inner)]
    return found


def decoded_outside_bodies(plan: Plan) -> list[frozenset[str]]:
    """For each plan of `plan.within`: its inputs that are decoded codes of the plan around it."""
    return [part.decoded_outside for _, part, _ in _parts(View(plan))]


def _at_risk(views: Iterable[View]) -> tuple[str, ...]:
    names = (name for view in views for name in layers_of(view, steps_at_risk(view.plan, "avx2")))
    return tuple(dict.fromkeys(names))


def _findings(
    view: View, inside: Sequence[_Part], costs: Costs, timed: bool
) -> tuple[Finding, ...]:
    told = _found(view, costs, claims(view))
    whole = {index for item in told if item.kind.code == "control-flow" for index in item.steps}
    for index, part, times in inside if is_quantized(view) else ():
        if index not in whole:
            inner = _found(
                part, costs_of(part.plan, costs.machine, part.works), claims(part, inside=True)
            )
            # what a body returns goes on to the next trip: no caller wants it so
            inner = [item for item in inner if item.kind.code != "model-output"]
            told += [_of_body(item, index, times) for item in inner]
    found = list(reduce(_collected, told, dict[str, Finding]()).values())
    gains = list(Gain)
    order = {code: place for place, code in enumerate(CATALOGUE)}
    return tuple(
        sorted(
            found,
            key=lambda item: (
                item.kind.gain is Gain.NOTHING,
                bool(item.kind.no_remedy),
                gains.index(item.kind.gain) + 2 * _is_small(item, costs, timed),
                -round(item.ms, 6),
                order[item.kind.code],
            ),
        )
    )


def _of_body(finding: Finding, index: int, times: int) -> Finding:
    """A finding about a body, of the step that runs it so often."""
    return replace(
        finding,
        steps=(index,),
        ms=finding.ms * times,
        bytes=finding.bytes * times,
        handed_on=finding.handed_on * times,
    )


def _collected(found: dict[str, Finding], one: Finding) -> dict[str, Finding]:
    """The findings by their codes, with one more; those of one kind are one."""
    other = found.get(one.kind.code)
    if other is not None:
        one = replace(
            other,
            steps=tuple(sorted({*other.steps, *one.steps})),
            layers=tuple(dict.fromkeys((*other.layers, *one.layers))),
            ms=other.ms + one.ms,
            bytes=other.bytes + one.bytes,
            reasons=tuple(dict.fromkeys((*other.reasons, *one.reasons))),
            handed_on=other.handed_on + one.handed_on,
            circumstances=other.circumstances | one.circumstances,
        )
    return found | {one.kind.code: one}


def _found(view: View, costs: Costs, claimed: Mapping[int, str]) -> list[Finding]:
    tool = tool_of(view.plan)
    groups: dict[str, list[int]] = defaultdict(list)
    for index, code in claimed.items():
        groups[code].append(index)
    told = about_numbers(view)
    timed = {code: steps for code, steps in told.items() if CATALOGUE[code].gain is Gain.TIME}
    found = [
        Finding(
            CATALOGUE[code],
            tuple(sorted({*steps, *groups.get(code, ())})),
            _NAMED[code](view, steps, tool) if code in _NAMED else layers_of(view, steps),
            0.0,
            0,
            tool,
            tuple(_few_codes(view)) if code == "few-codes" else (),
        )
        for code, steps in told.items()
        if code not in timed
    ]
    for code, steps in (*groups.items(), *timed.items()):
        if CATALOGUE[code].gain is Gain.NUMBERS:
            continue  # said above: right numbers come before fast ones
        found.append(_timed(view, costs, CATALOGUE[code], steps, tool))
    return found


def _few_codes(view: View) -> Iterable[str]:
    """What the rule says of each operand, once."""
    records = view.plan.decision_records
    return dict.fromkeys(each.reason for each in records if each.rule == FEW_CODES)


def _is_small(finding: Finding, costs: Costs, timed: bool) -> bool:
    """True of a gain in time that hardly anybody measures: it stands behind what costs accuracy."""
    if finding.kind.gain is not Gain.TIME or finding.saves_calls(timed):
        return False
    return finding.ms < _SMALL * costs.estimate.ms


def _timed(view: View, costs: Costs, kind: Kind, steps: Sequence[int], tool: Tool) -> Finding:
    saved, seven_bits = Estimate(0.0, 0), False
    if kind.gain is Gain.TIME:
        change = change_of(view, kind, steps, tool)
        saved = costs.saved(change, touched(view, change, steps))
        seven_bits = not costs.machine.exact_int8 and not kind.no_remedy and bool(change.int8)
    core = _core(view, kind, steps)
    reasons = dict.fromkeys(reason for index in core for reason in view.refusals(index))
    layers = layers_of(view, core, costs.ms)
    if kind.code == "quantizer-apart":
        reasons |= dict.fromkeys(_why_apart(view, set(core)))
        layers = layers_in_front(view, core, costs.ms)
    ms, count = max(0.0, saved.ms), max(0, saved.bytes)
    floats = {value for index in steps for value in view.floats_written(index)}
    handed_on = sum(bytes_of(view.plan, value) for value in view.between() if value in floats)
    held = circumstances_of(view, steps, kind.circumstances(tool))
    return Finding(
        kind, tuple(steps), layers, ms, count, tool, tuple(reasons), handed_on, held, seven_bits
    )


def _why_apart(view: View, steps: set[int]) -> list[str]:
    """Why quantizers are steps of their own, as the composer says it."""
    return [
        fate.reason
        for fate in view.plan.fate_records
        if fate.step in steps and fate.fate is QuantizeFate.STANDALONE
    ]


def _does_something(view: View, index: int) -> bool:
    return not view.is_view(index)


def _core(view: View, kind: Kind, steps: Sequence[int]) -> Sequence[int]:
    """The steps that a finding is about: not those that only feed them, or move their data."""
    wanted = CORES.get(kind.code, _does_something)
    found = [index for index in steps if wanted(view, index)]
    return found or steps
