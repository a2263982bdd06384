"""What oneDNN's implementations compute wrongly: one row each, which the binder asks before it
takes an implementation.

A defective implementation is passed over: the library's next one is taken, another layout or kernel
where the lowering knows one, or NumPy.
Each row has a test that shows the defect on the bare library (`tests/onednn/test_defects.py`):
where one fails with a new version of the library, the defect is `mended` there. `make docs` writes
docs/contributing/onednn-defects.md from these rows.

- `defect.py`: what a row says
- `convolutions.py`: of convolutions and deconvolutions, and of packing their weights
- `products.py`: of inner products and matmuls, and of all products of bf16
- `poolings.py`: of poolings and resamplings
- `pointwise.py`: of binaries, softmaxes and reorders
- `layers.py`: of recurrent layers
- `sizes.py`: of tensors of more than five dimensions, and of empty ones
- `rounding.py`: of the last bit: what is rounded twice where other implementations round once
- `document.py`: the page
"""

from __future__ import annotations

from functools import cache

from ..primitive_desc import PrimitiveDesc
from .convolutions import CONVOLUTIONS
from .defect import Defect
from .document import document
from .layers import LAYERS
from .pointwise import POINTWISE
from .poolings import POOLINGS
from .products import PRODUCTS
from .rounding import ROUNDING
from .sizes import SIZES

__all__ = ["DEFECTS", "Defect", "defect_of", "defects_document"]

DEFECTS: tuple[Defect, ...] = (
    *CONVOLUTIONS,
    *PRODUCTS,
    *POOLINGS,
    *POINTWISE,
    *LAYERS,
    *SIZES,
    *ROUNDING,
)


def defect_of(desc: PrimitiveDesc) -> Defect | None:
    """The defect that makes an implementation compute wrongly; None where none is known."""
    rows = _of(desc.kind, desc.library.version.triple)
    return next((defect for defect in rows if defect.concerns(desc)), None)


@cache
def _of(kind: str, version: tuple[int, int, int]) -> tuple[Defect, ...]:
    return tuple(defect for defect in DEFECTS if defect.is_of(kind, version))


def defects_document() -> str:
    """docs/contributing/onednn-defects.md."""
    return document(DEFECTS)
