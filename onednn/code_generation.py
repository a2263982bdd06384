"""Whether oneDNN's code generator still works in this thread.

Some implementations of oneDNN 3.2 are made of several kernels and report success when the code of one could not be generated. A strided
deconvolution of int8 (`brgconv_strided`) is one: with a comparison as post-op and channels that do not fill the last vector, the
primitive comes out without that code, and running it jumps to address 0. But the generator keeps its failure in the thread, and whatever it
makes next fails openly. So something small is made behind each primitive that may be such a one.
"""

from __future__ import annotations

import itertools

from .attributes import Binary, PRelu
from .enums import AlgKind, DataType, PrimitiveKind
from .handles import Engine, create
from .memory import MemoryDesc
from .pointwise import eltwise
from .primitive_desc import PrimitiveDesc

__all__ = ["generates", "may_be_half_made"]

_LONG_CHAIN = 8  # post-ops; code for many of them may outgrow the generator's buffer

_sizes = itertools.count(1)  # a size that was never asked for: the primitive cache would answer without generating anything


def may_be_half_made(desc: PrimitiveDesc) -> bool:
    """True for primitives whose success is not to be trusted.

    Code generation has been seen to fail over post-ops with operands, in chains of any length; the others are spared a test of 0.2 ms.
    """
    post_ops = desc.attributes.post_ops
    if desc.kind == PrimitiveKind.deconvolution:
        return bool(post_ops)
    return len(post_ops) >= _LONG_CHAIN or any(isinstance(op, Binary | PRelu) for op in post_ops)


def generates(engine: Engine) -> bool:
    """True when code can still be generated in this thread: makes a small eltwise primitive, which it lets go again."""
    desc = MemoryDesc.with_strides(engine.library, (next(_sizes),), DataType.f32)
    with eltwise(engine, AlgKind.eltwise_linear, desc, desc, alpha=1.0) as probe:
        status, pointer = create(engine.library.c.dnnl_primitive_create, probe.pointer)
        if status:
            probe.abandon()
            return False
        engine.library.c.dnnl_primitive_destroy(pointer)
        return True
