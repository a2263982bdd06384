"""What oneDNN 3.2 refuses on a CPU, and with which status: rules for what has no library at hand.

A primitive is asked for in three steps, and the first that refuses gives the status: setting the
attributes (`_attributes`), the operation by itself (`_operation`), and the search for an
implementation (`_implementation`), whose answer is `unimplemented`. The last to be asked is a
reference implementation, which takes all that any other one takes but for a few cases.

Source: the checks of oneDNN 3.2.0, and the library's own answers, which a law compares with these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from ..ir.algorithms import ELTWISE
from ..ir.types import DType
from ..masks import mask_text
from ..onednn.capi import Status
from ..plan.attributes import Binary, DepthwiseConv, Eltwise, PostOp, Prelu, Sum
from .description import Description
from .kinds import KINDS

Refused = tuple[Status, str]
Rule = Callable[[Description], "str | None"]

_INT8 = frozenset({DType.S8, DType.U8})
_INTEGERS = _INT8 | {DType.S32}
_ALL = _INTEGERS | {DType.F32}
_MOST_POST_OPS = 32
_WITH_SCALES = frozenset({"src", "weights", "dst", "src_0", "src_1"})
_WITH_ZERO_POINTS = frozenset({"src", "weights", "dst"})


def refusal(description: Description) -> Refused | None:
    """The status with which oneDNN 3.2 refuses to make this primitive, and why; None where it makes
    it.
    """
    for reason in _misfits(description):
        return Status.invalid_arguments, reason
    found = _attributes(description)
    if found is not None:
        return found
    rules = _KINDS[description.kind]
    for reason in rules.operation(description):
        return Status.invalid_arguments, reason
    for reason in _implementation(description, rules):
        return Status.unimplemented, reason
    return None


def ignored(description: Description) -> str | None:
    """What oneDNN 3.2 takes when it makes this primitive, and neglects or cannot take when it runs;
    None where there is nothing.
    """
    return next(_ignored(description), None)


def _ignored(description: Description) -> Iterator[str]:
    kind, attr = description.kind, description.attr
    for op in attr.post_ops:
        if isinstance(op, DepthwiseConv) and kind != "convolution":
            yield f"a depthwise post-op of {kind} is neglected"
        if isinstance(op, Sum) and kind in _WITHOUT_SUMS:
            yield f"a sum of {kind} adds nothing"
        if isinstance(op, Prelu) and kind in _WITHOUT_SLOPES:
            yield f"the slopes of a prelu post-op of {kind} cannot be given"
    for name, held in (("scales", attr.scales), ("zero points", attr.zero_points)):
        for role, values in held.items():
            if role not in description.tensors or (kind == "concat" and role == "dst"):
                yield f"{name} of {role} are neglected"
            elif kind == "batch_normalization":
                yield f"{name} beside a relu are neglected"
            elif kind == "reorder" and name == "zero points" and values.mask:
                yield f"of several zero points of {role} the first one is taken"


_WITHOUT_SUMS = frozenset({"eltwise", "pooling"})
_WITHOUT_SLOPES = frozenset({"eltwise", "binary", "pooling", "reduction", "resampling", "softmax"})


def _misfits(description: Description) -> Iterator[str]:
    """Operands of binary post-ops that do not broadcast to the destination."""
    dims = description.dims("dst")
    for op in description.attr.post_ops:
        if isinstance(op, DepthwiseConv):
            return
        if isinstance(op, Binary):
            shape = description.operands[op.operand].static_shape
            if len(shape) != len(dims) or any(
                size not in (1, whole) for size, whole in zip(shape, dims, strict=True)
            ):
                yield f"the operand {op.operand} {list(shape)} does not broadcast to dst {list(dims)}"


# -- setting attributes ----------------------------------------------------------------------------


def _attributes(description: Description) -> Refused | None:
    attr, many = description.attr, KINDS[description.kind].many
    for role, scale in attr.scales.items():
        if (role not in _WITH_SCALES and not (many and role.startswith("src_"))) or scale.mask < 0:
            return Status.invalid_arguments, f"no argument {role} with scales of {scale.mask}"
    for role, zero in attr.zero_points.items():
        if zero.mask < 0:
            return Status.invalid_arguments, f"the mask {zero.mask} of the zero points of {role}"
        if role not in _WITH_ZERO_POINTS and (many or role != "src_0"):
            return Status.unimplemented, f"zero points of {role}"
    for index, op in enumerate(attr.post_ops):
        if index == _MOST_POST_OPS:
            return Status.out_of_memory, f"more than {_MOST_POST_OPS} post-ops"
        reason = _post_op(op)
        if reason is not None:
            return Status.invalid_arguments, reason
    return None


def _post_op(op: PostOp) -> str | None:
    match op:
        case Eltwise(algorithm, alpha, beta):
            return _clip(algorithm, alpha, beta)
        case DepthwiseConv():
            fits = op.kernel > 0 and op.stride > 0 and op.padding < op.kernel
            return None if fits else "a depthwise post-op whose kernel lies in the padding"
    return None


def _clip(algorithm: object, alpha: float, beta: float) -> str | None:
    clips = isinstance(algorithm, str) and ELTWISE[algorithm].clips
    return f"{algorithm} to {alpha:g}..{beta:g}" if clips and not beta >= alpha else None


# -- the operation by itself -----------------------------------------------------------------------


def _same(description: Description, *roles: str) -> Iterator[str]:
    first, *others = roles
    for role in others:
        if description.dims(first) != description.dims(role):
            yield f"{first} {list(description.dims(first))} and {role} {list(description.dims(role))}"


def _accumulator(description: Description) -> Iterator[str]:
    """Factors are both f32, or codes times s8."""
    src, weights = description.dtype("src"), description.dtype("weights")
    if (src, weights) != (DType.F32, DType.F32) and not (src in _INT8 and weights is DType.S8):
        yield f"{src.value} times {weights.value}"


def _windowed(description: Description) -> Iterator[str]:
    yield from _accumulator(description)
    src, weights, dst = (description.dims(role) for role in ("src", "weights", "dst"))
    rank = len(src)
    if rank != len(dst) or rank not in (3, 4, 5) or len(weights) not in (rank, rank + 1):
        yield f"src of {rank}, weights of {len(weights)} and dst of {len(dst)} dimensions"
        return
    grouped = len(weights) - rank
    groups = weights[0] if grouped else 1
    if "bias" in description.tensors and description.dims("bias") != dst[1:2]:
        yield f"bias {list(description.dims('bias'))} for {dst[1]} channels"
    if src[0] != dst[0] or src[1] != groups * weights[grouped + 1]:
        yield f"src {list(src)} and weights {list(weights)}"
    if dst[1] != groups * weights[grouped]:
        yield f"dst {list(dst)} and weights {list(weights)}"
    longer, shorter = (dst, src) if description.kind == "deconvolution" else (src, dst)
    yield from _spatial(description, longer[2:], shorter[2:], weights[grouped + 2 :])


def _spatial(
    description: Description,
    longer: tuple[int, ...],
    shorter: tuple[int, ...],
    kernel: tuple[int, ...],
) -> Iterator[str]:
    """Each position of a window in the longer tensor is an element of the shorter one."""
    axes = zip(longer, shorter, kernel, *_axes(description), strict=True)
    for axis, (whole, positions, size, stride, dilation, begin, end) in enumerate(axes):
        if stride < 1 or dilation < 0 or begin < 0 or end + stride < 1:
            yield f"stride {stride}, dilation {dilation}, padding {begin} and {end}"
            return
        reach = 1 + (size - 1) * (dilation + 1)
        # C rounds to zero
        if math.trunc((whole - reach + begin + end) / stride) + 1 != positions:
            yield f"{positions} positions along spatial dimension {axis}"


def _axes(description: Description) -> tuple[tuple[int, ...], ...]:
    names = ("strides", "dilations", "padding_l", "padding_r")
    return tuple(_integers(description, name) for name in names)


def _integers(description: Description, name: str) -> tuple[int, ...]:
    value = description.params[name]
    return tuple(v for v in value if isinstance(v, int)) if isinstance(value, tuple) else ()


def _inner_product(description: Description) -> Iterator[str]:
    yield from _accumulator(description)
    src, weights, dst = (description.dims(role) for role in ("src", "weights", "dst"))
    if len(src) not in (2, 3, 4, 5) or len(dst) != 2 or len(weights) != len(src):
        yield f"src of {len(src)}, weights of {len(weights)} and dst of {len(dst)} dimensions"
        return
    if "bias" in description.tensors and description.dims("bias") != dst[1:]:
        yield f"bias {list(description.dims('bias'))} for {dst[1]} outputs"
    if src[0] != dst[0] or src[1:] != weights[1:] or dst[1] != weights[0]:
        yield f"src {list(src)}, weights {list(weights)} and dst {list(dst)}"


def _matmul(description: Description) -> Iterator[str]:
    yield from _accumulator(description)
    src, weights, dst = (description.dims(role) for role in ("src", "weights", "dst"))
    rank = len(dst)
    if rank < 2 or len(src) != rank or len(weights) != rank:
        yield f"src of {len(src)}, weights of {len(weights)} and dst of {rank} dimensions"
        return
    fits = (dst[-2], dst[-1], src[-1]) == (src[-2], weights[-1], weights[-2])
    batches = zip(src[:-2], weights[:-2], dst[:-2], strict=True)
    if not fits or any(d != max(s, w) or min(s, w) not in (1, d) for s, w, d in batches):
        yield f"src {list(src)}, weights {list(weights)} and dst {list(dst)}"
    if "bias" in description.tensors:
        bias = description.dims("bias")
        if len(bias) != rank or any(b not in (1, d) for b, d in zip(bias, dst, strict=False)):
            yield f"bias {list(bias)} and dst {list(dst)}"


def _eltwise(description: Description) -> Iterator[str]:
    params, src = description.params, description.dtype("src")
    algorithm, alpha, beta = (params[name] for name in ("algorithm", "alpha", "beta"))
    assert isinstance(alpha, float | int)
    assert isinstance(beta, float | int)
    reason = _clip(algorithm, alpha, beta)
    if reason is not None:
        yield reason
    if src is not DType.F32 and algorithm not in ("relu", "linear"):
        yield f"{algorithm} of {src.value}"
    yield from _same(description, "src", "dst")


def _binary(description: Description) -> Iterator[str]:
    dst = description.dims("dst")
    shapes = [description.dims(role) for role in ("src_0", "src_1")]
    if any(len(shape) != len(dst) for shape in shapes):
        yield f"sources {shapes} of other numbers of dimensions than dst {list(dst)}"
        return
    for first, second, whole in zip(*shapes, dst, strict=True):
        if first not in (1, whole) or second not in (1, whole) or whole not in (first, second):
            yield f"sources {shapes} do not broadcast to dst {list(dst)}"
            return


def _reorder(description: Description) -> Iterator[str]:
    yield from _same(description, "src", "dst")
    for role in ("src", "dst"):
        if role in description.attr.zero_points and description.dtype(role) is DType.F32:
            yield f"zero points of {role}, which is f32"


def _sum(description: Description) -> Iterator[str]:
    yield from _same(description, *description.sources(), "dst")


def _concat(description: Description) -> Iterator[str]:
    first, *others = description.sources()
    shape, axis = description.dims(first), description.params["axis"]
    assert isinstance(axis, int)
    if not 0 <= axis < len(shape):
        yield f"the axis {axis} of {len(shape)} dimensions"
        return
    total = shape[axis]
    for role in others:
        dims = description.dims(role)
        if description.dtype(role) is not description.dtype(first):
            yield f"{role} of another type than {first}"
        if len(dims) != len(shape) or _but(dims, axis) != _but(shape, axis):
            yield f"{first} {list(shape)} and {role} {list(dims)}"
            return
        total += dims[axis]
    if description.dims("dst") != (*shape[:axis], total, *shape[axis + 1 :]):
        yield f"dst {list(description.dims('dst'))} for {total} along axis {axis}"


def _but(dims: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*dims[:axis], *dims[axis + 1 :])


def _pooling(description: Description) -> Iterator[str]:
    src, dst = description.dims("src"), description.dims("dst")
    if len(src) not in (3, 4, 5) or len(dst) != len(src) or src[:2] != dst[:2]:
        yield f"src {list(src)} and dst {list(dst)}"
        return
    kernel = _integers(description, "kernel")
    yield from _spatial(description, src[2:], dst[2:], kernel)
    if description.params["algorithm"] == "avg_exclude_padding":
        for size, whole, _, dilation, begin, end in zip(
            kernel, src[2:], *_axes(description), strict=True
        ):
            reach = 1 + (size - 1) * (dilation + 1)
            if begin >= reach or end >= reach or dilation >= whole:
                yield "an average of a window that lies in the padding"


def _reduction(description: Description) -> Iterator[str]:
    src, dst = description.dims("src"), description.dims("dst")
    if len(src) != len(dst) or any(d not in (1, s) for s, d in zip(src, dst, strict=True)):
        yield f"src {list(src)} and dst {list(dst)}"
    elif src == dst:
        yield "nothing is reduced"


def _resampling(description: Description) -> Iterator[str]:
    src, dst = description.dims("src"), description.dims("dst")
    if len(src) not in (3, 4, 5) or len(dst) != len(src) or src[:2] != dst[:2]:
        yield f"src {list(src)} and dst {list(dst)}"


def _softmax(description: Description) -> Iterator[str]:
    axis, rank = description.params["axis"], len(description.dims("dst"))
    assert isinstance(axis, int)
    if not 0 <= axis < rank:
        yield f"the axis {axis} of {rank} dimensions"


def _normalization(description: Description) -> Iterator[str]:
    rank = len(description.dims("src"))
    if rank < 2 or (description.kind == "layer_normalization" and rank > 5):
        yield f"src of {rank} dimensions"
    yield from _same(description, "src", "dst")


def _shuffle(description: Description) -> Iterator[str]:
    axis, size = description.params["axis"], description.params["group_size"]
    dims = description.dims("src")
    assert isinstance(axis, int)
    assert isinstance(size, int)
    if not 0 <= axis < len(dims) or not 0 < size <= dims[axis] or dims[axis] % size:
        yield f"groups of {size} along axis {axis} of {list(dims)}"
    yield from _same(description, "src", "dst")


def _prelu(description: Description) -> Iterator[str]:
    src, weights = description.dims("src"), description.dims("weights")
    yield from _same(description, "src", "dst")
    if len(src) > 5 or len(weights) != len(src):
        yield f"src of {len(src)} and weights of {len(weights)} dimensions"
    elif any(w not in (1, s) for w, s in zip(weights, src, strict=True)):
        yield f"weights {list(weights)} do not broadcast to src {list(src)}"


# -- implementations -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """What oneDNN 3.2 takes of one kind.

    Attributes:
        operation: what is wrong with the operation by itself.
        types: what no implementation has among its element types.
        scales, zero_points: argument -> masks, where it may have such; None: any.
        post_ops: kinds of post-ops.
        sum_types: what a sum may read its operand as: `size` (any type of that size), `dst` (the
            destination's own), `default` (it may not be said).
        further: what else is refused.
    """

    operation: Callable[[Description], Iterator[str]]
    types: Callable[[Description], bool]
    scales: Callable[[Description], Mapping[str, Collection[int] | None]] = lambda _: {}
    zero_points: Callable[[Description], Mapping[str, Collection[int]]] = lambda _: {}
    post_ops: frozenset[str] = frozenset()
    sum_types: str = "default"
    further: Callable[[Description], Iterator[str]] = lambda _: iter(())


def _implementation(description: Description, rules: Rules) -> Iterator[str]:
    if not rules.types(description):
        yield "no implementation has these element types"
    for name, held, allowed in (
        ("scales", description.attr.scales, rules.scales(description)),
        ("zero points", description.attr.zero_points, rules.zero_points(description)),
    ):
        for role, values in held.items():
            masks = allowed.get(role, ())
            if masks is not None and values.mask not in masks:
                yield f"{name} of {role} with mask {mask_text(values.mask)}"
    for op in description.attr.post_ops:
        if op.kind not in rules.post_ops:
            yield f"a post-op {op.kind} of {description.kind}"
    yield from _sums(description, rules)
    yield from rules.further(description)


def _sums(description: Description, rules: Rules) -> Iterator[str]:
    sums = [op for op in description.attr.post_ops if isinstance(op, Sum)]
    if not sums:
        return
    dst, first = description.dtype("dst"), sums[0].dtype
    if rules.sum_types != "size":
        allowed = (None, dst) if rules.sum_types == "dst" else (None,)
        if first not in allowed:
            yield "a sum that reads its operand as another type"
        return
    if first is not None and first.numpy.itemsize != dst.numpy.itemsize:
        yield "a sum that reads its operand as a type of another size"
    if any(op.dtype is not first for op in sums):
        yield "sums that read their operand as several types"
    integers = _is_int8(description)
    for op in sums:
        if op.zero_point and (not integers or (op.dtype or dst) is DType.F32):
            yield "a zero point of a sum whose operand is no integer"


def _is_int8(description: Description) -> bool:
    return description.dtype("src") in _INT8


_GEMM_POST_OPS = frozenset({Eltwise.kind, Binary.kind, Sum.kind, Prelu.kind})


def _product_types(description: Description) -> bool:
    bias = description.dtype("bias") if "bias" in description.tensors else DType.F32
    if _is_int8(description):
        return True
    return description.dtype("dst") is DType.F32 and bias is DType.F32


def _per_tensor(*roles: str) -> dict[str, Collection[int]]:
    return dict.fromkeys(roles, (0,))


def _channel_masks(description: Description) -> Mapping[str, Collection[int] | None]:
    """Scales of (de)convolutions and inner products of codes."""
    if not _is_int8(description):
        return {}
    grouped = description.kind != "inner_product" and len(description.dims("weights")) > len(
        description.dims("src")
    )
    return {**_per_tensor("src", "dst"), "weights": (0, 3 if grouped else 1)}


def _channel_points(description: Description) -> Mapping[str, Collection[int]]:
    return dict.fromkeys(("src", "dst"), (0, 2)) if _is_int8(description) else {}


def _matmul_scales(description: Description) -> Mapping[str, Collection[int] | None]:
    last = 1 << (len(description.dims("dst")) - 1)
    return {**_per_tensor("src", "dst"), "weights": (0, last)}


def _matmul_points(description: Description) -> Mapping[str, Collection[int]]:
    if not _is_int8(description):
        return {}
    masks = (0, 2) if len(description.dims("dst")) == 2 else (0,)
    return {"src": masks, "weights": (0,), "dst": masks}


def _reorder_scales(description: Description) -> Mapping[str, Collection[int] | None]:  # noqa: ARG001
    return {"src": None, "dst": None}


def _reorder_further(description: Description) -> Iterator[str]:
    masks = [scale.mask for scale in description.attr.scales.values()]
    masks = [mask for mask in masks if mask]
    if len(set(masks)) > 1:
        yield "other masks of the scales of dst than of src"
    for mask in masks:
        ones = mask // (mask & -mask)
        if ones & (ones + 1):
            yield f"mask {mask_text(mask)}, whose dimensions are no neighbours"
    if len(description.attr.post_ops) > 1:
        yield "more than one post-op"


def _same_types(description: Description) -> bool:
    return description.dtype("src") is description.dtype("dst")


def _depthwise(description: Description) -> Iterator[str]:
    """A depthwise post-op is one, of a 1x1 convolution of images, without sums beside it."""
    post_ops = description.attr.post_ops
    depthwise = [op for op in post_ops if isinstance(op, DepthwiseConv)]
    if not depthwise:
        return
    weights = description.dims("weights")
    if len(depthwise) > 1 or any(isinstance(op, Sum) for op in post_ops):
        yield "a depthwise post-op beside a sum or another one"
    if len(description.dims("src")) != 4 or any(size != 1 for size in weights[-2:]):
        yield "a depthwise post-op of a convolution that is not 1x1"


def _batch_normalization_further(description: Description) -> Iterator[str]:
    post_ops = description.attr.post_ops
    if len(post_ops) > 1 or any(
        isinstance(op, Eltwise) and op.algorithm != "relu" for op in post_ops
    ):
        yield "post-ops other than one relu"
    if description.dtype("src") is DType.S8 and "mean" not in description.tensors:
        yield "statistics of codes"


_REFERENCE_REDUCTIONS = frozenset(
    {(DType.F32, DType.F32)} | {(src, dst) for src in _INT8 for dst in (src, DType.S32, DType.F32)}
)


def _reduction_further(description: Description) -> Iterator[str]:
    """For other types there is compiled code alone, which reduces the last dimensions of plain
    tensors.
    """
    if (description.dtype("src"), description.dtype("dst")) in _REFERENCE_REDUCTIONS:
        return
    src, dst = description.dims("src"), description.dims("dst")
    kept = [axis for axis, (s, d) in enumerate(zip(src, dst, strict=True)) if s == d]
    reduced = [axis for axis in range(len(src)) if axis not in kept]
    if len(src) > 5 or reduced[-1] != len(src) - 1 or reduced != [*range(reduced[0], len(src))]:
        yield "these element types for a reduction of other dimensions than the last"
    for op in description.attr.post_ops:
        if isinstance(op, Sum) and op.zero_point:
            yield "these element types with the zero point of a sum"
        if isinstance(op, Prelu):
            yield "these element types with slopes"
        if isinstance(op, Binary) and not _known_broadcast(description, op):
            yield "these element types with an operand that broadcasts so"


def _known_broadcast(description: Description, op: Binary) -> bool:
    """An operand that is one number, whole, or varies along the channels."""
    shape, dst = description.operands[op.operand].static_shape, description.dims("dst")
    varies = [axis for axis, size in enumerate(shape) if size != 1]
    return not varies or shape == dst or varies == [1]


_KINDS: Mapping[str, Rules] = {
    "convolution": Rules(
        _windowed,
        _product_types,
        _channel_masks,
        _channel_points,
        _GEMM_POST_OPS | {DepthwiseConv.kind},
        "size",
        _depthwise,
    ),
    "deconvolution": Rules(
        _windowed, _product_types, _channel_masks, _channel_points, _GEMM_POST_OPS, "size"
    ),
    "inner_product": Rules(
        _inner_product, _product_types, _channel_masks, post_ops=_GEMM_POST_OPS, sum_types="size"
    ),
    "matmul": Rules(
        _matmul, _product_types, _matmul_scales, _matmul_points, _GEMM_POST_OPS, "size"
    ),
    "eltwise": Rules(_eltwise, _same_types, post_ops=_GEMM_POST_OPS),
    "binary": Rules(
        _binary, lambda _: True, lambda _: _per_tensor("src_0", "src_1"), post_ops=_GEMM_POST_OPS
    ),
    "reorder": Rules(
        _reorder,
        lambda _: True,
        _reorder_scales,
        lambda _: _per_tensor("src", "dst"),
        frozenset({Sum.kind}),
        "default",
        _reorder_further,
    ),
    "sum": Rules(_sum, lambda _: True),
    "concat": Rules(_concat, lambda _: True, lambda d: _per_tensor(*d.sources())),
    "pooling": Rules(_pooling, _same_types, post_ops=_GEMM_POST_OPS),
    "reduction": Rules(
        _reduction, lambda _: True, post_ops=_GEMM_POST_OPS, further=_reduction_further
    ),
    "resampling": Rules(_resampling, lambda _: True, post_ops=_GEMM_POST_OPS, sum_types="dst"),
    "softmax": Rules(
        _softmax,
        lambda d: DType.S32 not in (d.dtype("src"), d.dtype("dst")),
        lambda _: _per_tensor("src", "dst"),
        post_ops=_GEMM_POST_OPS - {Sum.kind},
    ),
    "layer_normalization": Rules(
        _normalization,
        lambda d: DType.S32 not in (d.dtype("src"), d.dtype("dst")),
        lambda _: _per_tensor("src", "dst"),
    ),
    "batch_normalization": Rules(
        _normalization,
        lambda d: _same_types(d) and d.dtype("src") in (DType.F32, DType.S8),
        post_ops=frozenset({Eltwise.kind}),
        further=_batch_normalization_further,
    ),
    "lrn": Rules(_normalization, lambda d: _same_types(d) and d.dtype("src") is DType.F32),
    "shuffle": Rules(_shuffle, _same_types),
    "prelu": Rules(_prelu, _same_types),
}
