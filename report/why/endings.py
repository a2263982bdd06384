"""What became of a node of the model: the steps that do its work, and as what; or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.decision import DequantizeFate, Fate, Half, Outcome, QuantizeFate
from ...ir.ops import OPS
from ...plan.types import Plan, Step, runs_in_int8
from ...plan.verify_shapes import OWN_PRIMITIVES
from ..notation import Notation, layer_names, middle_cut
from .index import Index

_NAME = 60
_FEW = 3

_QUANTIZE = {
    QuantizeFate.DST_SCALE: "the store of {at}",
    QuantizeFate.SOURCE: "the source of {at}, in each run",
    QuantizeFate.POST_OP: "among the post-ops of {at}",
    QuantizeFate.CONSTANT: "done at compile time",
    QuantizeFate.REDUNDANT: "not needed",
    QuantizeFate.STANDALONE: "{at}, a step of its own",
    QuantizeFate.FALLBACK: "{at}, which runs as the ONNX operator",
}
_DEQUANTIZE = {
    DequantizeFate.SOURCE_SCALE: "the scale of a source of {at}",
    DequantizeFate.WEIGHTS_SCALE: "the scale of the weights of {at}",
    DequantizeFate.BIAS: "done at compile time, into a bias",
    DequantizeFate.CONSTANT: "done at compile time",
    DequantizeFate.SUM: "the scale of the sum of {at}",
    DequantizeFate.POST_OP: "among the post-ops of {at}",
    DequantizeFate.REDUNDANT: "not needed",
    DequantizeFate.STANDALONE: "{at}, a step of its own",
    DequantizeFate.FALLBACK: "{at}, which runs as the ONNX operator",
}


@dataclass(frozen=True)
class Place:
    """A step that does the work of a node.

    Attributes:
        step: its index.
        role: as what, in words: `the primitive itself`, `post-op 1 of 2: relu` ...
        post_op: which post-op it is, counted from 0; None where it is none, or nobody tells.
    """

    step: int
    role: str
    post_op: int | None = None


def anchor_of(plan: Plan, step: Step) -> str:
    """The node of the model that a step is built around: its first that is more than a quantizer."""
    return next(iter([*layer_names(plan, step), *step.origin]), step.name)


def step_text(plan: Plan, index: int) -> str:
    """`step 3, the convolution 3x3 of /conv1/Conv`."""
    step = plan.steps[index]
    of = middle_cut(anchor_of(plan, step), _NAME)
    return f"step {index}, the {Notation(plan).primitive(step)} of {of}"


def with_article(noun: str) -> str:
    """`a convolution`, `an eltwise relu`."""
    return f"{'an' if noun.startswith((*'aeiou', 'rnn')) else 'a'} {noun}"


def steps_text(numbers: Sequence[int]) -> str:
    """`step 3`, `steps 3, 4 and 12 more`."""
    shown = [str(number) for number in numbers[:_FEW]]
    left = len(numbers) - len(shown)
    if left:
        return f"steps {', '.join(shown)} and {left} more"
    if len(shown) == 1:
        return f"step {shown[0]}"
    return f"steps {', '.join(shown[:-1])} and {shown[-1]}"


def precision(plan: Plan, index: int) -> str:
    """`in int8`, `in f32`, or `on codes` of what computes in f32 from codes and constants; '' of what only converts or moves."""
    step = plan.steps[index]
    if runs_in_int8(plan, step):
        return "in int8"
    if step.primitive == "reorder":
        return ""
    given = [plan.find(value) for _, value in step.args if value not in plan.constants]
    if any(type_ is not None and type_.dtype.is_float for type_ in given):
        return "in f32"
    return "on codes" if any(type_ is not None and type_.dtype.is_code for type_ in given) else ""


# -- nodes with steps ------------------------------------------------------------------------------


def places_of(index: Index, name: str) -> list[Place]:
    """The steps that bear a node's name, with what it is there."""
    return [_place(index, name, number) for number in index.steps.get(name, ())]


_AS_THE_MODEL_HAS_IT = frozenset({"FakeQuantize", "Quantize", "Dequantize", "Onnx"})
"""Rows that are none of ONNX's, and operators of the model nevertheless."""


def own_function(step: Step) -> str:
    """What a step computes that is neither a primitive nor an operator of the model, such as a
    range; '' of others.
    """
    row = OPS.get(step.op)
    if step.primitive in OWN_PRIMITIVES:
        return f"fqfuse's own {step.op}"
    foreign = row is None or row.onnx or step.op in _AS_THE_MODEL_HAS_IT
    return "" if foreign or step.primitive != f"onnx.{step.op}" else f"fqfuse's own {step.op}"


def _place(index: Index, name: str, number: int) -> Place:
    plan = index.plan
    step = plan.steps[number]
    if name == anchor_of(plan, step):
        if own := own_function(step):
            return Place(number, own)
        alone = step.primitive.startswith("onnx.")
        return Place(number, "runs as the ONNX operator" if alone else "the primitive itself")
    if name in plan.quantizers:
        return Place(number, _half_of(index, name, number))
    quantizer = index.quantizer_of(name)
    if quantizer:
        return Place(number, f"the dequantize half of {middle_cut(quantizer, _NAME)}")
    fired = [d for d in index.decisions.get(name, ()) if d.outcome is Outcome.FIRED]
    home = next((d for d in fired if d.step == number and d.alternatives), None)
    if home is None:
        return Place(number, f"{fired[-1].rule}: {fired[-1].reason}" if fired else "part of it")
    ops, mine = step.attr.post_ops, home.post_ops
    if not mine:
        chosen = home.alternatives[0].home
        return Place(number, _WITHOUT_POST_OP.get(chosen, f"its {chosen}"))
    told = " and ".join(Notation(plan).post_op(ops[at]) for at in mine)
    which = " and ".join(str(at + 1) for at in mine)
    role = f"post-op{'s' if len(mine) > 1 else ''} {which} of {len(ops)}: {told}"
    return Place(number, role, mine[0] if len(mine) == 1 else None)


_WITHOUT_POST_OP = {
    "primitive": "the primitive itself",
    "store": "the store, which saturates where it does",
    "folded": "folded into its scales and bias",
}


def _half_of(index: Index, name: str, number: int) -> str:
    fates = [fate for fate in index.fates.get(name, ()) if fate.step == number]
    return "; ".join(
        dict.fromkeys(f"{fate.half.value} half: {fate.fate.value}" for fate in fates)
    ) or ("the quantizer, by its scale")


# -- quantizers ------------------------------------------------------------------------------------


def half_text(plan: Plan, fates: Sequence[Fate]) -> str:
    """Where one half of a quantizer went, in words."""
    groups: dict[str, list[Fate]] = {}
    for fate in fates:
        words = _QUANTIZE if fate.half is Half.QUANTIZE else _DEQUANTIZE
        groups.setdefault(words[fate.fate], []).append(fate)  # type: ignore[index]
    told = {
        words: group
        for words, group in groups.items()
        if not any(other != words and other.startswith(words) for other in groups)  # says it, too
    }
    return ", and ".join(_group_text(plan, words, group) for words, group in told.items())


def _group_text(plan: Plan, words: str, group: Sequence[Fate]) -> str:
    numbers = sorted({fate.step for fate in group if fate.step is not None})
    if "{at}" not in words or not numbers:
        reasons = list(dict.fromkeys(fate.reason for fate in group))
        plain = words.replace("{at}", "a step")
        return f"{plain} ({reasons[0]})" if len(reasons) == 1 else plain
    at = steps_text(numbers)
    if len(numbers) == 1:
        at = f"step {numbers[0]} ({Notation(plan).primitive(plan.steps[numbers[0]])})"
    elif words.endswith("of its own"):
        return f"{at}, steps of their own"
    return words.replace("{at}", at)


# -- nodes without steps ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Gone:
    """Why no step bears a node's name.

    Attributes:
        why: in words.
        steps: where its result goes, or its work is done.
        relation: what these steps are to it, in words in front of them.
        known: what became of it is known.
    """

    why: str
    steps: tuple[int, ...] = ()
    relation: str = "Next to it:"
    known: bool = True


def gone(index: Index, name: str) -> Gone:
    """Why no step bears a node's name, and the steps that its work went to.

    A rule that fired there has said it; of others the model tells as much as can be known.
    """
    fired = [d for d in index.decisions.get(name, ()) if d.outcome is Outcome.FIRED]
    nodes = index.nodes.get(name, [])
    steps = tuple(
        sorted({number for node in nodes for number in index.behind(node) or index.in_front(node)})
    )
    goes_into = "Its result goes into"
    if nodes and not any(map(index.is_needed, nodes)):
        return Gone("nothing that the model returns depends on it, so it is left out")
    if nodes and all(node.op == "Constant" for node in nodes):
        return Gone("it is a constant", steps, goes_into)
    if nodes and all(map(index.is_computed_early, nodes)):
        why = "all that it reads is constant, so it was computed once, at compile time"
        return Gone(why, steps, goes_into)
    if fired:
        return Gone(f"{fired[-1].rule} did away with it: {fired[-1].reason}", steps)
    read = {fate.step for fate in index.read.get(name, ()) if fate.step is not None}
    steps = tuple(sorted({*steps, *read}))
    kept = "it was rewritten" if nodes else "the plan does not keep what it was"
    return Gone(f"{kept}, and no step bears its name", steps, known=False)
