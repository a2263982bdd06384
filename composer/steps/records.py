"""What is written down of a step: the fate of each quantizer that it absorbed, and for each
operation what was weighed.

Costs are those of `cost.py`. Homes of equal cost go by the order in which they are listed, which is
the one of docs/contributing/architecture.md, Costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...ir.approximations import MIDDLE_ROUNDING, RESIDUAL_ROUNDING
from ...ir.decision import Decision, DequantizeFate, Outcome, QuantizeFate
from ...ir.graph import Graph
from ...ir.node import Node, subject
from ...ir.ranges import makes_codes
from ...ir.types import TensorType
from ...plan.types import Step
from ..mapping.composed import Approximation, Composed
from ..mapping.cost import (
    CHEAP,
    WRITE_ALLOCATE,
    Home,
    alternatives,
    operand_cost,
    own_step_cost,
    post_op_cost,
)
from .builder import StepBuilder
from .chain import Chain, Link


def record(builder: StepBuilder, step: Step, anchor: Node, chain: Chain) -> None:
    """Leaves the fates and the decisions of a step made of an anchor and the chain behind it."""
    nodes = [anchor, *(link.node for link in chain.links)]
    followers = [*nodes[1:], None]
    made = [*_approximated(anchor, chain)]
    kept = {node.name: _KEPT.get(each.name, _KEPT[""]) for node, each in made}
    _settle(builder, step, chain, None, anchor, followers[0], kept)
    for before, link, follower in zip(nodes, chain.links, followers[1:], strict=False):
        if link.node.op != "Quantize" or not _settle_computed(builder, step, nodes, link.node):
            _settle(builder, step, chain, before, link.node, follower, kept)
        _settle_operand(builder, step, chain, link)
        if link.found.apart is not None:
            builder.decode_apart(link.node, *link.found.apart)
    for decision in (*_weighed(builder, step, anchor, chain), *map(_changed, made)):
        builder.decide(decision, step.name)
    if chain.refusal is not None:
        builder.refuse_chain(step, *chain.refusal)


# -- fates -----------------------------------------------------------------------------------------


def _settle(
    builder: StepBuilder,
    step: Step,
    chain: Chain,
    before: Node | None,
    node: Node,
    follower: Node | None,
    kept: Mapping[str, str],
) -> None:
    """The fate of a quantizer: an anchor (`before` is None), or what the chain absorbed; `kept`: what
    approximations have left of it.
    """
    readers: list[Node | str] = builder.readers_of(node)
    if follower is not None and not builder.decodes_on(node, follower):
        readers = [follower]
    alone = before is None
    if node.op == "FakeQuantize":
        # One that makes codes leaves its halves to the Quantize and Dequantize behind it.
        _settle_compared(builder, step, node, node if alone else None, kept.get(node.name, ""))
        fate = DequantizeFate.STANDALONE if alone else DequantizeFate.POST_OP
        how = "the output range is scale and shift behind the grid"
        for reader in readers:
            builder.decoded(node, fate, how, reader, step.name)
    elif before is None:
        return  # an anchor settles its own halves
    elif node.op == "Dequantize":
        how = "undone inside the chain, by scale and shift"
        for reader in readers:
            builder.decoded(node, DequantizeFate.POST_OP, how, reader, step.name)
    elif node.op != "Quantize":
        return
    elif before.op == "FakeQuantize" and makes_codes(builder.graph, before):
        alone_in_front = before if before.name == step.name else None
        _settle_compared(builder, step, node, alone_in_front, kept.get(node.name, ""))
    elif follower is None and (chain.composed.quantize == "dst_scale" or not step.attr.post_ops):
        builder.encoded(node, QuantizeFate.DST_SCALE, _how_stored(step), step.name)
    else:
        why = (
            "the chain goes on behind it"
            if follower is not None
            else "the target has no place for it at the destination"
        )
        how = f"{kept.get(node.name, _KEPT[''])} among the post-ops: {why}"
        builder.encoded(node, QuantizeFate.POST_OP, how, step.name)


def _settle_computed(builder: StepBuilder, step: Step, nodes: list[Node], quantize: Node) -> bool:
    """The quantize half of a quantizer whose scale or ranges are computed: what it does is nodes of
    its own. False for others.
    """
    own = [node for node in nodes if node.origin == quantize.origin]
    if not any(builder.graph.computed(node.inputs[1:]) for node in own):
        return False
    how = "scaled by what is computed, rounded and clipped"
    # nodes that change nothing may stand in front
    if len(own) == len(nodes) or not step.attr.post_ops:
        builder.encoded(quantize, QuantizeFate.STANDALONE, f"a step of its own: {how}", step.name)
    else:
        builder.encoded(quantize, QuantizeFate.POST_OP, f"{how} among the post-ops", step.name)
    return True


def _settle_compared(
    builder: StepBuilder, step: Step, node: Node, anchor: Node | None, kept: str
) -> None:
    """The quantize half of comparisons, which begin a step with `anchor`, or stand in a chain."""
    if anchor is not None:
        why = builder.why_alone(anchor)
        builder.encoded(node, QuantizeFate.STANDALONE, why, step.name)
        return
    grid = kept or "its grid, or comparisons with its bounds,"
    how = f"{grid} among the post-ops: no scale and zero point encode such ranges"
    builder.encoded(node, QuantizeFate.POST_OP, how, step.name)


def _how_stored(step: Step) -> str:
    """How a store quantizes, in the words of the step's own attributes."""
    if "dst" in step.attr.scales:
        return f"{step.primitive} divides its result by the scale and stores the codes"
    where = "output scales" if step.attr.output_scales is not None else "own factors"
    return f"the scale is part of {step.primitive}'s {where}, and the store rounds and saturates"


def _settle_operand(builder: StepBuilder, step: Step, chain: Chain, link: Link) -> None:
    """The fate of the Dequantize of a second operand. Where the step reads the decoded f32 values,
    the standalone step that decodes them settles it.
    """
    decode = link.found.decoded
    codes = "" if decode is None else decode.input
    if decode is None or codes not in step.inputs:
        return
    if codes in chain.composed.sums:
        fate = DequantizeFate.SUM
        how = "the destination's buffer holds the codes: a sum with their scale and zero point"
    elif not step.attr.post_ops:  # the operation of binary itself
        fate, how = DequantizeFate.SOURCE_SCALE, "a source of binary, in units of its codes"
    else:
        fate = DequantizeFate.POST_OP
        how = "a binary post-op reads the codes, scale and shift are applied around it"
        for home in chain.composed.adds.get(codes, ())[1:]:
            how += f"; no {home.name}: {home.why_not}"
    builder.decoded(decode, fate, how, link.node, step.name)


# -- approximations --------------------------------------------------------------------------------

_KEPT = {
    "": "scale, round and clip",
    MIDDLE_ROUNDING: f"scale and clip without the rounding ({MIDDLE_ROUNDING})",
    RESIDUAL_ROUNDING: f"scale without rounding and clip ({RESIDUAL_ROUNDING})",
}
"""What is left of a quantizer inside a chain: by the name of an approximation, or without one."""


def _approximated(anchor: Node, chain: Chain) -> Iterator[tuple[Node, Approximation]]:
    """Each quantizer of a chain that was approximated when the operation behind it came."""
    quantizer = anchor
    for link in chain.links:
        yield from ((quantizer, each) for each in link.approximated)
        if link.node.op in ("Quantize", "FakeQuantize"):
            quantizer = link.node


def _changed(made: tuple[Node, Approximation]) -> Decision:
    """The decision for a quantizer that was approximated: by how much."""
    node, each = made
    what = "it does not round" if each.name == MIDDLE_ROUNDING else "it neither rounds nor clips"
    within = "" if each.name == MIDDLE_ROUNDING else " within its range"
    reason = f"{what}: at most {each.error.max():.4g} off{within}, half of its step"
    return Decision(each.name, subject(node), Outcome.FIRED, reason)


# -- decisions -------------------------------------------------------------------------------------


def _weighed(builder: StepBuilder, step: Step, anchor: Node, chain: Chain) -> Iterator[Decision]:
    """A decision with its alternatives for each operation of a chain: a step of its own is always one."""
    graph, composed = builder.graph, chain.composed
    dst = TensorType(composed.dst, graph.type(chain.value).shape)
    first = len(composed.post_ops) - len(step.attr.post_ops)  # that are the primitive itself
    before = anchor
    for link in chain.links:
        node, read = link.node, before.output
        ends = link is chain.links[-1] and node.op == "Quantize"
        mine = [number for number, of in enumerate(composed.parts) if of & link.part]
        registers = round(sum(post_op_cost(composed.post_ops[number]) for number in mine), 6)
        other = _operand(graph, link, read)
        bytes_read = operand_cost(graph.type(other), dst) if other else 0.0
        homes = (
            _of_two(composed, other, registers, bytes_read)
            if other
            else _of_the_store(builder, composed, registers)
            if ends and composed.scales
            else _of_one(link.part, composed, registers)
        )
        alone = registers or max(
            (home.cost for home in homes if home.name == "post-op"), default=0.0
        )
        own = Home("own step", own_step_cost(graph.type(read).dtype, dst, bytes_read, alone))
        post_ops = tuple(number - first for number in mine if number >= first)
        if mine and not post_ops:
            homes = (replace(homes[0], name="primitive"), *homes[1:])
        yield _chosen(f"home of {node.op}", node, (*homes, own), post_ops)
        if ends and sum(not home.why_not for home in composed.zero_points) > 1:
            yield _chosen("home of the zero point", node, composed.zero_points)
        taker, branches = builder.branches.get(node.name, (None, ()))
        if taker is anchor and sum(not home.why_not for home in branches) > 1:
            decision = _chosen("branch of Add", node, branches)
            cost = f"for {branches[0].cost:.4g} passes over the destination"
            yield replace(decision, reason=f"{branches[0].name} absorbs the add, {cost}")
        before = node


def _chosen(
    rule: str, node: Node, homes: tuple[Home, ...], post_ops: tuple[int, ...] = ()
) -> Decision:
    """The decision for the first of several homes."""
    reason = f"{homes[0].name} costs {homes[0].cost:.4g} passes over the destination"
    weighed = alternatives(homes)
    return Decision(
        rule, subject(node), Outcome.FIRED, reason, alternatives=weighed, post_ops=post_ops
    )


def _operand(graph: Graph, link: Link, value: str) -> str:
    """The second tensor that the operation reads at run time: codes, where the step decodes them;
    '' without one.
    """
    if link.found.decoded is not None:
        return link.found.decoded.input
    return next((v for v in link.node.inputs if v and v != value and graph.constant(v) is None), "")


def _of_two(
    composed: Composed, other: str, registers: float, bytes_read: float
) -> tuple[Home, ...]:
    """Homes of an operation of two tensors; the chosen one costs what it became."""
    binary = Home("binary", bytes_read + registers + WRITE_ALLOCATE)
    homes = composed.adds.get(other, (binary,))
    sums = homes[0].name == "sum"
    return (Home("sum", bytes_read + registers) if sums else binary), *homes[1:]


def _of_the_store(builder: StepBuilder, composed: Composed, registers: float) -> tuple[Home, ...]:
    """Homes of a quantizer's scale at the end: what it became, and by how much the others cost more."""
    scaled = composed.dst_scale is not None and builder.target.fold_dst_scale
    rest = composed.scales[0].cost - registers - (CHEAP if scaled else 0.0)
    return tuple(
        Home(home.name, 0.0 if home.why_not else round(home.cost - rest, 6), home.why_not)
        for home in composed.scales
    )


def _of_one(part: int, composed: Composed, registers: float) -> tuple[Home, ...]:
    """Homes of an operation of one tensor: a post-op, the primitive's own factors, the store."""
    if registers:
        why = next((why for of, why in composed.unfolded if of & part), "")
        return Home("post-op", registers), *([Home("folded", 0.0, why)] if why else [])
    saved = [each for each in composed.saved if each.of & part]
    if saved:  # a scale and the shift behind it would be one post-op
        return Home(saved[0].home, 0.0), Home("post-op", max(each.post_op for each in saved))
    return (Home("folded", 0.0),)
