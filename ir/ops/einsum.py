"""The shape that an Einsum gives. The import states it of a model, and the verifier of plans holds
what a file states against it.

ONNX's own inference takes the size of a label from the first operand that has it, even where that
size is 1, or a symbol that may be 1, and another operand has more. ONNX Runtime and the reference
evaluator broadcast labels as well as what an ellipsis stands for.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..types import Dim, Shape
from . import dims
from .broadcasting import broadcast_dims
from .spec import ShapeError

_ELLIPSIS = "..."
_MOST_AXES = 64  # NumPy 2's: without a bound a short equation would expand to terms times axes


def einsum_shape(equation: str, shapes: Sequence[Shape | None]) -> Shape | None:
    """The shape of the result of an Einsum.

    Args:
        equation: terms of letters, blanks and ellipses, as `foreign_guards` lets them through.
        shapes: of the operands; None where even the rank is unknown.

    Returns:
        The shape, with `?` where several symbols meet: any may be 1. None where nothing says how
        many axes an ellipsis stands for.

    Raises:
        ShapeError: the equation does not fit the operands, or sizes of a label surely differ and
            none is 1.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = [_labels(term) for term in left.split(",")]
    if len(terms) != len(shapes):
        raise ShapeError(
            f"the number of operands is {len(shapes)}, and that of terms in the equation {_shown(equation)} is {len(terms)}"
        )
    rank = _ellipsis_rank(terms, shapes)
    result = _labels(right) if arrow else _implied(terms)
    _check_result(equation, terms, result)
    sizes: dict[str, Dim] = {}
    for place, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        for label, dim in _operand(_expanded(term, rank or 0), shape, place).items():
            known = sizes.get(label, 1)
            both = broadcast_dims(known, dim)
            if both is None:
                raise ShapeError(
                    f"{_named(label)} is {known} in one operand and {dim} in operand {place}: these do not broadcast"
                )
            sizes[label] = both
    if rank is None and _ELLIPSIS in result:
        return None
    return tuple(sizes[label] for label in _expanded(result, rank or 0))


def _labels(term: str) -> list[str]:
    before, ellipsis, after = term.partition(_ELLIPSIS)
    return [*before, *([_ELLIPSIS] if ellipsis else []), *after]


def _expanded(term: Sequence[str], rank: int) -> list[str]:
    """The term with a label of its own for each axis that an ellipsis stands for: every ellipsis
    stands for as many.
    """
    return [
        own
        for label in term
        for own in (
            [f"{_ELLIPSIS}{axis}" for axis in range(rank)] if label == _ELLIPSIS else [label]
        )
    ]


def _implied(terms: Sequence[Sequence[str]]) -> list[str]:
    """The result of an equation without an arrow: the axes of the ellipsis, then what occurs once,
    by alphabet.
    """
    every = [label for term in terms for label in term]
    return [
        *([_ELLIPSIS] if _ELLIPSIS in every else []),
        *sorted(label for label in set(every) - {_ELLIPSIS} if every.count(label) == 1),
    ]


def _check_result(equation: str, terms: Sequence[Sequence[str]], result: Sequence[str]) -> None:
    known = {_ELLIPSIS}.union(*terms)
    for label in result:
        if label not in known:
            raise ShapeError(
                f"the equation {_shown(equation)} gives {label!r}, which no operand has"
            )
        if result.count(label) > 1:
            raise ShapeError(f"the equation {_shown(equation)} gives {label!r} twice")


def _ellipsis_rank(terms: Sequence[Sequence[str]], shapes: Sequence[Shape | None]) -> int | None:
    """How many axes an ellipsis stands for: ONNX wants as many in each operand; None where nothing
    says it.
    """
    found = None if any(_ELLIPSIS in term for term in terms) else 0
    for place, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        if shape is None:
            continue
        if len(shape) > _MOST_AXES:
            raise ShapeError(
                f"operand {place} has {len(shape)} axes, and no tensor has more than {_MOST_AXES}"
            )
        rank = len(shape) - len(term) + (_ELLIPSIS in term)
        if rank < 0 or (rank > 0 and _ELLIPSIS not in term):
            raise ShapeError(
                f"operand {place} is [{','.join(map(str, shape))}], and its term in the equation is '{''.join(term)[:100]}'"
            )
        if _ELLIPSIS in term and found not in (None, rank):
            raise ShapeError(
                f"the ellipsis stands for {found} of the axes in one operand and for {rank} in operand {place}"
            )
        if _ELLIPSIS in term:
            found = rank
    return found


def _operand(term: Sequence[str], shape: Shape | None, place: int) -> dict[str, Dim]:
    """Label -> size in one operand. A label that occurs twice there takes the diagonal: its sizes
    have to be the same, 1 or not.
    """
    sizes: dict[str, Dim] = {}
    for label, dim in zip(
        term, [dims.UNKNOWN] * len(term) if shape is None else shape, strict=True
    ):
        known = sizes.get(label, dim)
        if dims.differ(known, dim):
            raise ShapeError(
                f"{_named(label)} is {known} and {dim} in operand {place}: a diagonal needs equal sizes"
            )
        sizes[label] = dim if known == dims.UNKNOWN or isinstance(dim, int) else known
    return sizes


def _named(label: str) -> str:
    return (
        f"axis {label.removeprefix(_ELLIPSIS)} of the ellipsis"
        if label.startswith(_ELLIPSIS)
        else f"the label {label!r}"
    )


def _shown(equation: str) -> str:
    return repr(equation[:100])
