"""What NumPy does not make: descriptions that contradict themselves, with the library's status for such
(`invalid_arguments`), and what the target's capability table does not have (`unimplemented`).

The library is asked for what it takes itself; its own status counts there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..ir.ops.spec import Attr
from ..ir.types import DType
from ..masks import mask_text
from ..onednn.capi import Status
from ..onednn.enums import Arg
from ..plan.attributes import DepthwiseConv, Eltwise, PrimitiveAttr, Sum
from ..plan.findings import called
from ..plan.targets import TARGETS
from ..plan.verify_attributes import post_ops_fit, scales_fit, zero_points_fit
from ..plan.verify_shapes import NO_FIT, shapes_fit, types_fit
from .depthwise import parts
from .description import HALVES, Description, placeholders, stray_masks, with_values
from .kinds import ARGS, CELLS, KINDS, SOURCE
from .on_numpy import by_its_name, one_step, widened
from .operation import OPERATIONS, empty_clip, ends_the_process, misfits, unlike
from .recurrent import refusal as refusal_of_layer

_WITH_SCALES = frozenset({Arg.SRC, Arg.SRC_1, Arg.WEIGHTS, Arg.DST})
_PRODUCTS = frozenset({"convolution", "deconvolution", "inner_product", "matmul"})
_CODES = (DType.S8, DType.U8)

_OF_ONE_TYPE = frozenset({"eltwise", "pooling", "batch_normalization", "lrn", "shuffle", "prelu"})
"""Kinds whose source and destination have one element type on `onednn-v3`."""
_OF_FLOATS: dict[str, tuple[DType, ...]] = {
    "softmax": _CODES,
    "layer_normalization": _CODES,
    "batch_normalization": (DType.S8,),
    "lrn": (),
}
"""Kinds that compute with floats there -> the integers that they read and write, too."""
_UNTOLD = ("deconvolution", "inner_product")
"""Whose sums have no type of their own in oneDNN 2.6."""
_ATTRIBUTES = {
    "sum": (PrimitiveAttr(),),
    "batch_normalization": (PrimitiveAttr(), PrimitiveAttr(post_ops=(Eltwise("relu"),))),
}
"""All attributes of kinds that are other steps in a plan of `onednn-v3`."""
_OF_ATTRIBUTES = (scales_fit, zero_points_fit, post_ops_fit)


def refusal(description: Description) -> tuple[Status, str] | None:
    """The status with which NumPy refuses a primitive, and why; None where it makes it."""
    for reason in malformed(description):
        return Status.invalid_arguments, reason
    if description.kind in CELLS:
        return refusal_of_layer(description)
    for reason in _untaken(description):
        return Status.unimplemented, reason
    return None


def malformed(description: Description) -> Iterator[str]:
    """How a description contradicts itself, whatever any implementation takes."""
    if description.kind in CELLS:
        yield from _attributes(description)
        return
    first = parts(description)[0]
    yield from misfits(first)
    yield from _attributes(description)
    yield from OPERATIONS[description.kind](first)
    yield from stray_masks(description)
    different = unlike(first)
    if different is not None:
        yield different
    if description.target == "onednn-v2" and "hardsigmoid" in _eltwise_algorithms(description):
        yield "oneDNN 2.6 has no algorithm hardsigmoid"


def _attributes(description: Description) -> Iterator[str]:
    attr, many = description.attr, KINDS[description.kind].many
    for role in attr.scales:
        known = ARGS.get(role) in _WITH_SCALES or (many and SOURCE.fullmatch(role) is not None)
        if description.target != "unified" and not known:
            yield f"there is no argument {role} with scales"
    masks = [(role, scale.mask) for role, scale in attr.scales.items()]
    for role, mask in (*masks, *((role, zero.mask) for role, zero in attr.zero_points.items())):
        if mask < 0:
            yield f"the mask {mask_text(mask)} of {role}"
    for op in attr.post_ops:
        if isinstance(op, Eltwise):
            reason = empty_clip(op.algorithm, op.alpha, op.beta)
            if reason is not None:
                yield reason
        elif isinstance(op, DepthwiseConv) and not (
            op.kernel > 0 and op.stride > 0 and op.padding < op.kernel
        ):
            yield "a depthwise post-op whose kernel lies in the padding"


def _eltwise_algorithms(description: Description) -> set[Attr]:
    found = {op.algorithm for op in description.attr.post_ops if isinstance(op, Eltwise)}
    own = description.params["algorithm"] if description.kind == "eltwise" else ""
    return {*found, own}


def _untaken(description: Description) -> Iterator[str]:
    """What the target does not have for such a primitive."""
    chain, target = parts(description), description.target
    ending = ends_the_process(chain[0])
    if ending is not None:
        yield ending
    types = (*description.tensors.values(), *description.operands.values())
    if target != "onednn-v3" and not HALVES.isdisjoint(type_.dtype for type_ in types):
        yield f"{target} has no floats of 16 bits"
    yield from _missing_arguments(description)
    yield from _of_output_scales(description)
    yield from _of_sums(description)
    for part in chain if target == "onednn-v3" else (description,):
        if target != "unified":
            yield from _types(part)
        yield from _by_the_table(part)


def _missing_arguments(description: Description) -> Iterator[str]:
    kind, attr = description.kind, description.attr
    for role in (*attr.scales, *attr.zero_points):
        if role not in description.tensors:
            yield f"there is no argument {role} with a scale or a zero point"
    stored = {"dst"} if TARGETS[description.target].masks else set()
    if kind == "inner_product" and attr.zero_points.keys() - stored:
        yield f"inner products have no zero points of {min(attr.zero_points.keys() - stored)}"
    if description.target == "onednn-v3" and attr not in _ATTRIBUTES.get(kind, (attr,)):
        yield f"{kind} does not have these attributes"
    if kind == "sum" and any(scale.mask for scale in attr.scales.values()):
        yield "sources of a sum have one scale each"


def _of_output_scales(description: Description) -> Iterator[str]:
    """A product has them for its channels, and all but one of matrices on integers alone: so does oneDNN
    2.6. (A plan's steps take more, which `plan/conversion/` converts.)
    """
    output, kind = description.attr.output_scales, description.kind
    if output is None or kind not in _PRODUCTS:
        return
    if kind != "matmul" and not description.dtype("src").is_integer:
        yield f"output scales of a {kind} in {description.dtype('src').value}"
    channels = 1 << (len(description.dims("dst")) - 1 if kind == "matmul" else 1)
    if output.mask not in (0, channels):
        yield f"output scales of mask {mask_text(output.mask)}, not {mask_text(channels)}"


def _of_sums(description: Description) -> Iterator[str]:
    """They read the destination as a type of its size, of a v2 deconvolution and inner product as its own,
    untold; and none stands beside a depthwise post-op, which lies in memory of its own.
    """
    size = description.dtype("dst").bits
    untold = description.target == "onednn-v2" and description.kind in _UNTOLD
    for op in description.attr.post_ops:
        if not isinstance(op, Sum):
            continue
        if op.dtype is not None and (untold or op.dtype.bits != size):
            yield f"a sum reads the destination as {op.dtype.value}"
        if len(parts(description)) > 1:
            yield "a sum beside a depthwise post-op"


def _types(description: Description) -> Iterator[str]:
    """The element types of single primitives of `onednn-v3`, which are more than a plan's steps have: s32 and
    floats of 16 bits wherever they mean something.
    """
    kind, dst = description.kind, description.dtype("dst")
    src = description.dtype(description.sources()[0])
    if kind in _PRODUCTS:
        weights = description.dtype("weights")
        if weights is not (DType.S8 if src in _CODES else src) or src in (DType.F16, DType.S32):
            yield f"{kind} does not multiply {src.value} by {weights.value}"
    if kind in _OF_ONE_TYPE and src is not dst:
        yield f"{kind} does not turn {src.value} into {dst.value}"
    for dtype in (src, dst):
        if dtype.is_integer and dtype not in _OF_FLOATS.get(kind, (dtype,)):
            yield f"{kind} has no {dtype.value}"


def _by_the_table(description: Description) -> Iterator[str]:
    """What the rows of the plan verifier say of the one step that the primitive is."""
    if description.target == "onednn-v3" and description.kind in _ATTRIBUTES:
        return
    args = placeholders(description)
    wide = {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in args.items()}
    try:
        plan, _ = one_step(widened(description), with_values(description, args), wide)
        rows = [(row, by_its_name(description, plan)) for row in _OF_ATTRIBUTES]
        if description.target != "onednn-v3":
            rows = [(shapes_fit, plan), (types_fit, plan), *rows]
        for row, judged in rows:
            for found in row(judged):
                yield found.message.replace(called(judged.steps[0]), "it", 1)
    except NO_FIT as error:
        yield f"its arguments do not fit each other: {error}"
