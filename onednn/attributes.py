"""Primitive attributes: a small frozen description, and the C object built from it.

The description holds masks only; the values of scales and zero points are run-time memories (f32 and s32, one-dimensional),
passed at execution under `arg_scales` and `arg_zero_points`. A mask has bit `i` set where the values run along logical
dimension `i` of that argument. The library copies attributes into a primitive descriptor, so the C objects live briefly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import assert_never

from .capi import check
from .enums import AlgKind, Arg, DataType, FpmathMode, ScratchpadMode
from .handles import Handle, create
from .library import Library
from .memory import MemoryDesc

__all__ = ["Attr", "Attributes", "Binary", "Depthwise", "Eltwise", "PRelu", "PostOp", "PostOps", "Sum", "arg_name"]


@dataclass(frozen=True, slots=True)
class Sum:
    """y + scale * (dst - zero_point), dst read as `dtype` (`undef`: as the destination's own type, of the same size)."""

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
    """y where y >= 0, else slope * y; bit `i` of `mask`: the f32 slopes run along dimension `i` of the destination.

    The slopes are passed at execution as `arg_post_op(index, Arg.WEIGHTS)`, dense and channels-last.
    """

    mask: int


@dataclass(frozen=True, slots=True)
class Depthwise:
    """A depthwise convolution of the result of a 2-D 1x1 convolution.

    `kernel`, `stride` and `padding` (before the first element) hold for both axes. Weights, bias and scales are passed at
    execution as `Arg.ATTR_POST_OP_DW | Arg.WEIGHTS`, `... | Arg.BIAS`, and `arg_dw_scales(Arg.WEIGHTS)`, `arg_dw_scales(Arg.DST)`.
    """

    weights_dtype: DataType
    bias_dtype: DataType  # undef: no bias
    dst_dtype: DataType
    kernel: int
    stride: int
    padding: int


PostOp = Sum | Eltwise | Binary | PRelu | Depthwise


def _no_masks() -> Mapping[int, int]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a primitive descriptor takes beside its operation.

    Attributes:
        scales: argument -> mask, for example {Arg.SRC: 0, Arg.WEIGHTS: 1, Arg.DST: 0}; `arg_multiple_src(i)` for sources
            of concat, `Arg.ATTR_POST_OP_DW | Arg.WEIGHTS` for the depthwise post-op.
        zero_points: argument -> mask.
        post_ops: in the order in which they apply, at most 32.
        scratchpad: `user` by default, the only mode in which threads may share a primitive.
        fpmath: the float types an f32 primitive may fall to.
    """

    scales: Mapping[int, int] = field(default_factory=_no_masks)
    zero_points: Mapping[int, int] = field(default_factory=_no_masks)
    post_ops: tuple[PostOp, ...] = ()
    scratchpad: ScratchpadMode = ScratchpadMode.user
    fpmath: FpmathMode = FpmathMode.strict

    def __post_init__(self) -> None:
        # A frozen description must not change under its owner's feet: keep private read-only copies.
        object.__setattr__(self, "scales", MappingProxyType(dict(self.scales)))
        object.__setattr__(self, "zero_points", MappingProxyType(dict(self.zero_points)))
        object.__setattr__(self, "post_ops", tuple(self.post_ops))

    def __str__(self) -> str:
        parts = [f"scales={_masks(self.scales)}"] if self.scales else []
        parts += [f"zero_points={_masks(self.zero_points)}"] if self.zero_points else []
        parts += [f"post_ops=[{', '.join(map(_post_op_text, self.post_ops))}]"] if self.post_ops else []
        parts += [f"fpmath={self.fpmath.name}"] if self.fpmath else []
        return " ".join(parts)


class PostOps(Handle):
    """`dnnl_post_ops_t`.

    Args:
        library: the library.
        chain: the post-ops in order.
        origin: what in the user's model they serve, for messages.

    Raises:
        OneDnnError: the library refuses one; the message names it and its position.
    """

    __slots__ = ()

    def __init__(self, library: Library, chain: tuple[PostOp, ...], origin: str = "") -> None:
        status, pointer = create(library.c.dnnl_post_ops_create)
        check(status, "creating post-ops", origin)
        super().__init__(library, "post_ops", pointer)
        for index, post_op in enumerate(chain):
            status = self._append(post_op)
            if status:
                self.close()
                check(status, f"post-op {index} of {len(chain)}, {_post_op_text(post_op)},", origin)

    def __len__(self) -> int:
        return int(self.library.c.dnnl_post_ops_len(self.pointer))

    def _append(self, post_op: PostOp) -> int:
        c = self.library.c
        match post_op:
            case Sum(scale, zero_point, dtype):
                return int(c.dnnl_post_ops_append_sum(self.pointer, scale, zero_point, dtype))
            case Eltwise(alg, alpha, beta):
                return int(c.dnnl_post_ops_append_eltwise(self.pointer, alg, alpha, beta))
            case Binary(alg, src1):
                return int(c.dnnl_post_ops_append_binary(self.pointer, alg, src1.pointer))
            case PRelu(mask):
                return int(c.dnnl_post_ops_append_prelu(self.pointer, mask))
            case Depthwise(weights, bias, dst, kernel, stride, padding):
                return int(c.dnnl_post_ops_append_dw(self.pointer, weights, bias, dst, kernel, stride, padding))
            case _:
                assert_never(post_op)


class Attr(Handle):
    """`dnnl_primitive_attr_t` built from a description.

    Args:
        library: the library.
        attributes: the description.
        origin: what in the user's model it serves, for messages.

    Raises:
        OneDnnError: the library refuses a part. Most refusals come later, when a primitive descriptor is created.
    """

    __slots__ = ()

    def __init__(self, library: Library, attributes: Attributes, origin: str = "") -> None:
        status, pointer = create(library.c.dnnl_primitive_attr_create)
        check(status, "creating attributes", origin)
        super().__init__(library, "primitive_attr", pointer)
        try:
            self._fill(attributes, origin)
        except BaseException:
            self.close()
            raise

    def _fill(self, attributes: Attributes, origin: str) -> None:
        c = self.library.c
        for arg, mask in attributes.scales.items():
            check(c.dnnl_primitive_attr_set_scales_mask(self.pointer, arg, mask), f"scales of {arg_name(arg)} with mask {mask}", origin)
        for arg, mask in attributes.zero_points.items():
            status = c.dnnl_primitive_attr_set_zero_points_mask(self.pointer, arg, mask)
            check(status, f"zero points of {arg_name(arg)} with mask {mask}", origin)
        if attributes.post_ops:
            with PostOps(self.library, attributes.post_ops, origin) as post_ops:
                check(c.dnnl_primitive_attr_set_post_ops(self.pointer, post_ops.pointer), "setting post-ops", origin)
        mode = attributes.scratchpad
        check(c.dnnl_primitive_attr_set_scratchpad_mode(self.pointer, mode), f"scratchpad mode {mode.name}", origin)
        # Set even when strict: otherwise the environment variable ONEDNN_DEFAULT_FPMATH_MODE would decide.
        check(c.dnnl_primitive_attr_set_fpmath_mode(self.pointer, attributes.fpmath), f"fpmath mode {attributes.fpmath.name}", origin)


def arg_name(arg: int) -> str:
    """An argument id in words, for messages: `weights`, `src2`, `scales of dst`, `src_1 of post-op 3`."""
    if arg >= Arg.ATTR_MULTIPLE_POST_OP_BASE:
        index, arg = divmod(arg, Arg.ATTR_MULTIPLE_POST_OP_BASE)
        return f"{arg_name(arg)} of post-op {index - 1}"
    for flag, text in ((Arg.ATTR_SCALES, "scales of "), (Arg.ATTR_ZERO_POINTS, "zero points of "), (Arg.ATTR_POST_OP_DW, "depthwise ")):
        if arg & flag:
            return text + arg_name(arg & ~flag)
    if arg >= Arg.MULTIPLE_SRC:
        return f"src{arg - Arg.MULTIPLE_SRC}"
    try:
        return Arg(arg).name.lower()
    except ValueError:
        return f"argument {arg}"


def _masks(masks: Mapping[int, int]) -> str:
    return "{" + ", ".join(f"{arg_name(arg)}: {mask}" for arg, mask in masks.items()) + "}"


def _post_op_text(post_op: PostOp) -> str:
    match post_op:
        case Sum(scale, zero_point, dtype):
            return f"sum(scale={scale:g}, zero_point={zero_point}, dtype={DataType(dtype).name})"
        case Eltwise(alg, alpha, beta):
            return f"{AlgKind(alg).name}({alpha:g}, {beta:g})"
        case Binary(alg, src1):
            return f"{AlgKind(alg).name}({src1!r})"
        case PRelu(mask):
            return f"prelu(mask={mask})"
        case Depthwise():
            return f"depthwise(kernel={post_op.kernel}, stride={post_op.stride}, padding={post_op.padding})"
        case _:
            assert_never(post_op)
