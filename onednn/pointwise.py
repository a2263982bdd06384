"""Descriptors of the primitives that combine or move single elements: eltwise, binary, prelu, sum, concat, reorder, shuffle,
resampling and reduction.

All raise `Unimplemented` where no implementation takes the request and `OneDnnError` for any other refusal; `origin` names the
nodes of the user's model in their messages.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from .attributes import Attributes
from .enums import AlgKind, PrimitiveKind, PropKind
from .handles import Engine
from .memory import MemoryDesc
from .primitive_desc import PrimitiveDesc, create_desc, optional

__all__ = ["binary", "concat", "eltwise", "prelu", "reduction", "reorder", "resampling", "shuffle", "sum_"]

_INFERENCE = PropKind.forward_inference


def eltwise(
    engine: Engine,
    alg: AlgKind,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    alpha: float = 0.0,
    beta: float = 0.0,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """dst = alg(src; alpha, beta), same shape and type; on int8 and s32 oneDNN 3.2 takes relu and linear only."""
    return create_desc(
        engine,
        PrimitiveKind.eltwise,
        "eltwise_forward",
        (engine.pointer, _INFERENCE, alg, src.pointer, dst.pointer, alpha, beta),
        attributes,
        {"src": src, "dst": dst},
        origin,
        f"{AlgKind(alg).name}({alpha:g}, {beta:g})",
    )


def binary(
    engine: Engine,
    alg: AlgKind,
    src0: MemoryDesc,
    src1: MemoryDesc,
    dst: MemoryDesc,
    *,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """dst = alg(src0 * scale0, src1 * scale1); dimensions of 1 broadcast. Scales on SRC_0 and SRC_1 (mask 0), none on DST."""
    return create_desc(
        engine,
        PrimitiveKind.binary,
        "binary",
        (engine.pointer, alg, src0.pointer, src1.pointer, dst.pointer),
        attributes,
        {"src0": src0, "src1": src1, "dst": dst},
        origin,
        AlgKind(alg).name,
    )


def prelu(
    engine: Engine,
    src: MemoryDesc,
    weights: MemoryDesc,
    dst: MemoryDesc,
    *,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """dst = src where src > 0, else weights * src; weights have the number of dimensions of src, each 1 or equal."""
    return create_desc(
        engine,
        PrimitiveKind.prelu,
        "prelu_forward",
        (engine.pointer, _INFERENCE, src.pointer, weights.pointer, dst.pointer),
        attributes,
        {"src": src, "weights": weights, "dst": dst},
        origin,
    )


def _handles(descs: Sequence[MemoryDesc]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(descs))(*(desc.pointer for desc in descs))


def sum_(
    engine: Engine,
    scales: Sequence[float],
    sources: Sequence[MemoryDesc],
    dst: MemoryDesc | None = None,
    *,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """dst = sum of scales[i] * sources[i], in f32, rounded once; the sources are `arg_multiple_src(i)`.

    Args:
        engine: the engine.
        scales: one float for each source, part of the primitive.
        sources: same shape each.
        dst: None lets the library choose layout and type.
        attributes: scratchpad mode; neither scales nor zero points.
        origin: names in the user's model.

    Raises:
        ValueError: the numbers of scales and sources differ.
    """
    if len(scales) != len(sources):
        raise ValueError(f"{len(scales)} scales for {len(sources)} sources")
    values = (ctypes.c_float * len(scales))(*scales)
    return create_desc(
        engine,
        PrimitiveKind.sum,
        "sum",
        (engine.pointer, optional(dst), len(sources), values, _handles(sources)),
        attributes,
        {**{f"src{index}": desc for index, desc in enumerate(sources)}, "dst": dst},
        origin,
        f"scales={list(scales)}",
    )


def concat(
    engine: Engine,
    axis: int,
    sources: Sequence[MemoryDesc],
    dst: MemoryDesc | None = None,
    *,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """Join along `axis`; the sources are `arg_multiple_src(i)`, each with an optional scale (mask 0). `dst` None: chosen."""
    return create_desc(
        engine,
        PrimitiveKind.concat,
        "concat",
        (engine.pointer, optional(dst), len(sources), axis, _handles(sources)),
        attributes,
        {**{f"src{index}": desc for index, desc in enumerate(sources)}, "dst": dst},
        origin,
        f"axis={axis}",
    )


def reorder(
    engine: Engine,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """Copy between layouts and types: dst = scale_src * (src - zp_src) / scale_dst + zp_dst, rounded half to even.

    It packs weights too: the `dst` that a primitive wants (`weights_md`) carries what compensation it needs.
    """
    return create_desc(
        engine,
        PrimitiveKind.reorder,
        "reorder",
        (src.pointer, engine.pointer, dst.pointer, engine.pointer),
        attributes,
        {"src": src, "dst": dst},
        origin,
    )


def shuffle(
    engine: Engine,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    axis: int,
    group_size: int,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """View `axis` as (C/group_size, group_size) and transpose the two, as channel shuffle does."""
    return create_desc(
        engine,
        PrimitiveKind.shuffle,
        "shuffle_forward",
        (engine.pointer, _INFERENCE, src.pointer, dst.pointer, axis, group_size),
        attributes,
        {"src": src, "dst": dst},
        origin,
        f"axis={axis} group_size={group_size}",
    )


def resampling(
    engine: Engine,
    alg: AlgKind,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    factors: Sequence[float] | None = None,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """Resize the spatial dimensions of (N, C, spatial...) with half-pixel coordinates; `factors` None: from the shapes.

    Raises:
        ValueError: `factors` has not one entry for each spatial dimension.
    """
    if factors is not None and len(factors) != len(src.dims) - 2:
        raise ValueError(f"{len(factors)} factors for {len(src.dims) - 2} spatial dimensions")
    values = None if factors is None else (ctypes.c_float * len(factors))(*factors)
    return create_desc(
        engine,
        PrimitiveKind.resampling,
        "resampling_forward",
        (engine.pointer, _INFERENCE, alg, values, src.pointer, dst.pointer),
        attributes,
        {"src": src, "dst": dst},
        origin,
        AlgKind(alg).name,
    )


def reduction(
    engine: Engine,
    alg: AlgKind,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    p: float = 0.0,
    epsilon: float = 0.0,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """Reduce every dimension that is 1 in `dst` and not in `src`; `p` and `epsilon` serve the norms only."""
    return create_desc(
        engine,
        PrimitiveKind.reduction,
        "reduction",
        (engine.pointer, alg, src.pointer, dst.pointer, p, epsilon),
        attributes,
        {"src": src, "dst": dst},
        origin,
        AlgKind(alg).name,
    )
