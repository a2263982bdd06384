"""Arithmetic on symbolic dimensions: formulas always give the number that plain integers give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fqfuse.ir.ops import dims

SIZES = {"N": 3, "H": 17, "batch size": 5, "a/b": 2, "x.1": 8}
OPERATIONS = {
    "add": (dims.add, lambda a, b: a + b),
    "subtract": (dims.subtract, lambda a, b: a - b),
    "multiply": (dims.multiply, lambda a, b: a * b),
    "floor_div": (dims.floor_div, lambda a, b: a // b),
    "ceil_div": (dims.ceil_div, lambda a, b: -(-a // b)),
    "minimum": (dims.minimum, min),
    "clamp": (lambda a, b: dims.clamp(a, 0, b), lambda a, b: min(max(a, 0), b)),
    "positive": (lambda a, _: dims.positive(a), lambda a, _: max(a, 0)),
}

leaf = st.one_of(st.sampled_from(sorted(SIZES)), st.integers(-9, 9)).map(
    lambda d: (d, SIZES.get(d, d))
)


@st.composite
def formulas(draw: st.DrawFn, depth: int = 4) -> tuple[dims.Dim, int]:
    """A dimension and the number it stands for."""
    if depth == 0 or draw(st.booleans()):
        return draw(leaf)
    name = draw(st.sampled_from(sorted(OPERATIONS)))
    (a, x), (b, y) = draw(formulas(depth - 1)), draw(formulas(depth - 1))
    if name in ("floor_div", "ceil_div", "clamp") and not (isinstance(b, int) and b > 0):
        # divisors are positive numbers; symbolic ones have a test of their own
        b = y = draw(st.integers(1, 6))
    symbolic, plain = OPERATIONS[name]
    return symbolic(a, b), plain(x, y)


@given(formulas())
def test_formulas_give_the_number(formula):
    dim, value = formula
    assert dims.evaluate(dim, SIZES) == value


@given(formulas())
def test_formulas_can_be_read_again(formula):
    """Through its text alone: a constant added and taken away gives the very same string."""
    dim, value = formula
    assert dims.subtract(dims.add(dim, 7), 7) == dim
    assert dims.multiply(dim, 1) == dim
    if isinstance(dim, str):
        dims._read.cache_clear()
        assert dims.evaluate(dims.add(dim, 1), SIZES) == value + 1
        assert "," not in dim
        assert " " not in dim.replace("batch size", "")


@given(formulas(), formulas())
def test_same_and_differ_are_right(first, second):
    (a, x), (b, y) = first, second
    assert not (dims.same(a, b) and x != y)
    assert not (dims.differ(a, b) and x == y)
    assert dims.same(a, a)


@given(st.sampled_from(["N", "H-1", "2*N", "floor(H/2)"]), st.integers(-3, 6), formulas())
def test_what_is_cut_off_broadcasts_to_equal_sizes_alone(formula, most, other):
    cut = dims.minimum(formula, most)
    assert dims.cut_off(cut, formula) == (most > 1)
    for n in range(9):
        for h in range(1, 9):
            sizes = SIZES | {"N": n, "H": h}
            a, b = (dims.evaluate(dim, sizes) for dim in (cut, formula))
            if most > 1 and (a == b or 1 in (a, b)):
                assert a == b
    dim, value = other
    if dims.cut_off(dim, formula) and 1 in (value, size := dims.evaluate(formula, SIZES)):
        assert value == size


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (dims.add(dims.floor_div(dims.add("H", -1), 2), 1), "floor((H+1)/2)"),
        (dims.floor_div(dims.add(dims.floor_div(dims.add("H", 1), 2), 1), 2), "floor((H+3)/4)"),
        (dims.floor_div("H", 2), "floor(H/2)"),
        (dims.floor_div(dims.multiply("H", 2), 2), "H"),
        (
            dims.floor_div(dims.product(["N", "S", 768]), dims.multiply("N", 64)),
            dims.multiply("S", 12),
        ),
        (dims.floor_div("N*C", "M"), "floor((C*N)/M)"),
        (dims.floor_div("N+M", "M+N"), 1),
        (dims.multiply("N", "H"), "H*N"),
        (dims.multiply("H", "N"), "H*N"),
        (dims.multiply("N", 0), 0),
        (dims.subtract("N", "N"), 0),
        (dims.positive("N"), "N"),
        (dims.positive(dims.multiply("N", -2)), 0),
        (dims.positive(dims.subtract("H", 1)), "pos(H-1)"),
        (dims.add("batch size", 1), "`batch size`+1"),
        (dims.subtract(dims.add("batch size", 1), 1), "batch size"),
        (dims.add("12", 1), "`12`+1"),
        (dims.add(dims.UNKNOWN, 1), dims.UNKNOWN),
        (dims.multiply(dims.UNKNOWN, 0), 0),
        (dims.product([]), 1),
        (dims.floor_div(dims.multiply("N", "N"), "N"), "N"),
    ],
)
def test_canonical_text(found, expected):
    assert found == expected


def test_division_by_a_symbol():
    sizes = {"N": 6, "C": 5, "M": 4}
    for above in ("N*C", "N+C", "N*M+C", "2*N*M+3*M"):
        for below in ("M", "N+1", "2*M"):
            plain = dict(sizes)
            value = eval(above, {}, plain) // eval(below, {}, plain)  # noqa: S307  (our own text)
            assert dims.evaluate(dims.floor_div(above, dims.add(below, 0)), sizes) == value


def test_unknown_equals_nothing():
    assert not dims.same(dims.UNKNOWN, dims.UNKNOWN)
    assert not dims.differ(dims.UNKNOWN, 3)
    with pytest.raises(KeyError):
        dims.evaluate(dims.UNKNOWN, {"N": 1})
    with pytest.raises(KeyError):
        dims.evaluate("N+M", {"N": 1})
    with pytest.raises(ZeroDivisionError):
        dims.floor_div("N", 0)


@pytest.mark.parametrize(
    "text",
    [
        "a b",
        "N+",
        "(N",
        "floor(N)",
        "floor(N/0)",
        "pos(",
        "N**2",
        "-",
        "é",
        "`",
        "(" * 500 + "N" + ")" * 500,
        "3N",
        # each factor doubles the terms
        "*".join(f"(a{i}+b{i})" for i in range(40)),
    ],
)
def test_what_is_no_formula_is_a_name(text):
    assert dims.evaluate(text, {text: 4}) == 4
    assert dims.subtract(dims.add(text, 3), 3) == text or "`" in text


@pytest.mark.parametrize(
    "text",
    [
        # Python reads no integer of more than 4300 digits
        "9" * 5000 + "*N",
        "N" + "*N" * 100_000,
    ],
    ids=["digits", "factors"],
)
def test_a_formula_of_any_length_is_a_name(text):
    assert dims.evaluate(text, {text: 4}) == 4
    assert dims.add(text, 3) == dims.UNKNOWN
