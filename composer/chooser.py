"""The chooser: which branch of an add absorbs it, and what else was weighed for each operation that a step absorbed.

Costs are those of `cost.py`. Homes of equal cost go by the order in which they are listed, which is the one of docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.decision import Decision, Outcome
from ..ir.graph import Graph
from ..ir.node import Node, subject
from ..ir.types import DType, TensorType
from .chain import Chain, Link
from .cost import WRITE_ALLOCATE, Home, alternatives, operand_cost, own_step_cost
from .residual import absorbing

__all__ = ["weighed"]


def weighed(graph: Graph, anchor: Node, chain: Chain) -> Iterator[Decision]:
    """A decision with its alternatives for each operation of a chain that had two legal homes or more."""
    value = graph.type(chain.value)
    dst = TensorType(chain.composed.dst, value.shape)
    for number, link in enumerate(chain.links):
        before = chain.links[number - 1].node if number else anchor
        between = graph.type(before.output).dtype
        other = _operand(graph, link, before.output)
        homes = _with_operand(graph, chain, link, other, dst, between) if other else _alone(link, dst, between)
        chosen = homes[0]
        reason = f"{chosen.name} costs {chosen.cost:.4g} passes over the destination"
        if sum(not home.why_not for home in homes) > 1:
            yield Decision(f"home of {link.node.op}", subject(link.node), Outcome.FIRED, reason, alternatives=alternatives(chosen, homes))
        if other and link.node.op == "Add":
            yield from _branch(graph, link.node, before.output)


def _operand(graph: Graph, link: Link, value: str) -> str:
    """The second tensor that the operation reads at run time: codes, where the step decodes them; '' without one."""
    if link.decoded is not None:
        return link.decoded.inputs[0]
    return next((v for v in link.node.inputs if v and v != value and graph.constant(v) is None), "")


def _alone(link: Link, dst: TensorType, between: DType) -> list[Home]:
    """Homes of an operation of one tensor: folded or a post-op, as the composer found cheapest; or a step of its own."""
    inside = Home("post-op" if link.post_ops > 0 else "folded", max(link.cost, 0.0))
    return [inside, Home("own step", own_step_cost(between, dst, registers=inside.cost))]


def _with_operand(graph: Graph, chain: Chain, link: Link, operand: str, dst: TensorType, between: DType) -> list[Home]:
    """Homes of an operation of two tensors, the one that it has first."""
    read = operand_cost(graph.type(operand), dst)
    registers = max(link.cost, 0.0)
    own = Home("own step", own_step_cost(between, dst, read, registers))
    binary = Home("binary", read + registers + WRITE_ALLOCATE)
    if link.node.op not in ("Add", "Sub"):
        return [binary, own]
    if operand in chain.composed.sums:
        return [Home("sum", read + registers), binary, own]
    same = graph.type(operand).dtype.numpy.itemsize == dst.dtype.numpy.itemsize
    unlike = "" if same else f"{graph.type(operand).dtype.value} does not fill a destination of {dst.dtype.value}"
    why = chain.not_summed.get(operand) or unlike or "the primitive has no sum, or has one for another operand"
    return [binary, Home("sum", read + registers, why), own]


def _branch(graph: Graph, node: Node, value: str) -> Iterator[Decision]:
    """Which of two branches absorbed the add, where each could have."""
    found = absorbing(graph, node)
    if len(found) < 2 or sum(not home.why_not for _, home in found) < 2:
        return
    taken = next((home for read, home in found if read == value), None)
    if taken is None:
        return
    homes = [home for _, home in found]
    reason = f"{taken.name} absorbs the add, for {taken.cost:.4g} passes over the destination"
    yield Decision("branch of Add", subject(node), Outcome.FIRED, reason, alternatives=alternatives(taken, homes))
