"""Primitive descriptors, primitives, and their execution with arguments prepared beforehand.

A descriptor is made by one of the functions in `compute`, `pointwise` or `normalization`; it tells which implementation was
chosen, in which layouts it wants its arguments, and how large a scratchpad it needs. `Primitive` compiles it. `ExecArgs` is the
argument array, built once; `Primitive.execute` is then a single C call.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .attributes import Attr, Attributes
from .capi import ExecArg, check, failure
from .enums import PrimitiveKind, Query, Status
from .handles import Engine, Handle, Stream, create
from .memory import Memory, MemoryDesc

__all__ = ["ExecArgs", "Primitive", "PrimitiveDesc", "Request"]

_DEFAULT = Attributes()


@dataclass(frozen=True, slots=True)
class Request:
    """What a primitive descriptor was asked for; its text is made only when a message needs it.

    Attributes:
        kind: the primitive's kind.
        detail: algorithm and parameters.
        operands: role -> descriptor as given (None: absent).
        attributes: the attributes.
    """

    kind: PrimitiveKind
    detail: str
    operands: Mapping[str, MemoryDesc | None]
    attributes: Attributes

    def __str__(self) -> str:
        shapes = " ".join(f"{role}={desc!r}" for role, desc in self.operands.items() if desc is not None)
        return " ".join(part for part in (self.kind.name, self.detail, shapes, str(self.attributes)) if part)


class PrimitiveDesc(Handle):
    """`dnnl_primitive_desc_t`: an operation on given shapes, bound to one implementation.

    Attributes:
        engine: the engine it was made for.
        request: what was asked for; `str(request)` is one line with kind, shapes and attributes.
        origin: what in the user's model it serves; part of every message.
    """

    __slots__ = ("_impl_info", "engine", "origin", "request")

    def __init__(self, engine: Engine, pointer: int, request: Request, origin: str) -> None:
        super().__init__(engine.library, "primitive_desc", pointer)
        self.engine = engine
        self.request = request
        self.origin = origin
        self._impl_info: str | None = None

    @property
    def kind(self) -> PrimitiveKind:
        """The primitive's kind."""
        return self.request.kind

    @property
    def attributes(self) -> Attributes:
        """The attributes it was made with."""
        return self.request.attributes

    @property
    def impl_info(self) -> str:
        """Name of the chosen implementation, such as `brgconv:avx512_core_vnni`; `ref...` is slow."""
        if self._impl_info is None:
            text = ctypes.c_char_p()
            self._query(Query.impl_info_str, ctypes.byref(text))
            self._impl_info = (text.value or b"").decode()
        return self._impl_info

    @property
    def is_reference(self) -> bool:
        """True where the implementation is one of the library's slow references (`ref:any`, `ref_int8:any`, ...)."""
        return self.impl_info.startswith("ref")

    def src_md(self, index: int = 0) -> MemoryDesc:
        """Layout of source `index`. Raises OneDnnError where there is none; so do the others."""
        return self._query_md(Query.src_md, index)

    def weights_md(self, index: int = 0) -> MemoryDesc:
        """Layout of the weights (0) or the bias (1)."""
        return self._query_md(Query.weights_md, index)

    def dst_md(self, index: int = 0) -> MemoryDesc:
        """Layout of destination `index`."""
        return self._query_md(Query.dst_md, index)

    def exec_arg_md(self, arg: int) -> MemoryDesc:
        """Layout of execution argument `arg`, also of post-op operands and of the depthwise post-op's weights."""
        return self._query_md(Query.exec_arg_md, arg)

    @property
    def scratchpad_size(self) -> int:
        """Bytes of the scratchpad that `Arg.SCRATCHPAD` must have in user mode; 0: the argument may be left out."""
        return self._query_md(Query.scratchpad_md, 0).size

    @property
    def scratchpad_md(self) -> MemoryDesc:
        """Descriptor of the scratchpad (bytes)."""
        return self._query_md(Query.scratchpad_md, 0)

    @property
    def input_count(self) -> int:
        """Number of inputs the primitive expects, weights included, attributes' memories not."""
        return self._query_int(Query.num_of_inputs_s32)

    @property
    def output_count(self) -> int:
        """Number of outputs, the scratchpad not counted in 3.2."""
        return self._query_int(Query.num_of_outputs_s32)

    def next_impl(self) -> bool:
        """Go on to the next implementation that takes this request; False when there is none (the present one stays).

        A primitive in the library's cache makes the same implementation come again: call
        `Library.set_primitive_cache_capacity(0)` before walking the list.
        """
        status = int(self.library.c.dnnl_primitive_desc_next_impl(self.pointer))
        if status == Status.last_impl_reached:
            return False
        check(status, f"next implementation of {self.request}", self.origin)
        self._impl_info = None
        return True

    def __repr__(self) -> str:
        return "<closed PrimitiveDesc>" if self.closed else f"<{self.request} by {self.impl_info}>"

    def _query(self, what: Query, result: Any) -> None:
        status = self.library.c.dnnl_primitive_desc_query(self.pointer, what, 0, result)
        if status:
            check(status, f"query {what.name} of {self.request}", self.origin)

    def _query_int(self, what: Query) -> int:
        value = ctypes.c_int()
        self._query(what, ctypes.byref(value))
        return value.value

    def _query_md(self, what: Query, index: int) -> MemoryDesc:
        borrowed = self.library.c.dnnl_primitive_desc_query_md(self.pointer, what, index)
        if not borrowed:
            check(Status.not_required, f"query {what.name} {index} of {self.request}", self.origin)
        return MemoryDesc.clone(self.library, borrowed)


class ExecArgs:
    """A ready argument array: the ids and handles that one execution takes. It keeps the memories alive.

    Args:
        memories: argument id -> memory. Concurrent executions need separate arrays with separate scratchpads and outputs.

    Attributes:
        count: number of entries.
        pointer: the array, as ctypes wants it.
    """

    __slots__ = ("_array", "_index", "count", "memories", "pointer")

    def __init__(self, memories: Mapping[int, Memory]) -> None:
        self.memories = {int(arg): memory for arg, memory in memories.items()}
        self.count = len(self.memories)
        self._array = (ExecArg * self.count)(*(ExecArg(arg, memory.pointer) for arg, memory in self.memories.items()))
        self._index = {arg: index for index, arg in enumerate(self.memories)}
        self.pointer = ctypes.cast(self._array, ctypes.c_void_p)

    def set(self, arg: int, memory: Memory) -> None:
        """Replace the memory of an argument that is present already (KeyError otherwise). Not while it is executing."""
        self._array[self._index[arg]].memory = memory.pointer
        self.memories[arg] = memory

    def replaced(self, memories: Mapping[int, Memory]) -> ExecArgs:
        """A second array, with some memories replaced or added."""
        return ExecArgs({**self.memories, **memories})


class Primitive(Handle):
    """`dnnl_primitive_t`: compiled code. One primitive may be executed by several threads at once in scratchpad mode `user`.

    Args:
        desc: the descriptor; kept.

    Raises:
        OneDnnError: the library cannot make it.
    """

    __slots__ = ("_call", "_handle", "desc")

    def __init__(self, desc: PrimitiveDesc) -> None:
        status, pointer = create(desc.library.c.dnnl_primitive_create, desc.pointer)
        if status:
            check(status, f"creating {desc.request} by {desc.impl_info}", desc.origin)
        super().__init__(desc.library, "primitive", pointer)
        self.desc = desc
        self._call = _execute_function(desc.library.c)
        self._handle = ctypes.c_void_p(pointer)

    def execute(self, stream: Stream, args: ExecArgs) -> None:
        """Run once; on an OpenMP or sequential library the outputs are written when this returns.

        Raises:
            OneDnnError: the library refuses, for example because an argument is missing. It does not check addresses.
        """
        status = self._call(self._handle, stream.raw, args.count, args.pointer)
        if status:
            raise self.execution_error(status)

    def call(self, stream: Stream, args: ExecArgs) -> Callable[[], int]:
        """The same as a function without arguments that returns the status (0: success), for a tight loop.

        It is a C-level `functools.partial` and keeps nothing alive: hold the primitive, the stream and the arguments as
        long as it may be called. `execution_error` turns another status into the error.
        """
        return functools.partial(self._call, self._handle, stream.raw, args.count, args.pointer)

    def execution_error(self, status: int) -> Exception:
        """The error for a status that `call` returned."""
        return failure(status, f"executing {self.desc.request} by {self.desc.impl_info}", self.desc.origin)

    def close(self) -> None:
        """Free the primitive; a later `execute` fails with invalid_arguments."""
        self._handle = ctypes.c_void_p()
        super().close()


def _execute_function(cdll: ctypes.CDLL) -> Any:
    """`dnnl_primitive_execute` without argument types.

    Its arguments are ctypes objects made beforehand, and ctypes passes those on faster when it has nothing to convert.
    """
    function = cdll.__dict__.get("_fqfuse_execute")
    if function is None:
        function = cdll["dnnl_primitive_execute"]  # item access makes a new function object; attribute access shares one
        function.restype = ctypes.c_int
        cdll.__dict__["_fqfuse_execute"] = function
    return function


def optional(desc: MemoryDesc | None) -> int | None:
    """The handle of an operand that may be absent; the library takes NULL for none."""
    return None if desc is None else desc.pointer


def create_desc(
    engine: Engine,
    kind: PrimitiveKind,
    name: str,
    arguments: tuple[Any, ...],
    attributes: Attributes | None,
    operands: Mapping[str, MemoryDesc | None],
    origin: str,
    detail: str = "",
) -> PrimitiveDesc:
    """Call `dnnl_<name>_primitive_desc_create(&pd, *arguments, attr)`.

    Args:
        engine: the engine.
        kind: the kind to record.
        name: the function's name.
        arguments: everything between the out-pointer and the attribute.
        attributes: the attributes; None for the defaults (user scratchpad).
        operands: role -> descriptor, for messages.
        origin: what in the user's model it serves.
        detail: algorithm or parameters, for messages.

    Raises:
        Unimplemented: no implementation takes it.
        OneDnnError: any other refusal.
    """
    chosen = _DEFAULT if attributes is None else attributes
    request = Request(kind, detail, operands, chosen)
    with Attr(engine.library, chosen, origin) as attr:
        status, pointer = create(getattr(engine.library.c, f"dnnl_{name}_primitive_desc_create"), *arguments, attr.pointer)
    if status:
        check(status, str(request), origin)
    return PrimitiveDesc(engine, pointer, request, origin)
