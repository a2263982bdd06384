"""What is written down of a step: the fate of each quantizer that it absorbed, and for each
operation what was weighed.

Costs are those of `cost.py`. Homes of equal cost go by the order in which they are listed, which is
the one of docs/cost-model.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
from ..mapping.residual import absorbing
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
    for decision in (*_weighed(builder.graph, anchor, chain), *map(_changed, made)):
        builder.graph.decide(decision)
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
    by = next((node for node in own if builder.graph.computed(node.inputs[1:])), None)
    if by is None or by.op not in _BY_COMPUTED:
        return False
    how = _BY_COMPUTED[by.op]
    # nodes that change nothing may stand in front
    if len(own) == len(nodes) or not step.attr.post_ops:
        builder.encoded(quantize, QuantizeFate.STANDALONE, f"a step of its own: {how}", step.name)
    else:
        builder.encoded(quantize, QuantizeFate.POST_OP, f"{how} among the post-ops", step.name)
    return True


_BY_COMPUTED = {
    "Div": "divided by the scale that is computed, rounded and shifted",
    "Mul": "brought to the grid of its computed ranges, folded and rounded",
}
"""First operation of a quantizer by computed parameters -> what all of them do."""


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
    codes = "" if link.decoded is None else link.decoded.input
    if link.decoded is None or codes not in step.inputs:
        return
    if codes in chain.composed.sums:
        fate = DequantizeFate.SUM
        how = "the destination's buffer holds the codes: a sum with their scale and zero point"
    elif not step.attr.post_ops:  # the operation of binary itself
        fate, how = DequantizeFate.SOURCE_SCALE, "a source of binary, in units of its codes"
    else:
        fate = DequantizeFate.POST_OP
        how = "a binary post-op reads the codes, scale and shift are applied around it"
        if link.node.op in ("Add", "Sub"):
            dst, src = chain.composed.dst, builder.graph.type(codes).dtype
            why_not = link.no_sum or "the primitive has none, or has one for another operand"
            if not link.no_sum and dst.numpy.itemsize != src.numpy.itemsize:
                why_not = f"{src.value} codes do not fill a destination of {dst.value}"
            how += f"; no sum: {why_not}"
    builder.decoded(link.decoded, fate, how, link.node, step.name)


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
        for each in link.after.approximated[len(link.before.approximated) :]:
            yield quantizer, each
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


def _weighed(graph: Graph, anchor: Node, chain: Chain) -> Iterator[Decision]:
    """A decision with its alternatives for each operation of a chain that had two legal homes or
    more.
    """
    dst = TensorType(chain.composed.dst, graph.type(chain.value).shape)
    stored = _in_the_store(chain)
    before = anchor
    for number, link in enumerate(chain.links):
        node, read = link.node, before.output
        other = _operand(graph, link, read)
        bytes_read = operand_cost(graph.type(other), dst) if other else 0.0
        registers = max(_cost(link.after) - _cost(link.before), 0.0)
        registers = round(registers, 6)
        ends = node.op == "Quantize" and number + 1 == len(chain.links)
        if other:
            binary = Home("binary", bytes_read + registers + WRITE_ALLOCATE)
            homes = chain.composed.adds.get(other) or (binary,)
        elif ends and chain.composed.scales:
            homes, registers = _of_the_store(chain.composed), 0.0
        else:
            homes = _alone(link, registers, stored=number in stored)
        between = graph.type(read).dtype
        own = Home("own step", own_step_cost(between, dst, bytes_read, registers))
        yield from _chosen(f"home of {node.op}", node, (*homes, own))
        if ends:
            yield from _chosen("home of the zero point", node, chain.composed.zero_points)
        if other and node.op == "Add":
            yield from _branch(graph, node, read)
        before = node


def _chosen(rule: str, node: Node, homes: tuple[Home, ...]) -> Iterator[Decision]:
    """The decision for the first of several homes; nothing where no other is legal."""
    if sum(not home.why_not for home in homes) > 1:
        reason = f"{homes[0].name} costs {homes[0].cost:.4g} passes over the destination"
        yield Decision(
            rule, subject(node), Outcome.FIRED, reason, alternatives=alternatives(homes[0], homes)
        )


def _cost(composed: Composed) -> float:
    return sum(map(post_op_cost, composed.post_ops))


def _added(link: Link) -> int:
    """How many post-ops the step has more with the operation."""
    return len(link.after.post_ops) - len(link.before.post_ops)


def _in_the_store(chain: Chain) -> set[int]:
    """Numbers of the relus and clips whose post-ops went away with the store behind them: it
    saturates where they do.
    """
    ends = bool(chain.links) and chain.links[-1].node.op == "Quantize"
    left = -_added(chain.links[-1]) if ends else 0
    found: set[int] = set()
    for number in range(len(chain.links) - 2, -1, -1):
        link = chain.links[number]
        if left <= 0 or link.node.op not in ("Relu", "Clip", "Max", "Min"):
            break
        if 0 < _added(link) <= left:
            found.add(number)
            left -= _added(link)
    return found


def _operand(graph: Graph, link: Link, value: str) -> str:
    """The second tensor that the operation reads at run time: codes, where the step decodes them;
    '' without one.
    """
    if link.decoded is not None:
        return link.decoded.input
    return next((v for v in link.node.inputs if v and v != value and graph.constant(v) is None), "")


def _of_the_store(composed: Composed) -> tuple[Home, ...]:
    """Homes of a quantizer's scale at the end, as the composer weighed them, without what all of
    them cost.
    """
    least = min(home.cost for home in composed.scales if not home.why_not)
    rest = least - (CHEAP if composed.scales[0].name == "post-op" else 0.0)
    if composed.dst_scale is not None and composed.scales[0].cost > 0:
        rest = max(least - CHEAP, 0.0)
    return tuple(
        Home(home.name, 0.0 if home.why_not else round(home.cost - rest, 6), home.why_not)
        for home in composed.scales
    )


def _alone(link: Link, registers: float, *, stored: bool) -> tuple[Home, ...]:
    """Homes of an operation of one tensor: the store, the primitive's own factors, a post-op."""
    if stored:
        return Home("store", 0.0), Home("post-op", registers)
    if _added(link) > 0:
        new = [why for why in link.after.unfolded if why not in link.before.unfolded]
        return Home("post-op", registers), *(Home("folded", 0.0, why) for why in new[:1])
    known = [*map(id, link.before.folded)]
    folded = [homes for homes in link.after.folded if id(homes) not in known]
    if not folded:
        return (Home("folded", registers),)
    # what went into the front: a scale and the shift behind it would be one post-op
    most = max(home.cost for homes in folded for home in homes)
    return Home("folded", registers), Home("post-op", most)


def _branch(graph: Graph, node: Node, value: str) -> Iterator[Decision]:
    """Which of two branches absorbed the add, where each could have."""
    homes = absorbing(graph, node)
    taken = next((home for read, home in homes if read == value), None)
    if taken is None or sum(not home.why_not for _, home in homes) < 2:
        return
    reason = f"{taken.name} absorbs the add, for {taken.cost:.4g} passes over the destination"
    weighed = alternatives(taken, [home for _, home in homes])
    yield Decision("branch of Add", subject(node), Outcome.FIRED, reason, alternatives=weighed)
