"""What is wrong with an operation by itself, whatever its attributes: shapes that do not fit each
other, parameters out of range. The library's status for it is `invalid_arguments`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from ..ir.algorithms import ELTWISE
from ..ir.types import DType
from ..plan.attributes import Binary, DepthwiseConv
from .description import HALVES, Description, axes, integers

_CODES = (DType.S8, DType.U8)


def empty_clip(algorithm: object, alpha: float, beta: float) -> str | None:
    """Why bounds hold nothing between them; None where they do, or the algorithm has none."""
    clips = isinstance(algorithm, str) and ELTWISE[algorithm].clips
    return f"{algorithm} to {alpha:g}..{beta:g}" if clips and not beta >= alpha else None


def misfits(description: Description) -> Iterator[str]:
    """Operands of binary post-ops that do not broadcast to the destination; behind a depthwise one
    they are not looked at.
    """
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


def _same(description: Description, *roles: str) -> Iterator[str]:
    first, *others = roles
    for role in others:
        if description.dims(first) != description.dims(role):
            yield f"{first} {list(description.dims(first))} and {role} {list(description.dims(role))}"


def unlike(description: Description) -> str | None:
    """Shapes that the library does not compare, and would read beyond the end of one for; None where there
    are none.
    """
    shapes = _same(description, "src", "dst") if description.kind == "softmax" else ()
    return next(iter(shapes), None)


def ends_the_process(description: Description) -> str | None:
    """What the library divides by 0 for, when it makes the primitive or when it runs; None where there is
    nothing.
    """
    into_nothing = description.kind == "deconvolution" and 0 in description.dims("dst")
    if into_nothing and description.dtype("src") in _CODES:
        return "codes become an empty dst, for which oneDNN divides by 0"
    return None


def _accumulator(description: Description) -> Iterator[str]:
    """Factors are both f32, or codes times s8."""
    src, weights = description.dtype("src"), description.dtype("weights")
    if not HALVES.isdisjoint({src, weights, description.dtype("dst")}):
        return  # any product of them is added up in f32
    if (src, weights) != (DType.F32, DType.F32) and not (src in _CODES and weights is DType.S8):
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
    if 0 in weights and description.kind == "convolution":
        yield f"weights {list(weights)}"
    longer, shorter = (dst, src) if description.kind == "deconvolution" else (src, dst)
    yield from _spatial(description, longer[2:], shorter[2:], weights[grouped + 2 :])


def _spatial(
    description: Description,
    longer: tuple[int, ...],
    shorter: tuple[int, ...],
    kernel: tuple[int, ...],
) -> Iterator[str]:
    """Each position of a window in the longer tensor is an element of the shorter one."""
    along = zip(longer, shorter, kernel, *axes(description), strict=True)
    least = (
        0 if description.kind == "pooling" else 1
    )  # a negative padding behind is less than a stride
    for axis, (whole, positions, size, stride, dilation, begin, end) in enumerate(along):
        if stride < 1 or dilation < 0 or begin < 0 or end + stride < least:
            yield f"stride {stride}, dilation {dilation}, padding {begin} and {end}"
            return
        reach = 1 + (size - 1) * (dilation + 1)
        # C rounds to zero
        if math.trunc((whole - reach + begin + end) / stride) + 1 != positions:
            yield f"{positions} positions along spatial dimension {axis}"


def hangs_out(description: Description) -> str | None:
    """A window that is longer than the padded tensor, which the division of C takes for one position;
    None where there is none.
    """
    if "strides" not in description.params:
        return None
    whole = description.dims("dst" if description.kind == "deconvolution" else "src")[2:]
    kernel = (
        integers(description, "kernel")
        if description.kind == "pooling"
        else description.dims("weights")[-len(whole) :]
    )
    for length, size, _, dilation, begin, end in zip(
        whole, kernel, *axes(description), strict=True
    ):
        reach = 1 + (size - 1) * (dilation + 1)
        if reach > length + begin + end:
            return f"a window of {reach} elements does not fit into {length + begin + end}"
    return None


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
    if 0 in weights:
        yield f"weights {list(weights)}"


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
    reason = empty_clip(algorithm, alpha, beta)
    if reason is not None:
        yield reason
    if (src.is_integer and algorithm not in ("relu", "linear")) or (
        algorithm == "round" and src is not DType.F32
    ):
        yield f"{algorithm!r} of {src.value}"
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
    if description.target == "onednn-v2":
        return  # 2.6 has no implementation of what contradicts itself to 3.2
    for role in ("src", "dst"):
        dtype = description.dtype(role)
        if role in description.attr.zero_points and dtype.is_float:
            yield f"zero points of {role}, which is {dtype.value}"


def _sum(description: Description) -> Iterator[str]:
    yield from _same(description, *description.sources(), "dst")


def _concat(description: Description) -> Iterator[str]:
    first, *others = description.sources()
    shape, axis = description.dims(first), description.params["axis"]
    assert isinstance(axis, int)
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
    kernel = integers(description, "kernel")
    yield from _spatial(description, src[2:], dst[2:], kernel)
    if description.params["algorithm"] == "avg_exclude_padding":
        for size, whole, _, dilation, begin, end in zip(
            kernel, src[2:], *axes(description), strict=True
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


def _lrn(description: Description) -> Iterator[str]:
    size = description.params["local_size"]
    assert isinstance(size, int)
    if size < 0:
        yield f"a window of {size} channels"
    yield from _normalization(description)


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


OPERATIONS: Mapping[str, Callable[[Description], Iterator[str]]] = {
    "convolution": _windowed,
    "deconvolution": _windowed,
    "inner_product": _inner_product,
    "matmul": _matmul,
    "eltwise": _eltwise,
    "binary": _binary,
    "reorder": _reorder,
    "sum": _sum,
    "concat": _concat,
    "pooling": _pooling,
    "reduction": _reduction,
    "resampling": _resampling,
    "softmax": _softmax,
    "layer_normalization": _normalization,
    "batch_normalization": _normalization,
    "lrn": _lrn,
    "shuffle": _shuffle,
    "prelu": _prelu,
}
"""Kind -> what is wrong with it."""
