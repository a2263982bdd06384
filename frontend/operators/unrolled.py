"""The bodies of SequenceMap, and of Loops over sequences of known length, in the place of the node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto

from ...ir.element_types import DTYPES
from ...ir.types import DType
from ..branches import branch_nodes
from ..held import Held, Tensors
from ..importer import Importer
from ..nodes import OnnxNode
from ..structure import captured_names, initializer_names
from . import packed
from .derived import Derived

ImportBranch = Callable[[Importer, Sequence[NodeProto], Iterable[TensorProto]], None]
"""Imports nodes, and the constants that they read, as the model's own."""


def mapped(ctx: Importer, node: OnnxNode, import_branch: ImportBranch) -> bool:
    """Imports a SequenceMap: its body once for each tensor of sequences of known length, else as a Loop.

    Returns:
        False: it is none.

    Raises:
        InvalidModel: its body does not fit, or the sequences differ in length.
    """
    if node.op != "SequenceMap" or node.domain:
        return False
    body = node.attr("body", None)
    if (
        not isinstance(body, GraphProto)
        or len(body.output) != len(node.outputs)
        or len(body.input) != len(node.inputs)
        or node.input(0) not in ctx.sequences
    ):
        raise node.invalid("the inputs and outputs of the body are not those of the node")
    lists = [ctx.sequences.get(name) for name in node.inputs]
    known = [held for held in lists if isinstance(held, Tensors)]
    if len(known) == len([held for held in lists if held is not None]):
        _map_known(ctx, node, body, lists, import_branch)
    else:
        _map_in_loop(ctx, node, body, import_branch)
    return True


def _map_known(
    ctx: Importer,
    node: OnnxNode,
    body: GraphProto,
    lists: Sequence[Held | None],
    import_branch: ImportBranch,
) -> None:
    """The copies of the body share its constants."""
    tensors = [held.tensors if isinstance(held, Tensors) else None for held in lists]
    count = len(tensors[0] or ())
    told = [len(held) for held in tensors if held is not None]
    if set(told) != {count}:
        raise node.invalid(f"the sequences have different lengths: {', '.join(map(str, told))}")
    rows = [
        held if held is not None else (name,) * count
        for held, name in zip(tensors, node.inputs, strict=True)
    ]
    names = [value.name for value in body.input]
    shared: dict[str, str] = {}
    results = []
    for row in zip(*rows, strict=True):
        fresh = partial(ctx.renamed, node)
        outputs = [fresh(name) if name else "" for name in node.outputs]
        given = {**shared, **dict(zip(names, row, strict=True))}
        nodes, constants = branch_nodes(body, outputs, fresh, given)
        if constants:
            held = zip(body.initializer, constants, strict=True)
            shared = {tensor.name: copied.name for tensor, copied in held}
        import_branch(ctx, nodes, constants)
        results.append(outputs)
    for index, name in enumerate(node.outputs):
        if name:
            made = tuple(outputs[index] for outputs in results)
            ctx.sequences[name] = Tensors(made, _declared(node, body, index))


def _declared(node: OnnxNode, body: GraphProto, index: int) -> DType:
    """The element type of an output of a body."""
    element = body.output[index].type.tensor_type.elem_type
    if element not in DTYPES:
        raise node.invalid(
            f"the body of {node.op} does not say the type of its output {body.output[index].name!r}",
            "declare it: onnx.shape_inference does",
        )
    return DTYPES[element]


def _map_in_loop(
    ctx: Importer, node: OnnxNode, body: GraphProto, import_branch: ImportBranch
) -> None:
    at, fresh = Derived(ctx, node), partial(ctx.renamed, node)
    lists = [name for name in node.inputs if name in ctx.sequences]
    counts = [_count(ctx, node, name) for name in lists]
    trips = counts[0]
    for other in counts[1:]:
        alike = at.real("Equal", [trips, other], role="as many")
        trips = packed.checked(at, trips, alike, "length of all sequences")
    trip, given, nodes = fresh("trip"), {}, []
    for name, own in zip(node.inputs, body.input, strict=True):
        given[own.name] = name
        if name in ctx.sequences:
            given[own.name] = fresh(own.name)
            nodes.append(packed.made("SequenceAt", [name, trip], given[own.name]))
    made = [fresh(value.name) for value in body.output]
    inner, constants = branch_nodes(body, made, fresh, given)
    import_branch(ctx, [], constants)
    states, results = {}, {}
    for index, (name, value) in enumerate(zip(node.outputs, made, strict=True)):
        before, after, begun = (fresh(f"{value}.{what}") for what in ("before", "after", "begun"))
        ctx.sequences[begun] = Tensors((), _declared(node, body, index))
        states[before], results[after] = begun, name or fresh("unread")
        inner.append(packed.made("SequenceInsert", [before, value], after))
    packed.loop(at, trips, trip, states, [*nodes, *inner], results)


def _count(ctx: Importer, node: OnnxNode, name: str) -> str:
    """The length of a sequence, s64[]."""
    count = ctx.fresh(f"{name}.length")
    ctx.import_node(
        ctx, NodeProto(op_type="SequenceLength", name=node.name, input=[name], output=[count])
    )
    return count


def unrolled(ctx: Importer, node: OnnxNode, import_branch: ImportBranch) -> bool:
    """Imports the body of a Loop once for each trip, in its place, where it reads sequences of known length
    and makes a known number of trips: so ONNX writes a SequenceMap without that operator.
    """
    body = node.attr("body") if node.op == "Loop" and not node.domain else None
    if not isinstance(body, GraphProto):
        return False
    captured = map(ctx.sequences.get, captured_names(node.proto))
    lists = [held.tensors for held in captured if isinstance(held, Tensors)]
    if not lists:
        return False
    count = ctx.constant(node.input(0)) if node.input(0) else None
    going = ctx.constant(node.input(1)) if node.input(1) else np.asarray(True)
    states = [*node.inputs[2:]]
    fits = len(body.input) == 2 + len(states) and len(body.output) > len(states) and all(states)
    if not fits or count is None or count.size != 1 or going is None:
        return False
    if count.item() > max(map(len, lists)):  # nobody writes a body out a million times
        return False
    scans = len(body.output) - 1 > len(states)
    if not (going.all() and _hands_on(ctx, body)) or (scans and count.item() < 1):
        return False
    rows: list[list[str]] = []
    condition = ctx.add_constant(node, "going", True, DType.BOOL)
    for trip in range(int(count.item())):
        fresh = partial(ctx.renamed, node)
        place = ctx.add_constant(node, f"trip {trip}", trip, DType.S64)
        names = [value.name for value in body.input]
        results = ["", *(fresh(value.name) for value in body.output[1:])]
        given = dict(zip(names, [place, condition, *states], strict=True))
        import_branch(ctx, *branch_nodes(body, results, fresh, given))
        states, made = results[1 : 1 + len(states)], results[1 + len(states) :]
        rows.append(made)
    at = Derived(ctx, node)
    for name, state in zip(node.outputs, states, strict=False):
        if name:
            ctx.import_node(ctx, NodeProto(op_type="Identity", input=[state], output=[name]))
    stacked = zip(*rows, strict=True) if rows else ()
    for name, each in zip(node.outputs[len(states) :], stacked, strict=False):
        if name:
            at.stacked(each, output=name)
    return True


def _hands_on(ctx: Importer, body: GraphProto) -> bool:
    """Whether a trip gives the condition that it is given, or one from outside that always holds."""
    handed, given = body.output[0].name, body.input[1].name
    while handed != given:
        made = [node for node in body.node if handed in node.output]
        if not made and handed not in initializer_names(body):
            outside = ctx.constant(handed)
            return outside is not None and bool(outside.all())
        if len(made) != 1 or made[0].op_type not in ("Identity", "Cast") or made[0].domain:
            return False
        handed = made[0].input[0]
    return True
