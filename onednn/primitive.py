"""Primitives, and their execution with arguments prepared beforehand.

`Primitive` compiles a descriptor. `ExecArgs` is the argument array, checked and built once;
`Primitive.execute` is then a single C call.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .attributes import Attributes, Binary, Depthwise, PRelu
from .call_loop import CCall
from .capi import ExecArg, Status, failure
from .code_generation import compiled
from .defects import defect_of
from .enums import Arg, CpuRuntime, DataType, arg_name, arg_post_op, arg_scales, arg_zero_points
from .library import Handle, Library, Stream
from .memory import Memory, MemoryDesc
from .primitive_desc import PrimitiveDesc, describe


class ExecArgs:
    """A ready argument array: the ids and handles that one execution takes. It keeps the memories
    alive.

    The library does not check layouts, and crashes when the scratchpad is missing; so it is checked
    here, once.

    Args:
        desc: the descriptor of the primitive to execute.
        memories: argument id -> memory. Concurrent executions need separate arrays with separate
            scratchpads and outputs.

    Raises:
        ValueError: a memory has another layout than the primitive wants, the scratchpad is missing
            or too small, or a memory is missing that the attributes call for. Which inputs and
            outputs there must be is checked by `execute`.

    Attributes:
        count: number of entries.
        pointer: the array, as ctypes wants it.
    """

    __slots__ = ("_array", "_memories", "count", "pointer")

    def __init__(self, desc: PrimitiveDesc, memories: Mapping[int, Memory]) -> None:
        missing = sorted(_called_for(desc) - memories.keys())
        if missing:
            raise ValueError(
                f"{desc.request} needs memories for {', '.join(map(arg_name, missing))}"
            )
        for arg, memory in memories.items():
            _check_layout(desc, arg, memory)
        self._memories = tuple(memories.values())
        self.count = len(memories)
        self._array = (ExecArg * self.count)(
            *(ExecArg(arg, memory.pointer) for arg, memory in memories.items())
        )
        self.pointer = ctypes.cast(self._array, ctypes.c_void_p)


def _called_for(desc: PrimitiveDesc) -> set[int]:
    """The arguments that the attributes add to a primitive's own."""
    attributes = desc.attributes
    wanted = {arg_scales(arg) for arg in attributes.scales} | {
        arg_zero_points(arg) for arg in attributes.zero_points
    }
    for index, post_op in enumerate(attributes.post_ops):
        if isinstance(post_op, Binary):
            wanted.add(arg_post_op(index, Arg.SRC_1))
        elif isinstance(post_op, PRelu):
            wanted.add(arg_post_op(index, Arg.WEIGHTS))
        elif isinstance(post_op, Depthwise):
            wanted.add(Arg.ATTR_POST_OP_DW | Arg.WEIGHTS)
            if post_op.bias_dtype != DataType.undef:
                wanted.add(Arg.ATTR_POST_OP_DW | Arg.BIAS)
    if desc.scratchpad_size:
        wanted.add(Arg.SCRATCHPAD)
    return wanted


def _check_layout(desc: PrimitiveDesc, arg: int, memory: Memory) -> None:
    for flag, masks, dtype in (
        (Arg.ATTR_SCALES, desc.attributes.scales, DataType.f32),
        (Arg.ATTR_ZERO_POINTS, desc.attributes.zero_points, DataType.s32),
    ):
        if arg & flag:
            _check_vector(desc, arg, memory, masks.get(arg & ~flag), dtype)
            return
    if arg == Arg.SCRATCHPAD:
        if memory.desc.size < desc.scratchpad_size:
            raise ValueError(
                f"{desc.request} needs {desc.scratchpad_size} bytes of scratchpad, not {memory.desc.size}"
            )
        return
    wanted = desc.exec_arg_md(arg)
    # no dims: nothing is prescribed, as for the slopes of a prelu post-op
    if wanted.dims and wanted != memory.desc:
        raise ValueError(f"{desc.request} wants {arg_name(arg)} as {wanted}, not as {memory.desc}")


def _check_vector(
    desc: PrimitiveDesc, arg: int, memory: Memory, mask: int | None, dtype: DataType
) -> None:
    """Scales and zero points: one value for each index of the dimensions in the mask; the library
    would read past the end.
    """
    if mask is None:
        return  # not called for: the library ignores it
    dims = desc.exec_arg_md(arg & ~(Arg.ATTR_SCALES | Arg.ATTR_ZERO_POINTS)).dims
    count = math.prod(length for axis, length in enumerate(dims) if mask >> axis & 1)
    if memory.desc.dims != (count,) or memory.desc.dtype != dtype:
        raise ValueError(
            f"{desc.request} wants {arg_name(arg)} as {dtype.name}[{count}], not as {memory.desc}"
        )


class Primitive(Handle):
    """`dnnl_primitive_t`: compiled code. Several threads may execute one primitive at once, each
    with arguments of its own.

    Args:
        desc: the descriptor; kept.

    Raises:
        OneDnnError: the library cannot make it.
    """

    __slots__ = ("_call", "desc")

    def __init__(self, desc: PrimitiveDesc) -> None:
        super().__init__(desc.library, "primitive", compiled(desc))
        self.desc = desc
        self._call = _execute_function(desc.library)

    def execute(self, stream: Stream, args: ExecArgs) -> None:
        """Run once; the outputs are written when this returns.

        Raises:
            OneDnnError: the library refuses, for example because an argument is missing. It does
                not check addresses.
        """
        status = self.call(stream, args)()
        if status:
            raise self.execution_error(status)

    def call(self, stream: Stream, args: ExecArgs) -> Callable[[], int]:
        """The same as a function without arguments that returns the status (0: success), for a
        tight loop.

        It keeps nothing alive: hold the primitive, the stream and the arguments as long as it may
        be called. `execution_error` turns another status into the error.
        """
        runtime = self.desc.engine.library.version.cpu_runtime
        # with a wait behind it, it is no call of one C function
        kind = functools.partial if runtime == CpuRuntime.sycl else CCall
        return kind(
            self._call,
            ctypes.c_void_p(self.pointer),
            ctypes.c_void_p(stream.pointer),
            args.count,
            args.pointer,
        )

    def execution_error(self, status: int) -> Exception:
        """The error for a status that `call` returned."""
        return failure(
            status,
            f"executing {self.desc.request} by {self.desc.impl_info}",
            self.desc.request.origin,
        )


def run_once(stream: Stream, desc: PrimitiveDesc, memories: Mapping[int, Memory]) -> None:
    """Compiles a primitive and executes it once, with a scratchpad of its own. Raises OneDnnError
    as these do.
    """
    needed = dict(memories)
    if desc.scratchpad_size:
        needed[Arg.SCRATCHPAD] = Memory.allocate(desc.engine, desc.scratchpad_md)
    Primitive(desc).execute(stream, ExecArgs(desc, needed))


def _execute_function(library: Library) -> Any:
    """`dnnl_primitive_execute` without argument types, with a wait for the stream where it returns before
    the results are there.

    Its arguments are ctypes objects made beforehand, and ctypes passes those on faster when it has
    nothing to convert.
    """
    cdll = library.c
    function = cdll.__dict__.get("_fqfuse_execute")
    if function is None:
        # item access makes a new function object; attribute access shares one
        function = cdll["dnnl_primitive_execute"]
        function.restype = ctypes.c_int
        if library.version.cpu_runtime == CpuRuntime.sycl:
            function = _waiting(function, cdll["dnnl_stream_wait"])
        cdll.__dict__["_fqfuse_execute"] = function
    return function


def _waiting(execute: Any, wait: Any) -> Callable[..., int]:
    """Executes, and waits until it is done; the status of both."""
    wait.restype = ctypes.c_int

    def run(primitive: ctypes.c_void_p, stream: ctypes.c_void_p, count: Any, args: Any) -> int:
        return int(execute(primitive, stream, count, args) or wait(stream))

    return run


# -- an array in the layout that a primitive wants ----------------------------------------------------

_PLAIN = Attributes()


def pack(
    stream: Stream,
    array: NDArray[Any],
    given: MemoryDesc,
    target: Memory,
    attributes: Attributes = _PLAIN,
    origin: str = "",
) -> None:
    """Fills a memory with an array, by a reorder of the library. Where that is known to compute wrongly,
    the array is handed over with gaps, for which the library has other code.

    Args:
        stream: of the target's engine.
        array: what it is filled with.
        given: how that lies.
        target: of the same shape.
        attributes: of the primitive that reads it, where the reorder must have them, too.
        origin: what it serves; part of every message.

    Raises:
        OneDnnError: the library refuses, or is known to compute it wrongly with gaps, too.
    """

    def reorder() -> PrimitiveDesc:
        return describe(
            stream.engine, "reorder", given, target.desc, attributes=attributes, origin=origin
        )

    desc = reorder()
    if defect_of(desc) is not None:
        array = with_gaps(array)
        steps = [step // array.itemsize for step in array.strides]
        given = MemoryDesc.with_strides(stream.engine.library, array.shape, given.dtype, steps)
        desc = reorder()
        defect = defect_of(desc)
        if defect is not None:
            told = f"{desc.request}, which {desc.impl_info} computes wrongly ({defect.name}),"
            raise failure(Status.unimplemented, told, origin)
    run_once(stream, desc, {Arg.SRC: Memory(stream.engine, given, array), Arg.DST: target})


def with_gaps(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, of whose elements no two lie side by side."""
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    return wide[..., 0]
