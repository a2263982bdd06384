"""Reading literals of the text form: types and attributes. docs/contributing/text-form.md has the grammar."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

from .ops.spec import Attr
from .text_cursor import INT, NUMBER, Cursor
from .text_write import BARE_DIM
from .types import Dim, DType, Quantization, TensorType

_BYTES = re.compile(r'b"([A-Za-z0-9+/=]*)"')
_DTYPES = {dtype.value: dtype for dtype in DType}
_KEYWORDS: Mapping[str, Attr] = {"none": None, "true": True, "false": False}


class Reader(Cursor):
    """A cursor that also reads types and attributes.

    Attributes:
        most_nested: how deep the lists of an attribute may be nested.
    """

    most_nested = 32

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
        if self.depth > self.most_nested:
            self.fail_with(f"lists are nested more than {self.most_nested} deep")
        values = tuple(self.listed("[", "]", self.attr))
        self.depth -= 1
        return values

    def _bytes(self) -> bytes:
        found = self.match(_BYTES)
        if found is None:
            self.fail('bytes in base64, as b"..."')
        try:
            return base64.b64decode(found.group(1), validate=True)
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
