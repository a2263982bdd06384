"""A depthwise convolution behind a 1x1 convolution becomes its post-op, where that saves a pass over what lies between them.

    codes -> 1x1 convolution -> codes -> depthwise convolution -> y    becomes    codes -> 1x1 convolution | depthwise -> y

Both steps are composed already, and the pair computes what it computed before, bit by bit: the 1x1 result is stored in its own type with
its own destination scale, which is the depthwise convolution's source scale; what stood behind the second step stands behind the post-op.

Why oneDNN's targets refuse: the post-op was measured over the shapes of MobileNetV2, see `targets.py`. In 3.2 the type between is that of
the destination descriptor and the scale that of DST; a zero point of DST gives results that are neither of the two convolutions'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir.decision import Decision, Outcome
from ..ir.node import subject
from ..ir.types import DType
from .attributes import DepthwiseConv, PrimitiveAttr, Scale, Sum
from .drafts import Drafts
from .formula import Refusal
from .plan import Step

__all__ = ["fuse_depthwise"]

_RULE = "depthwise convolution as post-op"
_CODES = (DType.U8, DType.S8)


def fuse_depthwise(drafts: Drafts) -> None:
    """Merges each pair of steps that may be one, and leaves a decision for every pair of a 1x1 and a depthwise convolution of codes."""
    writers = {value: draft for draft in drafts.drafts for value in draft.step.outputs if value}
    for second in list(drafts.drafts):
        first = writers.get(second.step.arg("src") or "")
        if first is None or not _is_depthwise(drafts, second.step) or not _is_pointwise(drafts, first.step):
            continue
        node = drafts.graph.node(second.step.name)
        refusal = _refusal(drafts, first.step, second.step)
        if refusal is not None:
            drafts.refuse(_RULE, node, refusal)
            continue
        drafts.merge(first, second, _merged(drafts, first.step, second.step))
        reason = f"what {subject(drafts.graph.node(first.step.name))} gives stays inside the step"
        drafts.graph.decide(Decision(_RULE, subject(node), Outcome.FIRED, reason))


def _ints(step: Step, param: str, default: Sequence[int]) -> tuple[int, ...]:
    found = step.params.get(param)
    return tuple(v for v in found if isinstance(v, int)) if isinstance(found, tuple) and found else tuple(default)


def _weights_shape(drafts: Drafts, step: Step) -> tuple[int, ...]:
    """The shape of a convolution's constant s8 weights; () where they are others."""
    name = step.arg("weights")
    if step.primitive != "convolution" or name is None or drafts.graph.producer(name) is not None or name in drafts.graph.inputs:
        return ()
    data = drafts.constant(name)
    return data.shape if data.dtype == DType.S8.numpy else ()


def _is_pointwise(drafts: Drafts, step: Step) -> bool:
    shape = _weights_shape(drafts, step)
    if len(shape) != 4 or shape[2:] != (1, 1) or drafts.type(step.output).dtype not in _CODES:
        return False
    plain = step.params.get("group", 1) == 1 and not any(_ints(step, "pads", (0,) * 4))
    return plain and _ints(step, "strides", (1, 1)) == (1, 1)


def _is_depthwise(drafts: Drafts, step: Step) -> bool:
    shape = _weights_shape(drafts, step)
    return len(shape) == 4 and shape[1] == 1 and shape[2:] != (1, 1) and step.params.get("group", 1) == shape[0]


def _refusal(drafts: Drafts, first: Step, second: Step) -> Refusal | None:
    """Why the pair stays two steps, or None."""
    between, kernel = first.output, _weights_shape(drafts, second)[2:]
    readers = [draft for draft in drafts.drafts if between in draft.step.inputs]
    if len(readers) != 1 or drafts.graph.is_output(between):
        found = f"{len(readers)} readers" + (", and the model returns it" if drafts.graph.is_output(between) else "")
        return Refusal("the result of the 1x1 convolution is needed elsewhere", "one reader", found)
    pads, strides = _ints(second, "pads", (0,) * 4), _ints(second, "strides", (1, 1))
    one_number = len({*kernel}) == len({*pads}) == len({*strides}) == 1 and second.params.get("auto_pad", "NOTSET") == "NOTSET"
    if not one_number or _ints(second, "dilations", (1, 1)) != (1, 1):
        what = f"kernel {list(kernel)}, strides {list(strides)}, pads {list(pads)}, dilations {list(_ints(second, 'dilations', (1, 1)))}"
        return Refusal("the post-op has one size, stride and padding for both axes, and no dilation", "the same for both axes", what)
    if any(isinstance(op, Sum | DepthwiseConv) for op in (*first.attr.post_ops, *second.attr.post_ops)):
        return Refusal("a sum reads a buffer of the destination, which two convolutions share here", "no sum", "a sum")
    target, zero = drafts.target, first.attr.zero_points.get("dst")
    if zero is not None:
        hint = "quantize what lies between without a zero point, as behind a relu"
        return Refusal("what lies between has a zero point, which the post-op has not", "zero point 0", str(zero.values[0]), hint)
    if "depthwise" not in target.capability("convolution").post_ops:
        return Refusal(f"convolution takes no depthwise post-op on {target.name}", "a depthwise post-op", "none")
    if target.depthwise_is_slow:
        return Refusal(target.depthwise_is_slow, "a post-op that is faster than a primitive of its own", "one that is not")
    if first.attr.scales.get("dst", Scale((1.0,))) != second.attr.scales.get("src", Scale((1.0,))):
        what = "the destination scale of the first holds a factor of its chain, too, and is not the source scale of the second"
        return Refusal(what, "one scale between the two", "two")
    return None


def _merged(drafts: Drafts, first: Step, second: Step) -> Step:
    ones = Scale((1.0,))
    strides, pads = _ints(second, "strides", (1, 1)), _ints(second, "pads", (0,) * 4)
    op = DepthwiseConv(
        second.arg("weights") or "",
        second.arg("bias") or "",
        _weights_shape(drafts, second)[2],
        strides[0],
        pads[0],
        DType.S8,
        drafts.type(second.output).dtype,
        second.attr.scales.get("weights", ones),
        second.attr.scales.get("dst", ones),
        drafts.type(first.output).dtype,
    )
    zero_points = {role: zero for role, zero in first.attr.zero_points.items() if role != "dst"}
    if "dst" in second.attr.zero_points:
        zero_points["dst"] = second.attr.zero_points["dst"]
    attr = PrimitiveAttr(first.attr.scales, zero_points, (*first.attr.post_ops, op, *second.attr.post_ops))
    origin = tuple(dict.fromkeys((*first.origin, *second.origin)))
    return replace(second, args=first.args, params=first.params, attr=attr, origin=origin)
