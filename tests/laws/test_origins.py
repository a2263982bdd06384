"""Every node of the model that computes numbers at run time is in the origin of a step: whoever asks for
it by name finds what became of it, and no step passes for less than it computes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from laws.corpus import CORPUS, SLOW
from support.finding_cases import CASES
from support.plan_corpus import models

from fqfuse.composer.compose import plan_from_graph
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.graph import Graph
from fqfuse.ir.node import Node
from fqfuse.ir.ops.spec import Trait
from fqfuse.passes import optimize
from fqfuse.plan.targets import TARGETS


def graphs() -> Iterator[tuple[str, Graph]]:
    """Many networks, as they are imported."""
    yield from ((name, make()) for name, make in CORPUS.items() if name not in SLOW)
    yield from ((name, graph_from_onnx(proto)) for name, proto in models())
    for code, case in CASES.items():
        yield from ((f"{code} {cured}", graph_from_onnx(case(cured))) for cured in (False, True))


def computing(graph: Graph) -> set[str]:
    """The nodes, no quantizers, that make floats of an input for an output, and do not only move them."""
    given, made = set(graph.inputs), list[Node]()
    for node in graph.nodes():
        if not given.isdisjoint(node.inputs):
            given.update(filter(None, node.outputs))
            made.append(node)
    wanted, found = set(graph.outputs), set[str]()
    for node in reversed(made):
        if wanted.isdisjoint(node.outputs):
            continue
        wanted.update(filter(None, node.inputs))
        moves = (
            node.has(Trait.LAYOUT_ONLY) or node.op == "Identity" or _to_its_own_type(graph, node)
        )
        floats = any(graph.type(value).dtype.is_float for value in node.outputs if value)
        if floats and not moves and not node.quantizer:
            found.update(name for name in node.origin if name not in graph.quantizers)
    return found


def _to_its_own_type(graph: Graph, node: Node) -> bool:
    return node.op == "Cast" and graph.type(node.input).dtype is graph.type(node.output).dtype


@pytest.mark.parametrize("target", TARGETS)
def test_each_node_that_computes_is_in_a_step(target: str) -> None:
    count = 0
    for name, graph in graphs():
        nodes = computing(graph)
        plan = plan_from_graph(optimize(graph), target)
        assert nodes <= {each for step in plan.steps for each in step.origin}, name
        count += len(nodes)
    assert count > 900
