"""A primitive on oneDNN: its descriptor, and the memories of one execution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..ir.ops.spec import Array
from ..ir.types import DType, TensorType
from ..onednn import attributes as library_attributes
from ..onednn.attributes import Attributes
from ..onednn.capi import OneDnnError, Status, failure
from ..onednn.defects import defect_of
from ..onednn.enums import (
    AlgKind,
    Arg,
    DataType,
    FpmathMode,
    NormalizationFlags,
    RnnDirection,
    ScratchpadMode,
    arg_multiple_src,
    arg_post_op,
    arg_scales,
    arg_zero_points,
)
from ..onednn.layouts import channels_last, row_major
from ..onednn.library import Engine, Stream
from ..onednn.memory import Memory, MemoryDesc, data_type_of, numpy_dtype
from ..onednn.primitive import ExecArgs, Primitive, pack, run_once
from ..onednn.primitive_cache import switch_off
from ..onednn.primitive_desc import PrimitiveDesc, describe
from ..onednn.saturation import may_saturate
from ..plan.attributes import (
    RNN_QPARAMS,
    Binary,
    DepthwiseConv,
    Eltwise,
    PostOp,
    Prelu,
    PrimitiveAttr,
    Scale,
    Sum,
    ZeroPoint,
)
from .depthwise import parts, scales_of
from .description import Description, axes
from .kinds import ARGS, CELLS, KINDS, is_numbered
from .operation import ends_the_process, unlike

_TYPES = {
    DType.BF16: DataType.bf16,
    DType.F16: DataType.f16,
    DType.F32: DataType.f32,
    DType.S32: DataType.s32,
    DType.S8: DataType.s8,
    DType.U8: DataType.u8,
}
_FLAGS = {
    "scale": NormalizationFlags.use_scale,
    "shift": NormalizationFlags.use_shift,
    "mean": NormalizationFlags.use_global_stats,
    "variance": NormalizationFlags.use_global_stats,
}
_IMPLEMENTATIONS = 16
_NO_ATTRIBUTES = Attributes()


@dataclass(frozen=True)
class Made:
    """A primitive of the library.

    Attributes:
        primitive: compiled, in the scratchpad mode `user`.
        passed_over: the implementations in front of its own, and why they were not taken.
        memory_consumption: bytes of the scratchpad that the library would allocate for it.
    """

    primitive: Primitive
    passed_over: tuple[str, ...]
    memory_consumption: int


def made(engine: Engine, description: Description, fpmath: FpmathMode | None) -> Made:
    """The primitive by the library's first implementation that is not known to compute it wrongly.

    It always runs in the scratchpad mode `user`: oneDNN's own scratchpad belongs to the thread that
    made the primitive, and in another one there is none (3.2; the process ends).

    Raises:
        OneDnnError: the library refuses, or has no such implementation.
    """
    switch_off(engine.library)
    passed: list[str] = []
    for index in range(_IMPLEMENTATIONS):
        desc = descriptor(engine, description, fpmath)
        if not all(desc.next_impl() for _ in range(index)):
            break
        reason = _objection(desc)
        if not reason:
            try:
                return Made(
                    Primitive(desc), tuple(passed), _consumption(engine, description, fpmath, index)
                )
            except OneDnnError as error:
                if error.status != Status.runtime_error:
                    raise
                reason = "its code cannot be generated"
        passed.append(f"{desc.impl_info}: {reason}")
    raise failure(Status.unimplemented, f"{description} ({'; '.join(passed)})")


def form(description: Description) -> Description:
    """What the library is told when it makes a primitive: the masks of scales and zero points of arguments,
    not their values.
    """

    def post_op(op: PostOp) -> PostOp:
        if not isinstance(op, DepthwiseConv):
            return op
        told = {role: Scale((), scale.mask) for role, scale in scales_of(op)}
        weights, dst = (told.get(role, Scale((1.0,))) for role in ("weights", "dst"))
        return replace(op, weights_scale=weights, dst_scale=dst)

    attr = description.attr
    told = replace(
        attr,
        scales={role: Scale((), scale.mask) for role, scale in attr.scales.items()},
        zero_points={role: ZeroPoint((), zero.mask) for role, zero in attr.zero_points.items()},
        post_ops=tuple(map(post_op, attr.post_ops)),
    )
    return replace(description, attr=told)


def _consumption(
    engine: Engine, description: Description, fpmath: FpmathMode | None, index: int
) -> int:
    desc = descriptor(engine, description, fpmath, ScratchpadMode.library)
    return desc.memory_consumption if all(desc.next_impl() for _ in range(index)) else 0


def _objection(desc: PrimitiveDesc) -> str:
    """Why an implementation is passed over; '' where it is not."""
    defect = defect_of(desc)
    if defect is not None:
        return f"it computes that wrongly ({defect.name}): {defect.when}"
    if desc.library.effective_isa().has_vnni and may_saturate(desc):
        return "its products saturate, as this CPU's need not"
    return ""


def descriptor(
    engine: Engine,
    description: Description,
    fpmath: FpmathMode | None = FpmathMode.strict,
    scratchpad: ScratchpadMode = ScratchpadMode.user,
) -> PrimitiveDesc:
    """The primitive descriptor.

    Args:
        engine: the engine.
        description: the primitive.
        fpmath: the types that f32 may be narrowed to; None: the environment's default. A recurrent
            layer of codes is always made with `strict`: with another mode, which does not concern
            integers, 3.2 computes something else.
        scratchpad: who allocates it.

    It is one that `can_be_asked_for`.

    Raises:
        OneDnnError: the library refuses; `status` says how.
    """
    kind = description.kind
    if kind in CELLS and description.dtype("src_layer") in (DType.U8, DType.S8):
        fpmath = FpmathMode.strict
    chosen = KINDS[kind].chosen
    roles = description.sources() if KINDS[kind].many else []
    roles += [role for role in KINDS[kind].roles if role not in KINDS[kind].flags]
    operands = [
        _desc(engine, description, role, free=role in chosen)
        if role in description.tensors
        else None
        for role in roles
    ]
    return describe(
        engine,
        kind,
        *operands,
        attributes=replace(_attributes(engine, description), fpmath=fpmath, scratchpad=scratchpad),
        **_parameters(description),
    )


def can_be_asked_for(description: Description) -> bool:
    """Whether the library has a number for each argument with scales or zero points, its numbers for each
    spatial dimension, of which it reads as many as the source has, are so many, it looks at the shapes, and
    the process goes on.
    """
    if ends_the_process(description) is not None or unlike(description) is not None:
        return False
    attr = description.attr
    numbered = all(
        is_numbered(description.kind, role) for role in (*attr.scales, *attr.zero_points)
    )
    if "strides" not in description.params:
        return numbered
    return numbered and len(description.dims("src")) == len(axes(description)[0]) + 2


def _desc(engine: Engine, description: Description, role: str, *, free: bool) -> MemoryDesc:
    # with a depthwise post-op, the destination's descriptor is that of what lies in between
    type_ = parts(description)[0].tensors[role]
    make = MemoryDesc.any if free else row_major
    return make(engine.library, type_.static_shape, _TYPES[type_.dtype])


def _parameters(description: Description) -> dict[str, Any]:
    """The parameters in the binding's terms."""
    kind, found = KINDS[description.kind], dict[str, Any](description.params)
    if kind.algorithms:
        found["alg"] = AlgKind[f"{kind.algorithms}_{found.pop('algorithm')}"]
    if kind.flags:
        flags = NormalizationFlags.none
        for role in kind.flags:
            if role in description.tensors:
                flags |= _FLAGS[role]
        found["flags"] = flags
    if description.kind in CELLS:
        found["direction"] = RnnDirection[found["direction"]]
    return found


def argument(description: Description, role: str) -> int:
    """The library's number of an argument."""
    if KINDS[description.kind].many and role.startswith("src_"):
        return arg_multiple_src(int(role[4:]))
    return ARGS[role]


def _attributes(engine: Engine, description: Description) -> Attributes:
    attr = description.attr
    scales = {argument(description, role): held.mask for role, held in attr.scales.items()}
    chain: list[library_attributes.PostOp] = []
    for op in attr.post_ops:
        match op:
            case Eltwise(name, alpha, beta):
                chain.append(library_attributes.Eltwise(AlgKind[f"eltwise_{name}"], alpha, beta))
            case Binary(name, operand):
                chain.append(_binary(engine, description, name, operand))
            case Sum(_, scale, zero_point, dtype):
                read_as = DataType.undef if dtype is None else _TYPES[dtype]
                chain.append(library_attributes.Sum(scale, zero_point, read_as))
            case Prelu(_, mask):
                chain.append(library_attributes.PRelu(mask))
            case DepthwiseConv():
                chain.append(_depthwise(op))
                scales |= {
                    Arg.ATTR_POST_OP_DW | ARGS[role]: scale.mask for role, scale in scales_of(op)
                }
    return replace(
        _of_layer(attr),
        scales=scales,
        zero_points={
            argument(description, role): held.mask for role, held in attr.zero_points.items()
        },
        post_ops=tuple(chain),
    )


def _of_layer(attr: PrimitiveAttr) -> Attributes:
    """The parameters of codes of a recurrent layer, which its weights are packed with, too."""
    none = Scale(())
    data, weights, projection = (getattr(attr, name) or none for name in RNN_QPARAMS)
    return Attributes(
        rnn_data=(data.values[0], data.values[1]) if data.values else None,
        rnn_weights=weights.values,
        rnn_weights_mask=weights.mask,
        rnn_projection=projection.values,
        rnn_projection_mask=projection.mask,
    )


def _binary(
    engine: Engine, description: Description, name: str, operand: str
) -> library_attributes.Binary:
    type_ = description.operands[operand]
    # where the library chooses the destination's layout, it chooses this one, too
    free = "dst" in KINDS[description.kind].chosen
    make = MemoryDesc.any if free else row_major
    if _lies_in_a_row(description, type_):
        make = channels_last
    desc = make(engine.library, type_.static_shape, _TYPES[type_.dtype])
    return library_attributes.Binary(AlgKind[f"binary_{name}"], desc)


def _lies_in_a_row(description: Description, operand: TensorType) -> bool:
    """Whether as many numbers as a convolution of codes has results lie along one axis, alike in every
    layout: the library takes them for a row-major tensor then, and its reference alone broadcasts that.
    (Of one channel along one axis it is the reference in either layout that a plan has.)
    """
    shape = operand.static_shape
    codes = description.kind == "convolution" and description.dtype("src").is_integer
    single = len(shape) == 3 and shape[:2] == (1, 1)
    along = [size for size in shape if size != 1]
    return codes and len(along) == 1 and shape == description.dims("dst") and not single


def _depthwise(op: DepthwiseConv) -> library_attributes.Depthwise:
    bias = DataType.f32 if op.bias else DataType.undef
    kernel, dst = _TYPES[op.weights_dtype], _TYPES[op.dst_dtype]
    return library_attributes.Depthwise(kernel, bias, dst, op.kernel, op.stride, op.padding)


# -- execution -------------------------------------------------------------------------------------


def execute(
    stream: Stream,
    description: Description,
    primitive: Primitive,
    attr: PrimitiveAttr,
    args: Mapping[str, Array],
) -> dict[str, Array]:
    """The destinations by role, row-major.

    Args:
        stream: of the engine.
        description: the primitive.
        primitive: the same, compiled.
        attr: its attributes, with all values.
        args: an array for each argument and operand, and the `scratchpad` where it takes one.
    """
    engine, desc = stream.engine, primitive.desc
    args = _with_bits(description, args)
    memories: dict[int, Memory] = {}
    written = description.destinations()
    for role in description.tensors:
        if role not in written:
            number = argument(description, role)
            packing = _of_layer(attr) if role.startswith("weights") else _NO_ATTRIBUTES
            memories[number] = _placed(stream, desc, number, args[role], packing)
    for index, pair in enumerate(zip(description.attr.post_ops, attr.post_ops, strict=True)):
        memories |= dict(_of_post_op(stream, desc, index, *pair, args))
    for role, scale in attr.scales.items():
        memories[arg_scales(argument(description, role))] = _vector(engine, scale.array)
    for role, zero in attr.zero_points.items():
        memories[arg_zero_points(argument(description, role))] = _vector(engine, zero.array)
    old = next((args[op.operand] for op in attr.post_ops if isinstance(op, Sum)), None)
    for role in written:
        number = argument(description, role)
        target = desc.exec_arg_md(number)
        memories[number] = (
            Memory.allocate(engine, target)
            if old is None
            else _moved(stream, old.view(numpy_dtype(_TYPES[description.dtype(role)])), target)
        )
    if desc.scratchpad_size:
        given = args.get("scratchpad")
        memories[Arg.SCRATCHPAD] = (
            Memory.allocate(engine, desc.scratchpad_md)
            if given is None
            else Memory(engine, desc.scratchpad_md, given)
        )
    primitive.execute(stream, ExecArgs(desc, memories))
    found = {role: _plain(stream, memories[argument(description, role)]) for role in written}
    return {
        role: _of_bits(array) if description.dtype(role) is DType.BF16 else array
        for role, array in found.items()
    }


def _of_post_op(
    stream: Stream,
    desc: PrimitiveDesc,
    index: int,
    asked: PostOp,
    op: PostOp,
    args: Mapping[str, Array],
) -> Iterator[tuple[int, Memory]]:
    """What the post-op of that number reads, as it was asked for and with all values."""
    match op:
        case Binary(_, operand):
            number = arg_post_op(index, Arg.SRC_1)
            yield number, _placed(stream, desc, number, args[operand])
        case Prelu(operand):
            slopes = _vector(stream.engine, _channels_last(args[operand]))
            yield arg_post_op(index, Arg.WEIGHTS), slopes
        case DepthwiseConv():
            assert isinstance(asked, DepthwiseConv)
            yield from _depthwise_memories(stream, desc, asked, op, args)


def _with_bits(description: Description, args: Mapping[str, Array]) -> dict[str, Array]:
    """The arguments; of bf16, which f32 carries, the upper half of the bits."""
    types = {**description.tensors, **description.operands}
    halves = {name for name, type_ in types.items() if type_.dtype is DType.BF16}
    return {
        name: (np.ascontiguousarray(array).view(np.uint32) >> 16).astype(np.uint16)
        if name in halves
        else array
        for name, array in args.items()
    }


def _of_bits(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _type_of(array: Array) -> DataType:
    """The library's type of an argument, where integers of 16 bits are bits of bf16."""
    halves = {"uint16": DataType.bf16, "float16": DataType.f16}
    return halves.get(array.dtype.name) or data_type_of(array.dtype)


def _depthwise_memories(
    stream: Stream,
    desc: PrimitiveDesc,
    asked: DepthwiseConv,
    op: DepthwiseConv,
    args: Mapping[str, Array],
) -> Iterator[tuple[int, Memory]]:
    """Of the post-op as it was asked for, with the values of `op`."""
    weights = Arg.ATTR_POST_OP_DW | Arg.WEIGHTS
    data = args[op.weights]
    # (C, 1, kernel...) of the post-op are (C, 1, 1, kernel...) of a convolution with C groups
    yield weights, _placed(stream, desc, weights, data.reshape(data.shape[0], 1, *data.shape[1:]))
    for role, _ in scales_of(asked):
        scale = op.weights_scale if role == "weights" else op.dst_scale
        yield arg_scales(Arg.ATTR_POST_OP_DW | ARGS[role]), _vector(stream.engine, scale.array)
    if op.bias:
        yield Arg.ATTR_POST_OP_DW | Arg.BIAS, _vector(stream.engine, args[op.bias])


def _vector(engine: Engine, values: Array) -> Memory:
    array = np.ascontiguousarray(values.reshape(-1))
    return Memory(engine, row_major(engine.library, array.shape, _type_of(array)), array)


def _channels_last(array: Array) -> Array:
    return np.moveaxis(array, 1, -1) if array.ndim > 2 else array


def _placed(
    stream: Stream,
    desc: PrimitiveDesc,
    number: int,
    array: Array,
    packing: Attributes = _NO_ATTRIBUTES,
) -> Memory:
    """An argument in the layout that the primitive wants."""
    wanted = desc.exec_arg_md(number)
    if not wanted.dims:  # nothing is prescribed, as for the parameters of a normalization
        return _vector(stream.engine, array)
    return _moved(stream, array, wanted, packing)


def _moved(
    stream: Stream, array: Array, wanted: MemoryDesc, packing: Attributes = _NO_ATTRIBUTES
) -> Memory:
    engine = stream.engine
    plain = row_major(engine.library, array.shape, _type_of(array))
    if wanted == plain:
        # a copy: a sum writes to it
        return Memory(engine, plain, np.array(array, order="C", copy=True))
    target = Memory.allocate(engine, wanted)
    pack(stream, np.ascontiguousarray(array), plain, target, packing)
    return target


def _plain(stream: Stream, memory: Memory) -> Array:
    engine, desc = stream.engine, memory.desc
    if desc.is_plain:
        return np.array(memory.view(), order="C", copy=True)
    plain = row_major(engine.library, desc.dims, desc.dtype)
    target = Memory.allocate(engine, plain)
    run_once(stream, describe(engine, "reorder", desc, plain), {Arg.SRC: memory, Arg.DST: target})
    return np.array(target.view(), order="C", copy=True)
