"""Quantizers of a model with 7 bits in place of 8, in the dialect that the model has.

In the middle of their codes stands 0 of s8 and 128 of u8, which becomes the zero point; q and z are a
code and a zero point. Seven bits are codes of a step that is f times as large, so that they lie in
-64..64 about the middle::

    f = max(2, largest |q - z| / 64)    q' = round((q - z) / f) + middle    scale' = f * scale

f is 2 where z stands in the middle, and never 4: a zero point at an end of the codes leaves all of them
on one side. Where a CPU halves weights, they become even instead, at the same scale:
q' = 2 * round(q / 2).

| form | what changes |
|---|---|
| DequantizeLinear, QLinearConv, QLinearMatMul, QGemm ... on constant codes | codes, scale, zero point; biases in units of the scale |
| DynamicQuantizeLSTM | codes, scales, zero points of both products |
| MatMulInteger, ConvInteger | codes, zero point, and the scale in the Mul behind |
| Cast, (Sub,) Mul on constant codes | codes, the constants of Sub and Mul |
| QuantizeLinear, Quant (QONNX) on constant numbers | scale and zero point, of those that decode as well |
| FakeQuantize on constant numbers | its ranges |
| QuantizeLinear on what is computed | scale, zero point, and a Clip of the codes to 0..127 |
| FakeQuantize on what is computed | ranges, and 128 levels |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, helper

from ..errors import UnsupportedOp
from ..ir.decision import Quantizer
from .original import Original

_EXPORT = "export the model first (fqfuse export --to qdq), or quantize this layer anew: weights to 7 bits, or activations to 0..127"
_CLIP_OF_CODES = 12  # the opset from which on Clip takes integers
Numbers = npt.NDArray[Any]
Factors = npt.NDArray[np.float64]
"""By which steps grow, one for each scale; 1 where a channel stays as it is."""

_LARGEST = 127
_HALF = 64  # pairs of weights up to this magnitude never saturate
_SLIGHT = 1e-3  # of a step: ranges are f32
_MOVES = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})


@dataclass(frozen=True)
class _Slot:
    """Where an operator reads codes of weights, or the numbers that become such.

    Attributes:
        scale, zero: the inputs with their scale and zero point.
        axis: the axis of the scales; None: as the node's attribute says.
        bias: an input with s32 codes in units of this scale.
    """

    scale: int
    zero: int
    axis: int | None = None
    bias: int | None = None


_SLOTS: Mapping[tuple[str, int], _Slot] = MappingProxyType(
    {
        ("DequantizeLinear", 0): _Slot(1, 2),
        ("QLinearConv", 3): _Slot(4, 5, 0, 8),
        ("QLinearMatMul", 3): _Slot(4, 5, -1),
        ("QGemm", 3): _Slot(4, 5, None, 6),
        ("MatMulIntegerToFloat", 1): _Slot(3, 5, -1),
        ("DynamicQuantizeMatMul", 1): _Slot(2, 3, -1),
    }
)
_ENCODERS = frozenset({"QuantizeLinear", "Quant", "IntQuant"})
_LAYER = {1: _Slot(8, 9), 2: _Slot(10, 11)}
"""DynamicQuantizeLSTM: its weights of the input, and of the hidden state."""

_INTEGER = frozenset({"MatMulInteger", "ConvInteger"})
_PARAMETERS = _Slot(1, 2)  # of what encodes


@dataclass(frozen=True)
class Channels:
    """Which output channels of a layer's weights are to change, of how many."""

    chosen: frozenset[int]
    of: int

    def mask(self, scale: Numbers) -> npt.NDArray[np.bool_]:
        """Which of the scales: those of the channels where there is one for each, else all."""
        if scale.size != self.of or scale.size < 2:
            return np.ones(scale.shape, np.bool_)
        flat = np.isin(np.arange(self.of), list(self.chosen))
        return flat.reshape(scale.shape)


def weights_in_7_bits(
    model: Original, quantizer: Quantizer, channels: Channels, *, even: bool = False
) -> None:
    """Changes the weights of a quantizer.

    Args:
        model: the model, which is changed.
        quantizer: of constant weights.
        channels: those that are to change.
        even: make their codes even.

    Raises:
        UnsupportedOp: this form of the quantizer cannot be changed; its name is told.
    """
    value = quantizer.value
    data = model.constant(value)
    if data is None:
        raise _refused(quantizer, "its weights are computed")
    edit = _Edit(model, quantizer, channels, even)
    done = [edit.at(node, index, data) for node, index in model.readers(value)]
    if not any(done):
        raise _refused(quantizer, "nothing known here reads its weights")


def activation_in_7_bits(model: Original, quantizer: Quantizer) -> None:
    """Maps the range of a quantizer of what is computed to the codes 0..127.

    Raises:
        UnsupportedOp: as `weights_in_7_bits`.
    """
    for node in model.model.graph.node:
        called = node.name or (node.output[0] if node.output else "")
        if called == quantizer.name:
            if node.op_type == "FakeQuantize":
                _fewer_levels(model, node, quantizer)
                return
            if node.op_type == "QuantizeLinear":
                _fewer_codes(model, node, quantizer)
                return
    raise _refused(quantizer, f"it is part of {quantizer.form}")


def _refused(quantizer: Quantizer, why: str) -> UnsupportedOp:
    return UnsupportedOp(
        f"this quantizer cannot be given 7 bits here: {why}", where=quantizer.name, hint=_EXPORT
    )


# -- weights ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Edit:
    """The change of one quantizer's weights."""

    model: Original
    quantizer: Quantizer
    channels: Channels
    even: bool

    def at(self, node: NodeProto, index: int, data: Numbers) -> bool:
        """Changes what a node reads as weights; False where it reads no such."""
        slot = _SLOTS.get((node.op_type, index))
        if slot is not None:
            self._codes(node, index, data, slot, self._axis(node, slot))
        elif node.op_type in _ENCODERS and not index:
            self._numbers(node, data)
        elif node.op_type == "FakeQuantize" and not index:
            self._ranges(node, data)
        elif node.op_type == "DynamicQuantizeLSTM" and index in _LAYER:
            self._layer(node, index, data)
        elif node.op_type in _INTEGER and index == 1:
            self._integer(node, data)
        elif node.op_type == "Cast":
            self._cast(node, data)
        else:
            return False
        return True

    def _axis(self, node: NodeProto, slot: _Slot) -> int:
        if slot.axis is not None:
            return slot.axis
        given = {item.name: item.i for item in node.attribute}
        if given.get("block_size"):
            raise _refused(self.quantizer, "its scales are those of blocks")
        if node.op_type == "QGemm":
            return 0 if given.get("transB") else 1
        return int(given.get("axis", 1))

    def _codes(self, node: NodeProto, index: int, data: Numbers, slot: _Slot, axis: int) -> None:
        scale, zero = self._parameters(node, slot, data.dtype)
        mask = self.channels.mask(scale)
        if self.even:
            self.model.give(node, index, _evened(data, mask, axis))
            return
        factor = _factors(data, zero, scale, mask, axis)
        self.model.give(node, index, _narrowed(data, zero, factor, axis))
        self._rescale(node, slot, scale, zero, factor)

    def _parameters(
        self, node: NodeProto, slot: _Slot, dtype: npt.DTypeLike
    ) -> tuple[Numbers, Numbers]:
        """Scale and zero point, as they are."""
        names = [node.input[i] if i < len(node.input) else "" for i in (slot.scale, slot.zero)]
        scale = self.model.constant(names[0])
        zero = self.model.constant(names[1]) if names[1] else np.zeros((), dtype)
        if scale is None or zero is None:
            raise _refused(self.quantizer, "its scale or zero point is computed")
        return scale, zero

    def _rescale(
        self,
        node: NodeProto,
        slot: _Slot,
        scale: Numbers,
        zero: Numbers,
        factor: Factors,
    ) -> None:
        """Gives a node the parameters of 7 bits."""
        self.model.give(node, slot.scale, _scaled(scale, factor))
        new = _new_zero(zero, factor)
        if new is not None:
            self.model.give(node, slot.zero, new)
        if slot.bias is not None and slot.bias < len(node.input) and node.input[slot.bias]:
            bias = self.model.constant(node.input[slot.bias])
            if bias is None:
                raise _refused(self.quantizer, "the bias in its units is computed")
            self.model.give(node, slot.bias, np.rint(bias / factor.reshape(-1)).astype(bias.dtype))

    def _numbers(self, node: NodeProto, data: Numbers) -> None:
        """A quantizer of constant numbers, and what decodes its codes."""
        scale, zero = self._parameters(node, _PARAMETERS, _code_type(node))
        axis = self._axis(node, _PARAMETERS) if node.op_type == "QuantizeLinear" else -1
        low, high = self._code_range(node, zero)
        mask = self.channels.mask(scale)
        shift, step = (_spread(a.astype(np.float64), data.ndim, axis) for a in (zero, scale))
        if self.even:
            codes = np.rint(data / step + shift - _middle(zero))
            codes = np.clip(2 * np.rint(codes / 2), -128, 126)
            values = (codes + _middle(zero) - shift) * step
            keep = _spread(mask, data.ndim, axis)
            self.model.give(node, 0, np.where(keep, values, data).astype(data.dtype))
            return
        self._cut(node, data, (low - shift) * step, (high - shift) * step)
        reach = np.maximum(high - zero.astype(np.float64), zero.astype(np.float64) - low)
        factor = np.where(mask, np.maximum(reach / _HALF, 2.0), 1.0)
        self._rescale(node, _PARAMETERS, scale, zero, factor)
        if node.op_type == "QuantizeLinear":
            self._follow(node.output[0], scale, zero, factor)

    def _code_range(self, node: NodeProto, zero: Numbers) -> tuple[int, int]:
        """The least and the largest code of what encodes."""
        if node.op_type == "QuantizeLinear":
            if zero.dtype not in (np.int8, np.uint8):
                raise _refused(self.quantizer, f"its codes are {zero.dtype}")
            return int(np.iinfo(zero.dtype).min), int(np.iinfo(zero.dtype).max)
        bits = self.model.constant(node.input[3])
        given = {item.name: item.i for item in node.attribute}
        if np.any(zero) or bits is None or bits.item() != 8 or not given.get("signed", 1):
            raise _refused(self.quantizer, "its weights are not signed codes of 8 bits around 0")
        return -127 if given.get("narrow", 0) else -128, 127

    def _cut(self, node: NodeProto, data: Numbers, low: Numbers, high: Numbers) -> None:
        """Numbers that 8 bits cut stay cut where the range of 7 bits would hold them."""
        cut = np.clip(data, low, high).astype(data.dtype)
        if not np.array_equal(cut, data):
            self.model.give(node, 0, cut)

    def _follow(self, value: str, scale: Numbers, zero: Numbers, factor: Factors) -> None:
        """Gives everything that decodes the codes of a value the parameters of 7 bits."""
        for node, index in self.model.readers(value):
            slot = _SLOTS.get((node.op_type, index))
            if slot is not None:
                self._rescale(node, slot, scale, zero, factor)
            elif node.op_type in _MOVES or (node.op_type == "Clip" and not index):
                self._follow(node.output[0], scale, zero, factor)
            else:
                raise _refused(self.quantizer, f"{node.op_type} reads its codes")
        if self.model.is_output(value):
            raise _refused(self.quantizer, "the model returns its codes")

    def _ranges(self, node: NodeProto, data: Numbers) -> None:
        """FakeQuantize: twice the range, with the zero point in the middle of the codes."""
        levels = next((item.i for item in node.attribute if item.name == "levels"), 0)
        if levels not in (255, 256):
            raise _refused(self.quantizer, f"it has {levels} levels")
        grid = _Grid.of(self.model, node, levels, self.quantizer)
        mask, middle = self.channels.mask(grid.low), levels // 2
        if self.even:
            codes = np.clip(np.rint((data - grid.low) / grid.step), 0, levels - 1) - middle
            codes = np.clip(2 * np.rint(codes / 2), -(middle // 2 * 2), 126)
            values = grid.low + (codes + middle) * grid.step
            self.model.give(node, 0, np.where(mask, values, data).astype(data.dtype))
            return
        self._cut(node, data, grid.low, grid.high)
        zero = -grid.low / grid.step
        there = np.abs(zero - middle) < _SLIGHT
        step = np.maximum(np.maximum(zero, levels - 1 - zero) / _HALF, 2.0) * grid.step
        low = np.where(there, 2 * grid.low, -middle * step)
        high = np.where(there, 2 * grid.high, (levels - 1 - middle) * step)
        grid.give(self.model, node, low, high, mask)

    def _integer(self, node: NodeProto, data: Numbers) -> None:
        """MatMulInteger and ConvInteger: the scale is a factor of the Mul behind."""
        slot = _Slot(0, 3, -1 if node.op_type == "MatMulInteger" else 0)
        zero, axis = self._zero(node, slot.zero, data.dtype), self._axis(node, slot)
        if self.even:
            self.model.give(node, 1, _evened(data, np.bool_(True), axis))
            return
        scaled, index, scale = self._factor(node.output[0])
        factor = _factors(data, zero, np.ones(()), np.ones((), np.bool_), axis)
        self.model.give(node, 1, _narrowed(data, zero, factor, axis))
        new = _new_zero(zero, np.broadcast_to(factor, zero.shape))
        if new is not None:
            self.model.give(node, slot.zero, new)
        self.model.give(scaled, index, _scaled(scale, factor))

    def _layer(self, node: NodeProto, index: int, data: Numbers) -> None:
        """Codes [D, K, 4H], with parameters for each direction, or for each of its columns."""
        slot = _LAYER[index]
        scale, zero = self._parameters(node, slot, data.dtype)
        shape = (data.shape[0], 1, -1)
        every = np.ones(scale.shape, np.bool_).reshape(shape)
        along = _factors(data, zero.reshape(shape), scale.reshape(shape), every, 0)
        self.model.give(node, index, _narrowed(data, zero.reshape(shape), along, 0))
        self._rescale(node, slot, scale, zero, along.reshape(scale.shape))

    def _zero(self, node: NodeProto, index: int, dtype: npt.DTypeLike) -> Numbers:
        name = node.input[index] if index < len(node.input) else ""
        zero = self.model.constant(name) if name else np.zeros((), dtype)
        if zero is None:
            raise _refused(self.quantizer, "its zero point is computed")
        return zero

    def _factor(self, value: str) -> tuple[NodeProto, int, Numbers]:
        """The Mul, and its constant, that scales the sums of an integer product; the source's scale,
        which is computed, may be multiplied in front of it.
        """
        readers = self.model.readers(value)
        if len(readers) == 1 and not self.model.is_output(value):
            node, index = readers[0]
            if node.op_type == "Mul":
                found = self._constant_factor(node, 1 - index)
                if found is not None:
                    return found
            if node.op_type in ("Cast", "Mul"):
                return self._factor(node.output[0])
        raise _refused(self.quantizer, "no constant factor scales the sums")

    def _constant_factor(
        self, node: NodeProto, index: int
    ) -> tuple[NodeProto, int, Numbers] | None:
        data = self.model.constant(node.input[index])
        if data is not None:
            return node, index, data
        inner = self.model.maker(node.input[index])
        if inner is None or inner.op_type != "Mul" or len(self.model.readers(inner.output[0])) > 1:
            return None
        found = (self._constant_factor(inner, i) for i in (0, 1))
        return next((one for one in found if one is not None), None)

    def _cast(self, cast: NodeProto, data: Numbers) -> None:
        """Cast -> (Sub ->) Mul on constant codes."""
        readers = self.model.readers(cast.output[0])
        shift = None
        if len(readers) == 1 and readers[0][0].op_type == "Sub" and readers[0][1] == 0:
            shift = readers[0][0]
            readers = self.model.readers(shift.output[0])
        if len(readers) != 1 or readers[0][0].op_type != "Mul":
            raise _refused(self.quantizer, "its codes are decoded in another way")
        node, index = readers[0]
        scale = self.model.constant(node.input[1 - index])
        zero = np.zeros((), np.float32) if shift is None else self.model.constant(shift.input[1])
        if scale is None or zero is None:
            raise _refused(self.quantizer, "its scale or zero point is computed")
        mask = self.channels.mask(scale)
        codes = zero.astype(data.dtype)
        if self.even:
            self.model.give(cast, 0, _evened(data, mask, -1))
            return
        factor = _factors(data, codes, scale, mask, -1)
        self.model.give(cast, 0, _narrowed(data, codes, factor, -1))
        self.model.give(node, 1 - index, _scaled(scale, factor))
        new = _new_zero(codes, factor)
        if new is not None and shift is None:
            raise _refused(self.quantizer, "its codes have no zero point to be moved")
        if new is not None and shift is not None:
            self.model.give(shift, 1, new.astype(zero.dtype))


@dataclass(frozen=True)
class _Grid:
    """The ranges of a FakeQuantize.

    Attributes:
        low, high, out_low, out_high: its ranges, in f64.
        step: between levels of the input.
        dtypes: of the model's ranges.
    """

    low: Numbers
    high: Numbers
    out_low: Numbers
    out_high: Numbers
    step: Numbers
    dtypes: tuple[np.dtype[Any], ...]

    @classmethod
    def of(cls, model: Original, node: NodeProto, levels: int, quantizer: Quantizer) -> _Grid:
        """Those of a node, in so many levels.

        Raises:
            UnsupportedOp: they are computed, or turned around.
        """
        ends = [end for name in node.input[1:5] if (end := model.constant(name)) is not None]
        if len(ends) != 4:
            raise _refused(quantizer, "its ranges are computed")
        low, high, out_low, out_high = (end.astype(np.float64) for end in ends)
        if np.any(low >= high):
            raise _refused(quantizer, "its range is turned around")
        step = (high - low) / (levels - 1)
        return cls(low, high, out_low, out_high, step, tuple(end.dtype for end in ends))

    def give(
        self,
        model: Original,
        node: NodeProto,
        low: Numbers,
        high: Numbers,
        mask: npt.NDArray[np.bool_] | np.bool_,
    ) -> None:
        """Gives the node another range where the mask says, and the outputs that belong to it."""
        ratio = (self.out_high - self.out_low) / (self.high - self.low)
        news = (
            low,
            high,
            self.out_low + (low - self.low) * ratio,
            self.out_low + (high - self.low) * ratio,
        )
        olds = (self.low, self.high, self.out_low, self.out_high)
        for index, (new, old, dtype) in enumerate(zip(news, olds, self.dtypes, strict=True), 1):
            model.give(node, index, np.where(mask, new, old).astype(dtype))


def _code_type(node: NodeProto) -> npt.DTypeLike:
    """Of the codes of a QuantizeLinear without zero point."""
    wanted = next((item.i for item in node.attribute if item.name == "output_dtype"), 0)
    return helper.tensor_dtype_to_np_dtype(wanted) if wanted else np.uint8


def _middle(codes: Numbers) -> int:
    return 128 if codes.dtype == np.uint8 else 0


def _spread(array: Numbers, rank: int, axis: int) -> Numbers:
    """Parameters as they broadcast against data: 1-D ones run along an axis."""
    if array.size == 1:
        return array.reshape(())
    if array.ndim != 1:
        return array
    shape = [1] * rank
    shape[axis] = array.size
    return array.reshape(shape)


def _factors(
    data: Numbers, zero: Numbers, scale: Numbers, mask: npt.NDArray[np.bool_], axis: int
) -> Factors:
    """How many times as large a step becomes: one for each of the scales, 1 where the mask leaves it."""
    _check(data)
    apart = np.abs(data - _spread(zero.astype(np.float64), data.ndim, axis))
    steps = _spread(scale, data.ndim, axis)
    kept = (1,) * (data.ndim - steps.ndim) + steps.shape
    others = tuple(i for i, size in enumerate(kept) if size == 1)
    reach = apart.max(axis=others, keepdims=True, initial=0)
    found = np.maximum(np.broadcast_to(reach, kept).reshape(scale.shape) / _HALF, 2.0)
    return np.where(mask, found, 1.0)


def _scaled(scale: Numbers, factor: Factors) -> Numbers:
    return np.asarray(scale * factor, scale.dtype)


def _new_zero(zero: Numbers, factor: Factors) -> Numbers | None:
    """The zero points of 7 bits, in the middle; None where none changes."""
    found = np.asarray(np.where(factor > 1, _middle(zero), zero), zero.dtype)
    return None if np.all(found == zero) else found


def _check(data: Numbers) -> None:
    if data.dtype not in (np.int8, np.uint8):
        raise UnsupportedOp(f"weights of {data.dtype} have no 8 bits to be made 7", hint=_EXPORT)


def _narrowed(data: Numbers, zero: Numbers, factor: Factors, axis: int) -> Numbers:
    """Codes of 7 bits, where the factor is not 1."""
    by, z = (_spread(a, data.ndim, axis) for a in (factor, zero.astype(np.float64)))
    new = np.rint((data - z) / by) + _middle(data)
    return np.asarray(np.where(by > 1, new, data), data.dtype)


def _evened(data: Numbers, mask: npt.NDArray[np.bool_] | np.bool_, axis: int) -> Numbers:
    """Even codes, where the mask says."""
    _check(data)
    centred = data.astype(np.float32) - _middle(data)
    new = np.clip(2 * np.rint(centred / 2), -128, 126)
    where = _spread(np.asarray(mask), data.ndim, axis)
    return np.asarray(np.where(where, new, centred) + _middle(data), data.dtype)


# -- activations -----------------------------------------------------------------------------------


def _fewer_levels(model: Original, node: NodeProto, quantizer: Quantizer) -> None:
    """FakeQuantize: 128 levels, with a zero point that is an integer."""
    levels = next((item for item in node.attribute if item.name == "levels"), None)
    if levels is None or levels.i not in (255, 256):
        raise _refused(quantizer, "its levels are not 256")
    grid = _Grid.of(model, node, _LARGEST + 1, quantizer)
    zero = np.rint(-grid.low / grid.step)
    there = np.abs(zero * grid.step + grid.low) < _SLIGHT * grid.step
    low = np.where(there, grid.low, -zero * grid.step)
    high = np.where(there, grid.high, low + _LARGEST * grid.step)
    levels.i = _LARGEST + 1
    grid.give(model, node, low, high, np.bool_(True))


def _fewer_codes(model: Original, node: NodeProto, quantizer: Quantizer) -> None:
    """QuantizeLinear: a wider step, and a Clip behind that ends at 127."""
    scale = model.constant(node.input[1])
    named = len(node.input) > 2 and bool(node.input[2])
    zero = model.constant(node.input[2]) if named else np.zeros((), _code_type(node))
    if scale is None or zero is None or zero.dtype not in (np.uint8, np.int8):
        raise _refused(quantizer, "its scale or zero point is computed, or no 8-bit code")
    if model.opset() < _CLIP_OF_CODES:
        raise _refused(quantizer, f"opset {model.opset()} has no Clip of codes")
    least = np.iinfo(zero.dtype).min
    span = np.float64(255) / _LARGEST
    new_scale = (scale.astype(np.float64) * span).astype(scale.dtype)
    new_zero = (np.rint((zero.astype(np.float64) - least) / span) + least).astype(zero.dtype)
    value = node.output[0]
    decoders = _decoders(model, value, quantizer)
    model.give(node, 1, new_scale)
    ends = (np.asarray(end, zero.dtype) for end in (least, least + _LARGEST))
    for each in (node, *decoders):
        if each is not node:
            model.give(each, 1, new_scale)
        if named or np.any(new_zero):
            model.give(each, 2, new_zero)
    model.put_behind(value, "Clip", *ends)


def _decoders(model: Original, value: str, quantizer: Quantizer) -> list[NodeProto]:
    """The DequantizeLinear behind codes."""
    if model.is_output(value):
        raise _refused(quantizer, "the model returns its codes")
    found: list[NodeProto] = []
    for node, index in model.readers(value):
        if node.op_type == "DequantizeLinear" and not index:
            found.append(node)
        elif node.op_type in _MOVES and not index:
            found += _decoders(model, node.output[0], quantizer)
        else:
            raise _refused(quantizer, f"{node.op_type} reads its codes")
    return found
