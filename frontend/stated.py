"""The shapes of inputs and outputs in the words of the model's file, where a plan has others for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import onnx

from ..ir.types import Dim
from ..plan.stated import Stated, plain_shapes
from ..plan.types import Plan

_IMAGE_RANK, _COLOURS = 4, 4
_SIZES = re.compile(r"\[?\s*([0-9]{1,5})\s*(?:,\s*([0-9]{1,5})\s*)?\]?")


def stated_shapes(model: onnx.ModelProto, plan: Plan) -> tuple[tuple[str, Stated], ...]:
    """The names of the inputs and outputs whose shapes the file writes in other words than the plan, and these. The
    file's word goes first; what it leaves out is as the plan says, with the file's names for sizes of inputs.

    Args:
        model: the model.
        plan: the plan of the model.
    """
    inputs, outputs = _shapes(model.graph.input), _shapes(model.graph.output)
    called: dict[Dim | None, Dim | None] = {}
    known: dict[Dim | None, Dim] = {}  # names whose size was given
    for name in plan.inputs:
        for own, word in zip(plan.type(name).shape or (), inputs.get(name) or (), strict=False):
            if isinstance(own, str):
                called[own] = word
            elif isinstance(word, str):
                known[word] = own
    found: dict[str, Stated] = {}
    for name in (*plan.inputs, *plan.outputs):
        shape = plan.type(name).shape
        words = inputs[name] if name in inputs else outputs.get(name)
        if shape is not None and (words is None or len(words) != len(shape)):
            words = (None,) * len(shape)
        if words is not None:
            own_words = [
                called.get(own, own if isinstance(own, int) else None) for own in shape or words
            ]
            found[name] = tuple(
                known.get(word, own if word is None else word)
                for word, own in zip(words, own_words, strict=True)
            )
    plain = plain_shapes(plan, found)
    return tuple((name, shape) for name, shape in found.items() if shape != plain[name])


def told_sizes(model: onnx.ModelProto, plan: Plan) -> tuple[tuple[str, int], ...]:
    """Open sizes of images that the model's metadata tell, as Ultralytics writes them: `imgsz` is [height, width] or
    one number for both, `batch` the first size.

    Args:
        model: the model.
        plan: the plan of the model.
    """
    told = {entry.key: entry.value for entry in model.metadata_props}
    image, batch = _SIZES.fullmatch(told.get("imgsz", "")), _SIZES.fullmatch(told.get("batch", ""))
    found: dict[str, int] = {}
    for name in plan.inputs:
        shape = plan.type(name).shape or ()
        if len(shape) != _IMAGE_RANK:
            continue
        height = 1 if isinstance(shape[3], int) and shape[3] <= _COLOURS else 2
        sizes = {0: batch and int(batch[1])}
        if image is not None:
            sizes |= {height: int(image[1]), height + 1: int(image[2] or image[1])}
        for axis, size in sizes.items():
            dim = shape[axis]
            if size and isinstance(dim, str):
                found.setdefault(dim, size)
    return tuple(found.items())


def _shapes(values: Iterable[onnx.ValueInfoProto]) -> Mapping[str, Stated | None]:
    """Numbers, names, and None for what has neither; None for a shape that is not there."""
    return {
        value.name: tuple(
            (dim.dim_value if dim.dim_value >= 0 else None)
            if dim.HasField("dim_value")
            else dim.dim_param or None
            for dim in value.type.tensor_type.shape.dim
        )
        if value.type.tensor_type.HasField("shape")
        else None
        for value in values
    }
