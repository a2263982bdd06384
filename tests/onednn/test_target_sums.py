"""Where the target's table gives a pointwise primitive a sum, oneDNN has compiled it; elsewhere it
refuses, or has its reference only.
"""

from __future__ import annotations

import itertools

import pytest

from fqfuse.composer.formula.formula import Add
from fqfuse.composer.mapping.homes import adding
from fqfuse.ir.types import DType
from fqfuse.onednn.attributes import Attributes, Sum
from fqfuse.onednn.capi import Unimplemented
from fqfuse.onednn.enums import AlgKind, DataType
from fqfuse.onednn.layouts import channels_last
from fqfuse.onednn.library import Engine
from fqfuse.onednn.memory import MemoryDesc
from fqfuse.onednn.primitive_desc import describe
from fqfuse.plan.targets import TARGETS

SHAPE = (1, 16, 8, 8)
TYPES = {DType.U8: DataType.u8, DType.S8: DataType.s8, DType.F32: DataType.f32}


def is_compiled(engine: Engine, primitive: str, src: DType, dst: DType, total: Sum) -> bool:
    def memory(dtype: DType, *sizes: int) -> MemoryDesc:
        return channels_last(engine.library, (*SHAPE[:2], *sizes), TYPES[dtype])

    attributes = Attributes(post_ops=(total,))
    try:
        if primitive == "binary":
            both = memory(src, 8, 8), memory(DType.F32, 8, 8)
            desc = describe(
                engine,
                "binary",
                *both,
                memory(dst, 8, 8),
                alg=AlgKind.binary_add,
                attributes=attributes,
            )
        else:
            desc = describe(
                engine,
                "resampling",
                memory(src, 4, 4),
                memory(dst, 8, 8),
                alg=AlgKind.resampling_nearest,
                attributes=attributes,
            )
    except Unimplemented:
        return False
    return desc.impl_info.startswith("jit")


@pytest.mark.parametrize("primitive", ["binary", "resampling"])
def test_a_sum_is_compiled_where_it_is_offered(engine: Engine, primitive: str) -> None:
    capability = TARGETS["onednn-v3"].capability(primitive)
    offered = 0
    for src, dst, read_as, zero_point in itertools.product(TYPES, TYPES, TYPES, (0, 3)):
        if read_as.numpy.itemsize != dst.numpy.itemsize or (zero_point and read_as is DType.F32):
            continue
        home = next(
            h
            for h in adding(
                Add("skip", read_as, 0.5, zero_point, in_place=True), src, dst, "", capability
            )
            if h.name == "sum"
        )
        compiled = is_compiled(
            engine,
            primitive,
            src,
            dst,
            Sum(0.5, zero_point, DataType.undef if read_as is dst else TYPES[read_as]),
        )
        assert compiled == (not home.why_not), (src, dst, read_as, zero_point, home)
        offered += compiled
    assert offered == {"binary": 3, "resampling": 9}[primitive]
