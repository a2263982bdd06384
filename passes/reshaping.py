"""Shape-only operations: what they do to the axes, and how values look when read under another
shape.

A reshape keeps the elements and their order. Its axes fall into groups that hold the same elements
on both sides, [N,8,4] -> [N*8,4] into N,8 | N*8 and 4 | 4; what spans whole groups, or none of
their axes, can be said on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops import dims
from ..ir.ops.spec import Trait
from ..ir.types import Dim, Quantization, Shape


def is_reshape(graph: Graph, node: Node | None) -> bool:
    """True of a shape-only operation with a constant target, between known ranks and without empty
    dimensions.
    """
    if node is None or not node.has(Trait.RESHAPES) or graph.computed(node.inputs[1:]):
        return False
    shapes = (graph.type(node.input).shape, graph.type(node.output).shape)
    return all(shape is not None and 0 not in shape for shape in shapes)


def known_shape(graph: Graph, value: str) -> Shape:
    """The shape of a value whose rank is known."""
    shape = graph.type(value).shape
    assert shape is not None
    return shape


def target_of(before: Shape, after: Shape) -> list[int] | None:
    """The target of a Reshape from one shape to the other: 0 copies a dimension, -1 infers one;
    None when there is none.
    """
    result: list[int] = []
    for axis, size in enumerate(after):
        if isinstance(size, int):
            result.append(size)
        elif axis < len(before) and dims.same(size, before[axis]):
            result.append(0)
        elif -1 in result:
            return None
        else:
            result.append(-1)
    return result


@dataclass(frozen=True)
class View:
    """A reshape from `before` to `after`, which `groups` of axes of both that are not 1 hold the
    same elements of, in order.
    """

    before: Shape
    after: Shape
    groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    def back(self, shape: Shape) -> Shape | None:
        """The shape in front of the reshape of what broadcasts to `after` without making it larger;
        None where a group is covered in part.

        The result has the rank of `before`.
        """
        if len(shape) > len(self.after):
            return None
        full: Shape = (1,) * (len(self.after) - len(shape)) + shape
        result: list[Dim] = [1] * len(self.before)
        covered = {axis for _, behind in self.groups for axis in behind}
        if any(size != 1 for axis, size in enumerate(full) if axis not in covered):
            return None
        for front, behind in self.groups:
            if all(full[axis] == 1 for axis in behind):
                continue
            if not all(dims.same(full[axis], self.after[axis]) for axis in behind):
                return None
            for axis in front:
                result[axis] = self.before[axis]
        return tuple(result)

    def axis_back(self, axis: int) -> int | None:
        """The axis in front of the reshape that is the one behind it; None where it was split off
        or merged.
        """
        return next(
            (front[0] for front, behind in self.groups if behind == (axis,) and len(front) == 1),
            None,
        )

    def quant_back(self, quant: Quantization) -> Quantization | None:
        """Parameters of a quantizer behind the reshape as those of one in front of it; None where
        their axis is not there.
        """
        if quant.axis is None:
            return quant
        axis = self.axis_back(quant.axis)
        return None if axis is None else quant.with_axis(axis)

    @property
    def keeps_last(self) -> bool:
        """True when the last axis stays the last, and the others are the same elements."""
        return (
            len(self.before) > 1
            and len(self.after) > 1
            and dims.same(self.before[-1], self.after[-1])
        )


def view_of(before: Shape, after: Shape) -> View:
    """Groups the axes of two shapes of equally many elements; as finely as can be told, the last
    group takes what is left.
    """
    left = [axis for axis, size in enumerate(before) if size != 1]
    right = [axis for axis, size in enumerate(after) if size != 1]
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    while left or right:
        front, behind = _first_group(before, after, left, right)
        groups.append((tuple(left[:front]), tuple(right[:behind])))
        left, right = left[front:], right[behind:]
    return View(before, after, tuple(groups))


def _first_group(
    before: Shape, after: Shape, left: Sequence[int], right: Sequence[int]
) -> tuple[int, int]:
    """How many axes of each side hold the same elements at the least: as many as there are where
    that cannot be told.
    """
    front, behind = min(1, len(left)), min(1, len(right))
    while front < len(left) or behind < len(right):
        a, b = (
            dims.product(shape[axis] for axis in axes)
            for shape, axes in ((before, left[:front]), (after, right[:behind]))
        )
        if front and behind and dims.same(a, b):
            break
        if behind == len(right) or (front < len(left) and _smaller(a, b)):
            front += 1
        else:
            behind += 1
    return front, behind


def _smaller(a: Dim, b: Dim) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return dims.UNKNOWN not in (a, b) and dims.same(dims.multiply(dims.floor_div(b, a), a), b)


# -- values under another shape --------------------------------------------------------------------


def source_of(graph: Graph, value: str, shape: Shape) -> str | None:
    """What `value` is a reshape of, over any number of them, or `value` itself; None where no
    Reshape makes `shape` of that.
    """
    while is_reshape(graph, producer := graph.producer(value)):
        assert producer is not None
        value = producer.input
    kind = graph.type(value).shape
    return (
        None
        if kind is None or (not dims.same_shape(kind, shape) and target_of(kind, shape) is None)
        else value
    )


def viewed(graph: Graph, value: str, shape: Shape, node: Node) -> str:
    """A value that holds the elements of `value` under `shape`, for `node`: `source_of` must have
    found where it comes from.

    Codes are reshaped in front of what decodes them.
    """
    decode = graph.producer(value, "Dequantize")
    if decode is not None and decode.quant.per_tensor:
        codes = viewed(graph, decode.input, shape, node)
        if codes == decode.input:
            return value
        return graph.again(decode, [codes], value=f"{value}/viewed").output
    source = source_of(graph, value, shape)
    assert source is not None
    kind = known_shape(graph, source)
    if dims.same_shape(kind, shape):
        return source
    target = target_of(kind, shape)
    assert target is not None
    given = graph.add_constant(f"{node.name}/shape", np.asarray(target, np.int64))
    for reader in graph.latest_consumers(source):  # it was made for such a node
        if is_reshape(graph, reader) and dims.same_shape(shape, graph.type(reader.output).shape):
            return reader.output
    name = graph.fresh(f"{source}/viewed")
    return graph.add(
        "Reshape", [source, given], name=f"{node.name}/view", origin=node.origin, outputs=[name]
    ).output


def viewed_constant(graph: Graph, value: str, shape: Shape) -> str:
    """A constant under `shape`, or as it is where it broadcasts alike: leading ones say nothing."""
    data = graph.constant(value)
    assert data is not None
    if data.ndim <= len(shape) and (
        data.size == 1 or dims.same_shape((1,) * (len(shape) - data.ndim) + data.shape, shape)
    ):
        return value
    if data.size == 1:
        return graph.add_constant(f"{value}/viewed", data.reshape(()), graph.type(value).dtype)
    sizes = tuple(size for size in shape if isinstance(size, int))
    assert len(sizes) == len(shape)  # it spans dimensions of `before` that equal its own
    return graph.add_constant(f"{value}/viewed", data.reshape(sizes), graph.type(value).dtype)
