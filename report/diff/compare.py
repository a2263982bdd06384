"""What differs between two plans."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from ...ir.decision import Decision, Half
from ...ir.ops.spec import same_bits
from ...ir.types import Quantization
from ...plan.attributes import OPERANDS, PostOp, Scale, ZeroPoint
from ...plan.open_sizes import NO_SIZES, sizes_like
from ...plan.types import Plan, Step
from ..fates import FACTOR
from ..notation import Notation, number_text, weights_by_step
from ..summary import COMPUTE
from ..verdict.findings import Verdict, verdict_of
from ..verdict.machine import Machine
from ..why.endings import precision
from .align import Alignment, aligned, model_names, plain_names

NUMBERS = frozenset({"scales", "zero points", "constants"})
"""Kinds of changes that leave a step what it is."""

_MULTIPLY = COMPUTE | {"rnn"}
_LISTED = 4  # numbers, beyond which their range is told


@dataclass(frozen=True)
class Change:
    """One thing that differs between two steps.

    Attributes:
        what: `precision`, `primitive`, `types`, `post-ops`, `also holds`, `reads`,
            `parameters`, `scales`, `zero points` or `constants`.
        first, second: how it is in each plan; of constants, which ones hold other data, and ''.
    """

    what: str
    first: str
    second: str


@dataclass(frozen=True)
class Pair:
    """A step that both plans have, with what differs."""

    name: str
    first: int
    second: int
    changes: tuple[Change, ...]

    @property
    def only_numbers(self) -> bool:
        """True where it is the same step with other numbers."""
        return all(change.what in NUMBERS for change in self.changes)


@dataclass(frozen=True)
class Alone:
    """A step that one plan has.

    Attributes:
        step: its index there.
        name: the node that it is built around.
        text: its primitive.
        inside: the step of the other plan that does its work, or None.
    """

    step: int
    name: str
    text: str
    inside: int | None


@dataclass(frozen=True)
class Decided:
    """What a rule said of a node that both plans know: once for each plan, None where it said
    nothing.
    """

    subject: str
    rule: str
    first: Decision | None
    second: Decision | None


@dataclass(frozen=True)
class Settled:
    """Where a half of a quantizer went in each plan: fates, the most frequent first."""

    quantizer: str
    half: Half
    first: tuple[str, ...]
    second: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """All that differs between two plans.

    Attributes:
        first, second: the plans.
        verdicts: on each.
        pairs: steps that differ, in the order of the second plan.
        equal: how many do not.
        only_first, only_second: steps that the other plan has in no step of its own.
        strange_first, strange_second: steps that could not be aligned.
        decisions, fates: those that changed, of nodes and quantizers that both plans know.
        quantizers: how many only the first has, and only the second.
        interface: of inputs, outputs and the target, in words.
    """

    first: Plan
    second: Plan
    verdicts: tuple[Verdict, Verdict]
    pairs: tuple[Pair, ...]
    equal: int
    only_first: tuple[Alone, ...]
    only_second: tuple[Alone, ...]
    strange_first: tuple[Alone, ...]
    strange_second: tuple[Alone, ...]
    decisions: tuple[Decided, ...]
    fates: tuple[Settled, ...]
    quantizers: tuple[int, int]
    interface: tuple[Change, ...]

    @property
    def is_empty(self) -> bool:
        """True where the plans compute the same by the same steps. The models may hold other
        quantizers, of which nothing is left, and rules may have said other things on the way.
        """
        alone = (self.only_first, self.only_second, self.strange_first, self.strange_second)
        return not (self.pairs or any(alone) or self.interface)

    @property
    def is_silent(self) -> bool:
        """True where nothing is to be told, of quantizers and rules neither."""
        return self.is_empty and not (self.fates or self.decisions or any(self.quantizers))

    def moved(self) -> list[tuple[str, int, int, str]]:
        """(primitive, how many, of how many in the first plan, `left int8` or `came into int8`): what
        multiplies first, then the most frequent.
        """
        found: Counter[tuple[str, str]] = Counter()
        for pair in self.pairs:
            change = next((c for c in pair.changes if c.what == "precision"), None)
            if change is not None and "in int8" in (change.first, change.second):
                word = "left int8" if change.first == "in int8" else "came into int8"
                found[self.second.steps[pair.second].primitive, word] += 1
        whole = Counter(step.primitive for step in self.first.steps)
        ordered = sorted(
            found.items(), key=lambda item: (item[0][0] not in _MULTIPLY, -item[1], item[0])
        )
        return [(kind, n, max(whole[kind], n), word) for (kind, word), n in ordered]


def difference_of(
    first: Plan,
    second: Plan,
    machine: Machine | None = None,
    sizes: Sequence[Mapping[str, int]] = (NO_SIZES, NO_SIZES),
) -> Difference:
    """What differs between two plans.

    Args:
        first, second: any plans.
        machine: what times are estimated for; None: this one.
        sizes: of what each leaves open; others are those that the other one states, or usual ones.
    """
    alignment = aligned(first, second)
    pairs = list(_pairs(first, second, alignment))
    return Difference(
        first,
        second,
        (
            verdict_of(first, machine, {**sizes_like(first, second), **sizes[0]}),
            verdict_of(second, machine, {**sizes_like(second, first), **sizes[1]}),
        ),
        tuple(pair for pair in pairs if pair.changes),
        sum(not pair.changes for pair in pairs),
        _alone(first, second, alignment.only_first),
        _alone(second, first, alignment.only_second),
        _alone(first, second, alignment.strange_first),
        _alone(second, first, alignment.strange_second),
        tuple(_decided(first, second)),
        tuple(_settled(first, second)),
        _quantizers(first, second),
        tuple(_interface(first, second)),
    )


# -- steps -----------------------------------------------------------------------------------------


def _pairs(first: Plan, second: Plan, alignment: Alignment) -> Iterator[Pair]:
    notations = Notation(first), Notation(second)
    partner = {b: a for a, b in alignment.pairs}
    partners = frozenset(partner.values())
    makers = _makers(first), _makers(second)
    shared = model_names(first) & model_names(second)
    weights = weights_by_step(first), weights_by_step(second)
    for a, b in alignment.pairs:
        steps = first.steps[a], second.steps[b]
        changes = [
            *_described((first, second), steps, (a, b), notations, shared),
            *_numbers((first, second), steps, (weights[0].get(a), weights[1].get(b))),
            *_wired((first, second), steps, makers, partner, partners),
        ]
        yield Pair(_name(second, steps[1]), a, b, tuple(changes))


def _described(
    plans: tuple[Plan, Plan],
    steps: tuple[Step, Step],
    numbers: tuple[int, int],
    notations: tuple[Notation, Notation],
    shared: frozenset[str],
) -> Iterator[Change]:
    told = {
        "precision": [
            precision(p, n) or "moves or converts" for p, n in zip(plans, numbers, strict=True)
        ],
        "primitive": [n.primitive(s) for n, s in zip(notations, steps, strict=True)],
        "types": [n.types(s) for n, s in zip(notations, steps, strict=True)],
        "post-ops": [", ".join(map(_word, s.attr.post_ops)) or "none" for s in steps],
        "also holds": _apart(plans, steps, shared),
    }
    for what, (one, other) in told.items():
        if one != other:
            yield Change(what, one, other)
    if told["primitive"][0] == told["primitive"][1]:
        params = _params(steps[0]), _params(steps[1])
        if params[0] != params[1]:
            yield Change("parameters", *_differing(*params))


def _apart(plans: tuple[Plan, Plan], steps: tuple[Step, Step], shared: frozenset[str]) -> list[str]:
    """The nodes that are in one of the steps only, of those that both plans know."""
    held = [
        [n for n in plain_names(p, s) if n in shared] for p, s in zip(plans, steps, strict=True)
    ]
    return [
        ", ".join(name for name in names if name not in others) or "nothing"
        for names, others in zip(held, reversed(held), strict=True)
    ]


def _word(op: PostOp) -> str:
    """A post-op without its numbers: `relu`, `sum`, `binary add`."""
    algorithm = getattr(op, "algorithm", "")
    return algorithm if op.kind == "eltwise" else f"{op.kind} {algorithm}".strip()


def _params(step: Step) -> dict[str, str]:
    return {"op": step.op} | {name: str(value) for name, value in step.params.items()}


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, str]:
    names = [n for n in dict.fromkeys((*one, *other)) if one.get(n) != other.get(n)]
    return (
        ", ".join(f"{name}={one.get(name, 'none')}" for name in names),
        ", ".join(f"{name}={other.get(name, 'none')}" for name in names),
    )


def _numbers(
    plans: tuple[Plan, Plan],
    steps: tuple[Step, Step],
    weights: tuple[Quantization | None, Quantization | None],
) -> Iterator[Change]:
    for what, read in (("scales", _scales), ("zero points", _zero_points)):
        one, other = (read(plan, step) for plan, step in zip(plans, steps, strict=True))
        if what == "scales" and weights[0] is not None and weights[1] is not None:
            one["weights"], other["weights"] = weights[0].scale, weights[1].scale
        if what == "scales" and len({tuple(map(_word, s.attr.post_ops)) for s in steps}) == 1:
            one, other = (
                found | _in_post_ops(s) for found, s in zip((one, other), steps, strict=True)
            )
        if one != other:
            texts = [{n: _few(v) for n, v in side.items()} for side in (one, other)]
            names = [n for n in dict.fromkeys((*one, *other)) if one.get(n) != other.get(n)]
            yield Change(
                what,
                *(", ".join(f"{n} {side.get(n, 'none')}" for n in names) for side in texts),
            )
    names = [name for name, same in _constants(plans, steps).items() if not same]
    if names:
        yield Change("constants", ", ".join(names), "")


def _scales(plan: Plan, step: Step) -> dict[str, tuple[float, ...]]:
    attr = step.attr
    found = {
        FACTOR if role == "weights" else role: scale.values for role, scale in attr.scales.items()
    }
    held = (
        ("output_scales", attr.output_scales),
        ("rnn data", attr.rnn_data_qparams),
        (
            "rnn weights",
            attr.rnn_weights_qparams,
        ),
    )
    found |= {name: tuple(scale.values) for name, scale in held if scale is not None}
    type_ = plan.find(step.outputs[0]) if step.outputs else None
    if type_ is not None and type_.quant is not None:
        found["result"] = tuple(type_.quant.scale)
    return found


def _in_post_ops(step: Step) -> dict[str, tuple[float, ...]]:
    found = {
        f"post-op {place} ({_word(op)})": tuple(_op_numbers(op))
        for place, op in enumerate(step.attr.post_ops, 1)
    }
    return {name: numbers for name, numbers in found.items() if numbers}


def _op_numbers(op: PostOp) -> Iterator[float]:
    for item in fields(op):
        value = getattr(op, item.name)
        if isinstance(value, Scale | ZeroPoint):
            yield from map(float, value.values)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield float(value)


def _zero_points(plan: Plan, step: Step) -> dict[str, tuple[float, ...]]:
    found = {role: tuple(map(float, zero.values)) for role, zero in step.attr.zero_points.items()}
    type_ = plan.find(step.outputs[0]) if step.outputs else None
    if type_ is not None and type_.quant is not None:
        found["result"] = tuple(map(float, type_.quant.zero_point))
    return found


def _few(values: Sequence[float]) -> str:
    if len(set(values)) == 1:
        return number_text(values[0])
    if len(values) <= _LISTED:
        return f"({', '.join(map(number_text, values))})"
    return f"{number_text(min(values))}..{number_text(max(values))} ({len(values)} values)"


def _constants(plans: tuple[Plan, Plan], steps: tuple[Step, Step]) -> dict[str, bool]:
    """Constants that both steps read in one role -> whether they hold the same."""
    held = [
        {role: plan.constants[value] for role, value in _read(step) if value in plan.constants}
        for plan, step in zip(plans, steps, strict=True)
    ]
    return {
        role: same_bits(data, held[1][role]) for role, data in held[0].items() if role in held[1]
    }


def _read(step: Step) -> Iterator[tuple[str, str]]:
    """(role, value) of all that a step reads: arguments, then operands of post-ops."""
    yield from step.args
    for place, op in enumerate(step.attr.post_ops, 1):
        for name in OPERANDS[type(op)]:
            value = getattr(op, name)
            if value:
                yield f"{name} of post-op {place}", value


def _makers(plan: Plan) -> dict[str, int]:
    return {v: number for number, step in enumerate(plan.steps) for v in step.outputs if v}


def _wired(
    plans: tuple[Plan, Plan],
    steps: tuple[Step, Step],
    makers: tuple[dict[str, int], dict[str, int]],
    partner: Mapping[int, int],
    partners: frozenset[int],
) -> Iterator[Change]:
    """Reads what another step, or an input of another name, makes. Steps without a partner are told
    of by themselves.
    """
    one, other = (dict(_read(step)) for step in steps)
    for role in (role for role in one if role in other):
        a, b = makers[0].get(one[role]), makers[1].get(other[role])
        if a is not None and b is not None:
            if a in partners and b in partner and partner[b] != a:
                yield Change(
                    "reads", *(_made(p, n, role) for p, n in zip(plans, (a, b), strict=True))
                )
            continue
        names = one[role], other[role]
        inputs = [n in p.inputs for p, n in zip(plans, names, strict=True)]
        if (a is None) != (b is None) or (any(inputs) and names[0] != names[1]):
            yield Change(
                "reads",
                *(
                    f"{role} {n}" if k is None else _made(p, k, role)
                    for p, n, k in zip(plans, names, (a, b), strict=True)
                ),
            )


def _made(plan: Plan, number: int, role: str) -> str:
    return f"{role} of {_name(plan, plan.steps[number])}"


def _name(plan: Plan, step: Step) -> str:
    return next(iter([*plain_names(plan, step), *step.origin]), step.name)


def _alone(plan: Plan, other: Plan, numbers: Iterable[int]) -> tuple[Alone, ...]:
    inside: dict[str, int] = {}
    for number, step in enumerate(other.steps):
        for name in plain_names(other, step):
            inside.setdefault(name, number)
    notation = Notation(plan)
    return tuple(
        Alone(
            number,
            _name(plan, step),
            notation.primitive(step),
            next((inside[name] for name in plain_names(plan, step) if name in inside), None),
        )
        for number, step in ((number, plan.steps[number]) for number in numbers)
    )


# -- rules and quantizers --------------------------------------------------------------------------


def _decided(first: Plan, second: Plan) -> Iterator[Decided]:
    """Where a home was weighed in one plan only, the steps have told of it."""
    shared = model_names(first) & model_names(second)
    sides = [_last(plan, shared) for plan in (first, second)]
    for key in dict.fromkeys((*sides[0], *sides[1])):
        one, other = (side.get(key) for side in sides)
        told = one or other
        only_a_choice = told is not None and told.alternatives and (one is None or other is None)
        if _said(one) != _said(other) and not only_a_choice:
            yield Decided(*key, one, other)


def _last(plan: Plan, shared: frozenset[str]) -> dict[tuple[str, str], Decision]:
    """(node, rule) -> what the rule said last."""
    return {
        (decision.subject, decision.rule): decision
        for decision in plan.decision_records
        if decision.subject in shared
    }


def _said(decision: Decision | None) -> tuple[str, str] | None:
    """Whether it fired, and as what; a refusal with its reason."""
    if decision is None:
        return None
    chosen = decision.alternatives[0].home if decision.alternatives else decision.reason
    return decision.outcome.value, chosen


def _settled(first: Plan, second: Plan) -> Iterator[Settled]:
    halves = [_halves(plan) for plan in (first, second)]
    known = [_called(plan) for plan in (first, second)]
    for name, own in known[0].items():
        if name not in known[1]:
            continue
        for half in Half:
            one, other = (
                tuple(fate for fate, _ in side[quantizer, half].most_common())
                for side, quantizer in zip(halves, (own, known[1][name]), strict=True)
            )
            if sorted(one) != sorted(other):
                yield Settled(own, half, one, other)


def _halves(plan: Plan) -> defaultdict[tuple[str, Half], Counter[str]]:
    found: defaultdict[tuple[str, Half], Counter[str]] = defaultdict(Counter)
    for fate in plan.fate_records:
        found[fate.quantizer, fate.half][fate.fate.value] += 1
    return found


def _called(plan: Plan) -> dict[str, str]:
    """The value that a quantizer quantizes -> the first quantizer of it."""
    found: dict[str, str] = {}
    for quantizer in plan.quantizers.values():
        found.setdefault(quantizer.value, quantizer.name)
    return found


def _quantizers(first: Plan, second: Plan) -> tuple[int, int]:
    one, other = (
        Counter(quantizer.value for quantizer in plan.quantizers.values())
        for plan in (first, second)
    )
    return (one - other).total(), (other - one).total()


def _interface(first: Plan, second: Plan) -> Iterator[Change]:
    if first.target != second.target:
        yield Change("target", first.target, second.target)
    for what in ("inputs", "outputs"):
        texts = [_values(plan, getattr(plan, what)) for plan in (first, second)]
        if texts[0] != texts[1]:
            yield Change(what, *texts)


def _values(plan: Plan, names: Sequence[str]) -> str:
    return ", ".join(f"{name}: {Notation(plan).type(name)}" for name in names)
