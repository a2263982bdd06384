"""Weights with a scale for each block, in the forms that models have them: DequantizeLinear with
block_size, Cast -> (Sub) -> Mul with a scale for each block, and com.microsoft's MatMulNBits and
GatherBlockQuantized.

All become DequantizeBlocks, whose codes lie packed in bytes (`ir/ops/blocks.py`)::

    QuantizeLinear{axis, block_size}(w, s, z)    ->  its codes
    DequantizeLinear{axis, block_size}(q, s, z)  ->  DequantizeBlocks(q', s', z'), transposed where the axis is not the last one
    Mul(Sub(Cast(q), z), s)                      ->  the same of [rows, blocks * block], reshaped
    MatMulNBits(a, q, s, z, bias)                ->  Add(MatMul(a, Transpose(DequantizeBlocks(q, s, z))), bias)
    GatherBlockQuantized(q, i, s, z)             ->  Gather(DequantizeBlocks(q, s, z), i)

Signed codes are stored unsigned, with 2^(bits-1) added to codes and zero points, which changes no
difference of the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedOp
from ...ir.decision import MAY_ROUND, Fate, Half, QuantizeFate
from ...ir.ops.blocks import WIDTHS, middle, packed, unpacked
from ...ir.ops.spec import Array, Attr
from ...ir.types import DType
from ..importer import Handler, Importer
from ..nodes import OnnxNode
from .derived import Derived, written

_BITS: Final[Mapping[DType, int]] = {DType.S4: 4, DType.U4: 4, DType.S8: 8, DType.U8: 8}
_MICROSOFT: Final = "com.microsoft"
_FLOATS: Final = (DType.F32, DType.F16)
_FILLED: Final = 32  # a row of one block is filled up to a multiple: the codes of a 128-bit word

U8Array = npt.NDArray[np.uint8]


def encode_blocks(ctx: Importer, node: OnnxNode, dtype: DType, quantizers: tuple[str, ...]) -> bool:
    """Stores the codes of a QuantizeLinear{axis, block_size} of constants, as its output.

    Returns:
        False where x or a parameter is computed at run time, x/scale is no number somewhere, or
        asked for in another precision than f32, or the shapes do not fit.
    """
    data, scale = ctx.constant(node.input(0)), ctx.constant(node.input(1))
    zero = ctx.constant(node.input(2)) if node.input(2) else np.zeros((), np.int8)
    axis, block = node.attr("axis", 1), node.attr("block_size", 0)
    if data is None or scale is None or zero is None or block < 1 or node.attr("precision", 0):
        return False
    if scale.shape != _shape_of_blocks(data.shape, axis, block) or 0 in data.shape:
        return False
    if zero.shape not in ((), scale.shape):
        return False
    places = np.arange(data.shape[axis]) // block
    with np.errstate(all="ignore"):
        value = data.astype(np.float32) / scale.astype(np.float32).take(places, axis)
        np.rint(value, out=value)
        shift = zero.astype(np.float32)
        value += shift.take(places, axis) if shift.ndim else shift
    if np.isnan(value).any():
        return False
    codes = value.clip(*dtype.range).astype(dtype.numpy)
    ctx.graph.add_constant(node.output(0), codes, dtype)
    ctx.codes[node.output(0)] = quantizers
    reason = "the value is constant: its codes are stored"
    for name in quantizers:
        ctx.graph.fates.append(Fate(name, Half.QUANTIZE, QuantizeFate.CONSTANT, reason))
    ctx.release(node.input(0))
    return True


def _shape_of_blocks(shape: tuple[int, ...], axis: int, block: int) -> tuple[int, ...] | None:
    """The shape of the scales of blocks along an axis; None where there is no such axis."""
    rank = len(shape)
    if not -rank <= axis < rank:
        return None
    return tuple(-(-n // block) if i == axis % rank else n for i, n in enumerate(shape))


def decode_blocks(ctx: Importer, node: OnnxNode, quantizers: Sequence[str]) -> bool:
    """Imports a DequantizeLinear{axis, block_size} of constants.

    Products of codes and f16 scales are exact in f32, so that one rounding remains, as in ONNX.

    Args:
        ctx: the import.
        node: the DequantizeLinear.
        quantizers: names of the quantizers that it belongs to.

    Returns:
        False where a parameter is computed at run time, the codes have neither 4 nor 8 bits, the
        result is neither f32 nor f16, or the shapes do not fit.
    """
    codes, scale = ctx.graph.constant(node.input(0)), ctx.constant(node.input(1))
    zero = ctx.constant(node.input(2)) if node.input(2) else np.zeros((), np.int8)
    kind, result = ctx.type(node.input(0)).dtype, ctx.type(node.input(1)).dtype
    if codes is None or scale is None or zero is None or kind not in _BITS:
        return False
    if result not in _FLOATS or node.attr("output_dtype", 0):
        return False
    block, axis = node.attr("block_size", 0), node.attr("axis", 1)
    if scale.shape != _shape_of_blocks(codes.shape, axis, block) or 0 in codes.shape:
        return False
    if zero.shape not in ((), scale.shape):
        return False
    axis %= codes.ndim
    order = (*(i for i in range(codes.ndim) if i != axis), axis)
    zeros = np.broadcast_to(zero, scale.shape)
    parts = [np.transpose(part, order) for part in (codes, scale, zeros)]
    plain = result is DType.F32
    turns = order != tuple(range(codes.ndim))
    value = _emit(
        ctx, node, kind, block, parts, quantizers, output="" if turns else node.output(0) * plain
    )
    if turns:
        back = {"perm": tuple(order.index(i) for i in range(codes.ndim))}
        outputs = node.outputs[:1] if plain else None
        role = "" if plain else "turned"
        value = ctx.emit(node, "Transpose", (value,), back, outputs=outputs, role=role)
    if not plain:
        ctx.cast(node, value, result, "", output=node.output(0))
    ctx.release(node.input(0))
    return True


def decode_grouped(
    ctx: Importer,
    node: OnnxNode,
    codes: str,
    zero: npt.NDArray[np.float32],
    scale: npt.NDArray[np.float32],
    form: str,
    absorbed: Sequence[str],
) -> bool:
    """Imports codes [rows, blocks, block] or [blocks, block, rows] that a Mul decodes by a scale
    for each block of a row, as the Mul's output.

    Args:
        ctx: the import.
        node: the Mul.
        codes: the constant codes.
        zero, scale: parameters in f32: scales of three dimensions, of which that of `block` is 1.
        form: of the quantizer, for people.
        absorbed: names of the nodes in front of the Mul.

    Returns:
        False where codes or parameters have another form.
    """
    data, kind = ctx.constant(codes), ctx.type(codes).dtype
    if data is None or kind not in _BITS or data.ndim != 3 or 0 in data.shape:
        return False
    inner = next((axis for axis in (2, 1) if scale.shape[axis] == 1), None)
    if inner is None:
        return False
    wanted = tuple(1 if axis == inner else size for axis, size in enumerate(data.shape))
    block = data.shape[inner]
    if scale.shape != wanted:
        return False
    low, high = kind.range
    if (
        zero.shape not in ((), wanted)
        or ((zero != np.rint(zero)) | (zero < low) | (zero > high)).any()
    ):
        return False
    order = (0, 1, 2) if inner == 2 else (2, 0, 1)
    rows = data.shape[order[0]]
    zeros = np.broadcast_to(zero, wanted)
    parts = [
        np.transpose(part, order).reshape(rows, -1)
        for part in (data, scale, zeros.astype(np.int16))
    ]
    names = (ctx.add_quantizer(node, form, codes),)
    value = _emit(ctx, node, kind, block, parts, names, absorbed)
    if inner == 1:
        value = ctx.emit(node, "Transpose", (value,), {"perm": (1, 0)}, role="turned")
    target = ctx.add_constant(node, "shape", data.shape, DType.S64)
    ctx.emit(node, "Reshape", (value, target), outputs=node.outputs[:1], absorbed=absorbed)
    return True


def _emit(
    ctx: Importer,
    node: OnnxNode,
    kind: DType,
    block: int,
    parts: Sequence[Array],
    quantizers: Sequence[str],
    absorbed: Sequence[str] = (),
    *,
    bits: int = 0,
    output: str = "",
) -> str:
    """The DequantizeBlocks of codes of ONNX's type `kind`, one in each element, of scales, and of
    zero points, which all have their blocks along the last dimension.

    `bits`: of a code, where the type does not tell; `output`: of the node, where it is the last.
    """
    codes, scale, zero = parts
    bits, size = bits or _BITS[kind], codes.shape[-1]
    # one block may be stated to be longer than its row, by any number: it is filled up to whole words only
    block = min(block, -(-size // _FILLED) * _FILLED)
    if block * bits % 8:  # blocks are whole bytes
        bits = 8
    blocks = -(-size // block)
    whole = np.zeros((*codes.shape[:-1], blocks * block), np.uint8)
    whole[..., :size] = _unsigned(codes, kind)
    zeros = _unsigned(zero, kind)
    return _decoding(
        ctx,
        node,
        packed(whole, bits),
        np.ascontiguousarray(scale, np.float32),
        None if (zeros == middle(bits)).all() else np.ascontiguousarray(zeros),
        {"bits": bits, "block": block, "size": size},
        quantizers,
        absorbed,
        output=output,
    )


def _unsigned(values: Array, kind: DType) -> U8Array:
    """Codes or zero points with the lowest code of their type as 0, modulo 256."""
    return (values.astype(np.int16) - kind.range[0]).astype(np.uint8)


def _decoding(
    ctx: Importer,
    node: OnnxNode,
    codes: U8Array,
    scales: npt.NDArray[np.float32],
    zeros: Array | None,
    attrs: Mapping[str, Attr],
    quantizers: Sequence[str],
    absorbed: Sequence[str] = (),
    *,
    output: str = "",
) -> str:
    """A DequantizeBlocks of new constants."""
    values = [
        ctx.add_constant(node, "codes", codes, DType.U8),
        ctx.add_constant(node, "scales", scales, DType.F32),
    ]
    if zeros is not None:
        values.append(ctx.add_constant(node, "zero_points", zeros, DType.from_numpy(zeros.dtype)))
    return ctx.emit(
        node,
        "DequantizeBlocks",
        values,
        attrs,
        outputs=(output,) if output else None,
        role="" if output else "decoded",
        quantizer=quantizers,
        absorbed=absorbed,
    )


# -- com.microsoft ---------------------------------------------------------------------------------


def _product(at: Derived) -> None:
    """MatMulNBits(A, B, scales, zero_points?, g_idx?, bias?){K, N, bits, block_size}: A @ B^T + bias
    with B [N, blocks, bytes of a block] decoded.

    The product is f32 at every accuracy_level: that of 4 lets a runtime round A to int8, and the
    quantizer's form says so.
    """
    node, ctx = at.node, at.ctx
    if not at.input(0):
        raise node.invalid("MatMulNBits lacks its input A")
    size, rows, bits, block = (_whole(node, name, default) for name, default in _SIZES.items())
    if bits not in WIDTHS or block * bits % 8:
        raise UnsupportedOp(
            f"MatMulNBits with codes of {bits} bits in blocks of {block}",
            where=node.where,
            hint=f"quantize to {', '.join(map(str, WIDTHS))} bits, in blocks of whole bytes",
        )
    blocks = -(-size // block)
    data = at.data(at.input(1), "weights")
    stored = blocks * (block * bits // 8)
    if data.dtype != np.uint8 or data.size != rows * stored:
        raise node.invalid(
            f"the weights are {data.dtype}{list(data.shape)}, and not uint8[{rows}, {blocks}, {stored // blocks}]"
        )
    scales = at.data(at.input(2), "scales")
    if scales.size != rows * blocks or scales.dtype.kind != "f":
        raise node.invalid(
            f"the scales are {scales.dtype}{list(scales.shape)}, and there are {rows * blocks} blocks"
        )
    _check_order(at, size, block)
    wide = ctx.type(at.input(0)).dtype
    coarse = node.attr("accuracy_level", 0) == _COARSEST
    form = f"{node.op}{MAY_ROUND if coarse else ''} of codes"
    names = (ctx.add_quantizer(node, form, at.input(1)),)
    weights = _decoding(
        ctx,
        node,
        np.asarray(data.reshape(rows, stored), np.uint8),
        np.asarray(scales, np.float32).reshape(rows, blocks),
        _zero_points(at, 3, (rows, blocks), bits),
        {"bits": bits, "block": block, "size": size},
        names,
    )
    turned = at.real("Transpose", (weights,), {"perm": (1, 0)}, role="turned")
    source = ctx.cast(node, at.input(0), DType.F32, "f32")
    last = wide is DType.F32
    bias = at.input(5)
    output = node.output(0) if last else ""
    made = at.real(
        "MatMul",
        (source, turned),
        role="product" if bias else "",
        output="" if bias else output,
    )
    if bias:
        addend = ctx.cast(node, bias, DType.F32, "bias")
        made = at.real("Add", (made, addend), output=output)
    if not last:
        ctx.cast(node, made, wide, "cast", output=node.output(0))


_COARSEST: Final = 4
"""The accuracy_level at which A may be rounded to int8 codes of its blocks."""

_SIZES: Final[Mapping[str, int]] = {"K": 0, "N": 0, "bits": 4, "block_size": 0}


def _whole(node: OnnxNode, name: str, default: int) -> int:
    value = node.attr(name, default)
    if not isinstance(value, int) or value < 1:
        raise node.invalid(f"the attribute {name} is {value!r}, and must be a positive integer")
    return value


def _axis(node: OnnxNode, name: str, default: int, rank: int) -> int:
    value = node.attr(name, default)
    if not isinstance(value, int) or not -rank <= value < rank:
        raise node.invalid(f"the attribute {name} is {value!r}, and its data has {rank} dimensions")
    return value % rank


def _check_order(at: Derived, size: int, block: int) -> None:
    """Refuses columns in another order than that of their blocks.

    Raises:
        UnsupportedOp: g_idx sends a column to another block.
    """
    if not at.input(4):
        return
    given = at.data(at.input(4), "order of columns (g_idx)").reshape(-1)
    if given.size < size or (given[:size] != np.arange(size) // block).any():
        raise UnsupportedOp(
            "MatMulNBits with g_idx: its columns belong to blocks out of order",
            where=at.node.where,
            hint="quantize without act-order (desc_act=False)",
        )


def _zero_points(at: Derived, index: int, shape: tuple[int, ...], bits: int) -> Array | None:
    """The zero points of blocks, one to an element: u8 codes, which the model packs by rows, or
    floats. None where there are none.
    """
    if not at.input(index):
        return None
    given = at.data(at.input(index), "zero points")
    if given.dtype.kind == "f" and given.size == math.prod(shape):
        return np.asarray(given, np.float32).reshape(shape)
    rows, stored = math.prod(shape[:-1]), -(-shape[-1] * bits // 8)
    if given.dtype != np.uint8 or given.size != rows * stored:
        raise at.node.invalid(
            f"the zero points are {given.dtype}{list(given.shape)}, and {rows} rows of {shape[-1]} of {bits} bits are {rows * stored} bytes"
        )
    apart = unpacked(given.reshape(*shape[:-1], stored), bits)[..., : shape[-1]]
    return np.ascontiguousarray(apart)


def _gathered(at: Derived) -> None:
    """GatherBlockQuantized(data, indices, scales, zero_points?){gather_axis, quantize_axis,
    block_size, bits}: slices of decoded data.
    """
    node, ctx = at.node, at.ctx
    data, scales = at.data(at.input(0), "data"), at.data(at.input(2), "scales")
    kind = ctx.type(at.input(0)).dtype
    bits = _whole(node, "bits", 4) if kind is DType.U8 else _BITS.get(kind, 0)
    block = _whole(node, "block_size", 128)
    rank = data.ndim
    if not data.size:
        raise node.invalid(f"its data are {data.dtype}{list(data.shape)}, and hold no codes")
    axis, gathered = (
        _axis(node, name, default, rank)
        for name, default in (("quantize_axis", 1), ("gather_axis", 0))
    )
    result = ctx.type(at.input(2)).dtype
    if bits not in WIDTHS or block * bits % 8 or rank < 2 or result not in _FLOATS:
        raise UnsupportedOp(
            f"GatherBlockQuantized of {kind.value} with {bits} bits in blocks of {block}, and scales of {result.value}",
            where=node.where,
            hint="quantize to 4 or 8 bits, in blocks of whole bytes",
        )
    # u8 holds several codes along the last dimension
    codes = unpacked(data, bits) if kind is DType.U8 else data
    if scales.shape != _shape_of_blocks(codes.shape, axis, block):
        raise node.invalid(
            f"scales {list(scales.shape)} do not fit codes {list(codes.shape)} in blocks of {block} along axis {axis}"
        )
    zeros = _gathered_zeros(at, kind, bits, scales.shape)
    names = (ctx.add_quantizer(node, f"{node.op} of codes", at.input(0)),)
    order = (*(i for i in range(rank) if i != axis), axis)
    parts = [np.transpose(part, order) for part in (codes, scales, zeros)]
    value = _emit(ctx, node, kind, block, parts, names, bits=bits)
    if order != tuple(range(rank)):
        back = tuple(order.index(i) for i in range(rank))
        value = at.real("Transpose", (value,), {"perm": back}, role="turned")
    last = result is DType.F32
    output = node.output(0) if last else ""
    made = at.real("Gather", (value, at.input(1)), {"axis": gathered}, output=output)
    if not last:
        ctx.cast(node, made, result, "cast", output=node.output(0))


def _gathered_zeros(at: Derived, kind: DType, bits: int, shape: tuple[int, ...]) -> Array:
    """Zero points of the type of the data; without any 0, or of u8 the middle code."""
    if not at.input(3):
        return np.full(shape, middle(bits) if kind is DType.U8 else 0, np.int16)
    given = at.data(at.input(3), "zero points")
    if kind is DType.U8:
        given = unpacked(given, bits)[..., : shape[-1]]
    if given.shape != shape:
        raise at.node.invalid(f"zero points {list(given.shape)} do not fit scales {list(shape)}")
    return given


HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    (_MICROSOFT, "MatMulNBits"): written(_product),
    (_MICROSOFT, "GatherBlockQuantized"): written(_gathered),
}
