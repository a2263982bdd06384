"""Activations that exporters write as several operations become one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node, origin_of
from ..ir.ops.spec import Attr
from .base import Contract, NodePass, Verdict, decide, swap

_CLOSE = 1e-4
"""Relative error to which exporters write sqrt(2), sqrt(2/pi), 0.044715 and 1/6."""


@dataclass(frozen=True)
class _Core:
    """The part of an activation that its product with x is built on: `value` is it, `x` what it is
    of, `factor` the constant expected.
    """

    value: str
    x: str
    factor: float
    op: str
    attrs: dict[str, Attr]
    nodes: tuple[Node, ...]


def recognize_activations(graph: Graph, node: Node) -> Verdict:
    """Writes decomposed activations as the one operation that they are.

    Before -> after::

        x * 0.5 * (1 + Erf(x / sqrt(2)))                              ->  Gelu(x)
        x * 0.5 * (1 + Tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))       ->  Gelu(x){approximate=tanh}
        x * Sigmoid(x)                                                ->  Swish(x){alpha=1}
        x * HardSigmoid(x){1/6, 1/2},  x * Clip(x + 3, 0, 6) / 6      ->  HardSwish(x)
        x * Tanh(Softplus(x))                                         ->  Mish(x)

    with the factors of the product in any order.

    Legal because: it is the definition of the operation; constants agree to 1e-4 of their value, as
    exporters round them.
    Refuses when: a value in between is read elsewhere, or a constant is another.
    """
    core = _CORES[node.op](graph, node)
    product = None if core is None else _product(graph, core)
    if core is None or product is None:
        return None
    last, nodes = product
    merged = graph.add(
        core.op,
        [core.x],
        core.attrs,
        name=core.op,
        outputs=[graph.fresh(f"{last.output}/{core.op}")],
        origin=origin_of(*core.nodes, *nodes),
    )
    decide(graph, RECOGNIZE_ACTIVATIONS.name, last, f"it is {core.op}")
    swap(graph, last, merged.output)
    erase_unread(graph, [*core.nodes, *nodes])
    return None


RECOGNIZE_ACTIVATIONS = NodePass(
    "recognize_activations",
    Contract("identity", "ulp", 64),
    recognize_activations,
    ("Erf", "Tanh", "Sigmoid", "HardSigmoid", "Clip"),
)


def _scalar(graph: Graph, value: str) -> float | None:
    data = graph.constant(value)
    return float(np.asarray(data).reshape(())) if data is not None and data.size == 1 else None


def _near(value: float | None, wanted: float) -> bool:
    return value is not None and math.isclose(value, wanted, rel_tol=_CLOSE)


def _by_constant(graph: Graph, value: str, *ops: str) -> tuple[str, float, Node] | None:
    """`value` as x times a constant (Mul, Div), or plus one (Add): (x, constant, node)."""
    node = graph.producer(value, *ops)
    if node is None:
        return None
    for index in (0, 1):
        constant = _scalar(graph, node.inputs[1 - index])
        if constant and not (node.op == "Div" and index == 1):
            return node.inputs[index], 1.0 / constant if node.op == "Div" else constant, node
    return None


def _factor(graph: Graph, value: str) -> tuple[str, float, Node] | None:
    return _by_constant(graph, value, "Mul", "Div")


def _one_plus(graph: Graph, node: Node) -> Node | None:
    """The node 1 + node, when it alone reads node."""
    reader = graph.sole_consumer(node.output)
    found = None if reader is None else _by_constant(graph, reader.output, "Add")
    return reader if found is not None and found[0] == node.output and found[1] == 1 else None


def _erf(graph: Graph, node: Node) -> _Core | None:
    inner, total = _factor(graph, node.input), _one_plus(graph, node)
    if inner is None or total is None or not _near(inner[1], math.sqrt(0.5)):
        return None
    return _Core(
        total.output, inner[0], 0.5, "Gelu", {"approximate": "none"}, (inner[2], node, total)
    )


def _tanh(graph: Graph, node: Node) -> _Core | None:
    soft = graph.producer(node.input, "Softplus")
    if soft is not None:
        return _Core(node.output, soft.input, 1.0, "Mish", {}, (soft, node))
    inner, total = _factor(graph, node.input), _one_plus(graph, node)
    if inner is None or total is None or not _near(inner[1], math.sqrt(2 / math.pi)):
        return None
    found = _cubic(graph, inner[0])
    if found is None:
        return None
    return _Core(
        total.output,
        found[0],
        0.5,
        "Gelu",
        {"approximate": "tanh"},
        (*found[1], inner[2], node, total),
    )


def _cubic(graph: Graph, value: str) -> tuple[str, tuple[Node, ...]] | None:
    """x and the nodes of x + 0.044715 * x^3."""
    node = graph.producer(value, "Add")
    if node is None:
        return None
    for index in (0, 1):
        x, scaled = node.inputs[index], _factor(graph, node.inputs[1 - index])
        if scaled is not None and _near(scaled[1], 0.044715):
            power = graph.producer(scaled[0])
            if (
                power is not None
                and power.op == "Pow"
                and power.input == x
                and _near(_scalar(graph, power.inputs[1]), 3.0)
            ):
                return x, (power, scaled[2], node)
            if power is not None and power.op == "Mul" and x in power.inputs:
                square = graph.producer(power.inputs[1 - power.inputs.index(x)], "Mul")
                if square is not None and square.inputs == (x, x):
                    return x, (square, power, scaled[2], node)
    return None


def _sigmoid(_graph: Graph, node: Node) -> _Core | None:
    return _Core(node.output, node.input, 1.0, "Swish", {"alpha": 1.0}, (node,))


def _hard_sigmoid(_graph: Graph, node: Node) -> _Core | None:
    if not (_near(node.attr("alpha", float), 1 / 6) and _near(node.attr("beta", float), 0.5)):
        return None
    return _Core(node.output, node.input, 1.0, "HardSwish", {}, (node,))


def _clip(graph: Graph, node: Node) -> _Core | None:
    bounds = [_scalar(graph, node.operand(index)) for index in (1, 2)]
    inner = _by_constant(graph, node.input, "Add")
    if bounds != [0.0, 6.0] or inner is None or inner[1] != 3:
        return None
    return _Core(node.output, inner[0], 1 / 6, "HardSwish", {}, (inner[2], node))


_CORES: dict[str, Callable[[Graph, Node], _Core | None]] = {
    "Erf": _erf,
    "Tanh": _tanh,
    "Sigmoid": _sigmoid,
    "HardSigmoid": _hard_sigmoid,
    "Clip": _clip,
}


def _product(graph: Graph, core: _Core) -> tuple[Node, list[Node]] | None:
    """The last node of core * x * factor and all nodes of the product, or None when it is another
    product.
    """
    value, seen_x, factor = core.value, False, 1.0
    nodes: list[Node] = []
    while not (seen_x and _near(factor, core.factor)):
        node = graph.sole_consumer(value)
        if (
            node is None
            or node.op not in ("Mul", "Div")
            or (node.op == "Div" and node.input != value)
        ):
            return None
        other = node.inputs[1 - node.inputs.index(value)]
        constant = _scalar(graph, other)
        scaled = _factor(graph, other)
        if constant:
            factor *= constant if node.op == "Mul" else 1.0 / constant
        elif other == core.x and node.op == "Mul" and not seen_x:
            seen_x = True
        elif scaled is not None and scaled[0] == core.x and node.op == "Mul" and not seen_x:
            seen_x, factor = True, factor * scaled[1]
            nodes.append(scaled[2])
        else:
            return None
        nodes.append(node)
        value = node.output
    return nodes[-1], nodes
