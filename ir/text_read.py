"""Reading literals of the text form: types, attributes and the data of constants. docs/text-form.md
has the grammar.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping

import numpy as np

from .ops.spec import Array, Attr
from .text_cursor import INT, NUMBER, Cursor
from .text_write import BARE_DIM, canonical_nan, type_text
from .types import Dim, DType, Quantization, TensorType

_BITS = re.compile(r"0x[0-9a-f]{1,16}")
_BYTES = re.compile(r'b"([A-Za-z0-9+/=]*)"')
_STORED = re.compile(r"#([0-9a-f]{16,64})")
_DTYPES = {dtype.value: dtype for dtype in DType}
_KEYWORDS: Mapping[str, Attr] = {"none": None, "true": True, "false": False}


class Reader(Cursor):
    """A cursor that also reads types, attributes and constants."""

    # -- types and attributes ----------------------------------------------------------------------

    def dtype(self) -> DType:
        """An element type."""
        start = self.at
        found = _DTYPES.get(self.word("an element type"))
        return found or self.fail("an element type (" + ", ".join(_DTYPES) + ")", at=start)

    def type(self) -> TensorType:
        """`u8[1,64,56,56]{s=0.02,z=0}`."""
        return self._type_from(self.dtype())

    def _type_from(self, dtype: DType) -> TensorType:
        shape = None if self.take("[*]") else tuple(self.listed("[", "]", self._dim))
        return TensorType(dtype, shape, self.quant() if self.peek("{") else None)

    def _dim(self) -> Dim:
        if self.text.startswith('"', self.at):
            return self.string()
        found = self.match(BARE_DIM) or self.match(INT)
        token = found.group() if found else self.fail("a dimension")
        return int(token) if INT.fullmatch(token) else token

    def quant(self) -> Quantization:
        """`{s=0.02,z=3}`, `{s=[0.1,0.2],z=[0,0],axis=0}`."""
        start = self.at
        scale = self._after("{", "s", "=").numbers()
        zero_point = self._after(",", "z", "=").numbers()
        axis = self._after("axis", "=").integer() if self.take(",") else None
        self.expect("}")
        try:
            return Quantization(scale, zero_point, axis)
        except ValueError as error:
            self.fail_with(f"this quantization is impossible: {error}", at=start)

    def _after(self, *tokens: str) -> Reader:
        """The reader, behind the given tokens."""
        for token in tokens:
            self.expect(token)
        return self

    def attr(self) -> Attr:
        """An attribute's value."""
        if self.peek("["):
            return self._tuple()
        if self.text.startswith('"', self.at):
            return self.string()
        if self.peek("{"):
            return self.quant()
        if self.text.startswith(('b"', "b#"), self.at):
            return self._bytes()
        found = self.match(NUMBER)
        if found:
            token = found.group()
            return int(token) if INT.fullmatch(token) else self.float_of(token)
        return self._keyword()

    def _keyword(self) -> Attr:
        start = self.at
        word = self.word("a value of an attribute")
        if word in _KEYWORDS:
            return _KEYWORDS[word]
        if word not in _DTYPES:
            self.fail("a value of an attribute", at=start)
        return self._type_from(_DTYPES[word]) if self.peek("[") else _DTYPES[word]

    def _tuple(self) -> tuple[Attr, ...]:
        self.refuse_elided()
        self.depth += 1
        if self.depth > self.data.limits.depth:
            self.fail_with(f"lists are nested more than {self.data.limits.depth} deep")
        values = tuple(self.listed("[", "]", self.attr))
        self.depth -= 1
        return values

    def _bytes(self) -> bytes:
        found = self.match(_BYTES)
        if found:
            return self._base64(found.group(1))
        self.at += 1  # the `b`
        stored = self.match(_STORED)
        digest = stored.group(1) if stored else self.fail("a digest")
        self.expect(":")
        return self.data.fetch(digest, self.integer(), self)

    def _base64(self, token: str) -> bytes:
        try:
            return base64.b64decode(token, validate=True)
        except binascii.Error:
            self.fail_with("this is no base64")

    def attrs(self) -> dict[str, Attr]:
        """`{alpha=0.1,axis=1}`, or nothing."""
        result: dict[str, Attr] = {}
        if not self.peek("{"):
            return result

        def item() -> None:
            start = self.at
            name = self.name("the name of an attribute")
            if name in result:
                self.fail_with(f"the attribute {name} stands here twice", at=start)
            self.expect("=")
            result[name] = self.attr()

        self.listed("{", "}", item)
        return result

    # -- constants ---------------------------------------------------------------------------------

    def constant(self, type_: TensorType) -> Array:
        """The data of a constant of a static type: elements, `fill(x)`, or `#digest` of the data
        section.
        """
        shape = [d for d in type_.shape or () if isinstance(d, int)]
        if type_.shape is None or len(shape) != len(type_.shape) or any(d < 0 for d in shape):
            self.fail_with(f"the constant's shape is not static: {type_text(type_)}")
        dtype = type_.dtype.numpy
        count = math.prod(shape)
        if len(shape) > 64 or count > 1 << 62:
            self.fail_with(f"no array has the shape {shape}")
        stored = self.match(_STORED)
        if stored:
            if dtype.kind == "O":
                self.fail_with("strings are not kept by digest")
            raw = self.data.fetch(stored.group(1), count * dtype.itemsize, self)
            data = np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype, copy=False)
            return self._shaped(self._checked_bool(data, raw), shape)
        self.data.spend(count * dtype.itemsize, self)
        if self.take("fill"):
            self.expect("(")
            one = self._array([self._element(dtype)], type_.dtype)
            self.expect(")")
            return self._shaped(np.repeat(one, count), shape)
        return self._elements(type_.dtype, shape, count)

    def _checked_bool(self, data: Array, raw: bytes) -> Array:
        if data.dtype.kind == "b" and raw.strip(b"\0\1"):
            self.fail_with("a bool is stored as a byte 0 or 1, found another one")
        return data

    def _elements(self, dtype: DType, shape: list[int], count: int) -> Array:
        self.refuse_elided()
        tokens = (
            [self._element(dtype.numpy)]
            if not shape
            else self.listed("[", "]", lambda: self._element(dtype.numpy))
        )
        if len(tokens) != count:
            self.fail_with(f"expected {count} elements, found {len(tokens)}")
        return self._shaped(self._array(tokens, dtype), shape)

    @staticmethod
    def _shaped(data: Array, shape: list[int]) -> Array:
        data = data.reshape(shape)
        data.setflags(write=False)
        return data

    def _element(self, dtype: np.dtype[np.generic]) -> Attr:
        if dtype.kind == "O":
            return self._bytes() if self.text.startswith('b"', self.at) else self.string()
        if dtype.kind == "b":
            word = self.word("`true` or `false`")
            return word == "true" if word in ("true", "false") else self.fail("`true` or `false`")
        if dtype.kind in "iu":
            return self.integer()
        bits = self.match(_BITS)
        if bits:
            return int(bits.group(), 16)
        token = self.token(NUMBER, "a number")
        return (
            float(token.rstrip("d"))
            if ":" not in token
            else self.fail("a NaN of an array by its bits, as 0x7fc00001")
        )

    def _array(self, tokens: list[Attr], dtype: DType) -> Array:
        numpy = dtype.numpy
        if numpy.kind == "O":
            strings = np.empty(len(tokens), object)
            strings[:] = tokens
            return strings
        if dtype.is_integer:
            low, high = dtype.range
            for token in tokens:
                if not (isinstance(token, int) and low <= token <= high):
                    self.fail_with(f"{token!r} is no {dtype.value}")
        if numpy.kind == "f":
            return self._float_array(tokens, numpy)
        return np.asarray(tokens, numpy)

    def _float_array(self, tokens: list[Attr], numpy: np.dtype[np.generic]) -> Array:
        unsigned = np.dtype(f"u{numpy.itemsize}")
        with np.errstate(all="ignore"):
            floats = np.asarray(
                [0.0 if isinstance(t, int) else t for t in tokens], np.float64
            ).astype(numpy)
        bits = floats.view(unsigned).copy()
        for index, token in enumerate(tokens):
            if isinstance(token, int):
                if token >> (8 * numpy.itemsize):
                    self.fail_with(f"0x{token:x} has more bits than {numpy}")
                bits[index] = token
            elif isinstance(token, float) and math.isnan(token):
                bits[index] = canonical_nan(numpy)
            elif (
                isinstance(token, float) and math.isfinite(token) and not np.isfinite(floats[index])
            ):
                self.fail_with(f"{token} is beyond {numpy}")
        return bits.view(numpy)
