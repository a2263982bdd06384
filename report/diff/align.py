"""Which steps of two plans do the same work: those of the same nodes of the model.

A step goes by the node that it is built around. Quantizers are called by every tool in another way,
so a step that is nothing but one goes by the value that it quantizes, and so does one whose nodes have
no partner.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...ir.decision import Half
from ...plan.types import Plan, Step

_QUANTIZING = re.compile(r"(De)?[Qq]uantizeLinear")

_ON_CODES = "_quant"
"""Behind the name of the node that ONNX Runtime replaced by an operator on codes."""

Key = tuple[str, str]  # of what it is the name (`node`, `quantizer`, `value`, `step`), and the name


@dataclass(frozen=True)
class Alignment:
    """Which steps belong together, by their indices.

    Attributes:
        pairs: of the first plan and of the second, in the order of the second.
        only_first, only_second: steps without a partner whose nodes the other plan knows, too.
        strange_first, strange_second: those none of whose nodes the other plan names: nobody can
            tell whether they have a partner.
    """

    pairs: tuple[tuple[int, int], ...]
    only_first: tuple[int, ...]
    only_second: tuple[int, ...]
    strange_first: tuple[int, ...]
    strange_second: tuple[int, ...]


@dataclass
class _Group:
    first: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)


def plain_names(plan: Plan, step: Step) -> list[str]:
    """The nodes of a step that are no quantizers, nor called as tools call those. An operator on codes,
    `/fc/MatMul_quant`, is a node that has quantizers of its own.
    """
    return [
        name
        for name in step.origin
        if name.endswith(_ON_CODES)
        or (name not in plan.quantizers and not _QUANTIZING.search(name))
    ]


def model_names(plan: Plan) -> frozenset[str]:
    """All nodes of the model that a plan names."""
    names = {name for step in plan.steps for name in step.origin}
    names |= {decision.subject for decision in plan.decision_records}
    return frozenset(names | set(plan.quantizers) | {fate.consumer for fate in plan.fate_records})


def aligned(first: Plan, second: Plan) -> Alignment:
    """Aligns the steps of two plans."""
    names = model_names(first), model_names(second)
    called = _called(names[0], names[1]), _called(names[1], names[0])
    values = {q.value for q in first.quantizers.values()}
    values &= {q.value for q in second.quantizers.values()}
    groups: dict[Key, _Group] = defaultdict(_Group)
    strange: tuple[list[int], list[int]] = ([], [])
    for side, plan in enumerate((first, second)):
        converted = _converted(plan)
        for number, step in enumerate(plan.steps):
            key = _key(plan, step, called[side], values, converted.get(number, ()))
            if key is None:
                strange[side].append(number)
            else:
                group = groups[key]
                (group.second if side else group.first).append(number)
    pairs: list[tuple[int, int]] = []
    only: tuple[list[int], list[int]] = ([], [])
    for group in groups.values():
        found = _paired(first, second, group)
        pairs += found
        only[0].extend(set(group.first) - {a for a, _ in found})
        only[1].extend(set(group.second) - {b for _, b in found})
    left = [sorted([*only[side], *strange[side]]) for side in (0, 1)]
    pairs += _by_values(_stored(first), _stored(second), left[0], left[1])
    pairs.sort(key=lambda pair: pair[1])
    paired = [{pair[side] for pair in pairs} for side in (0, 1)]
    return Alignment(
        tuple(pairs),
        *(tuple(sorted(set(only[side]) - paired[side])) for side in (0, 1)),
        *(tuple(n for n in strange[side] if n not in paired[side]) for side in (0, 1)),
    )


def _by_values(
    first: Mapping[int, Sequence[str]],
    second: Mapping[int, Sequence[str]],
    left: Sequence[int],
    right: Sequence[int],
) -> list[tuple[int, int]]:
    """Steps that are left, where both quantize one value."""
    makers = {value: b for b in reversed(right) for value in second.get(b, ())}
    pairs, taken = [], set[int]()
    for a in left:
        found = (makers[value] for value in reversed(first.get(a, ())) if value in makers)
        b = next((b for b in found if b not in taken), None)
        if b is not None:
            taken.add(b)
            pairs.append((a, b))
    return pairs


def _stored(plan: Plan) -> dict[int, list[str]]:
    """Step -> the values that it quantizes, as the model calls them."""
    found: dict[int, list[str]] = defaultdict(list)
    for fate in plan.fate_records:
        if fate.half is Half.QUANTIZE and fate.step is not None:
            quantizer = plan.quantizers.get(fate.quantizer)
            found[fate.step] += [] if quantizer is None else [quantizer.value]
    return found


def _called(names: frozenset[str], others: frozenset[str]) -> dict[str, str]:
    """Name -> what the other plan calls it. A tool that fuses nodes may call what it makes by the
    name of one, with something behind it: `/fc/MatMul/MatMulAddFusion`; ONNX Runtime calls the operator
    on codes that it puts in the place of `/fc/MatMul` `/fc/MatMul_quant`.
    """
    found = {name: name for name in names & others}
    for name in names - others:
        base = _base(name)
        if base in others and base not in names:
            found[name] = base
    taken = set(found.values())
    for other in others - names:  # the same, seen from the other side
        base = _base(other)
        if base in names and base not in others and base not in taken:
            found[base] = base
    return found


def _base(name: str) -> str:
    return name.removesuffix(_ON_CODES) if name.endswith(_ON_CODES) else name.rpartition("/")[0]


def _converted(plan: Plan) -> dict[int, list[str]]:
    """Step -> the values of the quantizers whose halves are at work there."""
    found: dict[int, list[str]] = defaultdict(list)
    for fate in plan.fate_records:
        if fate.step is not None and fate.quantizer in plan.quantizers:
            found[fate.step].append(plan.quantizers[fate.quantizer].value)
    return found


def _key(
    plan: Plan,
    step: Step,
    called: Mapping[str, str],
    values: set[str],
    converted: Sequence[str],
) -> Key | None:
    if not step.origin:
        return "step", step.name
    nodes = plain_names(plan, step)
    if nodes:
        return next((("node", called[name]) for name in nodes if name in called), None)
    for name in step.origin:
        if name in called:
            return "quantizer", called[name]
    return next((("value", value) for value in converted if value in values), None)


def _paired(first: Plan, second: Plan, group: _Group) -> list[tuple[int, int]]:
    """Those of one primitive in their order, then the others in theirs."""
    left, pairs = dict.fromkeys(group.first), []
    by_primitive: dict[str, list[int]] = defaultdict(list)
    for a in group.first:
        by_primitive[first.steps[a].primitive].append(a)
    rest = []
    for b in group.second:
        same = by_primitive.get(second.steps[b].primitive)
        if same:
            a = same.pop(0)
            del left[a]
            pairs.append((a, b))
        else:
            rest.append(b)
    return pairs + _in_turn(list(left), rest)


def _in_turn(first: Sequence[int], second: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(first, second, strict=False))
