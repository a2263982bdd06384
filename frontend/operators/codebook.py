"""Weights of 4 bits that name one of 16 numbers, as bitsandbytes quantizes them (FP4, NF4): MatMulBnb4 of com.microsoft.

The numbers lie at no equal distances, so that no scale and zero point decodes them: weights are f32 in a plan, eight
times what the model has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedOp
from ...ir.types import DType
from ..importer import Handler
from .derived import Derived
from .forms import Form, handlers
from .fused import MICROSOFT

_FP4: Final = (0.0, 5.208333333e-03, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25)
"""Of the codes 0 to 7; those of 8 to 15 are their negatives."""

_NF4: Final = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
"""Quantiles of a normal distribution, scaled to -1 .. 1."""

_TABLES: Final = ((*_FP4, *(-number for number in _FP4)), _NF4)


def _product(at: Derived) -> None:
    """MatMulBnb4(A, B, absmax){K, N, block_size, quant_type, transB}: A @ W^T, without transB A @ W, with W [N, K] in
    blocks of block_size numbers of a table, each times the absmax of its block. The product is one of f32.
    """
    ctx, kind = at.ctx, at.ctx.type(at.input(0)).dtype
    weights = _decoded(at)
    if at.node.attrs["transB"]:
        weights = np.ascontiguousarray(weights.T)
    source = ctx.cast(at.node, at.input(0), DType.F32, "f32")
    last = kind is DType.F32
    output = at.node.output(0)
    made = at.real("MatMul", [source, at.constant("weights", weights)], output=last * output)
    if not last:
        ctx.cast(at.node, made, kind, "cast", output=output)
    ctx.release(at.input(1))


def _decoded(at: Derived) -> npt.NDArray[np.float32]:
    """W [N, K]."""
    attrs, node = at.node.attrs, at.node
    rows, size, block = attrs["N"], attrs["K"], attrs["block_size"]
    if min(rows, size, block) < 1:
        raise node.invalid(f"{node.op} of {rows} x {size} weights in blocks of {block}")
    if attrs["quant_type"] not in (0, 1):
        raise UnsupportedOp(
            f"{node.op} with quant_type {attrs['quant_type']}",
            where=node.where,
            hint="quantize to FP4 (0) or NF4 (1)",
        )
    count = rows * size
    blocks = -(-count // block)
    codes, most = at.data(at.input(1), "weights"), at.data(at.input(2), "absmax")
    if codes.dtype != np.uint8 or codes.size != -(-count // 2):
        raise node.invalid(
            f"the weights are {codes.dtype}{list(codes.shape)}, and not uint8[{-(-count // 2)}]"
        )
    if most.dtype.kind != "f" or most.size != blocks:
        raise node.invalid(
            f"absmax is {most.dtype}{list(most.shape)}, and there are {blocks} blocks"
        )
    at.ctx.budgets.check("tensor_bytes", 4 * count, "the weights in f32", where=node.where)
    table = np.array(_TABLES[attrs["quant_type"]], np.float32)
    flat = np.asarray(codes.reshape(-1), np.uint8)
    numbers = table[np.stack([flat >> 4, flat & 15], axis=-1).reshape(-1)[:count]]
    scales = np.repeat(most.reshape(-1).astype(np.float32), block)[:count]
    return np.asarray(numbers * scales, np.float32).reshape(rows, size)


_ATTRS: Final[Mapping[str, Any]] = {
    "K": int,
    "N": int,
    "block_size": int,
    "quant_type": int,
    "transB": 1,
    "training_mode": 0,
}

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = handlers(
    MICROSOFT, {"MatMulBnb4": Form("A B absmax", "Y", _product, _ATTRS)}
)
