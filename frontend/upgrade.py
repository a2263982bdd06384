"""Brings a node of any opset to the form its op has at the newest one.

An own table, one line an op. `onnx.version_converter` (onnx 1.23) was tried on the same ops: it
stops at the first op that it has no schema for, FakeQuantize for instance, and it changes the
numbers of Resize-10 and Upsample-9 (it forgets that they are asymmetric) and of Hardmax-11 (it
forgets that it flattened).
"""

from __future__ import annotations

from typing import Final

import onnx

from . import upgrade_inputs as inputs
from . import upgrade_meaning as meaning
from .importer import Importer
from .nodes import OnnxNode
from .upgrade_meaning import Upgrade
from .windows import WINDOWED, explicit_window

__all__ = ["newest"]

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
    **dict.fromkeys(_LEGACY_BROADCAST, (7, meaning.legacy_broadcast)),
    **{f"Reduce{kind}": (18, inputs.reduce) for kind in _REDUCE},
    "BatchNormalization": (_ALWAYS, meaning.batch_normalization),
    "Cast": (6, meaning.cast_to_name),
    "CastLike": (_ALWAYS, meaning.cast_like),
    "Clip": (11, inputs.clip),
    "Concat": (4, meaning.concat_along_one),
    "ConstantOfShape": (_ALWAYS, inputs.constant_of_shape),
    "Dropout": (_ALWAYS, meaning.dropout),
    "Gemm": (7, meaning.without("broadcast")),
    "GridSample": (20, meaning.grid_sample),
    "GroupNormalization": (21, meaning.group_normalization),
    "Hardmax": (13, meaning.flattened),
    "LogSoftmax": (13, meaning.flattened),
    "PRelu": (7, meaning.legacy_slope),
    "Pad": (11, inputs.pad),
    "ReduceSum": (13, inputs.reduce),
    "Reshape": (5, lambda ctx, node: inputs.moved(ctx, node, ("shape",))),
    "RoiAlign": (16, meaning.roi_align),
    "Scatter": (_ALWAYS, meaning.scatter),
    "Selu": (6, meaning.selu),
    "Slice": (10, lambda ctx, node: inputs.moved(ctx, node, ("starts", "ends", "axes"))),
    "Softmax": (13, meaning.flattened),
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
        return (
            inputs.resize_scales_only(ctx, node) if node.since < 11 else meaning.resize(ctx, node)
        )
    if node.op in WINDOWED:
        return explicit_window(ctx, node)
    before, upgrade = _TABLE.get(node.op, (0, None))
    return upgrade(ctx, node) if upgrade is not None and node.since < before else node
