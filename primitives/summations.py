"""How oneDNN 3.2 sums the products of a primitive's codes on a CPU without VNNI, where that is no matter of a
plan's step: inner products, floats of 16 bits, and what else compiled code refuses.
"""

from __future__ import annotations

import math

from ..ir.types import DType
from ..plan.attributes import Binary, Prelu, Sum
from ..plan.summation import EXACT, Summation, summation, summation_of_inner_product
from ..plan.summation_of_steps import (
    adds_late,
    adds_unlike,
    compared_without_code,
    laws_of,
    read_by_reference_only,
)
from ..plan.types import Plan, Step
from .description import HALVES, Description, grouped, has_single_taps

_FEW = 16
"""Channels of a group."""

_PRODUCTS = ("convolution", "deconvolution", "inner_product", "matmul")


def summation_of(whole: Description, isa: str, *, own_code: bool) -> Summation | None:
    """How a product sums; None: as a step of its factors does, or exactly.

    Args:
        whole: the primitive; its attributes have all values.
        isa: one of `plan.summation.ISAS`.
        own_code: that of deconvolutions takes its post-ops.
    """
    if whole.kind not in _PRODUCTS or isa == "vnni":
        return None
    if whole.dtype("src") not in (DType.U8, DType.S8):
        return None
    if whole.kind == "deconvolution":
        own_code = own_code and not _has_points_of_channels(whole)
        return None if own_code and _takes_halves(whole, isa) else _of_gemm(whole, isa)
    if _has_points_of_channels(whole) or _is_by_reference(whole, isa):
        return EXACT
    return _of_inner_product(whole, isa) if whole.kind == "inner_product" else None


def summation_of_step(whole: Description, plan: Plan, step: Step, isa: str) -> Summation | None:
    """How the step sums that a primitive is made of, where operands of bf16 are carried in f32, which has
    laws of its own; None: as the step tells.
    """
    if whole.kind not in _PRODUCTS or isa == "vnni" or not _read(whole) & HALVES:
        return None
    src, weights = (plan.type(step.arg(role) or "") for role in ("src", "weights"))
    held = whole.operands
    return laws_of(
        step,
        isa,
        src.dtype,
        weights.dtype,
        weights.static_shape,
        lambda name: held[name] if name in held else plan.type(name),
    )[0]


def _of_gemm(whole: Description, isa: str) -> Summation:
    """How a deconvolution by gemm sums."""
    outputs, inputs, *kernel = whole.dims("weights")[grouped(whole) :]
    return summation(
        isa,
        "deconvolution",
        signed=whole.dtype("src") is DType.S8,
        groups=whole.dims("src")[1] // inputs,
        inputs=inputs,
        outputs=outputs,
        spatial=len(kernel),
        by_gemm=True,
    )


def _has_points_of_channels(whole: Description) -> bool:
    """Whether the source's zero points are told for each channel, were they all the same."""
    zero = whole.attr.zero_points.get("src")
    return zero is not None and zero.mask != 0


def _stored(whole: Description) -> set[DType]:
    """The types of the destination and the bias."""
    return {whole.dtype(role) for role in ("dst", "bias") if role in whole.tensors}


def _read(whole: Description) -> set[DType]:
    """The types of what post-ops read, but for sums."""
    post_ops = whole.attr.post_ops
    return {whole.operands[op.operand].dtype for op in post_ops if isinstance(op, Binary | Prelu)}


def _takes_halves(whole: Description, isa: str) -> bool:
    """Whether own code of a deconvolution takes its floats of 16 bits, where gemm would: operands of bf16 on
    AVX-512, where single taps may be stored as such, too.
    """
    stored, read = _stored(whole) & HALVES, _read(whole) & HALVES
    if isa != "avx512_core" or DType.F16 in stored | read:
        return not stored | read
    in_bias = "bias" in whole.tensors and whole.dtype("bias") in HALVES
    return not stored or (not in_bias and _stores_halves_of_taps(whole))


def _stores_halves_of_taps(whole: Description) -> bool:
    """Whether AVX-512's code for single taps takes a deconvolution into bf16: as one of 1x1 taps, but for
    groups of few channels by fours, and what it does not broadcast or compare.
    """
    outputs, inputs, *_ = whole.dims("weights")[grouped(whole) :]
    if not has_single_taps(whole):
        return False
    groups = whole.dims("src")[1] // inputs
    if groups > 1 and (
        inputs == outputs == 1 or (inputs <= _FEW and not (inputs % 4 or outputs % 4))
    ):
        return False
    post_ops, out, type_of = whole.attr.post_ops, whole.dims("dst"), whole.operands.__getitem__
    if read_by_reference_only("convolution", post_ops, out, type_of):
        return False
    return not compared_without_code(post_ops, out, type_of, outputs)


def _is_by_reference(whole: Description, isa: str) -> bool:
    """Whether a convolution, matmul or inner product is the reference's, whose sums are exact, for what a step
    of a plan does not have: floats of 16 bits, and a bias of a matmul that is not one row.
    """
    stored, read = _stored(whole) & HALVES, _read(whole) & HALVES
    if DType.F16 in stored | read or (isa != "avx512_core" and stored | read):
        return True
    if whole.kind == "matmul" and "bias" in whole.tensors:
        *lead, columns = whole.dims("bias")
        return {*lead} != {1} or columns != whole.dims("dst")[-1]
    if not stored or whole.kind != "convolution":
        return False
    return _halves_by_reference(whole)


def _halves_by_reference(whole: Description) -> bool:
    """Whether AVX-512 has no code for a convolution that stores bf16: with a bias of bf16, by gemm, and where
    that of AVX2 would compare.
    """
    if "bias" in whole.tensors and whole.dtype("bias") is DType.BF16:
        return True
    weights = whole.dims("weights")
    outputs, inputs, *taps = weights[grouped(whole) :]
    depthwise = grouped(whole) and outputs == inputs == 1
    columns = weights[0] if depthwise else outputs
    by_fours = grouped(whole) and not (depthwise or inputs % 4 or outputs % 4)
    by_fours = by_fours and (inputs <= _FEW or {*taps} != {1})
    compares = compared_without_code(
        whole.attr.post_ops,
        whole.dims("dst"),
        whole.operands.__getitem__,
        columns,
        tuple(DType) if by_fours else (DType.F32,),
    )
    return compares or (depthwise and len(taps) == 3)


def _of_inner_product(whole: Description, isa: str) -> Summation:
    """Exact by the reference; else as compiled code sums."""
    out, post_ops, type_of = whole.dims("dst"), whole.attr.post_ops, whole.operands.__getitem__
    spatial = math.prod(whole.dims("src")[2:]) > 1
    moved = any(isinstance(op, Sum) and op.zero_point for op in post_ops)
    by_gemm = isa != "avx512_core" or spatial or moved
    dtypes = {op.dtype for op in post_ops if isinstance(op, Sum)} - {None, whole.dtype("dst")}
    if by_gemm and (adds_late(post_ops) or dtypes or _stored(whole) & HALVES):
        return EXACT
    if adds_unlike(post_ops):
        return EXACT
    if read_by_reference_only("matmul", post_ops, out, type_of):
        return EXACT
    columns = 0 if by_gemm else out[1]
    if isa == "avx512_core" and compared_without_code(post_ops, out, type_of, columns):
        return EXACT
    signed = whole.dtype("src") is DType.S8
    return summation_of_inner_product(
        isa, signed=signed, rows=out[0], columns=out[1], by_gemm=by_gemm
    )
