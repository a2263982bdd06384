"""Sequences and optionals: the nodes that make, change and read them become one If, whose condition is true, between
tensors. Graphs and plans know tensors alone; ONNX's reference evaluator runs the If.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from ..errors import UnsupportedOp
from .branches import renamed
from .nodes import free_name, normal_domain
from .structure import captured_names, names_in_bodies, subgraphs

_KEY: Final = "fqfuse.apart"
_LISTS: Final = frozenset(
    {
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceMap",
        "SplitToSequence",
    }
)
"""Operators that make sequences."""
_IN_FRONT: Final = {"Loop": 2, "Scan": 0}
"""Operator -> its inputs in front of the states that it hands on."""

Layers = dict[str, int]
"""Value that is no tensor -> how many layers are around its tensors, 1 for a sequence, or an optional, of tensors."""


def is_apart(node: NodeProto) -> bool:
    """True of an If that was made here."""
    return any(entry.key == _KEY for entry in node.metadata_props)


def with_sequences_apart(graph: GraphProto) -> GraphProto:
    """The graph with an If in the place of the nodes of each sequence and optional; of those that hang together,
    and what is computed between them, one. A graph without any as it is.

    Raises:
        UnsupportedOp: the graph returns a sequence or an optional.
    """
    if not _layers(graph.node, {}):
        return graph
    taken = _names(graph)
    graph = _with_rows(graph, taken)
    held = _layers(graph.node, {}).keys()
    for value in graph.output:
        if value.name in held:
            raise refused_port("output", value.name, "a sequence or an optional")
    result = GraphProto()
    result.CopyFrom(graph)
    types = {value.name: value.type for value in (*graph.value_info, *graph.output)}
    parts = _parts(graph.node, held)
    inside = set().union(*parts)
    del result.node[:]
    result.node.extend(node for index, node in enumerate(graph.node) if index not in inside)
    for part in parts:
        made = _read_outside(graph, part)
        outputs = [ValueInfoProto(name=name, type=types.get(name)) for name in made]
        if outputs:
            result.node.extend(_as_if([graph.node[k] for k in sorted(part)], outputs, taken))
    return result


def refused_port(way: str, name: str, kind: str) -> UnsupportedOp:
    """The error of an input or output of a graph that is no tensor; `way`: input or output."""
    return UnsupportedOp(
        f"the {way} is no tensor but {kind}",
        where=f"graph {way} {name[:200]!r}",
        hint="take and return dense tensors: move what makes and what reads this value out of the model",
    )


def _layers(nodes: Sequence[NodeProto], known: Mapping[str, int]) -> Layers:
    """Of what the nodes, in any order, make."""
    found = dict(known)
    while True:
        before = len(found)
        for node in nodes:
            made = zip(node.output, _made(node, found), strict=False)
            found |= {name: count for name, count in made if name and count}
        if len(found) == before:
            return found


def _made(node: NodeProto, layers: Mapping[str, int]) -> Iterable[int]:
    """The layers of the outputs of a node, as many as are not 0."""
    if normal_domain(node.domain):
        return ()
    first = layers.get(node.input[0], 0) if node.input else 0
    if node.op_type in _LISTS:
        return [1] * len(node.output)
    if node.op_type == "Identity":
        return [first]
    if node.op_type == "Optional":
        lists = any(item.tp.HasField("sequence_type") for item in node.attribute)
        return [first + 1 if any(node.input) else 1 + lists]
    if node.op_type == "OptionalGetElement":
        return [max(first - 1, 0)]
    if node.op_type == "If":
        bodies = [(body, _layers(body.node, layers)) for body in subgraphs(node)]
        returned = [[inner.get(value.name, 0) for value in body.output] for body, inner in bodies]
        return [max(each) for each in zip(*returned, strict=False)]
    front = _IN_FRONT.get(node.op_type)
    return [] if front is None else [layers.get(name, 0) for name in node.input[front:]]


def _with_rows(graph: GraphProto, taken: set[str]) -> GraphProto:
    """The graph with rows in the place of lists that a Loop begins empty and appends one tensor to in each trip, as
    scripted PyTorch writes a list, where a reader stacks them, so that they are of one shape: the bodies of such
    Loops know tensors alone. Behind the Loop the rows are the list again.
    """
    makers = {name: node for node in graph.node for name in node.output}
    stacked = {
        name
        for node in graph.node
        if node.op_type == "ConcatFromSequence"
        and any(item.name == "new_axis" and item.i for item in node.attribute)
        for name in node.input
    }
    nodes = []
    for node in graph.node:
        loop, lists = node, []
        for place in reversed(range(len(node.input) - 2 if node.op_type == "Loop" else 0)):
            begun = makers.get(node.input[2 + place], node)
            name = node.output[place] if place < len(node.output) else ""
            appended = _appended(loop, place)
            if begun.op_type == "SequenceEmpty" and name in stacked and appended is not None:
                rows = free_name(f"{name}.rows", taken, ".")
                loop = _stacking(loop, place, appended, rows)
                split = helper.make_node(
                    "SplitToSequence", [rows], [name], begun.name or name, axis=0, keepdims=0
                )
                lists.append(split)
        nodes += [loop, *lists]
    result = GraphProto()
    result.CopyFrom(graph)
    del result.node[:]
    result.node.extend(nodes)
    return result


def _appended(loop: NodeProto, place: int) -> NodeProto | None:
    """The node that appends to a state of a Loop, where nothing else is done with it."""
    body = next(subgraphs(loop), GraphProto())
    if len(body.input) <= 2 + place or len(body.output) <= 1 + place:
        return None
    state, handed = body.input[2 + place].name, body.output[1 + place].name
    read = [name for node in body.node for name in (*node.input, *captured_names(node))]
    read += [value.name for value in body.output]
    for node in body.node:
        if [*node.output] == [handed] and node.op_type == "SequenceInsert":
            at_end = (
                [*node.input[:1]] == [state] and any(node.input[1:2]) and not any(node.input[2:])
            )
            return node if at_end and read.count(state) == read.count(handed) == 1 else None
    return None


def _stacking(node: NodeProto, place: int, appended: NodeProto, rows: str) -> NodeProto:
    """A Loop without a state, and with the tensors that it appends as rows."""
    changed = NodeProto()
    changed.CopyFrom(node)
    body = next(subgraphs(changed))
    changed.output.extend([""] * (len(body.output) - 1 - len(changed.output)))
    changed.output.append(rows)
    del changed.input[2 + place], changed.output[place], body.input[2 + place]
    del body.output[1 + place]
    (name,) = appended.output
    for index in reversed(range(len(body.value_info))):
        if body.value_info[index].name == name:
            del body.value_info[index]
    body.node.remove(appended)
    body.node.append(NodeProto(op_type="Identity", input=[appended.input[1]], output=[name]))
    body.output.add(name=name)
    return changed


def _parts(nodes: Sequence[NodeProto], held: Iterable[str]) -> list[set[int]]:
    """The nodes of each part: those that a value in `held` joins, and those between them."""
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    readers: dict[str, set[int]] = defaultdict(set)
    behind: dict[int, set[int]] = defaultdict(set)
    front: dict[int, set[int]] = defaultdict(set)
    for index, node in enumerate(nodes):
        for name in (*node.input, *captured_names(node)):
            readers[name].add(index)
            if name in makers:
                behind[makers[name]].add(index)
                front[index].add(makers[name])
    parts = _merged({makers[name], *readers[name]} for name in sorted(held))
    while True:
        grown = _merged(part | (_reached(part, behind) & _reached(part, front)) for part in parts)
        if grown == parts:
            return parts
        parts = grown


def _merged(parts: Iterable[set[int]]) -> list[set[int]]:
    """Those that have a node in common as one."""
    found: list[set[int]] = []
    for part in parts:
        others = [other for other in found if not other & part]
        found = [*others, part.union(*(other for other in found if other & part))]
    return sorted(found, key=min)


def _reached(start: Iterable[int], edges: Mapping[int, set[int]]) -> set[int]:
    found: set[int] = set()
    waiting = list(start)
    while waiting:
        new = edges.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def _read_outside(graph: GraphProto, part: set[int]) -> list[str]:
    """What the nodes of a part make that others read, or the graph returns."""
    read = {value.name for value in graph.output}
    for index, node in enumerate(graph.node):
        if index not in part:
            read.update((*node.input, *captured_names(node)))
    made = [name for index in sorted(part) for name in graph.node[index].output]
    return [name for name in made if name in read]


def _as_if(
    members: Sequence[NodeProto], outputs: Sequence[ValueInfoProto], taken: set[str]
) -> Iterator[NodeProto]:
    """A constant, and the If that it is the condition of."""
    name = members[0].name or next(filter(None, members[0].output), "sequences")
    condition = free_name(f"{name}.condition", taken, ".")
    yield helper.make_node(
        "Constant", [], [condition], value=helper.make_tensor("", TensorProto.BOOL, [], [True])
    )
    inner = {value.name: free_name(f"{value.name}.inside", taken, ".") for value in outputs}
    nodes = [renamed(member, inner) for member in members]
    results = [ValueInfoProto(name=inner[value.name], type=value.type) for value in outputs]
    branch = helper.make_graph(nodes, "sequences", [], results)
    both = {"then_branch": branch, "else_branch": branch}  # of the same types, as ONNX demands
    made = helper.make_node("If", [condition], [value.name for value in outputs], name, **both)
    made.metadata_props.add(key=_KEY, value="")
    yield made


def _names(graph: GraphProto) -> set[str]:
    found = {value.name for value in (*graph.input, *graph.initializer)}
    for node in graph.node:
        found.update((*node.input, *node.output, *captured_names(node)))
    return found | set(names_in_bodies(graph))
