"""Keys and values of the past that are kept as codes: GroupQueryAttention with k_scale and v_scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...errors import UnsupportedOp
from ...ir.types import DType
from .block_floats import clipped
from .derived import Derived
from .heads import known_size

_WIDTHS: Final = {DType.S8: 8, DType.U8: 4, DType.F8E4M3FN: 8}
_KINDS: Final = ("NONE", "PER_TENSOR", "PER_CHANNEL")
_MIDDLE: Final = 8
"""What is added to codes of 4 bits."""


@dataclass(frozen=True)
class Coding:
    """How f32 [B, N, T, H] become codes, and codes f32.

    Attributes:
        at: the attention.
        kind: the type of the buffer; u8 holds two codes of 4 bits in a byte.
        scale: f32, broadcast to the values.
    """

    at: Derived
    kind: DType
    scale: str

    def encoded(self, value: str) -> str:
        """Codes, as the buffer has them."""
        at = self.at
        codes = at.real("Div", [value, self.scale], role="in scales")
        if self.kind is not DType.F8E4M3FN:
            low, high = (-_MIDDLE, _MIDDLE - 1) if self.kind is DType.U8 else self.kind.range
            codes = clipped(at, at.real("Round", [codes], role="codes"), low, high)
        if self.kind is DType.U8:
            codes = self._joined(codes)
        return at.ctx.cast(at.node, codes, self.kind, "new codes")

    def decoded(self, codes: str) -> str:
        """What codes of the buffer stand for."""
        at = self.at
        value = at.ctx.cast(at.node, codes, DType.F32, "real codes")
        if self.kind is DType.U8:
            value = self._apart(value)
        return at.real("Mul", [value, self.scale], role="decoded")

    def _joined(self, codes: str) -> str:
        """[.., H] of 4 bits as bytes [.., H / 2], in f32."""
        at, size = self.at, known_size(self.at, codes, -1, "size of a head")
        if size % 2:
            raise at.node.invalid(f"heads of {size} codes of 4 bits do not fill bytes")
        codes = at.real("Add", [codes, at.constant("middle", _MIDDLE)], role="from 0")
        pairs = at.real("Reshape", [codes, at.integers("pairs", (0, 0, 0, -1, 2))], role="pairs")
        weighed = at.real("Mul", [pairs, at.constant("weights", (1, 16))], role="weighed")
        axes = at.integers("last", [-1])
        return at.real("ReduceSum", [weighed, axes], {"keepdims": 0}, role="bytes")

    def _apart(self, value: str) -> str:
        """Bytes [.., H / 2] in f32 as codes [.., H]."""
        at, size = self.at, known_size(self.at, value, -1, "size of a row of bytes")
        upper = at.real("Mul", [value, at.constant("sixteenth", 1 / 16)], role="sixteenth of byte")
        upper = at.real("Floor", [upper], role="upper")
        less = at.real("Mul", [upper, at.constant("sixteen", 16)], role="less")
        lower = at.real("Sub", [value, less], role="lower")
        pairs = at.stacked([lower, upper], axis=4)
        codes = at.real("Reshape", [pairs, at.integers("row", (0, 0, -1, 2 * size))], role="row")
        return at.real("Sub", [codes, at.constant("middle of codes", _MIDDLE)], role="signed")


def coding_of(at: Derived, index: int) -> Coding | None:
    """The coding of past keys (0) or values (1), None where they are floats.

    Raises:
        InvalidModel: type, scale and attributes do not fit together.
        UnsupportedOp: codes of another type.
    """
    letter, past, scale = "kv"[index], at.input(3 + index), at.input(12 + index)
    attrs, kind = at.node.attrs, at.ctx.type(past).dtype
    how, bits = attrs[f"{letter}_quant_type"], attrs["kv_cache_bit_width"]
    if how not in _KINDS:
        raise at.node.invalid(f"{letter}_quant_type is {how!r}, and may be {', '.join(_KINDS)}")
    floats = kind.is_float and not kind.is_small_float
    if floats != (how == "NONE") or (not floats and not scale):
        found = f"{kind.value}, {letter}_quant_type {how}, {'a' if scale else 'no'} {letter}_scale"
        raise at.node.invalid(f"codes of the past need a quant_type and a scale, found {found}")
    if floats:
        return None
    if _WIDTHS.get(kind) != bits:
        raise UnsupportedOp(
            f"{at.node.op} with a past of {kind.value} and kv_cache_bit_width {bits}",
            where=at.node.where,
            hint="keep int8 or float8e4m3fn with 8 bits, or uint8 with 4",
        )
    return Coding(at, kind, at.ctx.cast(at.node, scale, DType.F32, f"{letter} scale"))
