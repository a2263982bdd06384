"""What a primitive is asked for: tensors, parameters and attributes, checked for names only.

Whether the library takes it is another question (`refusal.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import InvalidInput
from ..ir.ops.spec import Array, Attr
from ..ir.text_write import type_text
from ..ir.types import DType, TensorType
from ..masks import has_order, mask_text
from ..onednn.enums import AlgKind, RnnDirection
from ..plan.attributes import (
    OPERANDS,
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
from ..plan.targets import check_target
from .kinds import CELLS, EVERY_AXIS_0, EVERY_AXIS_1, KINDS, REQUIRED, SOURCE, Kind

_TENSOR = re.compile(r"(f32|bf16|f16|s32|s8|u8)\[(\d+(?:,\d+)*)\]")
HALVES = frozenset({DType.BF16, DType.F16})
"""Floats of 16 bits. Arrays of f16 are NumPy's, of bf16 f32 that hold such numbers."""


@dataclass(frozen=True)
class Description:
    """One operation.

    Attributes:
        kind: a key of `KINDS`.
        tensors: its arguments, by role.
        operands: what its post-ops read, by name.
        params: all parameters of the kind.
        attr: a copy of the attributes. Scales and zero points without values come at execution.
        target: whose attributes they are.
    """

    kind: str
    tensors: Mapping[str, TensorType]
    operands: Mapping[str, TensorType]
    params: Mapping[str, Attr]
    attr: PrimitiveAttr
    target: str

    def dims(self, role: str) -> tuple[int, ...]:
        """The shape of an argument."""
        return self.tensors[role].static_shape

    def dtype(self, role: str) -> DType:
        """The element type of an argument."""
        return self.tensors[role].dtype

    def destinations(self) -> list[str]:
        """The arguments that it writes, in order."""
        return [role for role in KINDS[self.kind].destinations if role in self.tensors]

    def sources(self) -> list[str]:
        """The arguments that it reads as data, in order."""
        return [role for role in self.tensors if role.startswith("src")]

    def __str__(self) -> str:
        shown = [f"{role}={type_text(type_)}" for role, type_ in self.tensors.items()]
        shown += [f"{name}={value!r}" for name, value in self.params.items()]
        return f"{self.kind} {' '.join(shown)}"


def described(
    kind: str, tensors: Mapping[str, Any], attr: PrimitiveAttr, target: str
) -> Description:
    """A description.

    Args:
        kind: of the primitive.
        tensors: arguments and operands of post-ops as texts (`u8[1,16,8,8]`), and parameters.
        attr: its attributes.
        target: whose.

    Raises:
        InvalidInput: there is no such kind, argument or parameter, or one is missing.
    """
    found = KINDS.get(kind)
    if found is None:
        raise InvalidInput(f"there is no primitive {kind!r}", hint=f"choose of {', '.join(KINDS)}")
    check_target(target)
    if kind == "sum" and target == "unified":
        found = replace(found, params={})  # its scales are scales of its sources
    if not isinstance(attr, PrimitiveAttr):
        raise InvalidInput(
            f"attributes are a PrimitiveAttr, not a {type(attr).__name__}",
            hint="give fqfuse.primitives.PrimitiveAttr(...), or leave it out",
        )
    names = {name for op in attr.post_ops for name in operands_of(op)}
    given = {name: value for name, value in tensors.items() if value is not None}
    params = {name: given.pop(name) for name in found.params if name in given}
    roles = _roles(kind, found, given)
    stray = sorted(given.keys() - set(roles) - names)
    if stray:
        raise InvalidInput(
            f"{kind} has no argument or parameter {stray[0]!r}",
            hint=f"it has {', '.join((*roles, *found.params))}, and its post-ops read {', '.join(sorted(names)) or 'nothing'}",
        )
    _check_words(attr, target)
    types = {role: tensor(given[role], role) for role in roles}
    operands = {name: tensor(given[name], name) for name in given if name not in types}
    _complete_operands(kind, types, operands, attr)
    written = found.destinations[0]
    if written not in types:
        raise InvalidInput(
            f"{kind} lacks its argument {written}",
            hint=f'name its type and shape: {written}="f32[1,8]"',
        )
    if found.algorithms:
        _check_algorithm(found.algorithms, params.get("algorithm", found.params["algorithm"]))
    complete = _params(kind, found, params, max(len(types[written].static_shape) - 2, 0))
    _check_kind(kind, types, complete, attr)
    return Description(
        kind,
        MappingProxyType(types),
        MappingProxyType(operands),
        MappingProxyType(complete),
        copied(attr),
        target,
    )


def _check_algorithm(kind: str, name: object) -> None:
    known = [
        alg.name.removeprefix(f"{kind}_") for alg in AlgKind if alg.name.startswith(f"{kind}_")
    ]
    if name not in known:
        raise InvalidInput(
            f"{kind} has no algorithm {name!r}", hint=f"choose of {', '.join(known)}"
        )


def _check_layer(kind: str, direction: Attr, attr: PrimitiveAttr) -> None:
    """Refuses a direction that there is not, and parameters of codes without values.

    Raises:
        InvalidInput: there is one.
    """
    if direction not in RnnDirection.__members__:
        raise InvalidInput(
            f"{kind} has no direction {direction!r}",
            hint=f"choose of {', '.join(RnnDirection.__members__)}",
        )
    for name in RNN_QPARAMS:
        scale, least = getattr(attr, name), 1 + (name == "rnn_data_qparams")
        if scale is not None and len(scale.values) < least:
            raise InvalidInput(
                f"{name} of {kind} with {len(scale.values)} values, of at least {least}",
                hint="give them when the primitive is made: the library takes them there",
            )


def _check_words(attr: PrimitiveAttr, target: str) -> None:
    """Refuses what the attributes of a target have no words for: a library cannot be asked.

    Raises:
        InvalidInput: there is such a word.
    """
    words = {
        "output_scales": attr.output_scales is not None and target != "onednn-v2",
        **{name: getattr(attr, name) is not None and target == "unified" for name in RNN_QPARAMS},
        "the scale of an eltwise post-op": target != "onednn-v2"
        and any(isinstance(op, Eltwise) and op.scale != 1 for op in attr.post_ops),
        "the scale of the operand of a binary post-op": target != "unified"
        and any(isinstance(op, Binary) and op.scale is not None for op in attr.post_ops),
        "the zero point of the operand of a binary post-op": target != "unified"
        and any(isinstance(op, Binary) and op.zero_point is not None for op in attr.post_ops),
    }
    for word, given in words.items():
        if given:
            raise InvalidInput(
                f"the attributes of {target} do not have {word}",
                hint="leave it out, or choose another target",
            )
    for op in attr.post_ops:
        if isinstance(op, Eltwise | Binary):
            _check_algorithm(op.kind, op.algorithm)


def tensor(given: object, name: str) -> TensorType:
    """A tensor's type from its text.

    Raises:
        InvalidInput: it is none.
    """
    match = _TENSOR.fullmatch(given.replace(" ", "")) if isinstance(given, str) else None
    if match is None:
        raise InvalidInput(
            f"{given!r} is no tensor", where=name, hint="write its type and sizes, as u8[1,16,8,8]"
        )
    return TensorType(DType(match[1]), tuple(map(int, match[2].split(","))))


def copied(attr: PrimitiveAttr) -> PrimitiveAttr:
    """The attributes, which nobody can change any more through what they were made of."""
    return replace(
        attr,
        scales=MappingProxyType(dict(attr.scales)),
        zero_points=MappingProxyType(dict(attr.zero_points)),
        post_ops=tuple(attr.post_ops),
    )


def operands_of(op: PostOp) -> list[str]:
    """What a post-op reads, by name."""
    return [value for name in OPERANDS[type(op)] if (value := getattr(op, name))]


def _roles(kind: str, found: Kind, given: Mapping[str, Any]) -> list[str]:
    """The arguments that are given, in order.

    Raises:
        InvalidInput: one is missing.
    """
    roles = [*found.roles, *found.flags]
    if found.many:
        numbered = [name for name in given if SOURCE.fullmatch(name)]
        if not numbered:
            raise InvalidInput(
                f"{kind} lacks its argument src_0", hint="number the sources from 0: src_0, src_1"
            )
        roles = [*(f"src_{index}" for index in range(len(numbered))), *roles]
    missing = [
        role
        for role in roles
        if role not in given and role not in found.optional and role not in found.flags
    ]
    if missing:
        raise InvalidInput(
            f"{kind} lacks its argument {', '.join(missing)}",
            hint='name the type and shape of each: src="u8[1,16,8,8]"',
        )
    return [role for role in roles if role in given]


def _check_concat(types: Mapping[str, TensorType], axis: Any) -> None:
    """Refuses what the library would read beyond its end for.

    Raises:
        InvalidInput: there is no such axis.
    """
    rank = len(types["src_0"].static_shape)
    if not isinstance(axis, int) or not 0 <= axis < rank:
        raise InvalidInput(
            f"concat along axis {axis!r} of {rank} dimensions",
            hint=f"choose an axis from 0 to {rank - 1}",
        )


def _check_kind(
    kind: str, types: Mapping[str, TensorType], params: Mapping[str, Attr], attr: PrimitiveAttr
) -> None:
    """Refuses what one kind of primitive cannot be asked for."""
    if kind == "concat":
        _check_concat(types, params["axis"])
    if kind in ("convolution", "deconvolution"):
        _check_groups(kind, types)
    if "scales" in params:
        _check_sum(types, params["scales"])
    if kind in CELLS:
        _check_layer(kind, params["direction"], attr)


def _check_groups(kind: str, types: Mapping[str, TensorType]) -> None:
    """Refuses what the library would divide by, and end the process.

    Raises:
        InvalidInput: there are no groups.
    """
    src, weights = (types[role].static_shape for role in ("src", "weights"))
    if len(weights) == len(src) + 1 and weights[0] == 0:
        raise InvalidInput(
            f"{kind} with weights {list(weights)}, of 0 groups",
            hint="give them one group at least, or leave that dimension out",
        )


def _check_sum(types: Mapping[str, TensorType], scales: Attr) -> None:
    """Refuses other than one scale for each source: the library reads as many as there are sources.

    Raises:
        InvalidInput: there are more or less, or one is no number.
    """
    count = sum(role.startswith("src_") for role in types)
    numbers = isinstance(scales, tuple) and all(isinstance(s, int | float) for s in scales)
    if not numbers or len(scales) != count:  # type: ignore[arg-type]
        raise InvalidInput(
            f"sum of {count} sources with the scales {scales!r}",
            hint=f"give a tuple of {count} numbers, one for each source",
        )


def _complete_operands(
    kind: str,
    types: Mapping[str, TensorType],
    operands: dict[str, TensorType],
    attr: PrimitiveAttr,
) -> None:
    """What a sum adds is what the destination held before: its type follows.

    Raises:
        InvalidInput: the type of another operand is not told.
    """
    dst, told = types.get("dst"), dict(operands)
    for op in attr.post_ops:
        for name in operands_of(op):
            if not isinstance(name, str):
                raise InvalidInput(
                    f"a post-op {op.kind} of {kind} reads {name!r}, which is no name",
                    hint=f'name its operand: {type(op).__name__}(..., "operand")',
                )
        if isinstance(op, Sum) and dst is not None:
            operands[op.operand] = replace(dst, dtype=op.dtype or dst.dtype)
        for name in operands_of(op):
            if name not in operands:
                raise InvalidInput(
                    f"a post-op {op.kind} of {kind} reads {name!r}, whose type is not told",
                    hint=f'add {name}="f32[...]"',
                )
    if sum(isinstance(op, DepthwiseConv) for op in attr.post_ops) > 1:
        raise InvalidInput(
            f"two depthwise post-ops of {kind}, whose weights are one argument of the library",
            hint="make another primitive of the second",
        )
    sums = [op for op in attr.post_ops if isinstance(op, Sum)]
    if len({op.operand for op in sums}) > 1:
        raise InvalidInput(
            "all sums read what the destination held",
            hint="name one operand for them, and pass it once",
        )
    if sums and dst is not None and sums[0].operand in told:
        _check_told(kind, told[sums[0].operand], sums, dst)


def _check_told(kind: str, told: TensorType, sums: list[Sum], dst: TensorType) -> None:
    """Refuses another type of what sums read than that which follows: the library is told none.

    Raises:
        InvalidInput: it is another one.
    """
    held = [replace(dst, dtype=op.dtype or dst.dtype) for op in sums]
    if told not in held:
        raise InvalidInput(
            f"a sum of {kind} reads {sums[0].operand!r} as {type_text(told)}, and dst held {type_text(held[0])}",
            hint="leave its type out, or say it as Sum(..., dtype=...)",
        )


def _params(kind: str, found: Kind, given: Mapping[str, Any], spatial: int) -> dict[str, Attr]:
    complete: dict[str, Attr] = {}
    defaults: Mapping[Any, Attr] = {EVERY_AXIS_0: (0,) * spatial, EVERY_AXIS_1: (1,) * spatial}
    for name, default in found.params.items():
        value = given.get(name, defaults.get(default, default))
        if value == REQUIRED:
            raise InvalidInput(
                f"{kind} lacks its parameter {name}", hint=f"pass {name}=... to prim"
            )
        value = tuple(value) if isinstance(value, list) else value
        axes = default in defaults or name == "kernel"
        if axes and (not isinstance(value, tuple) or len(value) != spatial):
            raise InvalidInput(
                f"{kind} has {name} {value!r}, and there are {spatial} spatial dimensions",
                hint="give a tuple with a number for each",
            )
        complete[name] = value
    return complete


def axes(description: Description) -> tuple[tuple[int, ...], ...]:
    """Strides, dilations, padding before and behind, a number for each spatial dimension."""
    names = ("strides", "dilations", "padding_l", "padding_r")
    return tuple(integers(description, name) for name in names)


def grouped(description: Description) -> bool:
    """Whether the weights of a (de)convolution have a dimension of their own for the groups."""
    return len(description.dims("weights")) > len(description.dims("src"))


def has_single_taps(whole: Description) -> bool:
    """Whether a deconvolution is run as a convolution of 1x1 taps."""
    strides, _, before, behind = axes(whole)
    taps = whole.dims("weights")[2 + grouped(whole) :]
    return {*taps, *strides} == {1} and not any((*before, *behind))


def integers(description: Description, name: str) -> tuple[int, ...]:
    """A parameter that has several numbers."""
    value = description.params[name]
    return tuple(v for v in value if isinstance(v, int)) if isinstance(value, tuple) else ()


# -- values at execution ---------------------------------------------------------------------------


def count(mask: int, dims: tuple[int, ...]) -> int:
    """How many numbers a mask stands for."""
    return math.prod(size for axis, size in enumerate(dims) if mask >> axis & 1)


def stray_masks(description: Description) -> Iterator[str]:
    """Masks that select dimensions that a tensor has not, or are named by an order that it has not, as no
    matrix has one.
    """
    types = {**description.tensors, **description.operands}
    for what, name, mask in _masks(description.attr):
        if name not in types:
            continue
        rank, shape = len(types[name].static_shape), type_text(types[name])
        if mask >> rank:
            yield f"{what} of mask {mask_text(mask)} select dimensions that {name}, {shape}, has not"
        elif not has_order(mask, 0 if description.kind == "matmul" else rank):
            yield f"{what} are by the name of an order of dimensions that {name}, {shape}, has not"


def _masks(attr: PrimitiveAttr) -> Iterator[tuple[str, str, int]]:
    """What has a mask, the argument or operand of whose dimensions it is, and the mask."""
    for role, scale in attr.scales.items():
        yield "scales", role, scale.mask
    for role, zero in attr.zero_points.items():
        yield "zero points", role, zero.mask
    if attr.output_scales is not None:
        yield "output scales", "dst", attr.output_scales.mask
    for op in attr.post_ops:
        if isinstance(op, Prelu):
            yield "slopes", op.operand, op.mask
        if isinstance(op, Binary):
            for what, held in (("scales", op.scale), ("zero points", op.zero_point)):
                if held is not None:
                    yield what, op.operand, held.mask


def at_execution(description: Description) -> Iterator[tuple[str, int, type]]:
    """Name, number and type of the scales and zero points that come at execution."""
    attr = description.attr
    for role, scale in attr.scales.items():
        if not scale.values:
            yield f"scales_{role}", count(scale.mask, description.dims(role)), np.float32
    for role, zero in attr.zero_points.items():
        if not zero.values:
            yield f"zero_points_{role}", count(zero.mask, description.dims(role)), np.int32
    if attr.output_scales is not None and not attr.output_scales.values:
        mask = attr.output_scales.mask
        yield "output_scales", count(mask, description.dims("dst")), np.float32
    for op in attr.post_ops:
        for name, scale in _scales_of(op):
            if not scale.values:
                dims = description.operands[operands_of(op)[0]].static_shape
                yield name, count(scale.mask, dims), np.float32
        if isinstance(op, Binary) and op.zero_point is not None and not op.zero_point.values:
            dims = description.operands[op.operand].static_shape
            yield f"zero_points_{op.operand}", count(op.zero_point.mask, dims), np.int32


def placeholders(description: Description) -> dict[str, Array]:
    """An array of ones for all that comes at execution."""
    types = {**description.tensors, **description.operands}
    found: dict[str, Array] = {
        name: np.ones(type_.static_shape, type_.dtype.numpy) for name, type_ in types.items()
    }
    return found | {name: np.ones(count, dtype) for name, count, dtype in at_execution(description)}


def _scales_of(op: PostOp) -> Iterator[tuple[str, Scale]]:
    if isinstance(op, Binary) and op.scale is not None:
        yield f"scales_{op.operand}", op.scale
    if isinstance(op, DepthwiseConv):
        yield f"scales_{op.weights}", op.weights_scale
        yield f"scales_{op.weights}_dst", op.dst_scale


def with_values(description: Description, args: Mapping[str, Array]) -> PrimitiveAttr:
    """The attributes with the values that came at execution, checked before."""
    attr = description.attr

    def scale(name: str, held: Scale) -> Scale:
        return held if held.values else Scale(_floats(args[name]), held.mask)

    def zero(name: str, held: ZeroPoint) -> ZeroPoint:
        values = tuple(int(v) for v in args[name].reshape(-1)) if not held.values else held.values
        return ZeroPoint(values, held.mask)

    def post_op(op: PostOp) -> PostOp:
        if isinstance(op, Binary):
            factor = None if op.scale is None else scale(f"scales_{op.operand}", op.scale)
            shift = op.zero_point
            shift = None if shift is None else zero(f"zero_points_{op.operand}", shift)
            return replace(op, scale=factor, zero_point=shift)
        if isinstance(op, DepthwiseConv):
            own = scale(f"scales_{op.weights}", op.weights_scale)
            return replace(
                op,
                weights_scale=own,
                dst_scale=scale(f"scales_{op.weights}_dst", op.dst_scale),
            )
        return op

    output = attr.output_scales
    return replace(
        attr,
        scales={role: scale(f"scales_{role}", held) for role, held in attr.scales.items()},
        zero_points={
            role: zero(f"zero_points_{role}", held) for role, held in attr.zero_points.items()
        },
        post_ops=tuple(map(post_op, attr.post_ops)),
        output_scales=None if output is None else scale("output_scales", output),
    )


def _floats(array: Array) -> tuple[float, ...]:
    return tuple(float(value) for value in array.reshape(-1))


def has_several_points(description: Description) -> bool:
    """Whether a factor has zero points that are not all the same; the attributes have all values."""
    points = description.attr.zero_points
    return any(len(set(points[role].values)) > 1 for role in ("src", "weights") if role in points)
