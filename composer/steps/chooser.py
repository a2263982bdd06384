"""The chooser: which branch of an add absorbs it, and what else was weighed for each operation that
a step absorbed.

Costs are those of `cost.py`. Homes of equal cost go by the order in which they are listed, which is
the one of docs/cost-model.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.decision import Decision, Outcome
from ...ir.graph import Graph
from ...ir.node import Node, subject
from ...ir.types import DType, TensorType
from ..mapping.cost import CHEAP, WRITE_ALLOCATE, Home, alternatives, operand_cost, own_step_cost
from ..mapping.residual import absorbing
from .chain import Chain, Link

__all__ = ["weighed"]


def weighed(graph: Graph, anchor: Node, chain: Chain) -> Iterator[Decision]:
    """A decision with its alternatives for each operation of a chain that had two legal homes or
    more.
    """
    dst = TensorType(chain.composed.dst, graph.type(chain.value).shape)
    stored = _in_the_store(chain)
    for number, link in enumerate(chain.links):
        before = chain.links[number - 1].node if number else anchor
        between = graph.type(before.output).dtype
        other = _operand(graph, link, before.output)
        if other:
            homes = _with_operand(graph, chain, link, other, dst, between)
        elif (
            link.node.op == "Quantize" and number + 1 == len(chain.links) and chain.composed.scales
        ):
            homes = _of_the_store(chain, dst, between)
        else:
            homes = _alone(link, dst, between, stored=number in stored)
        yield from _chosen(f"home of {link.node.op}", link.node, homes)
        if (
            link.node.op == "Quantize"
            and number + 1 == len(chain.links)
            and chain.composed.zero_points
        ):
            yield from _chosen(
                "home of the zero point", link.node, list(chain.composed.zero_points)
            )
        if other and link.node.op == "Add":
            yield from _branch(graph, link.node, before.output)


def _chosen(rule: str, node: Node, homes: list[Home]) -> Iterator[Decision]:
    """The decision for the first of several homes; nothing where no other is legal."""
    if sum(not home.why_not for home in homes) > 1:
        reason = f"{homes[0].name} costs {homes[0].cost:.4g} passes over the destination"
        yield Decision(
            rule, subject(node), Outcome.FIRED, reason, alternatives=alternatives(homes[0], homes)
        )


def _in_the_store(chain: Chain) -> set[int]:
    """Numbers of the relus and clips whose post-ops went away with the store behind them: it
    saturates where they do.
    """
    left = -chain.links[-1].post_ops if chain.links and chain.links[-1].node.op == "Quantize" else 0
    found: set[int] = set()
    for number in range(len(chain.links) - 2, -1, -1):
        link = chain.links[number]
        if left <= 0 or link.node.op not in ("Relu", "Clip", "Max", "Min"):
            break
        if 0 < link.post_ops <= left:
            found.add(number)
            left -= link.post_ops
    return found


def _operand(graph: Graph, link: Link, value: str) -> str:
    """The second tensor that the operation reads at run time: codes, where the step decodes them;
    '' without one.
    """
    if link.decoded is not None:
        return link.decoded.inputs[0]
    return next((v for v in link.node.inputs if v and v != value and graph.constant(v) is None), "")


def _of_the_store(chain: Chain, dst: TensorType, between: DType) -> list[Home]:
    """Homes of a quantizer at the end: of its scale, as the composer weighed them, without what all
    of them cost; or its own step.
    """
    least = min(home.cost for home in chain.composed.scales if not home.why_not)
    rest = least - (CHEAP if chain.composed.scales[0].name == "post-op" else 0.0)
    if chain.composed.dst_scale is not None and chain.composed.scales[0].cost > 0:
        rest = max(least - CHEAP, 0.0)
    inside = [
        Home(home.name, 0.0 if home.why_not else round(home.cost - rest, 6), home.why_not)
        for home in chain.composed.scales
    ]
    return [*inside, Home("own step", own_step_cost(between, dst))]


def _alone(link: Link, dst: TensorType, between: DType, *, stored: bool) -> list[Home]:
    """Homes of an operation of one tensor: the store, the primitive's own factors, a post-op; or a
    step of its own.
    """
    registers = max(link.cost, 0.0)
    own = Home("own step", own_step_cost(between, dst, registers=registers))
    if stored:
        return [Home("store", 0.0), Home("post-op", registers), own]
    if (
        link.post_ops <= 0 and link.folded
    ):  # what went into the front: a scale and the shift behind it would be one post-op
        return [
            Home("folded", registers),
            Home("post-op", max(home.cost for homes in link.folded for home in homes)),
            own,
        ]
    if link.post_ops <= 0:
        return [Home("folded", registers), own]
    return [
        Home("post-op", registers),
        own,
        *([Home("folded", 0.0, link.unfolded)] if link.unfolded else []),
    ]


def _with_operand(
    graph: Graph, chain: Chain, link: Link, operand: str, dst: TensorType, between: DType
) -> list[Home]:
    """Homes of an operation of two tensors, the one that it has first: an add's as the composer
    weighed them.
    """
    own = Home(
        "own step",
        own_step_cost(between, dst, operand_cost(graph.type(operand), dst), max(link.cost, 0.0)),
    )
    found = chain.composed.adds.get(operand)
    if found is not None:
        return [*found, own]
    return [
        Home(
            "binary", operand_cost(graph.type(operand), dst) + max(link.cost, 0.0) + WRITE_ALLOCATE
        ),
        own,
    ]


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
    yield Decision(
        "branch of Add",
        subject(node),
        Outcome.FIRED,
        reason,
        alternatives=alternatives(taken, homes),
    )
