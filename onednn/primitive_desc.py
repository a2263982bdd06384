"""Primitive descriptors: which implementation the library chose, in which layouts it wants its arguments, how much scratchpad.

They are made by the functions in `compute`, `pointwise` and `normalization`; `primitive` compiles and executes them.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .attributes import Attr, Attributes, Binary, Depthwise
from .capi import check, failure
from .enums import DataType, PrimitiveKind, Query, Status
from .handles import Engine, Handle, create
from .memory import MemoryDesc

__all__ = ["PrimitiveDesc", "Request", "create_desc", "optional"]

_DEFAULT = Attributes()
_NO_VNNI = frozenset({"sse41", "avx", "avx2", "avx512_core"})  # instruction sets in impl_info whose int8 code saturates


@dataclass(frozen=True, slots=True)
class Request:
    """What a primitive descriptor was asked for; its text is made only when a message needs it.

    Attributes:
        kind: the primitive's kind.
        detail: algorithm and parameters.
        operands: role -> descriptor as given (None: absent).
        attributes: the attributes.
        numbers: the integers among the parameters, such as `strides` and `padding_r`, one entry a spatial dimension.
    """

    kind: PrimitiveKind
    detail: str
    operands: Mapping[str, MemoryDesc | None]
    attributes: Attributes
    numbers: Mapping[str, Sequence[int]]

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

    __slots__ = ("_impl_info", "_mds", "engine", "origin", "request")

    def __init__(self, engine: Engine, pointer: int, request: Request, origin: str) -> None:
        super().__init__(engine.library, "primitive_desc", pointer)
        self.engine = engine
        self.request = request
        self.origin = origin
        self._impl_info: str | None = None
        self._mds: dict[tuple[Query, int], MemoryDesc] = {}  # a binding asks for each more than once

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
        """True where the implementation, or a part of it, is one of the library's slow references (`ref:any`, `ref_int8:any`).

        Three are named so and are none: concat and sum, which run one compiled reorder for each source, and
        `ref_fused_convolution`, which runs a convolution and its depthwise post-op one after the other. One is not named so: a
        deconvolution `conv:any+x64:gemm_s8s8s32:jit` has compiled products, but takes post-ops element by element: measured on feature
        maps of 28x28, 20 to 500 times as slow as the NumPy runtime.
        """
        if self.kind in (PrimitiveKind.concat, PrimitiveKind.sum):
            return False
        if self.kind == PrimitiveKind.deconvolution and self.impl_info.startswith("conv:any") and "gemm_" in self.impl_info:
            return True
        return any(part.startswith("ref") and part != "ref_fused_convolution" for part in self._impl_parts)

    @property
    def may_saturate(self) -> bool:
        """True where int8 products may lose bits: pairs of products saturate to s16, or s8*s8 halves the weights.

        That is what code for instruction sets without VNNI does, and the library picks such code on VNNI machines as well: a
        strided deconvolution with a sum post-op that is not first, or has a zero point, runs as `jit_uni_int8:avx2`. Exact
        all the same are depthwise u8 convolutions, unless they run as products (`gemm`, whose pairs are taps), and u8 data where every
        |weight| <= 64.
        """
        src, weights = self.request.operands.get("src"), self.request.operands.get("weights")
        if src is None or weights is None or weights.dtype != DataType.s8 or self.kind == PrimitiveKind.prelu:
            return False
        products = any("gemm" in part for part in self._impl_parts)
        if self.kind == PrimitiveKind.convolution and src.dtype == DataType.u8 and _is_depthwise(src, weights) and not products:
            return False
        without_vnni = products and not self.library.effective_isa().has_vnni
        return without_vnni or not _NO_VNNI.isdisjoint(self._impl_parts)

    def src_md(self, index: int = 0) -> MemoryDesc:
        """Layout of source `index`; like the others it has no dimensions where the primitive has no such argument."""
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
        self._mds.clear()
        return True

    @property
    def _impl_parts(self) -> list[str]:
        return re.split(r"[:+]", self.impl_info)

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
        known = self._mds.get((what, index))
        if known is not None and not known.closed:
            return known
        borrowed = self.library.c.dnnl_primitive_desc_query_md(self.pointer, what, index)
        if not borrowed:
            check(Status.not_required, f"query {what.name} {index} of {self.request}", self.origin)
        self._mds[what, index] = copy = MemoryDesc.clone(self.library, borrowed)
        return copy


def _is_depthwise(src: MemoryDesc, weights: MemoryDesc) -> bool:
    """One input and one output channel in each group; grouped weights have one dimension more than the source."""
    return len(weights.dims) == len(src.dims) + 1 and weights.dims[1:3] == (1, 1)


def optional(desc: MemoryDesc | None) -> int | None:
    """The handle of an operand that may be absent; the library takes NULL for none."""
    return None if desc is None else desc.pointer


def _operands_fit(request: Request) -> bool:
    """Each binary operand has dst's rank, and in each dimension 1 or dst's length.

    oneDNN 3.2 accepts others for most primitives, takes a reference implementation, and reads past their end.
    """
    dst = request.operands.get("dst")
    for post_op in request.attributes.post_ops:
        if isinstance(post_op, Depthwise):
            return True  # what follows applies to the depthwise result, whose shape only the library knows
        if isinstance(post_op, Binary) and dst is not None:
            dims = post_op.src1.dims
            if len(dims) != len(dst.dims) or any(length not in (1, full) for length, full in zip(dims, dst.dims, strict=True)):
                return False
    return True


def create_desc(
    engine: Engine,
    kind: PrimitiveKind,
    name: str,
    arguments: tuple[Any, ...],
    attributes: Attributes | None,
    operands: Mapping[str, MemoryDesc | None],
    origin: str,
    detail: str = "",
    numbers: Mapping[str, Sequence[int]] | None = None,
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
        numbers: the integers among the parameters.

    Raises:
        Unimplemented: no implementation takes it.
        OneDnnError: any other refusal, and a binary operand that does not broadcast to the destination.
    """
    chosen = _DEFAULT if attributes is None else attributes
    request = Request(kind, detail, operands, chosen, numbers or {})
    if not _operands_fit(request):
        raise failure(Status.invalid_arguments, f"{request}, where the operand of a binary post-op does not broadcast to dst,", origin)
    with Attr(engine.library, chosen, origin) as attr:
        status, pointer = create(getattr(engine.library.c, f"dnnl_{name}_primitive_desc_create"), *arguments, attr.pointer)
    if status:
        check(status, str(request), origin)
    return PrimitiveDesc(engine, pointer, request, origin)
