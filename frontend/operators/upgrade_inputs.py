"""Upgrades of ops whose attributes became inputs: the attribute becomes a constant.

Own tables rather than `onnx.version_converter`: see upgrade.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ...ir.ops.spec import NotCovered
from ...ir.types import DType
from ..importer import Importer
from ..nodes import OnnxNode

_ASYMMETRIC: Final[dict[str, Any]] = {
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}
"""What Upsample and the first Resize mean: output position / scale, rounded down (ONNX operators
documentation, Upsample-9).
"""


def moved(
    ctx: Importer, node: OnnxNode, attrs: Sequence[str], dtype: DType = DType.S64
) -> OnnxNode:
    """The node with the named attributes, each as a 1-D constant, behind its inputs; absent ones
    become absent inputs.
    """
    extra = [
        ctx.add_constant(node, name, node.attrs[name], dtype) if name in node.attrs else ""
        for name in attrs
    ]
    return node.rewritten(inputs=(*node.inputs, *extra), drop=attrs)


def clip(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """Clip-1, Clip-6: `min` and `max` were attributes."""
    dtype = ctx.type(node.input(0)).dtype
    bounds = [
        ctx.add_constant(node, name, np.float32(node.attrs[name]), dtype)
        if name in node.attrs
        else ""
        for name in ("min", "max")
    ]
    return node.rewritten(inputs=(node.input(0), *bounds), drop=("min", "max"))


def constant_of_shape(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """ConstantOfShape: the tensor of one element becomes a number and an element type."""
    if "value" not in node.attrs:
        return node
    data, dtype = ctx.tensors.read(node.attrs["value"], node.where)
    if data.size != 1 or dtype is DType.STRING:
        raise node.invalid(
            f"the value must be one number, and is {dtype.value}{list(data.shape)}",
            "export the model again",
        )
    return node.rewritten(value=data.reshape(-1).tolist()[0], dtype=dtype)


def pad(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """Pad-1 (`paddings`), Pad-2 (`pads`): both were attributes, and so was the value."""
    pads = ctx.add_constant(
        node, "pads", node.attrs["paddings" if "paddings" in node.attrs else "pads"], DType.S64
    )
    value = node.attr("value", 0.0)
    constant = (
        ctx.add_constant(node, "value", np.float32(value), ctx.type(node.input(0)).dtype)
        if value
        else ""
    )
    return node.rewritten(
        inputs=(node.input(0), pads, constant), drop=("paddings", "pads", "value")
    )


def reduce(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """Reduce*: `axes` was an attribute; without it all axes are reduced, then as now."""
    return moved(ctx, node, ("axes",) if node.attr("axes") else ()).rewritten(drop=("axes",))


def split(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """Split: before 13 `split` was an attribute; before 18 there were as many equal parts as
    outputs, which `num_outputs` says today.

    Raises:
        InvalidModel: `num_outputs` is another number.
        NotCovered: Split-1 with sizes of its second input and an attribute at once.
    """
    if node.since == 1 and node.input(1) and "split" in node.attrs:
        raise NotCovered("Split-1 with its sizes given twice")
    if node.since < 13 and "split" in node.attrs:
        node = moved(ctx, node, ("split",))
    count = len(node.proto.output)
    if node.attr("num_outputs", count) != count:
        raise node.invalid(
            f"num_outputs is {node.attr('num_outputs')}, and the node has {count} outputs",
            "make the two agree",
        )
    return node if node.input(1) else node.rewritten(num_outputs=count)


def tile(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """Tile-1: one count along one axis, both inputs.

    Raises:
        NotCovered: they are known at run time only.
    """
    count, axis = ctx.constant(node.input(1)), ctx.constant(node.input(2))
    if count is None or axis is None or count.size != 1 or axis.size != 1:
        raise NotCovered("Tile-1 with counts that are known at run time only")
    repeats = np.ones(ctx.rank(node, node.input(0)), np.int64)
    repeats[int(np.asarray(axis).item())] = int(np.asarray(count).item())
    return node.rewritten(
        inputs=(node.input(0), ctx.add_constant(node, "repeats", repeats, DType.S64))
    )


def upsample(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """Upsample: today Resize with asymmetric coordinates. Upsample-1 has a scale for height and one
    for width, Upsample-7 `scales`.
    """
    mode = {"bilinear": "linear"}.get(node.attr("mode", "nearest"), node.attr("mode", "nearest"))
    scales = node.input(1)
    if node.since < 9:
        found = node.attr("scales") or (
            1.0,
            1.0,
            node.attr("height_scale"),
            node.attr("width_scale"),
        )
        scales = ctx.add_constant(node, "scales", found, DType.F32)
    drop = ("scales", "height_scale", "width_scale")
    return node.rewritten(
        op="Resize", inputs=(node.input(0), "", scales), drop=drop, mode=mode, **_ASYMMETRIC
    )


def resize_scales_only(ctx: Importer, node: OnnxNode) -> OnnxNode:  # noqa: ARG001  (one signature for all upgrades)
    """Resize-10: scales are its second input, and it means what Upsample meant."""
    return node.rewritten(inputs=(node.input(0), "", node.input(1)), **_ASYMMETRIC)
