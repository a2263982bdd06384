"""Reading literals of the text form: a cursor over one line, with errors that name line, place and what was expected.

The text may come from anywhere: it is only ever matched with regular expressions and built into plain values, nesting is bounded, and
sizes are compared with `TextLimits` as Python integers before anything of that size is allocated.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

import numpy as np

from ..errors import InvalidModel
from .ops.spec import Array, Attr
from .text_write import BARE_DIM, BARE_NAME, canonical_nan
from .types import Dim, DType, Quantization, TensorType

__all__ = ["Cursor", "DataSection", "TextLimits"]

_T = TypeVar("_T")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_NUMBER = re.compile(r"-?(?:inf|nan(?::[0-9a-f]{16})?|[0-9]{1,400}(?:\.[0-9]{0,400})?(?:[eE][+-]?[0-9]{1,4})?d?)")
_INT = re.compile(r"-?[0-9]{1,400}")
_BITS = re.compile(r"0x[0-9a-f]{1,16}")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BYTES = re.compile(r'b"([A-Za-z0-9+/=]*)"')
_STORED = re.compile(r"#([0-9a-f]{16,64})")
_ELIDED = re.compile(r"\[[0-9]+ values")
_SPACE = re.compile(r"[ \t]*")
_DTYPES = {dtype.value: dtype for dtype in DType}
_KEYWORDS: Mapping[str, Attr] = {"none": None, "true": True, "false": False}


@dataclass(frozen=True)
class TextLimits:
    """Budgets of the parser.

    Attributes:
        chars: length of the text.
        data_bytes: bytes of all constants and byte strings together, decompressed.
        depth: nesting of attribute lists.
    """

    chars: int = 1 << 30
    data_bytes: int = 1 << 31
    depth: int = 32


@dataclass
class DataSection:
    """The trailing section of a text: digest -> base64 of a zlib stream; hands out what was asked for, within the budget."""

    limits: TextLimits = field(default_factory=TextLimits)
    entries: dict[str, list[str]] = field(default_factory=dict)
    spent: int = 0

    def spend(self, size: int, cursor: Cursor) -> None:
        """Counts bytes that are about to be allocated.

        Raises:
            InvalidModel: the budget is used up.
        """
        self.spent += size
        if self.spent > self.limits.data_bytes:
            cursor.fail_with(f"constants take more than {self.limits.data_bytes} bytes", hint="raise TextLimits.data_bytes")

    def fetch(self, digest: str, size: int, cursor: Cursor) -> bytes:
        """The `size` bytes stored under a digest.

        Raises:
            InvalidModel: they are missing, of another size, damaged, or over budget.
        """
        self.spend(size, cursor)
        if digest not in self.entries:
            cursor.fail_with(f"the data of #{digest} is not in the text", hint="print with data='full' to get a text that can be read back")
        try:
            packed = base64.b64decode("".join(self.entries[digest]), validate=True)
            unpacker = zlib.decompressobj()
            raw = unpacker.decompress(packed, size + 1)  # bounded: a stream that grows beyond its constant is refused, not unpacked
        except (binascii.Error, ValueError, zlib.error) as error:
            cursor.fail_with(f"the data of #{digest} is damaged ({error})")
        if len(raw) != size:
            cursor.fail_with(f"the data of #{digest} is not {size} bytes long")
        if not hashlib.sha256(raw).hexdigest().startswith(digest):
            cursor.fail_with(f"the data of #{digest} does not have that digest")
        return raw


class Cursor:
    """A place in one line of a text form.

    Args:
        text: the line.
        line: its number, from 1; 0 for text that is not part of a file (`source` then says what it is).
        data: the text's data section.
        source: what is being read, for errors.
    """

    def __init__(self, text: str, line: int = 0, data: DataSection | None = None, source: str = "") -> None:
        self.text = text
        self.line = line
        self.data = data if data is not None else DataSection()
        self.source = source
        self.at = 0
        self._depth = 0
        self.space()

    # -- errors ----------------------------------------------------------------------------------------------------------------

    def fail(self, expected: str) -> NoReturn:
        """Raises InvalidModel: something else was expected here."""
        rest = self.text[self.at : self.at + 24]
        self.fail_with(f"expected {expected}, found {json.dumps(rest, ensure_ascii=False) if rest else 'the end of the line'}")

    def fail_with(self, what: str, *, hint: str = "the grammar is in docs/text-form.md") -> NoReturn:
        """Raises InvalidModel about this place."""
        start = max(0, self.at - 60)
        shown = self.text[start : self.at + 60]
        pointer = " " * (self.at - start) + "^"
        place = f"line {self.line}" if self.line else "text"
        head = f"{self.source}, {place}" if self.source else place
        raise InvalidModel(f"the text form cannot be read: {what}", where=f"{head}, column {self.at + 1}\n    {shown}\n    {pointer}", hint=hint)

    # -- tokens ----------------------------------------------------------------------------------------------------------------

    def space(self) -> None:
        """Skips blanks."""
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    @property
    def done(self) -> bool:
        """True at the end of the line."""
        return self.at >= len(self.text)

    def end(self) -> None:
        """Demands the end of the line."""
        if not self.done:
            self.fail("the end of the line")

    def peek(self, token: str) -> bool:
        """True when the given punctuation or word comes next."""
        if not self.text.startswith(token, self.at):
            return False
        after = self.text[self.at + len(token) : self.at + len(token) + 1]
        return not (token[-1].isalnum() and (after.isalnum() or after == "_"))

    def take(self, token: str) -> bool:
        """Skips the given token if it comes next."""
        if not self.peek(token):
            return False
        self.at += len(token)
        self.space()
        return True

    def expect(self, token: str) -> None:
        """Demands the given token."""
        if not self.take(token):
            self.fail(f"`{token}`")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Skips what the pattern matches here."""
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
            self.space()
        return found

    def word(self, expected: str) -> str:
        """A word of letters, digits and underscores."""
        found = self.match(_WORD)
        return found.group() if found else self.fail(expected)

    def string(self, expected: str = "a quoted string") -> str:
        """A quoted string."""
        start = self.at
        found = self.match(_STRING)
        if not found:
            self.fail(expected)
        try:
            return str(json.loads(found.group()))
        except ValueError:
            self.at = start
            self.fail("a string with valid escapes")

    def name(self, expected: str = "a name") -> str:
        """A bare or quoted name."""
        if self.text.startswith('"', self.at):
            return self.string(expected)
        found = self.match(BARE_NAME)
        return found.group() if found else self.fail(expected)

    def names(self) -> tuple[str, ...]:
        """Names with commas between them; `[]` for none."""
        if self.take("["):
            self.expect("]")
            return ()
        return tuple(self.separated(self.name))

    def separated(self, item: Callable[[], _T]) -> list[_T]:
        """One or more items with commas between them."""
        items = [item()]
        while self.take(","):
            items.append(item())
        return items

    def listed(self, opening: str, closing: str, item: Callable[[], _T]) -> list[_T]:
        """Items in brackets, maybe none."""
        self.expect(opening)
        if self.take(closing):
            return []
        items = self.separated(item)
        self.expect(closing)
        return items

    def reference(self) -> tuple[str, str]:
        """A value: (`%` or `@`, its name), or (`_`, '') for an absent one."""
        for sigil in "%@":
            if self.text.startswith(sigil, self.at):
                self.at += 1
                name = self.name("the name of a value")
                return (sigil, name) if name else self.fail("a value's name, which is never empty")
        if self.take("_"):
            return "_", ""
        self.fail("a value (`%name`, `@constant` or `_`)")

    # -- numbers ---------------------------------------------------------------------------------------------------------------

    def integer(self, expected: str = "an integer") -> int:
        """An integer."""
        found = self.match(_INT)
        return int(found.group()) if found else self.fail(expected)

    def number(self, expected: str = "a number") -> float:
        """A float: the nearest f32 value of the decimal, or the f64 value where it ends in `d`."""
        found = self.match(_NUMBER)
        return self._float(found.group()) if found else self.fail(expected)

    def _float(self, token: str) -> float:
        if ":" in token:
            value: float = struct.unpack("<d", int(token.split(":")[1], 16).to_bytes(8, "little"))[0]
            return value
        if token == "nan":
            return math.nan
        if token.endswith("d"):
            return float(token[:-1])
        value = float(token)
        with np.errstate(over="ignore", under="ignore"):
            narrow = float(np.float32(value))
        if math.isinf(narrow) and "inf" not in token:
            self.fail_with(f"{token} is beyond f32", hint="a number of f64 ends in `d`")
        return narrow

    def numbers(self) -> tuple[float, ...]:
        """One number or a list."""
        if not self.peek("["):
            return (self.number(),)
        self.refuse_elided()
        return tuple(self.listed("[", "]", self.number))

    def refuse_elided(self) -> None:
        """Stops at a list that the display form shortened."""
        if _ELIDED.match(self.text, self.at):
            self.fail_with("this list was shortened for reading", hint="print with data='full' to get a text that can be read back")

    # -- types and attributes --------------------------------------------------------------------------------------------------

    def dtype(self) -> DType:
        """An element type."""
        start = self.at
        found = _DTYPES.get(self.word("an element type"))
        if found is None:
            self.at = start
            self.fail("an element type (" + ", ".join(_DTYPES) + ")")
        return found

    def type(self) -> TensorType:
        """`u8[1,64,56,56]{s=0.02,z=0}`."""
        return self._type_from(self.dtype())

    def _type_from(self, dtype: DType) -> TensorType:
        shape: tuple[Dim, ...] | None
        if self.take("[*]"):
            shape = None
        else:
            shape = tuple(self.listed("[", "]", self._dim))
        return TensorType(dtype, shape, self.quant() if self.peek("{") else None)

    def _dim(self) -> Dim:
        if self.text.startswith('"', self.at):
            return self.string()
        found = self.match(BARE_DIM) or self.match(_INT)
        token = found.group() if found else self.fail("a dimension")
        return int(token) if _INT.fullmatch(token) else token

    def quant(self) -> Quantization:
        """`{s=0.02,z=3}`, `{s=[0.1,0.2],z=[0,0],axis=0}`."""
        start = self.at
        self.expect("{")
        self.expect("s")
        self.expect("=")
        scale = self.numbers()
        self.expect(",")
        self.expect("z")
        self.expect("=")
        zero_point = self.numbers()
        axis = None
        if self.take(","):
            self.expect("axis")
            self.expect("=")
            axis = self.integer()
        self.expect("}")
        try:
            return Quantization(scale, zero_point, axis)
        except ValueError as error:
            self.at = start
            self.fail_with(f"this quantization is impossible: {error}")

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
        found = self.match(_NUMBER)
        if found:
            token = found.group()
            return int(token) if _INT.fullmatch(token) else self._float(token)
        return self._keyword()

    def _keyword(self) -> Attr:
        start = self.at
        word = self.word("a value of an attribute")
        if word in _KEYWORDS:
            return _KEYWORDS[word]
        if word not in _DTYPES:
            self.at = start
            self.fail("a value of an attribute")
        return self._type_from(_DTYPES[word]) if self.peek("[") else _DTYPES[word]

    def _tuple(self) -> tuple[Attr, ...]:
        self.refuse_elided()
        self._depth += 1
        if self._depth > self.data.limits.depth:
            self.fail_with(f"lists are nested more than {self.data.limits.depth} deep")
        values = tuple(self.listed("[", "]", self.attr))
        self._depth -= 1
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
                self.at = start
                self.fail_with(f"the attribute {name} stands here twice")
            self.expect("=")
            result[name] = self.attr()

        self.listed("{", "}", item)
        return result

    # -- constants -------------------------------------------------------------------------------------------------------------

    def constant(self, type_: TensorType) -> Array:
        """The data of a constant of a static type: elements, `fill(x)`, or `#digest` of the data section."""
        shape = [d for d in type_.shape or () if isinstance(d, int)]
        if type_.shape is None or len(shape) != len(type_.shape) or any(d < 0 for d in shape):
            self.fail_with(f"the constant's shape is not static: {type_}")
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
        tokens = [self._element(dtype.numpy)] if not shape else self.listed("[", "]", lambda: self._element(dtype.numpy))
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
            return {"true": True, "false": False}[word] if word in ("true", "false") else self.fail("`true` or `false`")
        if dtype.kind in "iu":
            return self.integer()
        bits = self.match(_BITS)
        if bits:
            return int(bits.group(), 16)
        found = self.match(_NUMBER)
        token = found.group() if found else self.fail("a number")
        return float(token.rstrip("d")) if ":" not in token else self.fail("a NaN of an array by its bits, as 0x7fc00001")

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
                    self.fail_with(f"{token} is no {dtype.value}")
        if numpy.kind == "f":
            return self._float_array(tokens, numpy)
        return np.asarray(tokens, numpy)

    def _float_array(self, tokens: list[Attr], numpy: np.dtype[np.generic]) -> Array:
        unsigned = np.dtype(f"u{numpy.itemsize}")
        with np.errstate(all="ignore"):
            floats = np.asarray([0.0 if isinstance(t, int) else t for t in tokens], np.float64).astype(numpy)
        bits = floats.view(unsigned).copy()
        for index, token in enumerate(tokens):
            if isinstance(token, int):
                if token >> (8 * numpy.itemsize):
                    self.fail_with(f"0x{token:x} has more bits than {numpy}")
                bits[index] = token
            elif isinstance(token, float) and math.isnan(token):
                bits[index] = canonical_nan(numpy)
            elif isinstance(token, float) and math.isfinite(token) and not np.isfinite(floats[index]):
                self.fail_with(f"{token} is beyond {numpy}")
        return bits.view(numpy)
