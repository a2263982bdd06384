"""The wiring of a model's graph: who makes each value, who reads it, and an order in which every
reader comes after the maker.

Names are the only wires in ONNX, so everything that can be wrong with them is checked here: a name
made twice, a name never made, cycles. Nodes that are not sorted are sorted; the model's order is
kept where it is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from onnx import AttributeProto, GraphProto, NodeProto

from ..errors import InvalidModel
from .budgets import Budgets
from .nodes import node_label

_EXPORT: Final = "export the model again; onnx.checker.check_model shows such faults too"
_NO_NODE: Final = -1
_SHOWN: Final = 5


@dataclass(frozen=True)
class Wiring:
    """How the nodes of a graph hang together.

    Attributes:
        order: indices of the nodes, every reader after the maker of what it reads.
        producer: value -> index of the node that makes it.
        readers: value -> indices of the nodes that read it, in the model's order (also from within
            their subgraphs).
        reads: for each node, the names it reads: its inputs, then what its subgraphs capture.
    """

    order: tuple[int, ...]
    producer: Mapping[str, int]
    readers: dict[str, list[int]]
    reads: Sequence[tuple[str, ...]]


def initializer_names(graph: GraphProto) -> Iterator[str]:
    """Names of the constants that a graph comes with, dense ones first."""
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The bodies of If, Loop, Scan."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def count_nodes(nodes: Iterable[NodeProto], budgets: Budgets) -> int:
    """How many nodes there are, those of subgraphs counted (protobuf's own limit keeps the
    recursion shallow).

    Raises:
        InvalidModel: more than the budget `nodes`.
    """
    total = 0
    for node in nodes:
        total += 1 + sum(count_nodes(body.node, budgets) for body in subgraphs(node))
        if total > budgets.nodes:
            budgets.check("nodes", total, "a model with this many nodes")
    return total


def captured_names(node: NodeProto) -> tuple[str, ...]:
    """Values of the surrounding graphs that the node's subgraphs read, each once, in the order of
    first use.
    """
    found: dict[str, None] = {}
    for body in subgraphs(node):
        found.update(dict.fromkeys(read_of_others(body)))
    return tuple(found)


def read_of_others(body: GraphProto) -> tuple[str, ...]:
    """Values of the graphs around it that a subgraph reads or returns, each once, in the order of first use."""
    inside = {value.name for value in body.input} | set(initializer_names(body))
    inside.update(name for inner in body.node for name in inner.output)
    read = [name for inner in body.node for name in (*inner.input, *captured_names(inner))]
    read += [value.name for value in body.output]
    return tuple(dict.fromkeys(name for name in read if name and name not in inside))


def names_in_bodies(graph: GraphProto) -> Iterator[str]:
    """The names that the bodies of its nodes, and those in them, give values."""
    for node in graph.node:
        for body in subgraphs(node):
            yield from (value.name for value in body.input)
            yield from initializer_names(body)
            yield from (name for inner in body.node for name in inner.output)
            yield from names_in_bodies(body)


def check_wiring(graph: GraphProto, constants: GraphProto) -> Wiring:
    """The wiring of a graph whose initializers are those of `constants`.

    Raises:
        InvalidModel: a name made twice or never; nodes that wait for each other; an output that is
            not made.
    """
    given = _given_names(graph, constants)
    producer: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in producer or name in given:
                other = (
                    f"made by {_label(graph.node[producer[name]])}"
                    if name in producer
                    else "an input or initializer of the graph"
                )
                raise InvalidModel(
                    f"the value {name!r} is made twice: it is also {other}",
                    where=_label(node),
                    hint=_EXPORT,
                )
            producer[name] = index
    reads = [
        tuple(dict.fromkeys(filter(None, (*node.input, *captured_names(node)))))
        for node in graph.node
    ]
    readers: dict[str, list[int]] = defaultdict(list)
    missing = []
    for index, names in enumerate(reads):
        for name in names:
            readers[name].append(index)
            if name not in producer and name not in given:
                missing.append(f"{name!r} (read by {_label(graph.node[index])})")
    missing += [
        f"{value.name!r} (an output of the graph)"
        for value in graph.output
        if value.name not in producer and value.name not in given
    ]
    if missing:
        shown = ", ".join(missing[:_SHOWN]) + (
            f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        )
        hint = "name an input, an initializer or the output of a node; an extracted model may have lost them"
        raise InvalidModel(f"values that nothing makes: {shown}", hint=hint)
    return Wiring(_order(graph, producer, reads, readers), producer, readers, reads)


def _given_names(graph: GraphProto, constants: GraphProto) -> set[str]:
    """Names of the inputs and the initializers, which may be the same."""
    inputs = [value.name for value in graph.input]
    initializers = list(initializer_names(constants))
    for kind, names in (("graph input", inputs), ("initializer", initializers)):
        seen: set[str] = set()
        for name in names:
            if not name:
                article = "an" if kind == "initializer" else "a"
                raise InvalidModel(f"{article} {kind} has no name", hint=_EXPORT)
            if name in seen:
                raise InvalidModel(f"there are two {kind}s {name!r}", hint=_EXPORT)
            seen.add(name)
    return {*inputs, *initializers}


def _order(
    graph: GraphProto,
    producer: Mapping[str, int],
    reads: Sequence[tuple[str, ...]],
    readers: Mapping[str, Sequence[int]],
) -> tuple[int, ...]:
    """The model's own order where it is one; otherwise depth first along the inputs, which keeps it
    as far as possible.
    """
    if all(
        producer.get(name, _NO_NODE) < index for index, names in enumerate(reads) for name in names
    ):
        return tuple(range(len(reads)))
    waiting = [sum(name in producer for name in names) for names in reads]
    order: list[int] = []
    for start in range(len(reads)):
        stack = [start] if waiting[start] == 0 else []
        while stack:
            index = stack.pop()
            order.append(index)
            waiting[index] = _NO_NODE
            freed = []
            for reader in (
                r for name in graph.node[index].output if name for r in readers.get(name, ())
            ):
                waiting[reader] -= 1
                # A later one is met by the outer loop at its own place.
                if waiting[reader] == 0 and reader < start:
                    freed.append(reader)
            stack.extend(reversed(freed))
    if len(order) < len(reads):
        raise InvalidModel(
            f"nodes wait for each other: {_cycle(graph, producer, reads, set(order))}", hint=_EXPORT
        )
    return tuple(order)


def _cycle(
    graph: GraphProto, producer: Mapping[str, int], reads: Sequence[tuple[str, ...]], done: set[int]
) -> str:
    """One cycle, in words: from any node that is stuck, back along what it waits for, until a node
    comes again.
    """
    index = next(i for i in range(len(reads)) if i not in done)
    path: dict[int, None] = {}
    while index not in path:
        path[index] = None
        index = next(
            producer[name]
            for name in reads[index]
            if name in producer and producer[name] not in done
        )
    nodes = list(path)
    cycle = nodes[nodes.index(index) :]
    names = [_label(graph.node[i]) for i in reversed(cycle)]
    middle = [f"... {len(names) - _SHOWN} more ..."] if len(names) > _SHOWN else []
    return " -> ".join([*names[:_SHOWN], *middle, names[0]])


def _label(node: NodeProto) -> str:
    return node_label(node.op_type, node.domain, node.name or next(filter(None, node.output), ""))
