"""Writing literals of the text form: names, numbers, types, attributes, constant data.
docs/contributing/text-form.md has the grammar.

Every literal reads back to exactly the same value. A decimal number means the nearest f32, which is
what models hold; a float that is no f32 value is written in full with the suffix `d`. A NaN that is
not the usual quiet one is written by its bits.

In the display form (`Writer(display=True)`) long lists are shortened to `[64 values 0.001..0.02]`
and data is named by digest only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..errors import is_printable, printable
from .ops.spec import Array, Attr
from .types import DType, Quantization, TensorType

INLINE = 16
"""Constants of up to so many elements are written in place."""

_INLINE_BYTES = 48
_SHOWN = 8  # the display form shortens longer lists of scales
_WRAP = 120

BARE_NAME = re.compile(r"[A-Za-z0-9_./:$-]*[A-Za-z0-9_]")
BARE_DIM = re.compile(r"[A-Za-z0-9_(][A-Za-z0-9_.+*/()-]*")
_INTEGER = re.compile(r"-?[0-9]+")
_LONG = re.compile(r'"(?:[^"\\]|\\.)*+"|(?<![A-Za-z0-9_.+*/()$:-])[A-Za-z0-9_.+*/()$:-]{500,}+')
"""A string, or a name or dimension that takes 500 characters and more without one."""


def string_text(text: str) -> str:
    """A quoted string with JSON's escapes; readable Unicode stays, everything else is escaped, so
    it never breaks the line.
    """
    return json.dumps(text, ensure_ascii=not is_printable(text))


def name_text(name: str) -> str:
    """A name: as it is where it has only letters, digits and `_./:$-`, quoted otherwise."""
    return name if BARE_NAME.fullmatch(name) else string_text(name)


def canonical_nan(dtype: np.dtype[np.generic]) -> int:
    """The bits of the quiet NaN that is written as `nan`: sign 0, payload 0."""
    return {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}[dtype.itemsize]


def _bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


def _float_text(value: float) -> str:
    """A float so that it reads back to the same 64 bits, always recognisable as a float."""
    if math.isnan(value):
        bits = _bits(value)
        return "nan" if bits == 0x7FF8000000000000 else f"nan:{bits:016x}"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    with np.errstate(over="ignore", under="ignore"):
        text = str(np.float32(value))
        # Decimals are read as f64 and then rounded to f32; the comparison covers the double
        # rounding, too.
        return text if float(np.float32(float(text))) == value else f"{value!r}d"


def _number_text(value: float) -> str:
    """A float where only floats can stand: integers go without a point."""
    value = float(value)
    # that one is -0.0
    plain = (
        math.isfinite(value) and value.is_integer() and abs(value) < 1e6 and _bits(value) != 1 << 63
    )
    return str(int(value)) if plain else _float_text(value)


def _element_texts(data: Array) -> list[str]:
    """The elements in C order; the array has few, or is one of strings."""
    flat = data.reshape(-1)
    if data.dtype.kind == "O":
        return [
            string_text(v) if isinstance(v, str) else f'b"{base64.b64encode(bytes(v)).decode()}"'
            for v in flat.tolist()
        ]
    if data.dtype.kind == "b":
        return ["true" if v else "false" for v in flat.tolist()]
    if data.dtype.kind in "iu":
        return [str(v) for v in flat.tolist()]
    bits = np.ascontiguousarray(flat).view(f"u{data.dtype.itemsize}").tolist()
    return [_array_float(v, b, data.dtype) for v, b in zip(flat, bits, strict=True)]


def _array_float(value: np.generic, bits: int, dtype: np.dtype[np.generic]) -> str:
    if value != value:  # noqa: PLR0124  # NaN
        return "nan" if bits == canonical_nan(dtype) else f"0x{bits:x}"
    text = str(value)
    with np.errstate(all="ignore"):
        same = dtype.type(float(text)) == value
    return text if same else repr(float(value))


def _little_endian(data: Array) -> bytes:
    return np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<"), copy=False).tobytes()


class Writer:
    """Writes literals of one text, and collects the data that goes into its trailing section.

    Args:
        display: write the form for people: long lists shortened, no data section. It does not read
            back.
        in_place: write long byte strings in place, for a literal that stands outside a text with a
            data section.
    """

    def __init__(self, display: bool = False, *, in_place: bool = False) -> None:
        self.display = display
        self._in_place = in_place
        self._data: dict[str, bytes] = {}

    def value(self, name: str, constants: Mapping[str, object]) -> str:
        """A reference to a value: `@name` for constants, `%name` for others, `_` for an absent
        one.
        """
        if not name:
            return "_"
        return ("@" if name in constants else "%") + name_text(name)

    def type(self, type_: TensorType) -> str:
        """`u8[1,64,56,56]{s=0.02,z=0}`."""
        dims = "*" if type_.shape is None else ",".join(map(self._dim, type_.shape))
        return f"{type_.dtype.value}[{dims}]" + (
            "" if type_.quant is None else self.quant(type_.quant)
        )

    @staticmethod
    def _dim(dim: int | str) -> str:
        if isinstance(dim, int):
            return str(dim)
        return dim if BARE_DIM.fullmatch(dim) and not _INTEGER.fullmatch(dim) else string_text(dim)

    def quant(self, quant: Quantization) -> str:
        """`{s=0.02,z=3}`, `{s=[0.1,0.2],z=[0,0],axis=0}`."""
        axis = "" if quant.axis is None else f",axis={quant.axis}"
        return f"{{s={self.numbers(quant.scale)},z={self.numbers(quant.zero_point)}{axis}}}"

    def numbers(self, values: Sequence[float]) -> str:
        """One number, or a list of them."""
        return _number_text(values[0]) if len(values) == 1 else self.listing(values)

    def listing(self, values: Sequence[float]) -> str:
        """A list of numbers, shortened in the display form."""
        if self.display and len(values) > _SHOWN:
            return (
                f"[{len(values)} values {_number_text(min(values))}..{_number_text(max(values))}]"
            )
        return "[" + ",".join(map(_number_text, values)) + "]"

    def attr(self, value: Attr) -> str:
        """An attribute's value. The type shows: `1` is an int, `1.0` a float, `true` a bool, `"a"`
        a string, `u8` an element type.
        """
        if value is None:
            return "none"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return _float_text(value)
        if isinstance(value, str):
            return string_text(value)
        if isinstance(value, bytes):
            return self._bytes(value)
        if isinstance(value, DType):
            return value.value
        if isinstance(value, TensorType):
            return self.type(value)
        if isinstance(value, Quantization):
            return self.quant(value)
        return self._tuple(value)

    def _tuple(self, values: tuple[Attr, ...]) -> str:
        if (
            self.display
            and len(values) > 2 * _SHOWN
            and all(isinstance(v, float | int) for v in values)
        ):
            return f"[{len(values)} values {self.attr(values[0])}..{self.attr(values[-1])}]"
        return "[" + ",".join(map(self.attr, values)) + "]"

    def attrs(self, attrs: Mapping[str, Attr]) -> str:
        """`{alpha=0.1,axis=1}` in the order of the names; nothing when there are none."""
        return (
            "{"
            + ",".join(f"{name_text(name)}={self.attr(attrs[name])}" for name in sorted(attrs))
            + "}"
            if attrs
            else ""
        )

    def _bytes(self, value: bytes) -> str:
        if self._in_place or len(value) <= _INLINE_BYTES:
            return f'b"{base64.b64encode(value).decode()}"'
        return f"b{self._stored(value)}:{len(value)}"

    def constant(self, data: Array) -> str:
        """What follows `=` in a constant's line: the elements, `fill(x)`, or a digest with the
        range behind it.
        """
        strings = data.dtype.kind == "O"
        if data.size <= INLINE or (strings and not self.display):
            return self._listed(data)
        if strings:
            return f"[{data.size} values]"
        raw = _little_endian(data)
        size = data.dtype.itemsize
        if raw == raw[:size] * data.size:
            return f"fill({_element_texts(data.reshape(-1)[:1])[0]})"
        return f"{self._stored(raw)} ; {_range_text(data)}"

    @staticmethod
    def _listed(data: Array) -> str:
        texts = _element_texts(data)
        return texts[0] if data.ndim == 0 else "[" + ",".join(texts) + "]"

    def _stored(self, raw: bytes) -> str:
        full = hashlib.sha256(raw).hexdigest()
        length = 16
        # two different data with the same short digest
        while self._data.get(full[:length], raw) != raw:
            length += 8
        self._data[full[:length]] = raw
        return "#" + full[:length]

    def data_lines(self) -> list[str]:
        """The trailing section: digest, then the base64 of the zlib stream of the little-endian
        bytes; empty in the display form.
        """
        if self.display or not self._data:
            return []
        lines = ["data"]
        for digest, raw in self._data.items():
            text = base64.b64encode(zlib.compress(raw, 6)).decode()
            lines.append(f"  #{digest}")
            lines += [f"    {text[i : i + _WRAP]}" for i in range(0, len(text), _WRAP)]
        return lines


def type_text(type_: TensorType) -> str:
    """A type for messages: as in the text form, with long lists of scales shortened."""
    return Writer(display=True).type(type_)


def shortened(text: str) -> str:
    """A text form for people: the middle of names and strings is left out that `printable` finds
    too long; all else stays as it is.
    """
    return _LONG.sub(lambda literal: printable(literal[0]), text)


def _range_text(data: Array) -> str:
    if data.dtype.kind == "b":
        return f"{int(np.count_nonzero(data))} of {data.size} true"
    finite: npt.NDArray[np.generic] = data[np.isfinite(data)] if data.dtype.kind == "f" else data
    if not finite.size:
        return "nothing finite"
    return f"{finite.min()!s}..{finite.max()!s}"
