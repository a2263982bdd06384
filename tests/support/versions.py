"""What tests ask of the oneDNN that runs. NumPy has the float order of 3.2; later versions, such as
`FQFUSE_ONEDNN` may name, are held to its codes exactly, and to its floats but for their last bits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np
from support.codes import has_vnni
from support.steps_compared import Difference

from fqfuse.ir.ops.spec import Array
from fqfuse.onednn.loading import load

LAST_BITS = 2.0**-21
"""Of the largest value of an array: later versions multiply by scales one by one, and add in another
order behind that. Each of at most eight roundings is off by 2^-24 of what is rounded.
"""

PRODUCT_OF_CODES = re.compile(
    r"brg(_matmul)?:avx(512_core_(vnni|amx)|10\w+)"
    if has_vnni()
    else r"(jit:uni \+ )*brg:avx512_core"
)
"""Compiled kernels for matmuls of codes, under the names that 3.2 and later versions have for them; without VNNI
those of f32, with conversions in front.
"""


def is_3_2() -> bool:
    """True where oneDNN is of the version whose bytes and kernels the NumPy runtime and the tests know."""
    return load().version.triple[:2] == (3, 2)


def nan_or(number: float) -> float:
    """A NaN for 3.2, whose codes of it NumPy knows; later versions make 255 of it for u8, so a number."""
    return math.nan if is_3_2() else number


def unexplained(differences: Iterable[Difference]) -> list[str]:
    """What `compare_steps` found that the version does not explain: of 3.2 all, of later ones what is more
    than last bits of floats.
    """
    return [
        str(one)
        for one in differences
        if is_3_2() or not (one.ulp and one.largest <= LAST_BITS * one.magnitude)
    ]


def alike(found: Array, expected: Array) -> bool:
    """The same bytes; of a later version than 3.2 floats may differ in their last bits."""
    if found.tobytes() == expected.tobytes():
        return True
    if is_3_2() or found.dtype.kind != "f" or found.shape != expected.shape:
        return False
    finite = expected[np.isfinite(expected)]
    within = LAST_BITS * float(np.abs(finite).max(initial=0))
    return bool(np.allclose(found, expected, rtol=0, atol=within, equal_nan=True))
