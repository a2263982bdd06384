"""Multiplications by constants move backward over data movement, to what computes the value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node, origin_of, subject
from ..ir.ops.movement import permutation
from ..ir.ops.product_axes import channels_axis
from ..ir.ops.spec import Array, Trait
from ..ir.paths import chain_anchor, keeps_shape
from ..ir.rule import Refusal
from ..ir.types import DType
from .base import Contract, NodePass, Verdict, swap
from .cuts import cut_of
from .reshaping import is_reshape, known_shape, view_of


@dataclass(frozen=True)
class _Way:
    """What lies between a multiplication and what computes the value: the movement, and the axis
    that the factor runs along in each source.
    """

    nodes: tuple[Node, ...]
    sources: dict[str, int | None]


def move_factor(graph: Graph, node: Node) -> Verdict:
    """Moves a multiplication by constants in front of operations that only move data.

    Before -> after::

        Mul(Transpose(LayerNormalization(x)), c)        ->  Transpose(Mul(LayerNormalization(x), c'))
        Mul(Reshape(MatMul(x, w)), c)                   ->  Reshape(Mul(MatMul(x, w), c'))        Conv likewise
        Mul(Concat(Slice(y){a}, Slice(y){b}), c)        ->  Concat(Slice(z){a}, Slice(z){b})            z = Mul(y, c'), y as above

    so that the step which computes the value multiplies as well, and the quantizer behind it, which
    follows, leaves codes to move. NNCF's smooth quantization puts such a factor in front of each
    product, in Swin behind the partition into windows.

    Legal because: each element is multiplied by the same number, wherever it lies.
    Refuses when: something else reads a value on the way, the factor varies along more axes than one or
    along one that is cut, joined, merged or split, or what computes the value takes no factor along that
    axis.
    """
    left, right = (graph.constant(value) for value in node.inputs)
    if (left is None) == (right is None):
        return None
    constant = np.asarray(right if left is None else left)
    value = node.inputs[0 if left is None else 1]
    front = graph.producer(value)
    if front is None or not _moves(front) or not keeps_shape(graph, node, value):
        return None
    along = _axis_of(graph, value, constant)
    way = along if isinstance(along, Refusal) else _way(graph, node, value, along[0])
    if isinstance(way, Refusal):
        return way
    made: dict[str, str] = {}
    for source, axis in way.sources.items():
        given = graph.add_constant(f"{node.name}/factor", _shaped(graph, source, constant, axis))
        attrs = dict(node.attrs)
        name = graph.fresh(f"{node.name}/moved")
        made[source] = graph.add(
            node.op, [source, given], attrs, name=name, origin=origin_of(node)
        ).output
    for each in way.nodes:
        inputs = [made.get(operand, operand) for operand in each.inputs]
        made[each.output] = graph.again(each, inputs).output
    swap(graph, node, made[value])
    erase_unread(graph, way.nodes)
    return f"in front of {len(way.nodes)} operations that move data"


MOVE_FACTOR = NodePass("move_factor", Contract("identity", "bitwise"), move_factor, ("Mul",))


def _moves(node: Node) -> bool:
    return node.op in ("Transpose", "Slice") or node.has(Trait.RESHAPES) or node.has(Trait.JOINS)


def _axis_of(graph: Graph, value: str, constant: Array) -> tuple[int | None] | Refusal:
    """The one axis of `value` that a constant varies along; None for one number."""
    if constant.size == 1:
        return (None,)
    rank = len(known_shape(graph, value))
    sizes = (1,) * (rank - constant.ndim) + constant.shape
    axes = [axis for axis, size in enumerate(sizes) if size != 1]
    if len(axes) == 1:
        return (axes[0],)
    return _refusal("the factor varies along several axes", "one axis", f"axes {axes}")


def _way(graph: Graph, node: Node, value: str, axis: int | None) -> _Way | Refusal:
    """All movement between a multiplication and what computes its operand, or why the factor
    stays.
    """
    along: dict[str, int | None] = {value: axis}
    names: dict[str, Node] = {}
    pending = [value]
    # each that joins asks for what it reads, so the last reader of a value finds all others there
    while pending:
        seen = pending.pop()
        maker = graph.producer(seen)
        if maker is None or not _moves(maker) or maker.name in names:
            continue
        if not _read_by(graph, seen, {node.name, *names}):
            continue
        sources = maker.inputs if maker.has(Trait.JOINS) else maker.inputs[:1]
        at = _axis_back(graph, maker, along[seen])
        if isinstance(at, Refusal):
            return at
        names[maker.name] = maker
        for source in sources:
            if along.setdefault(source, at[0]) != at[0]:
                return _refusal("the factor meets a value along two axes", "one axis", source)
            pending.append(source)
    made = {each.output for each in names.values()}
    ends = {source: end for source, end in along.items() if source not in made}
    for source, end in ends.items():
        if not _read_by(graph, source, set(names)):
            return _refusal("others read what is moved, too", "one use", source)
        if not _takes(graph, source, end):
            found = f"{source} along axis {end}"
            reason = "what computes the value takes no such factor"
            return _refusal(reason, "a product or normalization, along its channels", found)
    return _Way(tuple(graph.in_order(list(names.values()))), ends)


def _refusal(reason: str, expected: str, found: str) -> Refusal:
    hint = "nothing to change: the factor stays where it is, with the quantizer behind it"
    return Refusal(reason, expected, found, hint)


def _read_by(graph: Graph, value: str, names: set[str]) -> bool:
    readers = graph.consumers(value)
    return not graph.is_output(value) and all(reader.name in names for reader in readers)


def _axis_back(graph: Graph, node: Node, axis: int | None) -> tuple[int | None] | Refusal:
    """Where an axis of a movement's result lies in its source; None where there is none."""
    if axis is None:
        return (None,)
    find = next((_AXES[op] for op in (node.op, *_kinds(node)) if op in _AXES), None)
    shapes = [graph.type(value).shape for value in (node.input, node.output)]
    at = None if find is None or None in shapes else find(graph, node, axis)
    if at is None:
        reason = "the factor varies along an axis that is cut, joined, merged or split"
        return _refusal(reason, "another axis", f"axis {axis} of {subject(node)}")
    return (at,)


def _kinds(node: Node) -> Sequence[str]:
    return [str(trait) for trait in (Trait.RESHAPES, Trait.JOINS) if node.has(trait)]


def _reshaped(graph: Graph, node: Node, axis: int) -> int | None:
    if not is_reshape(graph, node):
        return None
    before, after = known_shape(graph, node.input), known_shape(graph, node.output)
    return view_of(before, after).axis_back(axis)


def _transposed(graph: Graph, node: Node, axis: int) -> int | None:
    return permutation(node.attrs, len(known_shape(graph, node.input)))[axis]


def _joined(graph: Graph, node: Node, axis: int) -> int | None:
    rank = len(known_shape(graph, node.output))
    return None if node.attr("axis", int) % rank == axis else axis


def _sliced(graph: Graph, node: Node, axis: int) -> int | None:
    cut = cut_of(graph, node)
    return None if cut is None or cut.axis == axis else axis


_AXES: dict[str, Callable[[Graph, Node, int], int | None]] = {
    "Transpose": _transposed,
    "Slice": _sliced,
    str(Trait.RESHAPES): _reshaped,
    str(Trait.JOINS): _joined,
}


def _takes(graph: Graph, value: str, axis: int | None) -> bool:
    """True when the step that computes a value multiplies it along an axis at no cost."""
    shape, maker = graph.type(value).shape, graph.producer(value)
    if shape is None or maker is None or graph.type(value).dtype is not DType.F32:
        return False
    if maker.op == "LayerNormalization":
        return axis in (None, len(shape) - 1)
    if maker.has(Trait.ELEMENTWISE):
        fronts = (chain_anchor(graph, operand) for operand in maker.inputs if operand)
        maker = next((front for front in fronts if front is not None), None)
    if maker is None or not maker.has(Trait.PRODUCT):
        return False
    return axis in (None, channels_axis(maker.op, len(shape)))


def _shaped(graph: Graph, value: str, constant: Array, axis: int | None) -> Array:
    """The factor as it stands beside `value`."""
    rank = len(known_shape(graph, value))
    shape = [constant.size if at == axis else 1 for at in range(rank)]
    return constant.reshape(shape)
