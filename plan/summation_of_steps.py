"""How the products of a step's codes are summed on a CPU without VNNI: by the implementation that oneDNN
3.2 takes first, and by others that it may take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from ..ir.ops import OPS
from ..ir.ops.convolution import transposed_window
from ..ir.ops.windows import Window
from ..ir.types import DType, TensorType
from .attributes import Binary, Eltwise, PostOp, Prelu, Sum
from .summation import EXACT, Summation, deconvolves_by_gemm, summation
from .types import Step

_WHOLE = 256
"""So many channels of a tap gemm never cuts into blocks."""

_GEMM_WHOLE = 384
"""Nor on AVX-512 so deep a product."""

Sizes = Sequence[int | None]
"""Of the source's spatial dimensions; None where the plan does not tell."""

Dims = Sequence[int | str | None]
"""Of a value, with the names of those that the plan does not tell."""

TypeOf = Callable[[str], TensorType]
"""The type of a value by its name."""

_COMPARISONS = ("ge", "gt", "le", "lt", "eq", "ne")

_IMAGES = 4
"""The most dimensions of a result for which compiled code of matmuls broadcasts along the last one."""

_LANES = 16
"""Columns of a register of AVX-512."""


def laws_of(
    step: Step,
    isa: str,
    src: DType,
    weights: DType,
    shape: Sequence[int],
    type_of: TypeOf,
) -> tuple[Summation, ...]:
    """How a step's products may be summed on an instruction set. The first is what is emulated; where
    there are more, which implementation oneDNN takes is not known for sure, or not emulated.

    Args:
        step: a convolution, deconvolution or matmul.
        isa: one of `summation.ISAS`.
        src, weights: the types of its factors.
        shape: of the weights.
        type_of: the type of a value of the plan, with the dimensions that it tells.
    """
    if isa == "vnni" or src not in (DType.U8, DType.S8) or weights is not DType.S8:
        return (EXACT,)
    if step.primitive == "deconvolution":
        read = _dims(type_of, step.arg("src") or "")[2:]
        sizes = tuple(size if isinstance(size, int) else None for size in read)
        return _of_deconvolution(step, isa, src, shape, sizes)
    if step.primitive == "matmul":
        if isa != "avx512_core" and adds_late(step.attr.post_ops):
            return (EXACT,)  # gemm takes a sum as the first post-op alone
        shifted = _has_zero_point(step, "src") or _has_zero_point(step, "weights")
        laws: tuple[Summation, ...] = (
            summation(isa, "matmul", signed=src is DType.S8, zero_point=shifted),
        )
        if isa == "avx512_core" and _reads_along_the_second(step, type_of):
            laws += _of_gemm(src, shape)
    else:
        laws = _of_convolution(step, isa, src, shape)
    out = _dims(type_of, step.output)
    if not (
        read_by_reference_only(step.primitive, step.attr.post_ops, out, type_of)
        or adds_unlike(step.attr.post_ops)
        or _adds_late_in_3d(step, isa, shape)
        or (isa == "avx512_core" and _compares_by_reference_only(step, shape, type_of))
    ):
        return laws
    # whoever broadcasts the operand beforehand gets the code that sums otherwise
    return (EXACT, *(law for law in laws if law != EXACT))


def _dims(type_of: TypeOf, value: str) -> Dims:
    """The dimensions of a value; none where the plan does not tell."""
    return type_of(value).shape or ()


def adds_late(post_ops: Sequence[PostOp]) -> bool:
    """Whether a sum is not the first post-op, which gemm does not take."""
    return any(isinstance(op, Sum) for op in post_ops[1:])


def adds_unlike(post_ops: Sequence[PostOp]) -> bool:
    """Whether sums have several scales or zero points, which the reference alone takes."""
    return len({(op.scale, op.zero_point) for op in post_ops if isinstance(op, Sum)}) > 1


def compared_without_code(
    post_ops: Sequence[PostOp],
    out: Dims,
    type_of: TypeOf,
    columns: int,
    types: Collection[DType] = (DType.F32,),
) -> bool:
    """Whether AVX-512's code for vectors that are not full cannot be generated: it compares what it has
    with f32 numbers that are not all one.

    Args:
        post_ops: of the product.
        out: its result's dimensions.
        type_of: the type of an operand.
        columns: how many lie side by side; 0: there is such code whatever their number.
        types: with numbers of which types it cannot compare.
    """
    return bool(not columns or columns % _LANES) and any(
        type_of(op.operand).dtype in types and _along(_read(op, out, type_of))
        for op in post_ops
        if isinstance(op, Binary) and op.algorithm in _COMPARISONS
    )


def _compares_by_reference_only(step: Step, shape: Sequence[int], type_of: TypeOf) -> bool:
    """Whether code that compares is missing, and that for AVX2 does not take its place: it takes convolutions,
    but for groups whose channels are no multiple of 4 and depthwise ones of volumes.
    """
    out, groups = _dims(type_of, step.output), groups_of(step)
    if step.primitive == "matmul":
        return compared_without_code(step.attr.post_ops, out, type_of, shape[-1])
    inputs, outputs = shape[1], shape[0] // groups
    depthwise = groups > 1 and inputs == outputs == 1
    untaken = len(shape) == 5 if depthwise else groups > 1 and (inputs % 4 or outputs % 4)
    columns = shape[0] if depthwise else outputs
    return bool(untaken) and compared_without_code(step.attr.post_ops, out, type_of, columns)


def _reads_along_the_second(step: Step, type_of: TypeOf) -> bool:
    """Whether a post-op of a batch of products reads one number for each index of the second axis: where the
    library lays out the weights, gemm takes that on AVX-512 in place of `brg`.
    """
    rank = len(_dims(type_of, step.arg("src") or ""))
    read = [_dims(type_of, op.operand) for op in step.attr.post_ops if isinstance(op, Binary)]
    return rank > 2 and any(_along((1,) * (rank - len(dims)) + tuple(dims)) == {1} for dims in read)


def _of_gemm(src: DType, shape: Sequence[int]) -> tuple[Summation, ...]:
    """What gemm of AVX-512 does otherwise than `brg`: it cuts a deep product, and of a single column by s8
    shifts the weights.
    """
    depth, columns = shape[-2:]
    if src is DType.S8 and columns == 1:
        return (Summation("depth", turned=True),)
    shift = 128 if src is DType.S8 else 0
    return (Summation("any", shift=shift),) if depth > _GEMM_WHOLE else ()


def _adds_late_in_3d(step: Step, isa: str, shape: Sequence[int]) -> bool:
    """Whether a depthwise 3-D convolution has a sum behind another post-op, or one with a zero point, which
    compiled code and gemm refuse; seen of oneDNN 3.2 on AVX-512 without VNNI, late sums of u8 and of s8 in 591 draws each.
    """
    depthwise = len(shape) == 5 and 1 < shape[0] == groups_of(step) and shape[1] == 1
    post_ops = step.attr.post_ops
    moved = any(isinstance(op, Sum) and op.zero_point for op in post_ops)
    return isa == "avx512_core" and depthwise and (moved or adds_late(post_ops))


def read_by_reference_only(
    primitive: str, post_ops: Sequence[PostOp], out: Dims, type_of: TypeOf
) -> bool:
    """Whether a post-op of a convolution or matmul reads an operand that the reference alone broadcasts.

    Source: what oneDNN 3.2 took of all shapes that broadcast, of ranks 2 to 5, which a law draws.
    """
    taken = _matmul_takes if primitive == "matmul" else _convolution_takes
    out = tuple(out)
    return any(
        not taken(_read(op, out, type_of), out, slopes=isinstance(op, Prelu))
        for op in post_ops
        if isinstance(op, Binary | Prelu)
    )


def _read(op: Binary | Prelu, out: Dims, type_of: TypeOf) -> Dims:
    """The dimensions of what a post-op reads, of the result's rank."""
    if isinstance(op, Prelu):
        return tuple(size if op.mask >> axis & 1 else 1 for axis, size in enumerate(out))
    given = tuple(_dims(type_of, op.operand))
    return (1,) * (len(out) - len(given)) + given


def _convolution_takes(read: Dims, out: Dims, *, slopes: bool) -> bool:
    """One number, one for each channel, or as many as results; these not of a single row, which is
    taken for one that is the same in all channels, but for slopes.
    """
    along = _along(read)
    row = along == {2} and len(out) == 3 and not slopes
    return along <= {1} or (read == out and not row)


def _matmul_takes(read: Dims, out: Dims, *, slopes: bool) -> bool:
    """One number, some along the second or the last axis, or along all, with or without the second one; of
    more than four dimensions along the second axis or all alone.
    """
    along, last = _along(read), len(out) - 1
    if last >= _IMAGES:
        return along <= {1} or (read == out and not slopes)
    if read == out and (last == 1 or not slopes):
        return True
    if slopes and read == out and along:
        return along == {0}
    without = last > 1 and (along == {1} or read == (out[0], 1, *out[2:]))
    return without or along in (set(), {last}, {0, last})


def _along(read: Dims) -> set[int]:
    """The axes along which an operand has more than one number, or may have."""
    return {axis for axis, size in enumerate(read) if size != 1}


def groups_of(step: Step) -> int:
    """The groups of a convolution or deconvolution."""
    groups = step.params.get("group", 1)
    return groups if isinstance(groups, int) else 1


def _has_zero_point(step: Step, role: str) -> bool:
    zero = step.attr.zero_points.get(role)
    return zero is not None and bool(np.any(zero.array))


def _of_convolution(
    step: Step, isa: str, src: DType, shape: Sequence[int]
) -> tuple[Summation, ...]:
    groups, signed = groups_of(step), src is DType.S8
    channels = shape[1], shape[0] // groups
    law = summation(
        isa,
        "convolution",
        signed=signed,
        groups=groups,
        inputs=channels[0],
        outputs=channels[1],
        spatial=len(shape) - 2,
    )
    if isa != "avx512_core" or signed or groups == 1:
        return (law,)
    # compiled code takes groups by fours; of others brgconv refuses some, which gemm takes then
    uncertain = channels != (1, 1) and any(count % 4 for count in channels)
    deep = law.pairs == "depth" and math.prod(shape[2:]) > _WHOLE  # gemm cuts it
    return (law, Summation("any")) if uncertain or deep else (law,)


def _of_deconvolution(
    step: Step, isa: str, src: DType, shape: Sequence[int], sizes: Sizes
) -> tuple[Summation, ...]:
    groups, signed = groups_of(step), src is DType.S8
    channels = shape[0] // groups, shape[1]
    by_gemm = _is_by_gemm(step, isa, groups, channels, shape[2:], sizes)
    own, gemm = (
        summation(
            isa,
            "deconvolution",
            signed=signed,
            groups=groups,
            inputs=channels[0],
            outputs=channels[1],
            spatial=len(shape) - 2,
            by_gemm=each,
        )
        for each in (False, True)
    )
    if by_gemm is False:
        return (own,)
    # its weights are [inputs, outputs * taps], which it cuts along the inputs
    found = [gemm] if by_gemm or gemm == own else [own, gemm]
    if channels[0] > _WHOLE:
        found.append(replace(gemm, pairs="any"))
    if signed and isa == "avx512_core" and channels[1] * math.prod(shape[2:]) == 1:
        # the code for a vector
        found.append(Summation("any", turned=True))
    return tuple(found)


def _is_by_gemm(
    step: Step,
    isa: str,
    groups: int,
    channels: tuple[int, int],
    kernel: Sequence[int],
    sizes: Sizes,
) -> bool | None:
    """Whether a deconvolution runs by gemm; None where that is not sure."""
    known = [size for size in sizes if size is not None]
    if len(known) < len(kernel):
        return None
    window = transposed_window(OPS[step.op].known(step.params), known, tuple(kernel))
    pads = (*window.begin, *window.end)
    steps = window.strides, window.dilations
    found = deconvolves_by_gemm(isa, groups, channels, kernel, *steps, pads, window.out[-1])
    return found or (None if _may_be_refused(step, window) else False)


def _may_be_refused(step: Step, window: Window) -> bool:
    """Whether oneDNN's own code may not take a deconvolution whose row fits: it has not all post-ops, and
    gives wrong numbers beyond the last tap, and between taps two apart, where gemm is better.
    """
    post_ops = any(not isinstance(op, Eltwise) for op in step.attr.post_ops)
    axes = zip(window.kernel, window.dilations, window.strides, strict=True)
    apart = any(stride > (size - 1) * dilation + 2 for size, dilation, stride in axes)
    return post_ops or apart or any(end < 0 for end in window.end)
