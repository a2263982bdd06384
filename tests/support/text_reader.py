"""Reading the data of constants in the text form, on top of the package's own reader of types and attributes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
import zlib
from dataclasses import dataclass, field

import numpy as np

from fqfuse.ir.ops.spec import Array, Attr
from fqfuse.ir.text_cursor import NUMBER, Cursor
from fqfuse.ir.text_read import Reader
from fqfuse.ir.text_write import canonical_nan, type_text
from fqfuse.ir.types import DType, TensorType

_BITS = re.compile(r"0x[0-9a-f]{1,16}")
_STORED = re.compile(r"#([0-9a-f]{16,64})")


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
    """The trailing section of a text: digest -> base64 of a zlib stream; hands out what was asked
    for, within the budget.
    """

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
            cursor.fail_with(
                f"constants take more than {self.limits.data_bytes} bytes",
                hint="raise TextLimits.data_bytes",
            )

    def fetch(self, digest: str, size: int, cursor: Cursor) -> bytes:
        """The `size` bytes stored under a digest.

        Raises:
            InvalidModel: they are missing, of another size, damaged, or over budget.
        """
        self.spend(size, cursor)
        if digest not in self.entries:
            cursor.fail_with(
                f"the data of #{digest} is not in the text",
                hint="print with data='full' to get a text that can be read back",
            )
        try:
            packed = base64.b64decode("".join(self.entries[digest]), validate=True)
            unpacker = zlib.decompressobj()
            # bounded: a stream that grows beyond its constant is refused, not unpacked
            raw = unpacker.decompress(packed, size + 1)
        except (binascii.Error, ValueError, zlib.error) as error:
            cursor.fail_with(f"the data of #{digest} is damaged ({error})")
        if len(raw) != size:
            cursor.fail_with(f"the data of #{digest} is not {size} bytes long")
        if not hashlib.sha256(raw).hexdigest().startswith(digest):
            cursor.fail_with(f"the data of #{digest} does not have that digest")
        return raw


class TextReader(Reader):
    """A reader of a line of a text.

    Args:
        text: the line.
        line: its number, from 1.
        data: the text's data section.
        source: what is being read, for errors.
    """

    def __init__(self, text: str, line: int, data: DataSection, source: str) -> None:
        super().__init__(text, line, source)
        self.data, self.most_nested = data, data.limits.depth

    def _bytes(self) -> bytes:
        if not self.text.startswith("b#", self.at):
            return super()._bytes()
        self.at += 1  # the `b`
        digest = self.token(_STORED, "a digest")[1:]
        self.expect(":")
        return self.data.fetch(digest, self.integer(), self)

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
