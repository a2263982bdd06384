"""Recurrent layers as primitives: their sizes, what oneDNN 3.2 refuses of them, and their parameters
of codes in its own sense.

Sizes: L layers, D directions, T steps, N sequences, G gates, I inputs, H hidden values, P outputs: those
of the projection where there is one, else H. Tensors: src_layer (T, N, I), weights_layer (L, D, I, G, H),
weights_iter (L, D, P, G, H), bias (L, D, G, H), of lbr cells (L, D, G + 1, H), weights_peephole (L, D, 3, H),
weights_projection (L, D, H, P), attention (T, N, 1), states (L, D, N, P), the cell's (L, D, N, H), and
dst_layer (T, N, P), of both directions side by side (T, N, 2 P).

Source: the checks of oneDNN 3.2.0 (`rnn.cpp`, `ref_rnn.hpp`), and the library's own answers, which a law
compares with these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..ir.types import DType
from ..masks import mask_text
from ..onednn.capi import Status
from ..plan.attributes import RNN_QPARAMS, PrimitiveAttr, Scale
from ..plan.recurrent_parameters import GATES_AND_OUTPUTS, inverse, qparams_of
from .description import Description, count

GATES: Mapping[str, int] = {"vanilla_rnn": 1, "lstm": 4}
"""How many gates a cell has; the others have 3."""

OUTPUTS = 1 << 3
"""The mask of the weights of a projection (layers, directions, hidden values, outputs)."""

_ACTIVATIONS = ("relu", "tanh", "logistic")
_IN_INT8 = ("lstm", "gru")
_PLAIN = PrimitiveAttr()


def gates_of(kind: str) -> int:
    """How many gates a cell has."""
    return GATES.get(kind, 3)


def directions_of(description: Description) -> tuple[bool, ...]:
    """For each direction whether it goes backwards."""
    known = {"left2right": (False,), "right2left": (True,)}
    return known.get(str(description.params["direction"]), (False, True))


def refusal(description: Description) -> tuple[Status, str] | None:
    """The status with which oneDNN 3.2 refuses to make this layer, and why; None where it makes it.
    Its attributes are those of `onednn-v3`, whose scales, zero points and post-ops `refusal.py` has
    looked at.
    """
    for reason in _operation(description):
        return Status.invalid_arguments, reason
    if not _known_types(description):
        return Status.unimplemented, "no implementation has these element types"
    for reason in _sizes(description):
        return Status.invalid_arguments, reason
    for reason in _missing(description):
        return Status.unimplemented, reason
    return None


def neglected(description: Description) -> Iterator[str]:
    """What oneDNN 3.2 takes when it makes a layer, and neglects, or cannot be given, when it runs."""
    attr = description.attr
    for role, mask in (("weights", GATES_AND_OUTPUTS), ("weights_projection", OUTPUTS)):
        scale: Scale | None = getattr(attr, f"rnn_{role}_qparams")
        tensor = "weights_layer" if role == "weights" else role
        if scale is None or tensor not in description.tensors or not is_int8(description):
            continue
        if scale.mask not in (0, mask):
            yield f"{tensor} cannot be packed by scales of mask {mask_text(scale.mask)}, which are read as those of {mask_text(mask)}"
        elif len(scale.values) != count(scale.mask, description.dims(tensor)):
            yield f"scales of {tensor} are {len(scale.values)}, and are read beyond their end"
    if is_int8(description) and description.params["direction"] == "sum":
        if attr.rnn_data_qparams is not None and attr.rnn_data_qparams.values[1]:
            yield "the sum of the codes of two directions is cut to codes with the shift of both"
        elif description.dtype("dst_layer") is DType.F32:
            yield "the sum of two directions is cut to codes, although it is stored in f32"


def is_int8(description: Description) -> bool:
    """Whether the layer multiplies codes."""
    return description.dtype("src_layer").is_integer


def of_library(description: Description, attr: PrimitiveAttr) -> Description:
    """The layer with these attributes, in the sense of the library: of `unified`, whose scales and
    zero points are of arguments, as `rnn_data_qparams` and so on.
    """
    if description.target == "unified":
        weights = attr.scales.get("weights_layer", Scale((1.0,)))
        scales = {"src": attr.scales.get("src_layer", Scale((1.0,))), "w": weights}
        zero = attr.zero_points.get("src_layer")
        found = qparams_of(PrimitiveAttr(scales, {} if zero is None else {"src": zero}))
        assert found is not None
        projection = attr.scales.get("weights_projection")
        attr = PrimitiveAttr(
            rnn_data_qparams=found[0],
            rnn_weights_qparams=found[1],
            rnn_weights_projection_qparams=None
            if projection is None
            else Scale(inverse(projection), projection.mask),
        )
        if not is_int8(description):
            attr = _PLAIN
    return replace(description, attr=attr, target="onednn-v3")


def refusal_of_unified(description: Description, attr: PrimitiveAttr) -> Iterator[str]:
    """What a layer on `unified` does not take: its scales are those of its codes, one of src_layer,
    which is the hidden state's, too, and one of both weights, or one for each gate and output.
    """
    masks = {"src_layer": (0,), "weights_projection": (0, OUTPUTS)}
    masks |= dict.fromkeys(("weights_layer", "weights_iter"), (0, GATES_AND_OUTPUTS))
    for name, held, roles in (
        ("scales", attr.scales, [*masks]),
        ("zero points", attr.zero_points, ["src_layer"]),
    ):
        for role, values in held.items():
            if not is_int8(description) or role not in roles or role not in description.tensors:
                yield f"{name} of {role}"
            elif values.mask not in masks[role]:
                yield f"{name} of {role} with mask {mask_text(values.mask)}"
    if attr.scales.get("weights_layer") != attr.scales.get("weights_iter"):
        yield "other scales of weights_layer than of weights_iter, whose products are added"
    if attr.post_ops:
        yield "post-ops of a recurrent layer"


# -- what the library checks, in its order ---------------------------------------------------------


def _operation(description: Description) -> Iterator[str]:
    kind, tensors = description.kind, description.tensors
    for name in RNN_QPARAMS[1:]:
        qparams: Scale | None = getattr(description.attr, name)
        if qparams is not None and qparams.mask < 0:
            yield f"the mask {qparams.mask} of {name}"
    if kind == "vanilla_rnn" and description.params["algorithm"] not in _ACTIVATIONS:
        yield f"the activation {description.params['algorithm']!r}"
    if kind == "lstm":
        for role in ("src_iter", "dst_iter"):
            if (role in tensors) != (f"{role}_c" in tensors):
                yield f"{role} and {role}_c, of which one is not given"
    if "attention" in tensors:
        if description.params["direction"] != "left2right":
            yield f"the direction {description.params['direction']!r} of {kind}"
        if _dim(description, "weights_layer", 0) != 1:
            yield f"several layers of {kind}"


def _known_types(description: Description) -> bool:
    """One of the library's rows: f32; bf16, whose cell states and peepholes are f32; or u8 or s8 with
    states of that type or f32.
    """

    def of(role: str) -> DType | None:
        return description.dtype(role) if role in description.tensors else None

    def among(role: str, *dtypes: DType) -> bool:
        return of(role) in (None, *dtypes)

    cells = among("src_iter_c", DType.F32) and among("dst_iter_c", DType.F32)
    src, weights = of("src_layer"), {of("weights_layer"), of("weights_iter")}
    # of bf16 the library looks at the type of a bias that is not there, too
    biases = (DType.F32, DType.BF16) if src is DType.BF16 else (DType.F32, None)
    if not cells or of("bias") not in biases:
        return False
    if src in (DType.F32, DType.BF16):
        others = ("src_iter", "dst_layer", "dst_iter", "weights_projection", "attention")
        alike = weights == {src} and all(among(role, src) for role in others)
        return alike and among("weights_peephole", DType.F32)
    if src not in (DType.U8, DType.S8) or description.kind not in _IN_INT8:
        return False
    states = any(
        among("src_iter", dtype) and among("dst_iter", dtype) for dtype in (src, DType.F32)
    )
    return (
        weights == {DType.S8}
        and states
        and of("dst_layer") in (src, DType.F32)
        and of("weights_peephole") is None
        and among("weights_projection", DType.S8)
    )


def _dim(description: Description, role: str, axis: int) -> int:
    """A size; where there is no such dimension, 0, as the library reads it."""
    dims = description.dims(role) if role in description.tensors else ()
    return dims[axis] if axis < len(dims) else 0


def _sizes(description: Description) -> Iterator[str]:
    kind, tensors = description.kind, description.tensors
    gates, directions = gates_of(kind), len(directions_of(description))
    layers, inputs = (_dim(description, "weights_layer", axis) for axis in (0, 2))
    steps, batch, channels = (_dim(description, "src_layer", axis) for axis in range(3))
    hidden, state = _dim(description, "weights_layer", 4), _dim(description, "weights_iter", 2)
    written = _dim(description, "dst_layer", 2)
    outputs = (
        _dim(description, "weights_projection", 3) if "weights_projection" in tensors else hidden
    )
    side = 2 if description.params["direction"] == "concat" else 1
    if gates == 3 and state != hidden:
        yield f"weights_iter of {state} hidden values, and weights_layer of {hidden}"
    if side * outputs != written:
        yield f"dst_layer of {written} channels for {side * outputs}"
    if layers > 1 and side * channels != written:
        yield f"several layers of {channels} inputs and {written} outputs"
    if steps > 1 and state != outputs:
        yield f"several steps of {state} hidden values and {outputs} outputs"
    lead = layers, directions
    wanted = {
        "src_layer": (steps, batch, channels),
        "src_iter": (*lead, batch, state),
        "src_iter_c": (*lead, batch, hidden),
        "weights_layer": (*lead, channels, gates, hidden),
        "weights_iter": (*lead, state, gates, hidden),
        "attention": (steps, batch, 1),
        "weights_peephole": (*lead, 3, hidden),
        "weights_projection": (*lead, hidden, outputs),
        "bias": (*lead, gates + kind.startswith("lbr"), hidden),
        "dst_layer": (steps, batch, written),
        "dst_iter": (*lead, batch, outputs),
        "dst_iter_c": (*lead, batch, hidden),
    }
    for role, shape in wanted.items():
        if role in tensors and description.dims(role) != shape:
            yield f"{role} {list(description.dims(role))}, where {list(shape)} fits"
    if channels != inputs:
        yield f"src_layer of {channels} channels and weights_layer of {inputs}"


def _missing(description: Description) -> Iterator[str]:
    """What no implementation takes."""
    attr = description.attr
    if "bias" not in description.tensors:
        yield f"{description.kind} without bias"
    if attr.scales or attr.zero_points or attr.post_ops:
        yield f"scales, zero points or post-ops of {description.kind}"
    if is_int8(description):
        data = attr.rnn_data_qparams
        if description.dtype("src_layer") is DType.S8 and data is not None and data.values[1]:
            yield "a shift of s8"
        return
    for name, default in zip(RNN_QPARAMS, ((1.0, 0.0), (1.0,), (1.0,)), strict=True):
        held: Scale | None = getattr(attr, name)
        if held is not None and (held.values, held.mask) != (default, 0):
            yield f"{name} of {description.kind} in f32"
