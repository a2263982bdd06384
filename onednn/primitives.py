"""The primitives: one function each, which asks the library for a descriptor.

Each takes the engine, memory descriptors (layout `any` where the library may choose), and the
operation's parameters in oneDNN's
convention: spatial ones have one entry for each spatial dimension, dilations are 0-based (0: none;
ONNX's value minus 1). Behind them all take `attributes`, and `origin`, the names of the model's
nodes for messages. All raise `Unimplemented` where no implementation takes the request and
`OneDnnError` for any other refusal. `PRIMITIVES` has the C function of each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from .attributes import Attributes
from .enums import AlgKind, NormalizationFlags
from .library import Engine
from .memory import MemoryDesc
from .primitive_desc import PrimitiveDesc, Request

__all__ = [
    "batch_normalization",
    "binary",
    "concat",
    "convolution",
    "deconvolution",
    "eltwise",
    "layer_normalization",
    "lrn",
    "matmul",
    "pooling",
    "prelu",
    "reduction",
    "reorder",
    "resampling",
    "shuffle",
    "softmax",
]

Spatial = tuple[int, ...]
"""One integer for each spatial dimension."""

_PLAIN = Attributes()


class Further(TypedDict, total=False):
    """What every primitive takes behind its parameters.

    Attributes:
        attributes: scales, zero points and post-ops.
        origin: what in the user's model it serves.
    """

    attributes: Attributes
    origin: str


class Window(Further):
    """How a kernel moves over the source, and what every primitive takes.

    Attributes:
        strides: steps of the window.
        dilations: gaps between its taps.
        padding_l, padding_r: elements in front of the first and behind the last one; negative ones
            cut off.
    """

    strides: Spatial
    dilations: Spatial
    padding_l: Spatial
    padding_r: Spatial


def _asked(
    engine: Engine,
    kind: str,
    operands: dict[str, MemoryDesc | None],
    *,
    attributes: Attributes = _PLAIN,
    origin: str = "",
    **parameters: Any,
) -> PrimitiveDesc:
    return PrimitiveDesc(engine, Request(kind, operands, parameters, attributes, origin))


def convolution(
    engine: Engine,
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    **window: Unpack[Window],
) -> PrimitiveDesc:
    """Forward convolution.

    Args:
        engine: the engine.
        src: (N, C, spatial...).
        weights: (O, I, spatial...), with groups (G, O/G, I/G, spatial...).
        bias: (O), or None.
        dst: (N, O, spatial...).
        window: with scales on SRC (mask 0), WEIGHTS (0, 1, or 3 with groups), DST (0); zero points
            on SRC and DST.
    """
    operands = {"src": src, "weights": weights, "bias": bias, "dst": dst}
    return _asked(engine, "convolution", operands, alg=AlgKind.convolution_direct, **window)


def deconvolution(
    engine: Engine,
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    **window: Unpack[Window],
) -> PrimitiveDesc:
    """Forward deconvolution (transposed convolution); arguments as `convolution`, weights still (O,
    I, spatial...).
    """
    operands = {"src": src, "weights": weights, "bias": bias, "dst": dst}
    return _asked(engine, "deconvolution", operands, alg=AlgKind.deconvolution_direct, **window)


def matmul(
    engine: Engine,
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    **further: Unpack[Further],
) -> PrimitiveDesc:
    """src (..., M, K) times weights (..., K, N) plus bias (broadcast to dst, same number of
    dimensions).

    Leading dimensions are equal or 1. Weights scales: mask 0, or `1 << (ndims - 1)` for one value
    per column.
    """
    return _asked(
        engine, "matmul", {"src": src, "weights": weights, "bias": bias, "dst": dst}, **further
    )


def pooling(
    engine: Engine,
    alg: AlgKind,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    kernel: Spatial,
    **window: Unpack[Window],
) -> PrimitiveDesc:
    """Pooling over (N, C, spatial...) by `AlgKind.pooling_*`; it takes neither scales nor zero
    points.
    """
    return _asked(engine, "pooling", {"src": src, "dst": dst}, alg=alg, kernel=kernel, **window)


def eltwise(
    engine: Engine,
    alg: AlgKind,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    alpha: float = 0.0,
    beta: float = 0.0,
    **further: Unpack[Further],
) -> PrimitiveDesc:
    """dst = alg(src; alpha, beta), same shape and type; on int8 and s32 oneDNN 3.2 takes relu and
    linear only.
    """
    return _asked(
        engine, "eltwise", {"src": src, "dst": dst}, alg=alg, alpha=alpha, beta=beta, **further
    )


def binary(
    engine: Engine,
    alg: AlgKind,
    src0: MemoryDesc,
    src1: MemoryDesc,
    dst: MemoryDesc,
    **further: Unpack[Further],
) -> PrimitiveDesc:
    """dst = alg(src0 * scale0, src1 * scale1); dimensions of 1 broadcast. Scales on SRC_0 and SRC_1
    (mask 0), none on DST.
    """
    return _asked(engine, "binary", {"src0": src0, "src1": src1, "dst": dst}, alg=alg, **further)


def prelu(
    engine: Engine,
    src: MemoryDesc,
    weights: MemoryDesc,
    dst: MemoryDesc,
    **further: Unpack[Further],
) -> PrimitiveDesc:
    """dst = src where src > 0, else weights * src; weights have the number of dimensions of src,
    each 1 or equal.
    """
    return _asked(engine, "prelu", {"src": src, "weights": weights, "dst": dst}, **further)


def concat(
    engine: Engine,
    axis: int,
    sources: Sequence[MemoryDesc],
    dst: MemoryDesc | None = None,
    **further: Unpack[Further],
) -> PrimitiveDesc:
    """Join along `axis`; the sources are `arg_multiple_src(i)`, each with an optional scale (mask
    0). `dst` None: chosen.
    """
    handles = (ctypes.c_void_p * len(sources))(*(source.pointer for source in sources))
    operands = {**{f"src{index}": source for index, source in enumerate(sources)}, "dst": dst}
    return _asked(
        engine, "concat", operands, axis=axis, count=len(sources), sources=handles, **further
    )


def reorder(
    engine: Engine, src: MemoryDesc, dst: MemoryDesc, **further: Unpack[Further]
) -> PrimitiveDesc:
    """Copy between layouts and types: dst = scale_src * (src - zp_src) / scale_dst + zp_dst,
    rounded half to even.

    It packs weights too: the `dst` that a primitive wants (`weights_md`) carries what compensation
    it needs.
    """
    return _asked(engine, "reorder", {"src": src, "dst": dst}, **further)


def shuffle(
    engine: Engine,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    axis: int,
    group_size: int,
    **further: Unpack[Further],
) -> PrimitiveDesc:
    """View `axis` as (C/group_size, group_size) and transpose the two, as channel shuffle does."""
    return _asked(
        engine, "shuffle", {"src": src, "dst": dst}, axis=axis, group_size=group_size, **further
    )


def resampling(
    engine: Engine, alg: AlgKind, src: MemoryDesc, dst: MemoryDesc, **further: Unpack[Further]
) -> PrimitiveDesc:
    """Resize the spatial dimensions of (N, C, spatial...) with half-pixel coordinates, by the
    ratios of the shapes.
    """
    return _asked(engine, "resampling", {"src": src, "dst": dst}, alg=alg, **further)


def reduction(
    engine: Engine, alg: AlgKind, src: MemoryDesc, dst: MemoryDesc, **further: Unpack[Further]
) -> PrimitiveDesc:
    """Reduce every dimension that is 1 in `dst` and not in `src`."""
    return _asked(
        engine, "reduction", {"src": src, "dst": dst}, alg=alg, p=0.0, epsilon=0.0, **further
    )


def softmax(
    engine: Engine,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    axis: int,
    alg: AlgKind = AlgKind.softmax_accurate,
    **further: Unpack[Further],
) -> PrimitiveDesc:
    """Softmax (or `softmax_log`) along `axis`.

    On int8 tensors the SRC scale multiplies the *result*: it is no dequantization of the input.
    """
    return _asked(engine, "softmax", {"src": src, "dst": dst}, alg=alg, axis=axis, **further)


def layer_normalization(
    engine: Engine,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    epsilon: float,
    flags: NormalizationFlags = NormalizationFlags.none,
    **further: Unpack[Further],
) -> PrimitiveDesc:
    """Normalize over the last dimension; `Arg.SCALE` and `Arg.SHIFT` (f32, C) with `use_scale` and
    `use_shift`.

    It takes no post-ops in 3.2, and as with softmax the SRC scale multiplies the result.
    """
    return _asked(
        engine,
        "layer_normalization",
        {"src": src, "dst": dst},
        epsilon=epsilon,
        flags=flags,
        **further,
    )


def batch_normalization(
    engine: Engine,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    epsilon: float,
    flags: NormalizationFlags = NormalizationFlags.use_global_stats,
    **further: Unpack[Further],
) -> PrimitiveDesc:
    """Normalize each channel of (N, C, spatial...); with `use_global_stats` by `Arg.MEAN` and
    `Arg.VARIANCE` (f32, C).
    """
    return _asked(
        engine,
        "batch_normalization",
        {"src": src, "dst": dst},
        epsilon=epsilon,
        flags=flags,
        **further,
    )


def lrn(
    engine: Engine,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    local_size: int,
    alpha: float,
    beta: float,
    k: float,
    **further: Unpack[Further],
) -> PrimitiveDesc:
    """Local response normalization across channels: src * (k + alpha / local_size * sum of squares)
    ** -beta. Float types only.
    """
    size, alg = local_size, AlgKind.lrn_across_channels
    return _asked(
        engine,
        "lrn",
        {"src": src, "dst": dst},
        alg=alg,
        local_size=size,
        alpha=alpha,
        beta=beta,
        k=k,
        **further,
    )
