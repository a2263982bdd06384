"""Arithmetic on dimensions that may be symbolic.

A symbolic dimension is a string: a name (`N`) or a formula over names. Formulas are polynomials
with integer coefficients over atoms:

    name                 as the model has it; one that is no identifier is quoted with backquotes inside a formula
    floor(p/q)           integer division of two polynomials
    pos(p)               the larger of p and 0
    ?                    a size that nothing is known of; unlike a name it does not even equal itself

and are printed in one canonical order, so that equal formulas are equal strings: `floor((H+1)/2)`,
`N*S`, `pos(H-1)`. There are no commas in them. Names stand for sizes >= 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter

from ..types import Dim, Shape

UNKNOWN = "?"
"""The size that nothing is known of."""


@dataclass(frozen=True, order=True)
class _Atom:
    """A name, or floor/pos of polynomials (`parts`); the text alone tells atoms apart and orders
    them.
    """

    text: str
    kind: str = field(default="name", compare=False)
    parts: tuple[_Frozen, ...] = field(default=(), compare=False)


_Monomial = tuple[_Atom, ...]  # sorted; () is the constant term
_Poly = dict[_Monomial, int]
_Frozen = tuple[tuple[_Monomial, int], ...]

_TOKEN = re.compile(r"\s*(?:(\d+)|(floor|pos)\(|([A-Za-z_][A-Za-z0-9_.]*)|`([^`]+)`|([-+*/()]))")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
# a model may square a formula again and again: what grows past these limits counts as unknown, and
# as a name where a model or plan states it, for `(a+b)*(c+d)*...` doubles with each factor
_MOST_TERMS = 64
_LONGEST = 2000
_MOST_BRACKETS = 64  # a longer formula is taken as a name: the reader is recursive


def add(a: Dim, b: Dim) -> Dim:
    """a + b."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return UNKNOWN if UNKNOWN in (a, b) else _dim(_plus(_poly(a), _poly(b)))


def subtract(a: Dim, b: Dim) -> Dim:
    """a - b."""
    return add(a, multiply(b, -1))


def multiply(a: Dim, b: Dim) -> Dim:
    """a * b; 0 * anything is 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if 0 in (a, b):
        return 0
    return UNKNOWN if UNKNOWN in (a, b) else _dim(_times(_poly(a), _poly(b)))


def product(dims: Iterable[Dim]) -> Dim:
    """The product of all; 1 of none."""
    result: Dim = 1
    for dim in dims:
        result = multiply(result, dim)
    return result


def floor_div(a: Dim, b: Dim) -> Dim:
    """floor(a / b) for b > 0: exact where b divides a as a polynomial.

    Raises:
        ZeroDivisionError: b is the number 0.
    """
    if b == 0:
        raise ZeroDivisionError("division of a dimension by 0")
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if UNKNOWN in (a, b):
        return UNKNOWN
    return _dim(_divide(_poly(a), _poly(b)))


def ceil_div(a: Dim, b: Dim) -> Dim:
    """ceil(a / b) for b > 0."""
    return floor_div(add(a, subtract(b, 1)), b)


def positive(a: Dim) -> Dim:
    """max(a, 0)."""
    if isinstance(a, int):
        return max(a, 0)
    return UNKNOWN if a == UNKNOWN else _dim(_positive(_poly(a)))


def minimum(a: Dim, b: Dim) -> Dim:
    """min(a, b) = b - max(b - a, 0)."""
    return subtract(b, positive(subtract(b, a)))


def clamp(a: Dim, low: Dim, high: Dim) -> Dim:
    """a, held between low and high (low <= high)."""
    return add(low, positive(subtract(minimum(a, high), low)))


def same(a: Dim, b: Dim) -> bool:
    """True when the two are surely the same size."""
    if UNKNOWN in (a, b):
        return False
    return a == b or subtract(a, b) == 0


def differ(a: Dim, b: Dim) -> bool:
    """True when the two are surely not the same size."""
    if UNKNOWN in (a, b):
        return False
    gap = subtract(a, b)
    return isinstance(gap, int) and gap != 0


def cut_off(a: Dim, b: Dim) -> bool:
    """True when a is min(b, n) for a number n of 2 or more: where the two broadcast, they are the same size."""
    if UNKNOWN in (a, b) or isinstance(a, int):
        return False
    most = _poly(a).get((), 0)
    return most > 1 and same(a, minimum(b, most))


def same_shape(a: Shape | None, b: Shape | None) -> bool:
    """True when the two are surely the same shape."""
    return a is not None and b is not None and len(a) == len(b) and all(map(same, a, b))


def fits(operand: Shape | None, shape: Shape | None) -> bool:
    """True when `operand` makes `shape` surely no larger where it broadcasts to it: from the right, each dimension
    is 1 or that of `shape`.
    """
    if operand is None or shape is None or len(operand) > len(shape):
        return False
    return all(
        a == 1 or same(a, b) or cut_off(a, b)
        for a, b in zip(operand, shape[len(shape) - len(operand) :], strict=True)
    )


def evaluate(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The size of a dimension when the sizes of the names in it are known.

    Raises:
        KeyError: a name has no size in `sizes`, or the dimension is `?`.
    """
    if isinstance(dim, int):
        return dim
    if dim in sizes:
        return sizes[dim]
    if dim == UNKNOWN:
        raise KeyError(dim)
    return _value(_poly(dim), sizes)


def _value(poly: _Poly, sizes: Mapping[str, int]) -> int:
    return sum(
        c * math.prod(_atom_value(atom, sizes) for atom in monomial) for monomial, c in poly.items()
    )


def _atom_value(atom: _Atom, sizes: Mapping[str, int]) -> int:
    if atom.kind == "name":
        return sizes[_unquoted(atom.text)]
    values = [_value(dict(part), sizes) for part in atom.parts]
    return max(values[0], 0) if atom.kind == "pos" else values[0] // values[1]


# -- polynomials -----------------------------------------------------------------------------------


def _plus(a: _Poly, b: _Poly) -> _Poly:
    result = dict(a)
    for monomial, c in b.items():
        result[monomial] = result.get(monomial, 0) + c
    return {m: c for m, c in result.items() if c}


def _times(a: _Poly, b: _Poly) -> _Poly:
    result: _Poly = {}
    for ma, ca in a.items():
        for mb, cb in b.items():
            monomial = tuple(sorted(ma + mb, key=attrgetter("text")))
            result[monomial] = result.get(monomial, 0) + ca * cb
    return {m: c for m, c in result.items() if c}


def _positive(poly: _Poly) -> _Poly:
    # names stand for sizes >= 0, and so do floor and pos of them
    if all(c >= 0 for c in poly.values()):
        return poly
    if all(c <= 0 for c in poly.values()):
        return {}
    return {(_Atom(f"pos({_text(poly)})", "pos", (_frozen(poly),)),): 1}


def _divide(a: _Poly, b: _Poly) -> _Poly:
    """floor(a/b): what b divides term by term comes out of the floor, the rest stays in it."""
    if a == b:
        return {(): 1}
    if len(b) != 1:
        return _floor(a, b)
    ((below, divisor),) = b.items()
    whole: _Poly = {}
    rest: _Poly = {}
    for monomial, c in a.items():
        left = _without(monomial, below)
        quotient, remainder = divmod(c, divisor) if left is not None else (0, c)
        if quotient and left is not None:
            whole[left] = quotient
        if remainder:
            rest[monomial] = remainder
    # a constant rest lies between 0 and the divisor
    if not rest or (not below and set(rest) == {()}):
        return whole
    nested = None if below else _unnest(rest, divisor)
    return _plus(whole, nested or _floor(rest, b))


def _unnest(poly: _Poly, divisor: int) -> _Poly | None:
    """floor((floor(p/m) + k)/n) = floor((p + k*m)/(m*n)), or None when the polynomial has another
    form.
    """
    terms = [m for m in poly if m]
    if len(terms) != 1 or len(terms[0]) != 1 or poly[terms[0]] != 1 or terms[0][0].kind != "floor":
        return None
    above, below = (dict(part) for part in terms[0][0].parts)
    if set(below) != {()}:
        return None
    return _divide(_plus(above, {(): poly.get((), 0) * below[()]}), {(): below[()] * divisor})


def _without(monomial: _Monomial, factor: _Monomial) -> _Monomial | None:
    left = list(monomial)
    for atom in factor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _floor(above: _Poly, below: _Poly) -> _Poly:
    return {
        (
            _Atom(
                f"floor({_grouped(above)}/{_grouped(below)})",
                "floor",
                (_frozen(above), _frozen(below)),
            ),
        ): 1
    }


def _frozen(poly: _Poly) -> _Frozen:
    return tuple(poly.items())


def _grouped(poly: _Poly) -> str:
    # Brackets around everything but a number or a single atom.
    text = _text(poly)
    plain = len(poly) == 1 and all(not m or (len(m) == 1 and c == 1) for m, c in poly.items())
    return text if plain else f"({text})"


def _text(poly: _Poly) -> str:
    # Longest products first, then by name; the constant term comes last.
    parts = []
    for monomial in sorted(poly, key=lambda m: (-len(m), m)):
        c = poly[monomial]
        factors = [
            *([str(abs(c))] if abs(c) != 1 or not monomial else []),
            *(atom.text for atom in monomial),
        ]
        parts.append(("-" if c < 0 else "+") + "*".join(factors))
    return "".join(parts).removeprefix("+")


def _unquoted(name: str) -> str:
    return name[1:-1] if name.startswith("`") else name


def _dim(poly: _Poly) -> Dim:
    if set(poly) <= {()}:
        return poly.get((), 0)
    if len(poly) == 1:
        ((monomial, c),) = poly.items()
        if c == 1 and len(monomial) == 1 and monomial[0].kind == "name":
            return _unquoted(monomial[0].text)  # alone, a quoted name stands as the model has it
    if len(poly) > _MOST_TERMS:
        return UNKNOWN
    text = _text(poly)
    return text if len(text) <= _LONGEST else UNKNOWN


# -- reading ---------------------------------------------------------------------------------------


def _poly(dim: Dim) -> _Poly:
    if isinstance(dim, int):
        return {(): dim} if dim else {}
    return dict(_read(dim))


@lru_cache(maxsize=4096)
def _read(text: str) -> _Frozen:
    if not _NAME.fullmatch(text):
        poly = _Reader(text).formula()
        # no formula, or a bare number: the model's own name for a size
        if poly is None or set(poly) <= {()}:
            return (((_Atom(f"`{text}`"),), 1),)
        return _frozen(poly)
    return (((_Atom(text),), 1),)


class _Reader:
    """Recursive descent over one formula; `formula` gives None when the text is none."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] | None = _tokens(text) if len(text) <= _LONGEST else None
        self._at = 0

    def formula(self) -> _Poly | None:
        if not self._tokens or sum(token.endswith("(") for token in self._tokens) > _MOST_BRACKETS:
            return None
        poly = self._sum()
        return poly if self._at == len(self._tokens) else None

    def _next(self) -> str:
        return (
            self._tokens[self._at]
            if self._tokens is not None and self._at < len(self._tokens)
            else ""
        )

    def _take(self, token: str) -> bool:
        if self._next() == token:
            self._at += 1
            return True
        return False

    def _sum(self) -> _Poly | None:
        sign = -1 if self._take("-") else 1
        total: _Poly = {}
        while True:
            term = self._term()
            if term is None:
                return None
            total = _plus(total, _times({(): sign}, term))
            if self._next() not in {"+", "-"}:
                return total
            sign = -1 if self._next() == "-" else 1
            self._at += 1

    def _term(self) -> _Poly | None:
        result = self._factor()
        while result is not None and self._take("*"):
            factor = self._factor()
            if factor is None or len(result) * len(factor) > _MOST_TERMS:
                return None
            result = _times(result, factor)
        return result

    def _factor(self) -> _Poly | None:
        token = self._next()
        self._at += 1
        if token == "(":  # noqa: S105  (no password)
            inner = self._sum()
            return inner if self._take(")") else None
        if token == "floor(":  # noqa: S105
            above = self._term()
            if above is None or not self._take("/"):
                return None
            below = self._term()
            if below is None or not below or not self._take(")"):
                return None
            return _divide(above, below)
        if token == "pos(":  # noqa: S105
            inner = self._sum()
            return _positive(inner) if inner is not None and self._take(")") else None
        if token.isdigit():
            return {(): int(token)} if int(token) else {}
        return {(_Atom(token),): 1} if token and token not in "+-*/)" else None  # noqa: S105


def _tokens(text: str) -> list[str] | None:
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        number, call, name, quoted, sign = match.groups()
        tokens.append(number or (call and call + "(") or name or (quoted and f"`{quoted}`") or sign)
        at = match.end()
    return tokens
