"""The order of nodes is the lexicographical topological sort by rank, whatever edits did to the
graph.
"""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.corpus import CORPUS, SLOW

from fqfuse.ir.graph import Graph
from fqfuse.ir.node import GraphError
from fqfuse.ir.types import DType, TensorType
from fqfuse.passes import PIPELINE, Pass, run_pipeline


def by_networkx(graph: Graph) -> list[str]:
    return list(nx.lexicographical_topological_sort(graph._index, key=graph._rank.__getitem__))


@st.composite
def edited(draw: st.DrawFn) -> Graph:
    """Additions, some of which are rewired to read what was made later than they."""
    graph = Graph()
    graph.add_input("x", TensorType(DType.F32, (4,)))
    values = ["x"]
    for number in range(draw(st.integers(2, 20))):
        inputs = [draw(st.sampled_from(values)) for _ in range(2)]
        node = graph.add("Add", inputs, name=f"n{number}", after_all=draw(st.booleans()))
        values.append(node.output)
        if draw(st.integers(0, 2)) == 0:
            readers = [
                each
                for each in graph.nodes()
                if each.name != node.name and not nx.has_path(graph._index, each.name, node.name)
            ]
            if readers:
                reader = draw(st.sampled_from(readers))
                graph.set_inputs(
                    reader, [node.output, draw(st.sampled_from([reader.inputs[1], node.output]))]
                )
        unread = [each for each in graph.nodes() if not graph.is_read(each.output)]
        if len(unread) > 1 and draw(st.integers(0, 4)) == 0:
            gone = draw(st.sampled_from(unread))
            values.remove(gone.output)
            graph.erase(gone)
    return graph


@given(edited())
def test_it_is_that_of_networkx(graph: Graph) -> None:
    assert [node.name for node in graph.nodes()] == by_networkx(graph)
    twin = graph.copy()
    assert [node.name for node in twin.nodes()] == by_networkx(graph)


@pytest.mark.parametrize("name", [name for name in CORPUS if name not in SLOW])
def test_it_is_that_of_networkx_behind_every_pass(name: str) -> None:
    wrong = []

    def compare(step: Pass, graph: Graph) -> None:
        if [node.name for node in graph.nodes()] != by_networkx(graph):
            wrong.append(step.name)

    run_pipeline(CORPUS[name](), PIPELINE, [compare])
    assert not wrong


def test_a_circle_is_found() -> None:
    graph = Graph()
    graph.add_input("x", TensorType(DType.F32, (4,)))
    first = graph.add("Relu", ["x"])
    second = graph.add("Relu", [first.output])
    graph.set_inputs(first, [second.output])
    with pytest.raises(GraphError, match="cycle"):
        graph.nodes()


def test_a_node_that_reads_itself_is_a_circle() -> None:
    graph = Graph()
    graph.add_input("x", TensorType(DType.F32, (4,)))
    node = graph.add("Relu", ["x"])
    graph.set_inputs(node, [node.output])
    with pytest.raises(GraphError, match="cycle"):
        graph.nodes()
