"""Primitive descriptors: which implementation the library chose, in which layouts it wants its
arguments, how much scratchpad.

`describe` makes them, by the rows of `capi.PRIMITIVES`; `primitive` compiles and executes them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .attributes import Attributes, Binary, Depthwise, attr_of
from .capi import OPERANDS, PRIMITIVES, Status, check, failure, int64_array
from .enums import Arg, Query
from .library import Engine, Handle, create
from .memory import MemoryDesc

# inference (dnnl_forward_inference), and what the library finds by itself
_ALWAYS = {
    "prop": 96,
    "factors": None,
    "statistics": None,
}


_QUERIES: dict[int, Query] = {
    Arg.SRC: Query.src_md,
    Arg.WEIGHTS: Query.weights_md,
    Arg.DST: Query.dst_md,
}
"""How the library is asked for arguments that a request has as `src`, `weights` and `dst`."""

_ROLES: dict[int, str] = {Arg.SRC_0: "src0", Arg.SRC_1: "src1", Arg.BIAS: "bias"}
"""Other operands of a request by their arguments."""

_PLAIN = Attributes()
RECURRENT = frozenset({"augru", "gru", "lbr_augru", "lbr_gru", "lstm", "vanilla_rnn"})
"""The kinds that are recurrent layers."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a primitive descriptor was asked for; its text is made only when a message needs it.

    Attributes:
        kind: the primitive's kind, a key of `PRIMITIVES`.
        operands: role -> descriptor as given (None: absent).
        parameters: name -> algorithm, number, or one integer for each spatial dimension (`strides`,
            `padding_r`).
        attributes: scales, zero points and post-ops.
        origin: what in the user's model it serves; part of every message.
    """

    kind: str
    operands: Mapping[str, MemoryDesc | None]
    parameters: Mapping[str, Any]
    attributes: Attributes
    origin: str

    def __str__(self) -> str:
        shown = {
            name: list(value) if isinstance(value, tuple | ctypes.Array) else value
            for name, value in self.parameters.items()
        }
        shapes = [f"{role}={desc!r}" for role, desc in self.operands.items() if desc is not None]
        return " ".join(
            part
            for part in (
                self.kind,
                PRIMITIVES[self.kind].text.format(**shown),
                *shapes,
                str(self.attributes),
            )
            if part
        )


def describe(
    engine: Engine,
    kind: str,
    *operands: MemoryDesc | None,
    attributes: Attributes = _PLAIN,
    origin: str = "",
    **parameters: Any,
) -> PrimitiveDesc:
    """Asks the library for a primitive.

    Args:
        engine: the engine.
        kind: a key of `PRIMITIVES`.
        operands: in the order of its row (concat and sum: the sources, then dst); None: absent.
        attributes: scales, zero points and post-ops.
        origin: the names of the model's nodes, for messages.
        parameters: those of the row.

    Raises:
        Unimplemented: no implementation takes the request.
        OneDnnError: any other refusal.
        ValueError: these are not the row's operands and parameters.
    """
    row = PRIMITIVES[kind]
    names = row.operands
    if kind in ("concat", "sum"):
        names = [*(f"src{index}" for index in range(len(operands) - 1)), "dst"]
        handles = [source.pointer for source in operands[:-1] if source is not None]
        sources = (ctypes.c_void_p * len(handles))(*handles)
        parameters |= {"count": len(handles), "sources": sources}
        if kind == "sum":
            factors = tuple(map(float, parameters["scales"]))
            parameters["scales"] = (ctypes.c_float * len(factors))(*factors)
    given = {**row.defaults, **parameters}
    wanted = set(row.arguments.split()) - OPERANDS - _ALWAYS.keys() - {"engine"}
    if given.keys() != wanted or len(names) != len(operands):
        raise ValueError(f"{kind} takes {', '.join((*names, *sorted(wanted)))}")
    return PrimitiveDesc(
        engine, Request(kind, dict(zip(names, operands, strict=True)), given, attributes, origin)
    )


class PrimitiveDesc(Handle):
    """`dnnl_primitive_desc_t`: an operation on given shapes, bound to one implementation.

    Args:
        engine: the engine to make it for.
        request: what is asked for; `str(request)` is one line with kind, shapes and attributes.

    Raises:
        Unimplemented: no implementation takes it.
        OneDnnError: any other refusal, and a binary operand that does not broadcast to the
            destination.
        ValueError: a parameter has not one entry for each spatial dimension.
    """

    __slots__ = ("_as_given", "_impl_info", "_mds", "engine", "request")

    def __init__(self, engine: Engine, request: Request) -> None:
        windows, origin = _windows(request), request.origin
        if not _operands_fit(request):
            raise failure(
                Status.invalid_arguments,
                f"{request}, where the operand of a binary post-op does not broadcast to dst,",
                origin,
            )
        known = {**_ALWAYS, "engine": engine, **request.operands, **request.parameters, **windows}
        row = PRIMITIVES[request.kind]
        function = getattr(engine.library.c, f"dnnl_{row.function}_primitive_desc_create")
        arguments = [known[word] for word in row.arguments.split()]
        attr = attr_of(engine.library, request.attributes, origin)
        super().__init__(
            engine.library,
            "primitive_desc",
            create(function, lambda: str(request), *arguments, attr, origin=origin),
        )
        self.engine = engine
        self.request = request
        # behind a depthwise post-op the destination has a shape of its own
        self._as_given = not any(isinstance(op, Depthwise) for op in request.attributes.post_ops)
        self._impl_info: str | None = None
        self._mds: dict[
            tuple[Query, int], MemoryDesc
        ] = {}  # a binding asks for each more than once

    @property
    def kind(self) -> str:
        """The primitive's kind."""
        return self.request.kind

    @property
    def attributes(self) -> Attributes:
        """The attributes it was made with."""
        return self.request.attributes

    @property
    def impl_info(self) -> str:
        """Name of the chosen implementation, such as `brgconv:avx512_core_vnni`; `ref...` is
        slow.
        """
        if self._impl_info is None:
            text = ctypes.c_char_p()
            status = self.library.c.dnnl_primitive_desc_query(
                self, Query.impl_info_str, 0, ctypes.byref(text)
            )
            if status:
                raise failure(status, f"query impl_info_str of {self.request}", self.request.origin)
            self._impl_info = (text.value or b"").decode()
        return self._impl_info

    @property
    def impl_parts(self) -> list[str]:
        """The parts of that name: kernels and instruction sets."""
        return self.impl_info.replace("+", ":").split(":")

    @property
    def is_reference(self) -> bool:
        """True where the implementation, or a part of it, is one of the library's slow references
        (`ref:any`, `ref_int8:any`).

        Named so and none are: concat, which runs one compiled reorder for each source;
        `ref_fused_convolution`, which runs a convolution and its depthwise post-op one after the
        other; and recurrent layers, whose products are gemm and whose gates are compiled code. One
        is not named so: a deconvolution `conv:any+x64:gemm_s8s8s32:jit` has compiled products, but
        takes post-ops element by element: measured on feature maps of 28x28, 20 to 500 times as
        slow as the NumPy runtime.
        """
        if self.kind == "concat" or self.kind in RECURRENT:
            return False
        if (
            self.kind == "deconvolution"
            and self.impl_info.startswith("conv:any")
            and "gemm_" in self.impl_info
        ):
            return True
        return any(
            part.startswith("ref") and part != "ref_fused_convolution" for part in self.impl_parts
        )

    def src_md(self) -> MemoryDesc:
        """Layout of the source; like the others it has no dimensions where the primitive has no
        such argument.
        """
        return self._query_md(Query.src_md)

    def weights_md(self) -> MemoryDesc:
        """Layout of the weights."""
        return self._query_md(Query.weights_md)

    def dst_md(self) -> MemoryDesc:
        """Layout of the destination."""
        return self._query_md(Query.dst_md)

    def exec_arg_md(self, arg: int) -> MemoryDesc:
        """Layout of execution argument `arg`, also of post-op operands and of the depthwise
        post-op's weights.
        """
        query = _QUERIES.get(arg)
        if query is not None and self._given(query, 0) is not None:
            return self._query_md(query)
        return self._query_md(Query.exec_arg_md, arg)

    @property
    def memory_consumption(self) -> int:
        """Bytes that the library allocates for the primitive besides its arguments: its scratchpad
        in the mode `library`, 0 in the mode `user`.
        """
        size = ctypes.c_int64()
        status = self.library.c.dnnl_primitive_desc_query(
            self, Query.memory_consumption_s64, 0, ctypes.byref(size)
        )
        check(status, f"query memory_consumption_s64 of {self.request}", self.request.origin)
        return int(size.value)

    @property
    def scratchpad_md(self) -> MemoryDesc:
        """Descriptor of the scratchpad (bytes)."""
        return self._query_md(Query.scratchpad_md)

    @property
    def scratchpad_size(self) -> int:
        """Bytes of the scratchpad that `Arg.SCRATCHPAD` must have; 0: the argument may be left
        out.
        """
        return self.scratchpad_md.size

    def next_impl(self) -> bool:
        """Go on to the next implementation that takes this request; False when there is none (the
        present one stays).

        A primitive in the library's cache makes the same implementation come again; with
        `dnnl_set_primitive_cache_capacity(0)` it does not.
        """
        status = int(self.library.c.dnnl_primitive_desc_next_impl(self))
        if status == Status.last_impl_reached:
            return False
        check(status, f"next implementation of {self.request}", self.request.origin)
        self._impl_info = None
        self._mds.clear()
        return True

    def __repr__(self) -> str:
        return f"<{self.request} by {self.impl_info}>"

    def _query_md(self, what: Query, index: int = 0) -> MemoryDesc:
        known = self._mds.get((what, index))
        if known is not None:
            return known
        given = self._given(what, index)
        if given is not None and not given.is_any:
            return given
        borrowed = self.library.c.dnnl_primitive_desc_query_md(self, what, index)
        if not borrowed:
            raise failure(
                Status.not_required,
                f"query {what.name} {index} of {self.request}",
                self.request.origin,
            )
        self._mds[what, index] = copy = MemoryDesc.clone(self.library, borrowed, given)
        return copy

    def _given(self, what: Query, index: int) -> MemoryDesc | None:
        """The descriptor with which the request has an argument."""
        if not self._as_given:
            return None
        if what != Query.exec_arg_md:
            return self.request.operands.get(what.name.removesuffix("_md")) if index == 0 else None
        if index in _ROLES:
            return self.request.operands.get(_ROLES[index])
        post_ops = self.request.attributes.post_ops
        place, operand = divmod(index, Arg.ATTR_MULTIPLE_POST_OP_BASE)
        if operand == Arg.SRC_1 and 0 < place <= len(post_ops):
            post_op = post_ops[place - 1]
            return post_op.src1 if isinstance(post_op, Binary) else None
        return None


def _windows(request: Request) -> dict[str, ctypes.Array[ctypes.c_int64]]:
    """The parameters for each spatial dimension. The library reads as many entries as there are, so
    fewer would be read past the end.
    """
    found = {name: value for name, value in request.parameters.items() if isinstance(value, tuple)}
    src = request.operands.get("src")
    if src is not None and any(len(value) != len(src.dims) - 2 for value in found.values()):
        given = [list(value) for value in found.values()]
        raise ValueError(
            f"each spatial parameter needs {len(src.dims) - 2} entries for {src}, got {given}"
        )
    return {name: int64_array(value) for name, value in found.items()}


def _operands_fit(request: Request) -> bool:
    """Each binary operand has dst's rank, and in each dimension 1 or dst's length.

    oneDNN 3.2 accepts others for most primitives, takes a reference implementation, and reads past
    their end.
    """
    dst = request.operands.get("dst")
    for post_op in request.attributes.post_ops:
        if isinstance(post_op, Depthwise):
            # what follows applies to the depthwise result, whose shape only the library knows
            return True
        if isinstance(post_op, Binary) and dst is not None:
            dims = post_op.src1.dims
            if len(dims) != len(dst.dims) or any(
                length not in (1, full) for length, full in zip(dims, dst.dims, strict=True)
            ):
                return False
    return True
