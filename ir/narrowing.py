"""What follows when the type of a value becomes known better: a shape that was computed and is
constant now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .node import GraphError, Node
from .ops.spec import ShapeError
from .types import TensorType

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["inferred", "narrowed"]


def inferred(
    graph: Graph, node: Node, inputs: Sequence[str], known: Mapping[str, TensorType]
) -> tuple[TensorType, ...]:
    """Types of the node's outputs when it reads `inputs`; `known` goes before the types of the
    graph.

    Raises:
        GraphError: the inputs do not fit the op.
    """
    types = [(known.get(value) or graph.type(value)) if value else None for value in inputs]
    try:
        return node.spec.infer(types, node.attrs, [graph.constant(value) for value in inputs])
    except ShapeError as error:
        raise GraphError(f"{node.name} ({node.op}): {error}") from error


def narrowed(graph: Graph, node: Node, inputs: Sequence[str]) -> dict[str, TensorType]:
    """The types that change when `node` reads `inputs`: of its outputs, and of everything behind
    it.

    Raises:
        GraphError: a value would change its type other than that unknown dimensions become known;
            the graph is what it was.
    """
    found: dict[str, TensorType] = {}
    pending = [(node, inputs)]
    while pending:
        reader, values = pending.pop()
        for value, type_ in zip(
            reader.outputs, inferred(graph, reader, values, found), strict=False
        ):
            if not value or type_ == (old := found.get(value) or graph.type(value)):
                continue
            if not _narrower(type_, old):
                raise GraphError(f"{reader.name} would turn {value} from {old} into {type_}")
            found[value] = type_
            pending += [
                (next_, next_.inputs) for next_ in graph.consumers(value) if next_.op != "Onnx"
            ]
    return found


def _narrower(new: TensorType, old: TensorType) -> bool:
    """True when `new` says all that `old` says, and more."""
    if (
        new.dtype is not old.dtype
        or (old.quant is not None and new.quant != old.quant)
        or new.shape is None
    ):
        return False
    if old.shape is None:
        return True
    return len(new.shape) == len(old.shape) and all(
        isinstance(b, str) or a == b for a, b in zip(new.shape, old.shape, strict=True)
    )
