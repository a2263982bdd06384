"""Compiling primitives, and whether oneDNN's code generator still works in this thread.

Some implementations of oneDNN 3.2 are made of several kernels and report success when the code of
one could not be generated. A strided deconvolution of int8 (`brgconv_strided`) is one: with a
comparison as post-op and channels that do not fill the last vector, the primitive comes out without
that code, and running it jumps to address 0. But the generator keeps its failure in the thread, and
whatever it makes next fails openly. So something small is made behind each primitive that may be
such a one. And gemm makes its kernels when it first runs, once for the process: where that is such a
thread, gemm is refused for good. So nothing is run in a thread in which a primitive may fail.
"""

from __future__ import annotations

import itertools
import threading

from .attributes import Binary, PRelu
from .capi import OneDnnError, Status, failure
from .enums import AlgKind, DataType
from .layouts import row_major
from .library import Engine, create
from .primitive_desc import PrimitiveDesc, describe
from .workers import in_new_thread

_LONG_CHAIN = 8  # post-ops; code for many of them may outgrow the generator's buffer

# a size that was never asked for: the primitive cache would answer without generating anything
_sizes = itertools.count(1)
_thread = threading.local()  # `spoiled` where code generation failed in it
_not_generated: set[str] = set()  # requests whose code the library cannot generate


def compiled(desc: PrimitiveDesc) -> int:
    """The `dnnl_primitive_t` of a descriptor.

    oneDNN 3.2 does not get over a failure. Its code generator keeps it in the thread that met it:
    what it makes there afterwards fails, or is half made. A thread in which it failed once
    therefore has its primitives made by others. And its primitive cache keeps an entry that
    points into the descriptor, and reads it again when the entry has to go: the descriptor is never
    freed. So that these do not add up, what failed once is not tried again; nor is what was half
    made, which the cache would give out as it is.

    Raises:
        OneDnnError: the library cannot make it.
    """
    if _not_generated and _attempt(desc) in _not_generated:
        raise _not_made(desc)
    try:
        return (
            in_new_thread(lambda: _created(desc))
            if getattr(_thread, "spoiled", False)
            else _created(desc)
        )
    except OneDnnError as error:
        desc.abandon()
        if error.status == Status.runtime_error:
            _not_generated.add(_attempt(desc))
            _thread.spoiled = True
        raise


def _created(desc: PrimitiveDesc) -> int:
    """The primitive, in a thread in which nothing failed yet. One that lacks a part of its code
    counts as failed.
    """
    pointer = create(
        desc.library.c.dnnl_primitive_create, lambda: _call(desc), desc, origin=desc.request.origin
    )
    if not may_be_half_made(desc) or generates(desc.engine):
        return pointer
    desc.library.c.dnnl_primitive_destroy(pointer)
    raise _not_made(desc)


def _not_made(desc: PrimitiveDesc) -> OneDnnError:
    return failure(Status.runtime_error, _call(desc), desc.request.origin)


def _call(desc: PrimitiveDesc) -> str:
    return f"creating {desc.request} by {desc.impl_info}"


def _attempt(desc: PrimitiveDesc) -> str:
    return f"{desc.library.path}: {_call(desc)}"


def may_be_half_made(desc: PrimitiveDesc) -> bool:
    """True for primitives whose success is not to be trusted.

    Code generation has been seen to fail over post-ops with operands, in chains of any length; the
    others are spared a test of 0.2 ms.
    """
    post_ops = desc.attributes.post_ops
    if desc.kind == "deconvolution":
        return bool(post_ops)
    return len(post_ops) >= _LONG_CHAIN or any(isinstance(op, Binary | PRelu) for op in post_ops)


def generates(engine: Engine) -> bool:
    """True when code can still be generated in this thread: makes a small eltwise primitive, which
    it lets go again.
    """
    desc = row_major(engine.library, (next(_sizes),), DataType.f32)
    probe = describe(engine, "eltwise", desc, desc, alg=AlgKind.eltwise_linear, alpha=1.0)
    try:
        pointer = create(engine.library.c.dnnl_primitive_create, lambda: _call(probe), probe)
    except OneDnnError:
        probe.abandon()
        return False
    engine.library.c.dnnl_primitive_destroy(pointer)
    return True
