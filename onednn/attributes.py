"""Primitive attributes: a small frozen description, and the C object built from it.

The description holds masks only; the values of scales and zero points are run-time memories (f32
and s32, one-dimensional), passed at execution under `arg_scales` and `arg_zero_points`. A mask has
bit `i` set where the values run along logical dimension `i` of that argument. The library copies
attributes into a primitive descriptor, so the C objects live briefly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..masks import mask_of, mask_text
from .capi import check, failure
from .enums import AlgKind, DataType, FpmathMode, ScratchpadMode, arg_name
from .library import Handle, Library, create
from .memory import MemoryDesc


@dataclass(frozen=True, slots=True)
class Sum:
    """y + scale * (dst - zero_point), dst read as `dtype` (`undef`: as the destination's own type,
    of the same size).
    """

    scale: float = 1.0
    zero_point: int = 0
    dtype: DataType = DataType.undef


@dataclass(frozen=True, slots=True)
class Eltwise:
    """alg(y; alpha, beta), an `AlgKind.eltwise_*`."""

    alg: AlgKind
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True, slots=True)
class Binary:
    """alg(y, src1), an `AlgKind.binary_*`; each dimension of `src1` is 1 or the destination's.

    The operand is passed at execution as `arg_post_op(index, Arg.SRC_1)`.
    """

    alg: AlgKind
    src1: MemoryDesc


@dataclass(frozen=True, slots=True)
class PRelu:
    """y where y >= 0, else slope * y; bit `i` of `mask`: the f32 slopes run along dimension `i` of
    the destination.

    The slopes are passed at execution as `arg_post_op(index, Arg.WEIGHTS)`, dense and
    channels-last.
    """

    mask: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask", mask_of(self.mask))


@dataclass(frozen=True, slots=True)
class Depthwise:
    """A depthwise convolution of the result of a 2-D 1x1 convolution.

    `kernel`, `stride` and `padding` (before the first element) hold for both axes. Weights and bias
    are passed at execution as `Arg.ATTR_POST_OP_DW | Arg.WEIGHTS` and `... | Arg.BIAS`, their
    scales and the destination's under `arg_scales` of such an argument.
    """

    weights_dtype: DataType
    bias_dtype: DataType  # undef: no bias
    dst_dtype: DataType
    kernel: int
    stride: int
    padding: int


PostOp = Sum | Eltwise | Binary | PRelu | Depthwise

MOST_POST_OPS = 32
"""Of one primitive."""

# The function `dnnl_post_ops_append_<name>`, which takes the fields in their order, and the text
# for messages.
_POST_OPS: dict[type[PostOp], tuple[str, str]] = {
    Sum: ("sum", "sum(scale={0.scale:g}, zero_point={0.zero_point}, dtype={0.dtype.name})"),
    Eltwise: ("eltwise", "{0.alg.name}({0.alpha:g}, {0.beta:g})"),
    Binary: ("binary", "{0.alg.name}({0.src1!r})"),
    PRelu: ("prelu", "prelu(mask={0.mask})"),
    Depthwise: ("dw", "depthwise(kernel={0.kernel}, stride={0.stride}, padding={0.padding})"),
}


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a primitive descriptor takes beside its operation.

    Attributes:
        scales: argument -> mask, for example {Arg.SRC: 0, Arg.WEIGHTS: 1, Arg.DST: 0}, or its name
            (`masks.py`);
            `arg_multiple_src(i)` for sources of concat, `Arg.ATTR_POST_OP_DW | Arg.WEIGHTS` for the
            depthwise post-op.
        zero_points: argument -> mask.
        post_ops: in the order in which they apply, at most 32.
        rnn_data: scale and shift of the codes of a recurrent layer's data: `scale * x + shift`.
        rnn_weights, rnn_projection: scales of its weights, by which they were multiplied.
        rnn_weights_mask, rnn_projection_mask: 0: one scale; 24 (gates and outputs) and 8 (outputs):
            one for each index of those dimensions.
        scratchpad: by default the caller's, the only mode in which threads may share a primitive.
        fpmath: the types that f32 may be narrowed to; None: what the environment variable
            ONEDNN_DEFAULT_FPMATH_MODE says.
    """

    scales: Mapping[int, int] = field(default_factory=dict)
    zero_points: Mapping[int, int] = field(default_factory=dict)
    post_ops: tuple[PostOp, ...] = ()
    rnn_data: tuple[float, float] | None = None
    rnn_weights: tuple[float, ...] = ()
    rnn_weights_mask: int = 0
    rnn_projection: tuple[float, ...] = ()
    rnn_projection_mask: int = 0
    scratchpad: ScratchpadMode = ScratchpadMode.user
    fpmath: FpmathMode | None = FpmathMode.strict

    def __post_init__(self) -> None:
        # A frozen description must not change under its owner's feet: keep private read-only
        # copies.
        for name in ("scales", "zero_points"):
            masks = {arg: mask_of(mask) for arg, mask in getattr(self, name).items()}
            object.__setattr__(self, name, MappingProxyType(masks))
        object.__setattr__(self, "post_ops", tuple(self.post_ops))

    def __str__(self) -> str:
        parts = [f"scales={_masks(self.scales)}"] if self.scales else []
        parts += [f"zero_points={_masks(self.zero_points)}"] if self.zero_points else []
        parts += [f"post_ops=[{', '.join(map(_text, self.post_ops))}]"] if self.post_ops else []
        parts += [f"rnn_data={self.rnn_data}"] if self.rnn_data else []
        for name in ("rnn_weights", "rnn_projection"):
            values = getattr(self, name)
            mask = mask_text(getattr(self, f"{name}_mask"))
            parts += [f"{name}=[{len(values)}] of mask {mask}"] if values else []
        if self.scratchpad is not ScratchpadMode.user:
            parts.append(f"scratchpad={self.scratchpad.name}")
        if self.fpmath is not FpmathMode.strict:
            parts.append(f"fpmath={'default' if self.fpmath is None else self.fpmath.name}")
        return " ".join(parts)


def attr_of(library: Library, attributes: Attributes, origin: str = "") -> Handle:
    """The `dnnl_primitive_attr_t` of a description.

    Args:
        library: the library.
        attributes: the description.
        origin: what in the user's model it serves, for messages.

    Raises:
        OneDnnError: the library refuses a part; the message names it. Most refusals come later,
            when a primitive descriptor is created.
    """
    c = library.c
    attr = Handle(
        library,
        "primitive_attr",
        create(c.dnnl_primitive_attr_create, lambda: "creating attributes", origin=origin),
    )
    _set_quantization(attr, attributes, origin)
    if attributes.post_ops:
        check(
            c.dnnl_primitive_attr_set_post_ops(attr, _chain(library, attributes.post_ops, origin)),
            "setting post-ops",
            origin,
        )
    check(
        c.dnnl_primitive_attr_set_scratchpad_mode(attr, attributes.scratchpad),
        f"scratchpad mode {attributes.scratchpad.name}",
        origin,
    )
    if attributes.fpmath is not None:
        # Otherwise the environment variable ONEDNN_DEFAULT_FPMATH_MODE decides.
        status = c.dnnl_primitive_attr_set_fpmath_mode(attr, attributes.fpmath)
        check(status, f"fpmath mode {attributes.fpmath.name}", origin)
    return attr


def _set_quantization(attr: Handle, attributes: Attributes, origin: str) -> None:
    """Masks of scales and zero points, and the parameters of a recurrent layer's codes."""
    c = attr.library.c
    for arg, mask in attributes.scales.items():
        check(
            c.dnnl_primitive_attr_set_scales_mask(attr, arg, mask),
            f"scales of {arg_name(arg)} with mask {mask_text(mask)}",
            origin,
        )
    for arg, mask in attributes.zero_points.items():
        check(
            c.dnnl_primitive_attr_set_zero_points_mask(attr, arg, mask),
            f"zero points of {arg_name(arg)} with mask {mask_text(mask)}",
            origin,
        )
    if attributes.rnn_data is not None:
        check(
            c.dnnl_primitive_attr_set_rnn_data_qparams(attr, *attributes.rnn_data),
            "parameters of a recurrent layer's data",
            origin,
        )
    for name, values, mask in (
        ("weights", attributes.rnn_weights, attributes.rnn_weights_mask),
        ("weights_projection", attributes.rnn_projection, attributes.rnn_projection_mask),
    ):
        if values:
            array = (ctypes.c_float * len(values))(*values)
            function = getattr(c, f"dnnl_primitive_attr_set_rnn_{name}_qparams")
            check(
                function(attr, len(values), mask, array),
                f"parameters of a recurrent layer's {name} with mask {mask_text(mask)}",
                origin,
            )


def _chain(library: Library, post_ops: tuple[PostOp, ...], origin: str) -> Handle:
    """The `dnnl_post_ops_t`. Raises OneDnnError, with the post-op that the library refuses and its
    position.
    """
    chain = Handle(
        library,
        "post_ops",
        create(library.c.dnnl_post_ops_create, lambda: "creating post-ops", origin=origin),
    )
    for index, post_op in enumerate(post_ops):
        append = getattr(library.c, f"dnnl_post_ops_append_{_POST_OPS[type(post_op)][0]}")
        status = append(chain, *_fields(post_op))
        if status:
            raise failure(status, f"post-op {index} of {len(post_ops)}, {_text(post_op)},", origin)
    return chain


def _fields(post_op: PostOp) -> list[Any]:
    return [getattr(post_op, name) for name in post_op.__match_args__]


def _text(post_op: PostOp) -> str:
    return _POST_OPS[type(post_op)][1].format(post_op)


def _masks(masks: Mapping[int, int]) -> str:
    return (
        "{" + ", ".join(f"{arg_name(arg)}: {mask_text(mask)}" for arg, mask in masks.items()) + "}"
    )
