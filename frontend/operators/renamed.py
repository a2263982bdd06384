"""Operators of com.microsoft that ONNX has under another name or in another form, and small ones that exporters and
converters write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...errors import UnsupportedOp
from ...ir.types import DType
from ..importer import Handler
from .derived import Derived
from .forms import Form, handlers
from .fused import MICROSOFT, kept
from .heads import constant_like, known_size, unsqueezed

_GRID_MODES: Final = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


def _gather_nd(at: Derived) -> None:
    """GatherND(data, indices): ONNX's, with indices of either type."""
    places = at.ctx.cast(at.node, at.input(1), DType.S64, "indices")
    at.real("GatherND", [at.input(0), places], output=at.node.output(0))


def _grid_sample(at: Derived) -> None:
    """GridSample(X, Grid){align_corners, mode, padding_mode}: ONNX's, whose modes are called linear and cubic."""
    mode = at.node.attrs["mode"]
    if mode not in _GRID_MODES:
        raise at.node.invalid(f"the mode of {at.node.op} is none of {', '.join(_GRID_MODES)}")
    attrs = {**kept(at, {"align_corners": 0, "padding_mode": ""}), "mode": _GRID_MODES[mode]}
    at.real("GridSample", at.node.inputs, attrs, output=at.node.output(0))


def _unique(at: Derived) -> None:
    """Unique(x): that of ONNX, not sorted, without the places where values are first."""
    given = (at.node.output(0), "", at.node.output(1), at.node.output(2))
    made = at.ctx.derived(at.node, "", "Unique", at.node.inputs, {"sorted": 0})
    at.ctx.take(made.rewritten(outputs=given))


def _looked_up(at: Derived) -> None:
    """TorchEmbedding(weight, indices, padding_idx?, scale_grad_by_freq?): the rows of weight; the others mean something in
    training.
    """
    at.real("Gather", [at.input(0), at.input(1)], {"axis": 0}, output=at.node.output(0))


def _unfolded(at: Derived) -> None:
    """UnfoldTensor(input){dim, size, step}: all slices of so many elements along a dimension, as a further dimension at the end."""
    attrs, value = at.node.attrs, at.input(0)
    rank = at.ctx.rank(at.node, value)
    axis, step, count = attrs["dim"], attrs["step"], attrs["size"]
    if not -rank <= axis < rank or step < 1 or count < 1:
        raise at.node.invalid(
            f"{at.node.op} of {rank} dimensions has dim {axis}, size {count} and step {step}"
        )
    axis %= rank
    whole = known_size(at, value, axis, "size to unfold")
    if whole < count:
        raise at.node.invalid(f"{at.node.op} cuts slices of {count} out of {whole} elements")
    starts = np.arange((whole - count) // step + 1) * step
    places = at.integers("places", starts[:, None] + np.arange(count))
    last = axis == rank - 1
    output = at.node.output(0)
    made = at.real("Gather", [value, places], {"axis": axis}, role="slices", output=last * output)
    if not last:
        order = (*range(axis + 1), *range(axis + 2, rank + 1), axis + 1)
        at.real("Transpose", [made], {"perm": order}, output=output)


def _distances(at: Derived) -> None:
    """CDist(A, B){metric}: the euclidean distances of the rows of A and those of B, or their squares (sqeuclidean), by
    products, as ONNX Runtime has them: |a|^2 + |b|^2 - 2 a b.
    """
    metric = at.node.attrs["metric"]
    if metric not in ("euclidean", "sqeuclidean"):
        raise UnsupportedOp(
            f"{at.node.op} with the metric {metric}"[:200],
            where=at.node.where,
            hint="use euclidean or sqeuclidean",
        )
    first, second = at.input(0), at.input(1)
    if not at.ctx.type(first).dtype.is_float:
        raise at.node.invalid(
            f"{at.node.op} is one of floats, and {first!r} has {at.ctx.type(first)}"
        )
    turned = at.real("Transpose", [second], {"perm": (1, 0)}, role="turned")
    product = at.real("MatMul", [first, turned], role="product")
    double = at.real("Mul", [product, constant_like(at, "two", -2.0, first)], role="double")
    rows, columns = (_squares(at, value, role) for value, role in ((first, "A"), (second, "B")))
    sums = at.real("Add", [double, unsqueezed(at, rows, [1], "A")], role="with A")
    sums = at.real("Add", [sums, unsqueezed(at, columns, [0], "B")], role="with B")
    square, output = metric == "sqeuclidean", at.node.output(0)
    zero = constant_like(at, "zero", 0.0, first)
    positive = at.real("Max", [sums, zero], role="positive", output=square * output)
    if not square:
        at.real("Sqrt", [positive], output=output)


def _squares(at: Derived, value: str, role: str) -> str:
    axes = at.integers(f"axis of {role}", [1])
    return at.real("ReduceSumSquare", [value, axes], {"keepdims": 0}, role=f"squares of {role}")


HANDLERS: Final[Mapping[tuple[str, str], Handler]] = handlers(
    MICROSOFT,
    {
        "GatherND": Form("data indices", "output", _gather_nd),
        "GridSample": Form(
            "X Grid",
            "Y",
            _grid_sample,
            {"align_corners": 0, "mode": "bilinear", "padding_mode": "zeros"},
        ),
        "Unique": Form("x", "y idx? counts?", _unique),
        "TorchEmbedding": Form("weight indices padding_idx? scale_grad_by_freq?", "Y", _looked_up),
        "UnfoldTensor": Form("input", "output", _unfolded, {"dim": -1, "size": int, "step": 1}),
        "CDist": Form("A B", "C", _distances, {"metric": "sqeuclidean"}),
    },
)
