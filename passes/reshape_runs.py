"""What a reshape can move behind: the run of operations that read it, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops import dims
from ..ir.paths import chain_anchor
from ..ir.rule import Refusal
from ..ir.types import DType, Shape, is_static
from .reshaping import View, is_reshape, known_shape, source_of, view_of, viewed, viewed_constant


@dataclass(frozen=True)
class Run:
    """What a reshape can move behind, in one direction.

    Attributes:
        nodes: the operations, in order.
        end: the one reader behind them, where the reshape stops; None where there are several, or
            the graph returns the value.
        view: the reshape as it is behind them.
        shared: others read the reshape, or what decodes it, too.
        blocked: why it stops at an elementwise operation or product, None where `end` is something
            else.
    """

    nodes: tuple[Node, ...]
    end: Node | None
    view: View
    shared: bool
    blocked: Refusal | None = None


def runs(graph: Graph, node: Node) -> Iterator[Run]:
    """The runs behind a reshape: one for each reader, and one for each reader of what decodes
    it.
    """
    shared = len(graph.consumers(node.output)) > 1 or graph.is_output(node.output)
    for reader in graph.consumers(node.output):
        behind = (
            graph.consumers(reader.output)
            if reader.op == "Dequantize" and not graph.is_output(reader.output)
            else []
        )
        if len(behind) > 1 and _quantizer(reader, view(graph, node)) is None:
            for each in behind:
                yield _follow(graph, node, [reader], each, shared=True)
        else:
            yield _follow(graph, node, [], reader, shared=shared)


def _follow(graph: Graph, reshape: Node, taken: list[Node], reader: Node, *, shared: bool) -> Run:
    nodes, seen = list(taken), view(graph, reshape)
    value = (taken[-1] if taken else reshape).output
    products = False
    while True:
        if is_reshape(graph, reader) or not _may_cross(graph, reader, value, seen):
            return Run(tuple(nodes), reader, seen, shared)
        blocked = _blocked(graph, reader, value, seen, front=None if products else reshape.input)
        if blocked is not None:
            return Run(tuple(nodes), reader, seen, shared, blocked)
        if reader.op == "MatMul":
            seen, products = _rows(graph, reader, seen), True
        nodes.append(reader)
        value = reader.output
        behind = graph.consumers(value)
        if len(behind) != 1 or graph.is_output(value):
            return Run(tuple(nodes), None, seen, shared)
        reader = behind[0]


def view(graph: Graph, node: Node) -> View:
    """What a reshape does."""
    return view_of(known_shape(graph, node.input), known_shape(graph, node.output))


def _rows(graph: Graph, product: Node, view: View) -> View:
    """The reshape behind a product with a matrix."""
    columns = known_shape(graph, product.inputs[1])[1]
    return view_of((*view.before[:-1], columns), (*view.after[:-1], columns))


# -- one operation ---------------------------------------------------------------------------------


def joins(graph: Graph, node: Node) -> bool:
    """True of elementwise f32 operations that may be part of a primitive's chain, quantizers among
    them.
    """
    if node.op in ("Quantize", "Dequantize"):
        return True
    types = [graph.type(value) for value in (*node.inputs, node.output) if value]
    return node.spec.is_post_op and all(
        kind.dtype is DType.F32 and kind.shape is not None for kind in types
    )


def _may_cross(graph: Graph, node: Node, value: str, view: View) -> bool:
    """True of an operation that a reshape of `value` could move behind, were it not for its
    operands.
    """
    if node.op == "MatMul":
        return (
            node.input == value != node.inputs[1]
            and _is_matrix(graph, node.inputs[1])
            and view.keeps_last
        )
    return joins(graph, node)


def _is_matrix(graph: Graph, value: str) -> bool:
    decode = graph.producer(value, "Dequantize")
    read = decode.input if decode is not None else value
    return read in graph.constants and len(graph.type(read).static_shape) == 2


def _blocked(
    graph: Graph, node: Node, value: str, view: View, *, front: str | None
) -> Refusal | None:
    """Why a reshape of `value` does not move behind the node; `front`: what the reshape reads, None
    where a product stands behind it.
    """
    if node.op == "MatMul":
        return None
    if node.op in ("Quantize", "Dequantize"):
        return _quantizer(node, view)
    if not dims.same_shape(known_shape(graph, node.output), view.after):
        reason, found = "the values are broadcast behind the reshape", str(graph.type(node.output))
        return Refusal(
            reason,
            _text(view.after),
            found,
            "nothing to change: the reshape stays in front of what broadcasts",
        )
    others = [found for found in node.inputs if found and found != value]
    for other in others:
        back, data = view.back(known_shape(graph, other)), graph.constant(other)
        if back is None or (data is not None and data.size > 1 and not is_static(back)):
            part = (
                f"an operand of {node.op} varies along a part of what the reshape merges or splits"
            )
            shown = f"{_text(view.before)} -> {_text(view.after)}"
            return Refusal(
                part,
                shown,
                str(graph.type(other)),
                "nothing to change in the quantizer: in the network, give the other operand the shape in front of the reshape",
            )
    computed = graph.computed(others)
    if not computed:
        return None
    if len(node.inputs) != 2 or node.spec.binary is None:
        reason, found = f"{node.op} reads several computed values", str(len(computed) + 1)
        return Refusal(
            reason,
            "one, or an operation of two",
            found,
            "nothing to change: the reshape stays in front of the operation",
        )
    return _operand(graph, node, computed[0], view, front=front)


def _quantizer(node: Node, view: View) -> Refusal | None:
    if view.quant_back(node.quant) is not None:
        return None
    reason = "the quantization runs along an axis that the reshape merges or splits"
    return Refusal(
        reason,
        "per tensor, or along another axis",
        f"axis {node.quant.axis}",
        "quantize per tensor",
    )


def _operand(
    graph: Graph, node: Node, other: str, view: View, *, front: str | None
) -> Refusal | None:
    """Why the other operand of an operation of two cannot be read under the shape in front of the
    reshape, for nothing or for a view.
    """
    back = view.back(known_shape(graph, other))
    assert back is not None
    source = _source(graph, other, back)
    if source is None:
        reason = "no Reshape with a constant shape makes the other operand fit"
        return Refusal(
            reason,
            _text(back),
            str(graph.type(other)),
            "reshape the other operand to a constant shape, too",
        )
    if dims.same_shape(known_shape(graph, source), back):
        return None
    if front is not None and chain_anchor(graph, front) is None:
        reason = f"nothing in front of the reshape takes {node.op}"
        return Refusal(
            reason,
            "a convolution or matrix product",
            "none",
            "nothing to change: the operation begins a step behind the reshape",
        )
    if chain_anchor(graph, other) is not None:
        reason = f"the primitive that makes the other operand takes {node.op}"
        return Refusal(
            reason,
            "an operand that no convolution or product ends in",
            other,
            "nothing to change: the other operand's step takes it",
        )
    return None


def _source(graph: Graph, value: str, shape: Shape) -> str | None:
    """`source_of` the value, or of the codes that are decoded to it."""
    decode = graph.producer(value, "Dequantize")
    inside = decode is not None and decode.quant.per_tensor
    return source_of(graph, decode.input if decode and inside else value, shape)


def views_for(graph: Graph, reshape: Node, nodes: tuple[Node, ...]) -> set[str]:
    """What must be reshaped for `nodes`, which hold no product, to be computed in front of the
    reshape.
    """
    seen, inside = view(graph, reshape), {reshape.output, *(node.output for node in nodes)}
    found = set()
    for value in graph.computed(value for node in nodes for value in node.inputs):
        back = None if value in inside else seen.back(known_shape(graph, value))
        source = None if back is None else _source(graph, value, back)
        if source is not None and not dims.same_shape(known_shape(graph, source), back):
            found.add(source)
    return found


def _text(shape: Shape) -> str:
    return f"[{','.join(map(str, shape))}]"


# -- the run in front of the reshape ---------------------------------------------------------------


def rebuilt(graph: Graph, reshape: Node, nodes: tuple[Node, ...]) -> str:
    """Adds the operations of a run once more, in front of the reshape; returns the last one's
    value. The old ones stay.
    """
    seen = view(graph, reshape)
    value, current = reshape.output, reshape.input
    for node in nodes:
        attrs = dict(node.attrs)
        if node.op == "MatMul":
            inputs = [current, node.inputs[1]]
        else:
            inputs = [
                current if found == value else _viewed(graph, found, seen, node)
                for found in node.inputs
            ]
        if "quant" in attrs:
            attrs["quant"] = seen.quant_back(node.quant)
        made = graph.again(node, inputs, attrs, value=f"{node.output}/unshaped")
        value, current = node.output, made.output
        if node.op == "MatMul":
            seen = _rows(graph, node, seen)
    return current


def _viewed(graph: Graph, value: str, view: View, node: Node) -> str:
    if not value:
        return value
    back = view.back(known_shape(graph, value))
    assert back is not None
    return (
        viewed(graph, value, back, node)
        if graph.constant(value) is None
        else viewed_constant(graph, value, back)
    )
