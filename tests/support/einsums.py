"""Random Einsums: an equation, shapes that fit it, or almost, and what the shapes are when some
sizes are left open.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import assume
from hypothesis import strategies as st

from fqfuse.ir.types import Shape

LETTERS = "abcA"


@dataclass(frozen=True)
class Einsum:
    """An equation, the shapes of its operands, and the same with symbols, `?`, and None for a shape
    of unknown rank.
    """

    equation: str
    shapes: tuple[tuple[int, ...], ...]
    known: tuple[Shape | None, ...]


@st.composite
def einsums(draw: st.DrawFn, *, wrong: bool = True, unknown_rank: bool = True) -> Einsum:
    """Labels have one size in all operands, or 1 in some. `wrong`: some have another size, or the
    result strange labels.

    A symbol stands for one size only: `N1` for 1, and so on, but the shape must not show that it
    knows.
    """
    some = st.lists(st.sampled_from(LETTERS), max_size=3)
    terms = draw(st.lists(some, min_size=1, max_size=3))
    sizes = {
        label: draw(st.integers(0, 3) if draw(st.booleans()) else st.just(3)) for label in LETTERS
    }
    dots = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(0, 2)))]
    texts, shapes = [], []
    for term in terms:
        ones = {label for label in LETTERS if draw(st.integers(0, 2)) == 0}
        shape = [1 if label in ones else sizes[label] for label in term]
        text = list(term)
        if draw(st.booleans()):
            at = draw(st.integers(0, len(term)))
            text.insert(at, "...")
            shape[at:at] = [1 if draw(st.booleans()) else size for size in dots]
        if wrong and shape and draw(st.integers(0, 9)) == 0:
            shape[draw(st.integers(0, len(shape) - 1))] = draw(st.integers(0, 4))
        texts.append("".join(text))
        shapes.append(tuple(shape))
    equation = ",".join(texts)
    if draw(st.booleans()):
        labels = sorted(set(LETTERS) & set(equation)) + (["..."] if "..." in equation else [])
        result = draw(st.permutations(labels))[: draw(st.integers(0, len(labels)))]
        if wrong and draw(st.integers(0, 9)) == 0:
            result = [*result, draw(st.sampled_from([*LETTERS, "..."]))]
            result = result[:-1] if result.count("...") > 1 else result  # that is no equation
        equation += "->" + "".join(result)
    assume(equation)  # one operand without axes; the evaluator takes it for no equation
    return Einsum(
        equation, tuple(shapes), tuple(draw(_known(shape, unknown_rank)) for shape in shapes)
    )


@st.composite
def _known(draw: st.DrawFn, shape: tuple[int, ...], unknown_rank: bool) -> Shape | None:
    if unknown_rank and draw(st.integers(0, 9)) == 0:
        return None
    return tuple(draw(st.sampled_from([size, size, f"N{size}", f"M{size}", "?"])) for size in shape)
