"""Rows of the plan verifier about attributes: scales, zero points and post-ops against the target's
capabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..ir.algorithms import BINARY, ELTWISE
from ..ir.ops import dims
from ..ir.text_write import name_text, type_text
from ..ir.types import DType, Shape, TensorType
from ..masks import has_order, mask_text
from .arguments import PACKED, at_run_time
from .attributes import Binary, DepthwiseConv, Eltwise, PostOp, Prelu, Scale, Sum, ZeroPoint
from .findings import destination, of_target
from .targets import PARAMETERS_OF_2_6, Target
from .types import Plan, Step

_ELEMENTWISE = ("binary", "eltwise")
_OPERANDS = (DType.F32, DType.S32, DType.S8, DType.U8)
_LARGEST = 3.4028235677973362e38  # beyond, a number is infinite in f32
_SMALLEST = 2.0**-149  # below, it may be 0 there

_WEIGHTED = ("convolution", "deconvolution", "matmul")


def _role_type(plan: Plan, step: Step, role: str) -> TensorType | None:
    return destination(plan, step) if role == "dst" else plan.find(step.arg(role))


def _has_scale(step: Step, role: str, target: Target) -> bool:
    capability = target.capability(step.primitive)
    if role == "dst":
        return capability.dst_scale
    if step.arg(role) is None:
        return False
    if role == "weights":
        whole = step.op != PACKED  # packed weights have arguments for it
        return whole and step.primitive in _WEIGHTED and target.scales == "arguments"
    if step.primitive == "rnn":
        return capability.src_scale and role in ("src", "w", "r")
    return capability.src_scale and role.startswith("src")


def _has_zero_point(step: Step, role: str, target: Target) -> bool:
    capability = target.capability(step.primitive)
    if role == "dst":
        return capability.dst_zero_point
    if role == "weights":
        return step.op == "MatMul" and capability.src_zero_point
    return role == "src" and step.arg(role) is not None and capability.src_zero_point


@of_target
def scales_fit(plan: Plan, step: Step, target: Target) -> Iterator[str | None]:
    """Scales stand where the target has them, with a mask that the primitive takes and one value
    for each index of it.
    """
    for role, scale in step.attr.scales.items():
        if not _has_scale(step, role, target):
            yield f"has a scale of {role}, which {step.primitive} of {target.name} does not take"
            continue
        problem = _mask_problem(plan, step, role, scale, target) or _value_problem(scale, role)
        yield problem and f"has a scale of {role} {problem}"
    output = step.attr.output_scales
    if output is None:
        return
    takes = target.capability(step.primitive).output_scale
    if not takes:
        yield f"has output scales, which {step.primitive} of {target.name} does not take"
        return
    dst = destination(plan, step)
    problem = (
        ("of several values, and it takes one" if takes == "tensor" and output.mask else None)
        or _value_problem(output, "dst")
        or _count_problem(output, None if dst is None else dst.shape)
        or (None if step.primitive == "reorder" else _along_one(output.mask))
    )
    yield problem and f"has output scales {problem}"


def _along_one(mask: int) -> str | None:
    """A reorder alone has scales along several dimensions: no implementation of another primitive does."""
    single = mask < 0 or mask & (mask - 1) == 0
    return None if single else f"of mask {mask_text(mask)}, which selects more than one dimension"


def _value_problem(scale: Scale, role: str) -> str | None:
    if not all(map(_is_f32, scale.values)):
        return "that is not finite"
    smallest = min(map(abs, scale.values), default=1.0)
    return (
        "that is zero: the destination is divided by it"
        if role == "dst" and smallest < _SMALLEST
        else None
    )


@of_target
def zero_points_fit(plan: Plan, step: Step, target: Target) -> Iterator[str | None]:
    """Zero points stand where the target has them, on integers, with a mask that the primitive
    takes.
    """
    for role, point in step.attr.zero_points.items():
        if not _has_zero_point(step, role, target):
            yield (
                f"has a zero point of {role}, which {step.primitive} of {target.name} does not take"
            )
            continue
        problem = _mask_problem(plan, step, role, point, target)
        yield problem and f"has a zero point of {role} {problem}"
        type_ = _role_type(plan, step, role)
        if type_ is not None and not type_.dtype.is_integer:
            yield f"has a zero point of {role}, which is {type_.dtype.value} and no integer"
        if not all(map(_is_s32, point.values)):
            yield f"has a zero point of {role} that is no s32"
        if any(isinstance(value, float) for value in point.values):
            yield _fraction_problem(plan, step, role, point)


def _fraction_problem(plan: Plan, step: Step, role: str, point: ZeroPoint) -> str | None:
    """Only a bias that may vary with the position takes what an integer leaves of a zero point, by
    scales and weights that are known when it is formed.
    """
    computed = next(iter(at_run_time(step.op, step.args)), "")
    if not computed and step.arg("weights") not in (None, *plan.constants):
        computed = "its factor"
    if computed:
        return (
            f"has a zero point of {role} that is no integer, and {computed} is computed at run time"
        )
    if role == "src" and step.primitive in ("convolution", "deconvolution") and not point.mask:
        return None
    return f"has a zero point of {role} that is no integer, which {step.primitive} does not take"


def _is_s32(value: float) -> bool:
    low, high = DType.S32.range
    return low <= value <= high


def _mask_problem(
    plan: Plan, step: Step, role: str, scale: Scale | ZeroPoint, target: Target
) -> str | None:
    """What is wrong with a mask and the number of values behind it, or None."""
    type_ = _role_type(plan, step, role)
    if scale.mask == 0 or type_ is None or type_.shape is None:
        return _count_problem(scale, None if type_ is None else type_.shape)
    rank = len(type_.shape)
    if scale.mask < 0 or scale.mask >> rank or not has_order(scale.mask, rank):
        return _not_there(scale.mask)
    if step.primitive in ("convolution", "deconvolution") and role == "weights":
        group = step.params.get("group", 1)
        channels = _output_channels(
            step.primitive, type_.shape, group if isinstance(group, int) else 1
        )
        mask = 3 if group != 1 else 1
        if scale.mask != mask:
            wanted = f"common or {mask_text(mask, 'oihw' if group == 1 else 'goihw')}"
            return f"of mask {mask_text(scale.mask)}; a mask of weights in {group!r} groups is {wanted}"
        return (
            None
            if len(scale.values) == channels
            else f"with {len(scale.values)} values for {channels} output channels"
        )
    if step.primitive == "matmul" and role == "weights" and isinstance(scale, Scale):
        last = 1 << max(rank - 1, 0)
        return (
            _count_problem(scale, type_.shape)
            if scale.mask == last
            else f"of mask {mask_text(scale.mask)}; it is common or {mask_text(last)}"
        )
    any_mask = target.masks and (role == "dst" or step.primitive in ("binary", "concat"))
    if any_mask or step.primitive in ("reorder", "rnn"):
        return _count_problem(scale, type_.shape)
    return f"of mask {mask_text(scale.mask)}, and it is per tensor (common)"


def _output_channels(primitive: str, weights: Shape, group: int) -> int | str:
    """Weights are [OC, IC/g, ...] of a convolution and [IC, OC/g, ...] of a deconvolution."""
    if primitive == "convolution" or len(weights) < 2 or isinstance(weights[1], str):
        return weights[0] if weights else 1
    return weights[1] * group


def _count_problem(scale: Scale | ZeroPoint, shape: Shape | None) -> str | None:
    if scale.mask == 0:
        return (
            None if len(scale.values) == 1 else f"with {len(scale.values)} values and mask common"
        )
    rank = 0 if shape is None else len(shape)
    if shape is None or scale.mask < 0 or scale.mask >> rank or not has_order(scale.mask, rank):
        return _not_there(scale.mask)
    sizes = [dim for index, dim in enumerate(shape) if scale.mask >> index & 1]
    numbers = [dim for dim in sizes if isinstance(dim, int)]
    if len(numbers) != len(sizes):
        return f"of mask {mask_text(scale.mask)}, which selects a dimension whose size is not known"
    return (
        None
        if math.prod(numbers) == len(scale.values)
        else f"with {len(scale.values)} values for {math.prod(numbers)} indices"
    )


def _not_there(mask: int) -> str:
    """The library's own word for it: the status of a descriptor that asks for such a mask."""
    order = "" if has_order(mask, 0) else " in the order of its name"
    return f"of mask {mask_text(mask)}, which selects dimensions that are not there{order} (invalid_arguments)"


# -- post-ops --------------------------------------------------------------------------------------


@of_target
def post_ops_fit(plan: Plan, step: Step, target: Target) -> Iterator[str | None]:
    """Post-ops are of kinds that the primitive takes, not too many, by known algorithms, and their
    operands fit the destination.
    """
    post_ops = step.attr.post_ops
    if len(post_ops) > target.max_post_ops:
        yield f"has {len(post_ops)} post-ops, and {target.name} takes {target.max_post_ops}"
    for op in post_ops:
        if op.kind not in target.capability(step.primitive).post_ops:
            yield (
                f"has a post-op {op.kind}, which {step.primitive} of {target.name} does not take"
            )
            continue
        problem = _post_op_problem(plan, target, op, step)
        yield problem and f"has a post-op {op.kind} {problem}"


def _post_op_problem(plan: Plan, target: Target, op: PostOp, step: Step) -> str | None:
    dst = destination(plan, step)
    match op:
        case Eltwise():
            return _eltwise_problem(target, op)
        case Binary():
            if op.algorithm not in BINARY:
                return f"by the unknown algorithm {name_text(op.algorithm)}"
            if op.scale is not None and not target.operand_scale:
                return f"with a scale of its operand, which {target.name} does not have"
            if op.zero_point is not None and not target.operand_scale:
                return f"with a zero point of its operand, which {target.name} does not have"
            operand = plan.find(op.operand)
            own = step.primitive in _ELEMENTWISE and op.operand in dict(step.args).values()
            return (
                _operand_problem(operand, dst, own=own)
                or (None if op.scale is None else _scale_problem(op.scale, operand))
                or (None if op.zero_point is None else _point_problem(op.zero_point, operand))
            )
        case Prelu():
            slope = plan.find(op.operand)
            if slope is not None and slope.dtype is not DType.F32:
                return f"with slopes of {slope.dtype.value} instead of f32"
            return _operand_problem(slope, dst) or _prelu_mask_problem(op, slope)
        case Sum():
            if not _is_s32(op.zero_point):
                return "with a zero point that is no s32"
            return None if _is_f32(op.scale) else "with a scale that is not finite"
        case DepthwiseConv():
            if op.kernel < 1 or op.stride < 1 or op.padding < 0:
                return f"with the kernel {op.kernel}, stride {op.stride} and padding {op.padding}"
            return _depthwise_problem(plan, op, dst)


def _depthwise_problem(plan: Plan, op: DepthwiseConv, dst: TensorType | None) -> str | None:
    """What is between are codes; weights are codes, too, with a scale for each channel, or one."""
    weights = plan.find(op.weights)
    if weights is not None and (
        weights.dtype is not op.weights_dtype or weights.dtype is not DType.S8
    ):
        return f"with weights of {weights.dtype.value}"
    if not op.src_dtype.is_code:
        return f"that reads {op.src_dtype.value} instead of codes"
    if dst is not None and dst.dtype is not op.dst_dtype:
        return f"that writes {op.dst_dtype.value}, and the step {dst.dtype.value}"
    if op.weights_scale.mask not in (0, 1, 3) or op.dst_scale.mask:
        return "with scales along other dimensions than the channels of its weights"
    if _value_problem(op.dst_scale, "dst"):
        return "with a destination scale that is zero or not finite"
    return _scale_problem(op.weights_scale, weights) or _count_problem(op.dst_scale, None)


def _scale_problem(scale: Scale, type_: TensorType | None) -> str | None:
    """What is wrong with a scale of a post-op."""
    return _value_problem(scale, "src") or _count_problem(
        scale, None if type_ is None else type_.shape
    )


def _point_problem(point: ZeroPoint, type_: TensorType | None) -> str | None:
    """What is wrong with a zero point of a post-op's operand."""
    if type_ is not None and not type_.dtype.is_integer:
        return f"with a zero point of its operand, which is {type_.dtype.value} and no integer"
    if not all(_is_s32(value) and isinstance(value, int) for value in point.values):
        return "with a zero point of its operand that is no s32"
    found = _count_problem(point, None if type_ is None else type_.shape)
    return None if found is None else f"with a zero point of its operand {found}"


def _is_f32(value: float) -> bool:
    return abs(value) <= _LARGEST  # not so of NaN


def _missing_of_2_6(algorithm: str, alpha: float, beta: float) -> str | None:
    """What oneDNN 2.6 has not of an eltwise algorithm."""
    if algorithm == "hardsigmoid":
        return "by the algorithm hardsigmoid, which oneDNN 2.6 does not have"
    known = PARAMETERS_OF_2_6.get(algorithm, (alpha, beta))
    one = algorithm == "soft_relu"  # its second parameter is none in either
    if np.float32(alpha) == np.float32(known[0]) and (one or beta == known[1]):
        return None
    return f"by {algorithm} with the parameters {alpha} and {beta}, which oneDNN 2.6 neglects"


def _eltwise_problem(target: Target, op: Eltwise) -> str | None:
    if op.algorithm not in ELTWISE:
        return f"by the unknown algorithm {name_text(op.algorithm)}"
    if target.legacy_eltwise:
        missing = _missing_of_2_6(op.algorithm, op.alpha, op.beta)
        if missing is not None:
            return missing
    if op.scale != 1 and not target.eltwise_scale:
        return f"with a scale, which {target.name} does not have"
    if any(map(math.isnan, (op.alpha, op.beta, op.scale))):
        return "with a parameter that is NaN"
    clips = ELTWISE[op.algorithm].clips
    if not clips and not all(map(_is_f32, (op.alpha, op.beta, op.scale))):
        return "with a parameter that is not finite in f32"
    return f"that clips to {op.alpha}..{op.beta}" if clips and op.beta < op.alpha else None


def _operand_problem(
    operand: TensorType | None, dst: TensorType | None, *, own: bool = False
) -> str | None:
    """An operand has dst's rank, and each dimension is dst's or 1; a source of the step's `own`
    broadcasts to dst whatever its sizes are, unknown ones among them.
    """
    if operand is not None and operand.dtype not in _OPERANDS:
        return f"whose operand is {operand.dtype.value}"
    if operand is None or dst is None or operand.shape is None or dst.shape is None:
        return None
    fits = len(operand.shape) == len(dst.shape) and (own or dims.fits(operand.shape, dst.shape))
    return (
        None
        if fits
        else f"whose operand {type_text(operand)} does not fit the destination {type_text(dst)}"
    )


def _prelu_mask_problem(op: Prelu, slope: TensorType | None) -> str | None:
    if slope is None or slope.shape is None:
        return None
    if op.mask < 0 or op.mask >> len(slope.shape):
        return _not_there(op.mask)
    stray = [dim for index, dim in enumerate(slope.shape) if not op.mask >> index & 1 and dim != 1]
    return (
        f"of mask {mask_text(op.mask)}, which does not select all dimensions of its slopes"
        if stray
        else None
    )
