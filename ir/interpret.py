"""Runs a graph node by node with the op table's NumPy meaning: the reference that passes, plans and
runtimes are held against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..errors import FqfuseError, InternalError, InvalidInput, UnsupportedOp
from .graph import Graph
from .node import Node
from .ops.spec import Array
from .types import TensorType

Foreign = Callable[[Node, Sequence[Array | None]], Sequence[Array]]
"""Runs a foreign op (`Onnx`): (node, arrays) -> outputs, in the node's order."""


def run_graph(
    graph: Graph,
    feeds: Mapping[str, Array],
    *,
    foreign: Foreign | None = None,
    keep_all: bool = False,
) -> dict[str, Array]:
    """Runs a graph without fusing anything, floats in f32.

    Args:
        graph: any stage of compilation.
        feeds: an array for each input of the graph, of its element type and shape.
        foreign: runs the op `Onnx`; without it a graph that holds one is refused.
        keep_all: return every value but the constants, not only the graph's outputs; otherwise a
            value is freed after its last use.

    Returns:
        Arrays by value name: the graph's outputs in their order (with keep_all: inputs and values
        in execution order, then those of the outputs that are constants). Without keep_all an
        output is writable and shares memory with no feed and no constant.

    Raises:
        InvalidInput: a feed is missing, unknown, or of another type or shape; or a node cannot be
            computed on the shapes these feeds give.
        UnsupportedOp: a foreign op and nobody to run it.
        InternalError: the graph is broken: a node's result is not of its type.
    """
    live: dict[str, Array] = {**graph.constants, **check_feeds(graph, feeds)}
    nodes = graph.nodes()
    last = {value: index for index, node in enumerate(nodes) for value in node.inputs}
    kept = set(graph.outputs)
    for index, node in enumerate(nodes):
        arrays = [live[value] if value else None for value in node.inputs]
        for value, array in zip(node.outputs, run_node(node, arrays, foreign), strict=False):
            if value:
                live[value] = _checked(node, value, array, graph.type(value))
        del arrays
        for value in () if keep_all else dict.fromkeys(node.inputs + node.outputs):
            if (
                value
                and value not in kept
                and last.get(value, index) == index
                and value not in graph.constants
            ):
                live.pop(value, None)
    if keep_all:
        everything = {value: array for value, array in live.items() if value not in graph.constants}
        return everything | {value: live[value] for value in graph.outputs}
    return {value: _apart(live[value], feeds) for value in graph.outputs}


def run_node(
    node: Node, arrays: Sequence[Array | None], foreign: Foreign | None = None
) -> tuple[Array, ...]:
    """The outputs of one node, given its inputs (None for absent ones).

    Raises:
        InvalidInput: the arrays do not fit the op; the message names the node.
        UnsupportedOp: a foreign op and nobody to run it.
    """
    evaluate = node.spec.evaluate
    if evaluate is None and foreign is None:
        raise UnsupportedOp(
            f"nothing here can run the operator {describe(node)}",
            where=where(node),
            hint="give the function that runs foreign operators",
        )
    try:
        if evaluate is None:
            return () if foreign is None else tuple(foreign(node, arrays))
        return evaluate(arrays, node.attrs)
    except FqfuseError:
        raise
    except (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError) as error:
        shapes = ", ".join("absent" if a is None else f"{a.dtype}{list(a.shape)}" for a in arrays)
        raise InvalidInput(
            f"{describe(node)} cannot be computed on {shapes}: {error}",
            where=where(node),
            hint="check the shapes of the inputs against those that the model was made for",
        ) from error


def describe(node: Node) -> str:
    """The op a node runs: its row, or the name of the foreign op."""
    return str(node.attrs.get("op_type")) if node.op == "Onnx" else node.op


def where(node: Node) -> str:
    """The place of a node in the user's model."""
    return ", ".join(node.origin) if node.origin else node.name


def check_feeds(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The feeds as arrays, checked against the graph's inputs.

    Raises:
        InvalidInput: a feed is missing, unknown, or of another element type or shape, or one symbol
            stands for two sizes.
    """
    unknown = [name for name in feeds if name not in graph.inputs]
    missing = [name for name in graph.inputs if name not in feeds]
    if unknown or missing:
        listed = ", ".join(graph.inputs) or "none"
        wrong = (
            f"unknown inputs: {', '.join(map(str, unknown))}"
            if unknown
            else f"missing inputs: {', '.join(missing)}"
        )
        raise InvalidInput(wrong, where=graph.name, hint=f"the model's inputs are: {listed}")
    sizes: dict[str, int] = {}
    return {
        name: _check_feed(name, np.asarray(feeds[name]), graph.type(name), sizes)
        for name in graph.inputs
    }


def _check_feed(name: str, array: Array, type_: TensorType, sizes: dict[str, int]) -> Array:
    if array.dtype != type_.dtype.numpy:
        wanted_type = type_.dtype.numpy
        raise InvalidInput(
            f"expected {wanted_type} elements, found {array.dtype}",
            where=f"input {name}",
            hint=f"the model wants {type_}",
        )
    if type_.shape is None:
        return array
    fits = array.ndim == len(type_.shape)
    for dim, size in zip(type_.shape, array.shape, strict=False):
        wanted = sizes.setdefault(dim, size) if isinstance(dim, str) and dim.isidentifier() else dim
        fits = fits and (isinstance(wanted, str) or wanted == size)
    if not fits:
        raise InvalidInput(
            f"expected shape {type_}, found {list(array.shape)}",
            where=f"input {name}",
            hint=_sizes_hint(sizes),
        )
    return array


def _sizes_hint(sizes: Mapping[str, int]) -> str:
    return (
        "sizes taken from the inputs so far: "
        + ", ".join(f"{name}={size}" for name, size in sizes.items())
        if sizes
        else "give an array of this shape"
    )


def _checked(node: Node, value: str, array: Array, type_: TensorType) -> Array:
    """The result, if it is of the type the graph says."""
    shape = type_.shape
    fits = shape is None or (
        len(shape) == array.ndim
        and all(isinstance(d, str) or d == n for d, n in zip(shape, array.shape, strict=True))
    )
    if array.dtype != type_.dtype.numpy or not fits:
        raise InternalError(
            f"{describe(node)} at {where(node)} gave {array.dtype}{list(array.shape)} for {value}, whose type is {type_}"
        )
    return array


def _apart(array: Array, feeds: Mapping[str, Array]) -> Array:
    # What cannot be written into is a constant, or one element that stands for many (Expand,
    # ConstantOfShape).
    shared = not array.flags.writeable or any(
        np.may_share_memory(array, np.asarray(feed)) for feed in feeds.values()
    )
    return array.copy() if shared else array
