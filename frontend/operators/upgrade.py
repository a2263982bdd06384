"""Brings a node of any opset to the form its op has at the newest one.

An own table, one line an op. `onnx.version_converter` (onnx 1.23) was tried on the same ops: it
stops at the first op that it has no schema for, FakeQuantize for instance, and it changes the
numbers of Resize-10 and Upsample-9 (it forgets that they are asymmetric) and of Hardmax-11 (it
forgets that it flattened).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto

from ...errors import UnsupportedOp
from ...ir.ops import OPS
from ...ir.ops.spec import NotCovered
from ...ir.types import DType, dimensions, is_static
from ..importer import Importer
from ..nodes import OnnxNode
from . import upgrade_inputs as inputs
from .windows import WINDOWED, explicit_window

Upgrade = Callable[[Importer, OnnxNode], OnnxNode | None]
"""(import, node) -> the node in the op's newest form, or None when the graph has been written
already.

Raises NotCovered when there is no newest form for this use.
"""


def _without(*attrs: str) -> Upgrade:
    """Attributes without a meaning for inference."""
    return lambda _, node: node.rewritten(drop=attrs)


def _filled(**attrs: float) -> Upgrade:
    """Attributes that had other defaults, or one where there is none today."""
    return lambda _, node: node.rewritten(
        **{name: node.attr(name, old) for name, old in attrs.items()}
    )


def _flattened(ctx: Importer, node: OnnxNode) -> OnnxNode | None:
    """Softmax, LogSoftmax, Hardmax before 13: over all axes from `axis` (default 1) on, taken
    together.

    With one axis among them that is longer than 1, it is the op of today; otherwise flatten, apply,
    and take the old shape.
    """
    x = node.input(0)
    rank = ctx.rank(node, x)
    axis = node.attr("axis", 1)
    if not -rank <= axis <= rank:
        raise node.invalid(f"axis {axis} is out of range for {dimensions(rank)}")
    axis = axis + rank if axis < 0 else axis
    shape = ctx.type(x).shape or ()
    long = [a for a in range(axis, rank) if shape[a] != 1]
    if len(long) <= 1 and axis < rank:
        return node.rewritten(axis=long[0] if long else axis)
    flat = ctx.emit(node, "Flatten", (x,), {"axis": axis}, role="flatten")
    applied = ctx.fresh(f"{node.name}.flat")
    if node.op in OPS:
        ctx.emit(node, node.op, (flat,), {"axis": -1}, outputs=(applied,))
    else:
        newest = onnx.defs.onnx_opset_version()
        ctx.take(node.rewritten(inputs=(flat,), outputs=(applied,), version=newest, axis=-1))
    target = (
        ctx.add_constant(node, "shape", shape, DType.S64)
        if is_static(shape)
        else ctx.emit(node, "Shape", (x,), role="shape")
    )
    ctx.emit(
        node,
        "Reshape",
        (applied, target),
        {"allowzero": 1},
        outputs=(node.output(0),),
        role="reshape",
    )
    return None


def _batch_normalization(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """BatchNormalization: inference only; statistics are outputs in training alone.

    Before 14 the number of outputs said whether it is training; before 7 `is_test` did, and
    exporters left it at its default.

    Raises:
        NotCovered: training, or statistics for each element (`spatial` = 0).
    """
    if node.attr("training_mode", 0) or any(_used(ctx, name) for name in node.outputs[1:]):
        raise NotCovered("BatchNormalization in training mode")
    if node.attr("spatial", 1) != 1:
        raise NotCovered("BatchNormalization with statistics for each element (spatial=0)")
    return node.rewritten(drop=("training_mode", "momentum", "spatial", "is_test"))


def _dropout(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """Dropout: the identity at inference.

    Raises:
        NotCovered: training mode that is on or known at run time only, or a mask that is used.
    """
    mode = node.input(2)
    training = ctx.constant(mode) if mode else np.asarray(False)
    if training is None or training.any():
        raise NotCovered("Dropout in training mode")
    if _used(ctx, node.output(1)):
        raise NotCovered("the mask of Dropout")
    return node.rewritten(op="Identity", inputs=node.inputs[:1], drop=("ratio", "seed", "is_test"))


def _legacy_broadcast(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """Arithmetic and comparison before 7: `broadcast` aligned the second input with the first from
    `axis` on (default: at the end).
    """
    a, b = node.input(0), node.input(1)
    axis, aligned = node.attr("axis"), node.attr("broadcast", 0)
    node = node.rewritten(drop=("axis", "broadcast"))
    if axis is None or not aligned:
        return node
    rank, small = ctx.rank(node, a), ctx.rank(node, b)
    if not -rank <= axis <= rank:
        raise node.invalid(
            f"axis is {axis}, and the first input has {dimensions(rank)}", "correct the attribute"
        )
    missing = rank - (axis + rank if axis < 0 else axis) - small
    if missing <= 0:
        return node
    return _unsqueezed(ctx, node, range(small, small + missing))


def _unsqueezed(ctx: Importer, node: OnnxNode, axes: Sequence[int]) -> OnnxNode:
    """The node with further dimensions in its second input."""
    a, b = node.inputs
    places = ctx.add_constant(node, "axes", axes, DType.S64)
    return node.rewritten(inputs=(a, ctx.emit(node, "Unsqueeze", (b, places), role="broadcast")))


def _legacy_slope(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """PRelu before 7: a slope with one dimension runs along axis 1."""
    x, slope = node.input(0), node.input(1)
    rank = ctx.rank(node, x)
    shape = ctx.type(slope).shape
    if rank <= 2 or shape is None or len(shape) != 1 or shape[0] == 1:
        return node
    return _unsqueezed(ctx, node, range(1, rank - 1))


def _cast_to_name(ctx: Importer, node: OnnxNode) -> OnnxNode:  # noqa: ARG001
    """Cast-1: the type was given by name."""
    name = str(node.attrs["to"]).upper()
    if name not in TensorProto.DataType.keys():  # noqa: SIM118  (a wrapper of protobuf, not a dict)
        raise node.invalid(f"there is no element type {name!r}")
    return node.rewritten(to=int(TensorProto.DataType.Value(name)))


def _cast_like(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """CastLike: Cast to the element type of the second input."""
    return node.rewritten(op="Cast", inputs=node.inputs[:1], to=ctx.type(node.input(1)).dtype)


def _grid_sample(ctx: Importer, node: OnnxNode) -> OnnxNode:  # noqa: ARG001
    """GridSample-16: the modes were called bilinear and bicubic."""
    mode = node.attr("mode", "bilinear")
    return node.rewritten(mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


def _group_normalization(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """GroupNormalization-18: one scale and bias for each group; today for each channel.

    Raises:
        NotCovered: the number of channels, or the scale or bias, is known at run time only.
    """
    shape = ctx.type(node.input(0)).shape
    groups, channels = (
        node.attrs["num_groups"],
        shape[1] if shape is not None and len(shape) > 1 else None,
    )
    given = [ctx.constant(name) for name in node.inputs[1:3]]
    if (
        not isinstance(channels, int)
        or groups < 1
        or channels % groups
        or any(data is None or data.shape != (groups,) for data in given)
    ):
        raise NotCovered(
            "GroupNormalization-18 with channels, scale or bias known at run time only"
        )
    dtype = ctx.type(node.input(1)).dtype
    wide = [
        ctx.add_constant(node, role, np.repeat(data, channels // groups), dtype)
        for role, data in zip(("scale", "bias"), given, strict=True)
        if data is not None
    ]
    return node.rewritten(inputs=(node.input(0), *wide))


def _resize(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """Resize-11 and later: an empty tensor stood for an absent input, and a region was given where
    none is used.

    Raises:
        UnsupportedOp: the coordinate mode tf_half_pixel_for_nn, which ONNX dropped in 13.
    """
    mode = node.attr("coordinate_transformation_mode", "half_pixel")
    if mode == "tf_half_pixel_for_nn":
        hint = "export with the mode half_pixel or asymmetric"
        raise UnsupportedOp(
            "Resize with tf_half_pixel_for_nn, which ONNX has dropped", where=node.where, hint=hint
        )
    roi, scales, sizes = (node.input(i) for i in (1, 2, 3))
    kept = [
        name if name and not _empty(ctx, name) else ""
        for name in (roi if mode == "tf_crop_and_resize" else "", scales, sizes)
    ]
    return node.rewritten(inputs=(node.input(0), *kept))


def _recurrent(ctx: Importer, node: OnnxNode) -> OnnxNode | None:
    """LSTM, GRU, RNN: sequences first (`layout` 1) is steps first between transpositions.

    Before 7 an attribute said that the first output is wanted, as its name does.
    """
    if not node.attr("layout", 0):
        return node.rewritten(drop=("layout", "output_sequence"))
    swapped = dict.fromkeys((0, 5, 6), (1, 0, 2))  # x, initial_h, initial_c
    inputs = tuple(
        ctx.emit(node, "Transpose", (value,), {"perm": swapped[index]}, role=f"input {index}")
        if value and index in swapped
        else value
        for index, value in enumerate(node.inputs)
    )
    inner = tuple(ctx.fresh(f"{node.name}.{value}") if value else "" for value in node.outputs)
    ctx.take(node.rewritten(inputs=inputs, outputs=inner, drop=("layout",)))
    for value, output, perm in zip(
        inner, node.outputs, ((2, 0, 1, 3), (1, 0, 2), (1, 0, 2)), strict=False
    ):
        if value:
            ctx.emit(node, "Transpose", (value,), {"perm": perm}, outputs=(output,), role=output)
    return None


def _empty(ctx: Importer, value: str) -> bool:
    shape = ctx.type(value).shape
    return (
        shape is not None
        and is_static(shape)
        and math.prod(d for d in shape if isinstance(d, int)) == 0
    )


def _used(ctx: Importer, value: str) -> bool:
    return bool(value) and (value in ctx.model_outputs or bool(ctx.wiring.readers.get(value)))


_LEGACY_BROADCAST: Final = (
    "Add",
    "And",
    "Div",
    "Equal",
    "Greater",
    "Less",
    "Mul",
    "Or",
    "Pow",
    "Sub",
    "Xor",
)
_REDUCE: Final = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
_ALWAYS: Final = 1 << 30

# op -> (version from which on the form needs no change, the change).
_TABLE: Final[dict[str, tuple[int, Upgrade]]] = {
    **dict.fromkeys(_LEGACY_BROADCAST, (7, _legacy_broadcast)),
    **{f"Reduce{kind}": (18, inputs.reduce) for kind in _REDUCE},
    "BatchNormalization": (_ALWAYS, _batch_normalization),
    "Cast": (6, _cast_to_name),
    "CastLike": (_ALWAYS, _cast_like),
    "Clip": (11, inputs.clip),
    "Concat": (4, _filled(axis=1)),
    "ConstantOfShape": (_ALWAYS, inputs.constant_of_shape),
    "Dropout": (_ALWAYS, _dropout),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), (_ALWAYS, _recurrent)),
    "Gemm": (7, _without("broadcast")),
    "GridSample": (20, _grid_sample),
    "GroupNormalization": (21, _group_normalization),
    "Hardmax": (13, _flattened),
    "LogSoftmax": (13, _flattened),
    "PRelu": (7, _legacy_slope),
    "Pad": (11, inputs.pad),
    "ReduceSum": (13, inputs.reduce),
    "Reshape": (5, lambda ctx, node: inputs.moved(ctx, node, ("shape",))),
    "RoiAlign": (
        16,
        lambda _, node: node.rewritten(coordinate_transformation_mode="output_half_pixel"),
    ),
    "Scatter": (_ALWAYS, lambda _, node: node.rewritten(op="ScatterElements")),
    "Selu": (6, _filled(alpha=float(np.float32(1.6732)), gamma=float(np.float32(1.0507)))),
    "Slice": (10, lambda ctx, node: inputs.moved(ctx, node, ("starts", "ends", "axes"))),
    "Softmax": (13, _flattened),
    "Split": (_ALWAYS, inputs.split),
    "Squeeze": (13, lambda ctx, node: inputs.moved(ctx, node, ("axes",))),
    "Tile": (6, inputs.tile),
    "TopK": (10, lambda ctx, node: inputs.moved(ctx, node, ("k",))),
    "Unsqueeze": (13, lambda ctx, node: inputs.moved(ctx, node, ("axes",))),
    "Upsample": (_ALWAYS, inputs.upsample),
}


def newest(ctx: Importer, node: OnnxNode) -> OnnxNode | None:
    """The node in its op's newest form; None when its graph had to be written at once.

    A node that was changed has the newest opset's version, so that whoever runs it as it is takes
    it in its newest meaning.

    Raises:
        NotCovered: its use has no newest form.
    """
    result = _changed(
        ctx, node.rewritten(drop=("consumed_inputs",)) if "consumed_inputs" in node.attrs else node
    )
    if (
        result is None
        or result is node
        or (result.op, result.inputs, result.attrs) == (node.op, node.inputs, node.attrs)
    ):
        return result
    return result.rewritten(version=onnx.defs.onnx_opset_version())


def _changed(ctx: Importer, node: OnnxNode) -> OnnxNode | None:
    if node.op == "Resize":
        return inputs.resize_scales_only(ctx, node) if node.since < 11 else _resize(ctx, node)
    if node.op in WINDOWED:
        return explicit_window(ctx, node)
    before, upgrade = _TABLE.get(node.op, (0, None))
    return upgrade(ctx, node) if upgrade is not None and node.since < before else node
