"""Group and instance normalization become layer normalization over a reshaped view."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.rule import Refusal
from ..ir.types import DType
from .base import Contract, NodePass, Verdict, swap


def group_to_layer_normalization(graph: Graph, node: Node) -> Verdict:
    """Writes group normalization as layer normalization of a view in which a group is a row.

    Before -> after::

        GroupNormalization(x, s, b){G}  ->  Add(Mul(Reshape(LayerNormalization(Reshape(x, [N,G,-1]), 1)), s), b)
        InstanceNormalization(x, s, b)  ->  likewise, with a group for each channel

    for x f32[N,C,spatial...]. oneDNN 3.2 has no group normalization. The factor and the shift for each channel are a step that
    takes activations and quantizers behind it.

    Legal because: a group of channels of one image is normalized by its own mean and variance,
    which is a row of the view; s and b apply to each channel afterwards in either form.
    Refuses when: x is no f32, one of its sizes but the batch is unknown or it is empty, or s or b
    is computed at run time.
    """
    x, scale, bias = node.inputs
    known = _sizes(graph, node)
    if isinstance(known, Refusal):
        return known
    channels, *spatial = known
    groups = node.attr("num_groups", int) if node.op == "GroupNormalization" else channels
    row = channels // groups * prod(spatial)
    along = (channels, *(1 for _ in spatial))

    def add(op: str, inputs: list[str], part: str, **attrs: float) -> str:
        name = graph.fresh(f"{node.name}/{part}")
        return graph.add(op, inputs, attrs, name=name, origin=node.origin).output

    def constant(values: npt.ArrayLike, part: str) -> str:
        return graph.add_constant(f"{node.name}/{part}", np.asarray(values))

    view = add("Reshape", [x, constant([0, groups, row], "rows")], "view")
    ones = constant(np.ones(row, np.float32), "ones")
    epsilon = node.attr("epsilon", float)
    normal = add("LayerNormalization", [view, ones], "normal", axis=-1, epsilon=epsilon)
    back = add("Reshape", [normal, constant([0, *known], "shape")], "back")
    for op, values in (("Mul", scale), ("Add", bias)):
        data = graph.constant(values)
        assert data is not None
        back = add(op, [back, constant(data.reshape(along), op.lower())], op.lower())
    swap(graph, node, back)
    return f"{groups} rows of {row} numbers in each image"


GROUP_TO_LAYER_NORMALIZATION = NodePass(
    "group_to_layer_normalization",
    Contract("identity", "ulp", 64),
    group_to_layer_normalization,
    ("GroupNormalization", "InstanceNormalization"),
)


def _sizes(graph: Graph, node: Node) -> tuple[int, ...] | Refusal:
    """Channels and spatial sizes, or why there is no such view."""
    x = graph.type(node.inputs[0])
    if x.dtype is not DType.F32:
        return Refusal(
            "layer_normalization computes in f32",
            "f32",
            x.dtype.value,
            "leave the normalization unquantized, in float32",
        )
    known = [] if x.shape is None else [size for size in x.shape[1:] if isinstance(size, int)]
    if x.shape is None or len(known) < len(x.shape) - 1 or not all(known):
        reason = "the view of a group as a row needs sizes"
        return Refusal(
            reason,
            "all sizes but the batch, none of them 0",
            str(x),
            "export the inputs with fixed sizes: without dynamic_axes, or by onnxruntime.tools.make_dynamic_shape_fixed",
        )
    if any(graph.constant(value) is None for value in node.inputs[1:]):
        reason = "factor and shift become constants of a step"
        return Refusal(
            reason,
            "constants",
            "computed at run time",
            "export scale and bias of the normalization as constants (initializers)",
        )
    return tuple(known)
