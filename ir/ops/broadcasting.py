"""How shapes, symbolic ones included, broadcast against each other (NumPy's and ONNX's
multidirectional rule).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..types import Dim, Shape
from . import dims
from .spec import ShapeError


def broadcast_shapes(shapes: Sequence[Shape], what: str) -> Shape:
    """The shape that all broadcast to.

    Args:
        shapes: any number of shapes; shorter ones are filled with 1 in front.
        what: named in the error ("batch dimensions").

    Raises:
        ShapeError: two sizes surely differ and neither is 1.
    """
    rank = max(map(len, shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, start=rank - len(shape)):
            found = broadcast_dims(result[axis], dim)
            if found is None:
                listed = " and ".join(f"[{','.join(map(str, s))}]" for s in shapes)
                raise ShapeError(
                    f"{what}: {listed} do not broadcast against each other (dimension {axis - rank})"
                )
            result[axis] = found
    return tuple(result)


def broadcast_dims(a: Dim, b: Dim) -> Dim | None:
    """The size two dimensions broadcast to, `?` where two symbols meet (either may be 1), None when
    they cannot.
    """
    if a == 1 or b == 1:
        return b if a == 1 else a
    if dims.same(a, b):
        return a
    if isinstance(a, int) and isinstance(b, int):
        return None
    if isinstance(a, int) or isinstance(b, int):
        return a if isinstance(a, int) else b  # the symbol is 1 or that very number
    if dims.cut_off(a, b) or dims.cut_off(b, a):
        return b if dims.cut_off(a, b) else a
    return dims.UNKNOWN
