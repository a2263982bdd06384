"""Reading tokens of the text form: a cursor over one line, with errors that name line, place and
what was expected.

The text may come from anywhere: it is only ever matched with regular expressions and built into
plain values, and nesting is bounded.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

import numpy as np

from ..errors import InvalidModel, printable
from .text_write import BARE_NAME

_T = TypeVar("_T")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
NUMBER = re.compile(
    r"-?(?:inf|nan(?::[0-9a-f]{16})?|[0-9]{1,400}(?:\.[0-9]{0,400})?(?:[eE][+-]?[0-9]{1,4})?d?)"
)
INT = re.compile(r"-?[0-9]{1,400}")
_DECIMAL = r"-?[0-9]{1,400}(?:\.[0-9]{0,400})?(?:[eE][+-]?[0-9]{1,4})?"
_DECIMALS = re.compile(rf"\[({_DECIMAL}(?:,{_DECIMAL})*)\]")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ELIDED = re.compile(r"\[[0-9]+ values")
_SPACE = re.compile(r"[ \t]*")


class Cursor:
    """A place in one line of a text form.

    Args:
        text: the line.
        line: its number, from 1; 0 for text that is not part of a file (`source` then says what it
            is).
        source: what is being read, for errors.
    """

    def __init__(self, text: str, line: int = 0, source: str = "") -> None:
        self.text = text
        self.line = line
        self.source = source
        self.at = 0
        self.depth = 0
        self.space()

    # -- errors ------------------------------------------------------------------------------------

    def fail(self, expected: str, *, at: int | None = None) -> NoReturn:
        """Raises InvalidModel: something else was expected here, or at another place."""
        self.at = self.at if at is None else at
        rest = self.text[self.at : self.at + 24]
        self.fail_with(
            f"expected {expected}, found {json.dumps(rest, ensure_ascii=False) if rest else 'the end of the line'}"
        )

    def fail_with(
        self,
        what: str,
        *,
        hint: str = "the grammar is in docs/contributing/text-form.md",
        at: int | None = None,
    ) -> NoReturn:
        """Raises InvalidModel about this place, or another one."""
        self.at = self.at if at is None else at
        start = max(0, self.at - 60)
        shown = self.text[start : self.at + 60]
        pointer = " " * (self.at - start) + "^"
        place = f"line {self.line}" if self.line else "text"
        head = f"{self.source}, {place}" if self.source else place
        excerpt = f"    {printable(shown)}\n    {pointer}"
        raise InvalidModel(
            f"the text form cannot be read: {what}",
            where=f"{head}, column {self.at + 1}",
            hint=hint,
            excerpt=excerpt,
        )

    # -- tokens ------------------------------------------------------------------------------------

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

    def token(self, pattern: re.Pattern[str], expected: str) -> str:
        """What the pattern matches here."""
        found = self.match(pattern)
        return found.group() if found else self.fail(expected)

    def word(self, expected: str) -> str:
        """A word of letters, digits and underscores."""
        return self.token(_WORD, expected)

    def string(self, expected: str = "a quoted string") -> str:
        """A quoted string."""
        start = self.at
        found = self.token(_STRING, expected)
        try:
            return str(json.loads(found))
        except ValueError:
            self.fail("a string with valid escapes", at=start)

    def name(self, expected: str = "a name") -> str:
        """A bare or quoted name."""
        if self.text.startswith('"', self.at):
            return self.string(expected)
        return self.token(BARE_NAME, expected)

    def names(self) -> tuple[str, ...]:
        """Names with commas between them; `[]` for none."""
        if self.take("["):
            self.expect("]")
            return ()
        return tuple(self.separated(self.name))

    def keyword(self, known: Mapping[str, _T], expected: str) -> _T:
        """What one of several words stands for."""
        for word, meaning in known.items():
            if self.take(word):
                return meaning
        return self.fail(expected)

    def quoted(self, keyword: str) -> str:
        """A quoted string behind a keyword; '' where the keyword does not come next."""
        return self.string() if self.take(keyword) else ""

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
        return ("_", "") if self.take("_") else self.fail("a value (`%name`, `@constant` or `_`)")

    # -- numbers -----------------------------------------------------------------------------------

    def integer(self, expected: str = "an integer") -> int:
        """An integer."""
        return int(self.token(INT, expected))

    def number(self, expected: str = "a number") -> float:
        """A float: the nearest f32 value of the decimal, or the f64 value where it ends in `d`."""
        return self.float_of(self.token(NUMBER, expected))

    def float_of(self, token: str) -> float:
        """The value of a token of `NUMBER`."""
        if ":" in token:
            value: float = struct.unpack("<d", int(token.split(":")[1], 16).to_bytes(8, "little"))[
                0
            ]
            return value
        if token in ("nan", "-nan"):
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
        start, found = self.at, self.match(_DECIMALS)
        if found:  # thousands of scales in one go
            with np.errstate(over="ignore", under="ignore"):
                values = np.array(found[1].split(","), np.float64).astype(np.float32)
            if np.isfinite(values).all():
                return tuple(values.tolist())
            self.at = start
        return tuple(self.listed("[", "]", self.number))

    def refuse_elided(self) -> None:
        """Stops at a list that the display form shortened."""
        if _ELIDED.match(self.text, self.at):
            self.fail_with(
                "this list was shortened for reading",
                hint="print with data='full' to get a text that can be read back",
            )
