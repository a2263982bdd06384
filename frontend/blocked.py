"""Weights with a scale for each block: decoded at import, since no primitive takes scales in blocks
and no array of a plan holds 4 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..ir.decision import DequantizeFate, Fate, Half, QuantizeFate
from ..ir.types import DType
from .importer import Importer
from .nodes import OnnxNode

__all__ = ["decode_blocks"]


def decode_blocks(ctx: Importer, node: OnnxNode, quantizers: Sequence[str]) -> bool:
    """Replaces a DequantizeLinear{axis, block_size} of constants by the constant (x - x_zero_point)
    * x_scale, as ONNX defines it.

    Products of codes and f16 scales are exact in f32, so that one rounding remains, as in ONNX.

    Args:
        ctx: the import.
        node: the DequantizeLinear.
        quantizers: names of the quantizers that it belongs to, whose fates are settled here.

    Returns:
        False where a parameter is computed at run time, the result is neither f32 nor f16, or the
        shapes do not fit.

    Raises:
        InvalidModel: the constant is larger than the budget `tensor_bytes`.
    """
    codes, scale = ctx.graph.constant(node.input(0)), ctx.constant(node.input(1))
    zero = ctx.constant(node.input(2)) if node.input(2) else np.zeros((), np.int8)
    result = ctx.type(node.input(1)).dtype
    if (
        codes is None
        or scale is None
        or zero is None
        or result not in (DType.F32, DType.F16)
        or node.attr("output_dtype", 0)
    ):
        return False
    ctx.budgets.check("tensor_bytes", codes.size * 4, f"decoding {node.input(0)}", where=node.where)
    block, axis = node.attr("block_size", 0), node.attr("axis", 1)
    if not -codes.ndim <= axis < codes.ndim or zero.shape not in ((), scale.shape):
        return False
    axis %= codes.ndim
    blocks = tuple(-(-size // block) if i == axis else size for i, size in enumerate(codes.shape))
    if scale.shape != blocks:
        return False
    real = codes.astype(np.float32) - _spread(zero, block, axis, codes.shape)
    real *= _spread(scale, block, axis, codes.shape)
    decoded = ctx.add_constant(node, "decoded", real, result)
    # what is imported has a node
    ctx.emit(node, "Identity", (decoded,), outputs=node.outputs[:1], quantizer=quantizers)
    consumers = [proto.name or proto.output[0] for _, proto in ctx.readers(node.output(0))]
    if node.output(0) in ctx.model_outputs:
        consumers.append(f"output {node.output(0)}")
    for name in quantizers:
        ctx.graph.fates.append(
            Fate(name, Half.QUANTIZE, QuantizeFate.CONSTANT, "the model stores the codes")
        )
        for consumer in dict.fromkeys(consumers):
            reason = f"decoded at import: no primitive takes scales for blocks of {block}"
            ctx.graph.fates.append(
                Fate(name, Half.DEQUANTIZE, DequantizeFate.CONSTANT, reason, consumer)
            )
    return True


def _spread(
    parameter: npt.NDArray[np.generic], block: int, axis: int, shape: tuple[int, ...]
) -> npt.NDArray[np.float32]:
    """The parameter of each element, from that of each block."""
    values = parameter.astype(np.float32)
    return values if values.ndim == 0 else np.repeat(values, block, axis)[tuple(map(slice, shape))]
