"""After a primitive inside of another one could not be made."""

from __future__ import annotations

import ctypes

import pytest

from fqfuse.ir.types import DType
from fqfuse.onednn.library import Library
from fqfuse.primitives import Binary, Eltwise, PrimitiveAttr, Sum, prim


@pytest.mark.usefixtures("of_the_rules")
def test_the_cache_is_off(library: Library) -> None:
    """oneDNN 3.2's cache of primitives keeps a key that it freed, and reads it again: a
    thousand deconvolutions of the law in one process end it sooner or later.
    """
    chain = (Sum("old", 0.25, 0, DType.S32), Binary("lt", "operand"), Eltwise("relu", 0.5))
    made = prim(
        "deconvolution",
        PrimitiveAttr(post_ops=chain),
        engine="onednn",
        src="s8[2,4,1,3]",
        weights="s8[4,2,1,3,1]",
        dst="s32[2,8,2,3]",
        strides=(2, 1),
        padding_l=(1, 0),
        operand="f32[1,8,1,1]",
    )
    if not any("cannot be generated" in told for told in made.passed_over):
        pytest.skip("its code is generated on this CPU")
    capacity = ctypes.c_int()
    library.c.dnnl_get_primitive_cache_capacity(ctypes.byref(capacity))
    assert capacity.value == 0
