"""Descriptors of the primitives that accumulate products: convolution, deconvolution, inner_product, matmul; and pooling.

Each function takes memory descriptors (layout `any` where the library may choose), the operation's parameters in oneDNN's
convention, attributes, and `origin`, the model's node names for messages. Spatial parameters have one entry for each spatial
dimension; dilations are 0-based as in oneDNN (0: none; ONNX's value minus 1). All raise `Unimplemented` where no
implementation takes the request and `OneDnnError` for any other refusal.
"""

from __future__ import annotations

from collections.abc import Sequence

from .attributes import Attributes
from .capi import int64_array
from .enums import AlgKind, PrimitiveKind, PropKind
from .handles import Engine
from .memory import MemoryDesc
from .primitive_desc import PrimitiveDesc, create_desc, optional

__all__ = ["convolution", "deconvolution", "inner_product", "matmul", "pooling"]


def convolution(
    engine: Engine,
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    padding_l: Sequence[int],
    padding_r: Sequence[int],
    alg: AlgKind = AlgKind.convolution_direct,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """Forward convolution.

    Args:
        engine: the engine.
        src: (N, C, spatial...).
        weights: (O, I, spatial...), with groups (G, O/G, I/G, spatial...).
        bias: (O), or None.
        dst: (N, O, spatial...).
        strides, dilations, padding_l, padding_r: per spatial dimension; padding before the first and after the last element.
        alg: the algorithm.
        attributes: scales on SRC (mask 0), WEIGHTS (0, 1, or 3 with groups), DST (0); zero points on SRC and DST.
        origin: names in the user's model.
    """
    return _convolution(
        PrimitiveKind.convolution, engine, (src, weights, bias, dst), (strides, dilations, padding_l, padding_r), alg, attributes, origin
    )


def deconvolution(
    engine: Engine,
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    padding_l: Sequence[int],
    padding_r: Sequence[int],
    alg: AlgKind = AlgKind.deconvolution_direct,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """Forward deconvolution (transposed convolution); arguments as `convolution`, weights still (O, I, spatial...)."""
    return _convolution(
        PrimitiveKind.deconvolution, engine, (src, weights, bias, dst), (strides, dilations, padding_l, padding_r), alg, attributes, origin
    )


def _convolution(
    kind: PrimitiveKind,
    engine: Engine,
    descs: tuple[MemoryDesc, MemoryDesc, MemoryDesc | None, MemoryDesc],
    window: tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]],
    alg: AlgKind,
    attributes: Attributes | None,
    origin: str,
) -> PrimitiveDesc:
    src, weights, bias, dst = descs
    spatial = [int64_array(tuple(values)) for values in _same_rank(src, window)]
    detail = "strides={} dilations={} padding={}..{}".format(*map(list, window))
    return create_desc(
        engine,
        kind,
        f"{kind.name}_forward",
        (engine.pointer, PropKind.forward_inference, alg, src.pointer, weights.pointer, optional(bias), dst.pointer, *spatial),
        attributes,
        {"src": src, "weights": weights, "bias": bias, "dst": dst},
        origin,
        detail,
        dict(zip(("strides", "dilations", "padding_l", "padding_r"), window, strict=True)),
    )


def _same_rank(src: MemoryDesc, window: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """The library reads as many entries as there are spatial dimensions, so fewer would be read past the end."""
    rank = len(src.dims) - 2
    if any(len(values) != rank for values in window):
        raise ValueError(f"each spatial parameter needs {rank} entries for {src}, got {[list(values) for values in window]}")
    return window


def inner_product(
    engine: Engine,
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    *,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """Fully connected layer: src (N, I, spatial...), weights (O, I, spatial...), bias (O), dst (N, O). It takes no zero points."""
    return create_desc(
        engine,
        PrimitiveKind.inner_product,
        "inner_product_forward",
        (engine.pointer, PropKind.forward_inference, src.pointer, weights.pointer, optional(bias), dst.pointer),
        attributes,
        {"src": src, "weights": weights, "bias": bias, "dst": dst},
        origin,
    )


def matmul(
    engine: Engine,
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    *,
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """src (..., M, K) times weights (..., K, N) plus bias (broadcast to dst, same number of dimensions).

    Leading dimensions are equal or 1. Weights scales: mask 0, or `1 << (ndims - 1)` for one value per column.
    """
    return create_desc(
        engine,
        PrimitiveKind.matmul,
        "matmul",
        (engine.pointer, src.pointer, weights.pointer, optional(bias), dst.pointer),
        attributes,
        {"src": src, "weights": weights, "bias": bias, "dst": dst},
        origin,
    )


def pooling(
    engine: Engine,
    alg: AlgKind,
    src: MemoryDesc,
    dst: MemoryDesc,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    padding_l: Sequence[int],
    padding_r: Sequence[int],
    attributes: Attributes | None = None,
    origin: str = "",
) -> PrimitiveDesc:
    """Pooling over (N, C, spatial...) by `AlgKind.pooling_*`; it takes neither scales nor zero points."""
    window = (strides, kernel, dilations, padding_l, padding_r)
    spatial = [int64_array(tuple(values)) for values in _same_rank(src, window)]
    detail = "{} strides={} kernel={} dilations={} padding={}..{}".format(AlgKind(alg).name, *map(list, window))
    return create_desc(
        engine,
        PrimitiveKind.pooling,
        "pooling_forward",
        (engine.pointer, PropKind.forward_inference, alg, src.pointer, dst.pointer, *spatial),
        attributes,
        {"src": src, "dst": dst},
        origin,
        detail,
        dict(zip(("strides", "kernel", "dilations", "padding_l", "padding_r"), window, strict=True)),
    )
