"""The shape of an Einsum is that of what the reference evaluator computes, whatever is known of the
operands.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from onnx.reference.ops.op_einsum import Einsum as ReferenceEinsum
from support.einsums import Einsum, einsums

from fqfuse.ir.ops.einsum import einsum_shape
from fqfuse.ir.ops.spec import ShapeError

KNOWN = [
    ("abc,adc->abd", [(1, 3, 4), (2, 5, 4)], (2, 3, 5)),
    ("abc,adc->abd", [(2, 3, 1), (1, 5, 4)], (2, 3, 5)),
    ("ab,bc", [(2, 1), (3, 4)], (2, 4)),
    ("a,a,a->a", [(1,), (1,), (1,)], (1,)),
    ("i,i->i", [(0,), (1,)], (0,)),
    ("bBa,aA", [(2, 3, 4), (1, 5)], (5, 3, 2)),  # capitals come first
    (" a . .. b , b->a... ", [(2, 5, 3), (3,)], (2, 5)),
    ("...a,...a->...", [(1, 3, 4), (2, 1, 4)], (2, 3)),
    ("...a,...a", [(1, 3, 4), (2, 1, 4)], (2, 3)),
    ("...a->a", [(2, 3, 4)], (4,)),
    ("ii->i", [(3, 3)], (3,)),
    ("ii,i->i", [(1, 1), (3,)], (3,)),
    (",->", [(), ()], ()),
    # symbols: a size of 1 would give way
    ("a,a->a", [("N",), ("N",)], ("N",)),
    ("a,a->a", [("N",), (1,)], ("N",)),
    ("a,a->a", [("N",), ("M",)], ("?",)),
    ("a,a,a->a", [("N",), ("M",), ("N",)], ("?",)),
    ("a,a,a->a", [("N",), ("M",), (4,)], (4,)),
    ("a,a->a", [("N",), (4,)], (4,)),
    ("a,a->a", [("?",), ("?",)], ("?",)),
    ("a,a->a", [("?",), (1,)], ("?",)),
    ("a,b->ab", [("?",), ("N+1",)], ("?", "N+1")),
    ("ii->i", [("N", 3)], (3,)),
    ("ii->i", [("?", "N")], ("N",)),
    ("...,...->...", [("N", 3), (4, 1)], (4, 3)),
    # unknown ranks
    ("ab,bc->ac", [None, (3, 4)], ("?", 4)),
    ("a...,...->...a", [None, (3, 1)], (3, "?", "?")),
    ("a...->a", [None], ("?",)),
    ("a...->...a", [None], None),
    ("a...,ab->b", [None, (2, 3)], (3,)),
]


@pytest.mark.parametrize(("equation", "shapes", "expected"), KNOWN)
def test_the_shape_of_an_einsum(equation, shapes, expected):
    assert einsum_shape(equation, shapes) == expected


REFUSED = [
    (
        "ab,bc->ac",
        [(2, 3)],
        "number of operands is 1, and that of terms in the equation 'ab,bc->ac' is 2",
    ),
    ("ab,bc->ac", [(2, 3), (4, 5)], "the label 'b' is 3 in one operand and 4 in operand 1"),
    ("a,a->a", [(0,), (3,)], "the label 'a' is 0 in one operand and 3 in operand 1"),
    ("ab->a", [(2, 3, 4)], r"operand 0 is \[2,3,4\], and its term in the equation is 'ab'"),
    ("ab...->a", [(2,)], r"operand 0 is \[2\], and its term in the equation is 'ab\.\.\.'"),
    (
        "a...,...->...",
        [(2, 3), (2, 3)],
        "the ellipsis stands for 1 of the axes in one operand and for 2 in operand 1",
    ),
    (
        "...,...->...",
        [(2, 3), (4, 3)],
        "axis 0 of the ellipsis is 2 in one operand and 4 in operand 1",
    ),
    ("ii->i", [(1, 3)], "the label 'i' is 1 and 3 in operand 0: a diagonal"),
    ("ii->i", [("N", "N+1")], "the label 'i' is N and N"),
    ("a...", [(1,) * 65], "operand 0 has 65 axes"),
    ("ab->c", [(2, 3)], "gives 'c', which no operand has"),
    ("ab->aa", [(2, 3)], "gives 'a' twice"),
]


@pytest.mark.parametrize(("equation", "shapes", "message"), REFUSED)
def test_what_is_no_einsum_is_refused(equation, shapes, message):
    with pytest.raises(ShapeError, match=message):
        einsum_shape(equation, shapes)


def computed(case: Einsum) -> tuple[int, ...] | None:
    """The shape that the reference evaluator gives; None where it refuses."""
    try:
        return ReferenceEinsum.eval(
            *(np.ones(shape, np.float32) for shape in case.shapes), equation=case.equation
        ).shape
    except (ValueError, TypeError, RuntimeError):
        return None


@given(einsums())
@example(Einsum("aab,a->b", ((3, 3, 1), (1,)), ((3, "N3", "?"), None)))
def test_the_shape_is_that_of_the_result(case):
    expected = computed(case)
    if expected is None:
        with pytest.raises(ShapeError):
            einsum_shape(case.equation, case.shapes)
        return
    assert einsum_shape(case.equation, case.shapes) == expected
    known = einsum_shape(case.equation, case.known)
    assert known is None or len(known) == len(expected)
    sizes = {f"{name}{size}": size for name in "NM" for size in range(5)}
    for dim, size in zip(known or (), expected, strict=known is not None):
        assert dim == "?" or sizes.get(dim, dim) == size
