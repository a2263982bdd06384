"""Descriptors of the normalizing primitives: softmax, layer_normalization, batch_normalization, lrn.

All raise `Unimplemented` where no implementation takes the request and `OneDnnError` for any other refusal; `origin` names the
nodes of the user's model in their messages.
"""

from __future__ import annotations

from .attributes import Attributes
from .enums import AlgKind, NormalizationFlags, PrimitiveKind, PropKind
from .handles import Engine
from .memory import MemoryDesc
from .primitive_desc import PrimitiveDesc, create_desc, optional

__all__ = ["batch_normalization", "layer_normalization", "lrn", "softmax"]

_INFERENCE = PropKind.forward_inference


def softmax(
    engine: Engine,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    axis: int,
    alg: AlgKind = AlgKind.softmax_accurate,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """Softmax (or `softmax_log`) along `axis`.

    On int8 tensors the SRC scale multiplies the *result*: it is no dequantization of the input.
    """
    return create_desc(
        engine,
        PrimitiveKind.softmax,
        "softmax_forward",
        (engine.pointer, _INFERENCE, alg, src.pointer, dst.pointer, axis),
        attributes,
        {"src": src, "dst": dst},
        origin,
        f"{AlgKind(alg).name} axis={axis}",
        {"axis": (axis,)},
    )


def layer_normalization(
    engine: Engine,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    epsilon: float,
    statistics: MemoryDesc | None = None,
    flags: NormalizationFlags = NormalizationFlags.none,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """Normalize over the last dimension; `Arg.SCALE` and `Arg.SHIFT` (f32, C) with `use_scale` and `use_shift`.

    `statistics` is the descriptor of mean and variance (None: computed inside). It takes no post-ops in 3.2, and as with
    softmax the SRC scale multiplies the result.
    """
    return create_desc(
        engine,
        PrimitiveKind.layer_normalization,
        "layer_normalization_forward",
        (engine.pointer, _INFERENCE, src.pointer, dst.pointer, optional(statistics), epsilon, flags),
        attributes,
        {"src": src, "dst": dst, "statistics": statistics},
        origin,
        f"epsilon={epsilon:g} flags={int(flags)}",
    )


def batch_normalization(
    engine: Engine,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    epsilon: float,
    flags: NormalizationFlags = NormalizationFlags.use_global_stats,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """Normalize each channel of (N, C, spatial...); with `use_global_stats` by `Arg.MEAN` and `Arg.VARIANCE` (f32, C)."""
    return create_desc(
        engine,
        PrimitiveKind.batch_normalization,
        "batch_normalization_forward",
        (engine.pointer, _INFERENCE, src.pointer, dst.pointer, epsilon, flags),
        attributes,
        {"src": src, "dst": dst},
        origin,
        f"epsilon={epsilon:g} flags={int(flags)}",
    )


def lrn(
    engine: Engine,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    local_size: int,
    alpha: float,
    beta: float,
    k: float = 1.0,
    alg: AlgKind = AlgKind.lrn_across_channels,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """Local response normalization: src * (k + alpha / local_size * sum of squares) ** -beta. Float types only."""
    return create_desc(
        engine,
        PrimitiveKind.lrn,
        "lrn_forward",
        (engine.pointer, _INFERENCE, alg, src.pointer, dst.pointer, local_size, alpha, beta, k),
        attributes,
        {"src": src, "dst": dst},
        origin,
        f"{AlgKind(alg).name} local_size={local_size} alpha={alpha:g} beta={beta:g} k={k:g}",
    )
