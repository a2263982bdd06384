"""A depthwise convolution behind a 1x1 convolution becomes its post-op, where that saves a pass
over what lies between them.

    codes -> 1x1 convolution -> codes -> depthwise convolution -> y    becomes    codes -> 1x1 convolution | depthwise -> y

Both steps are composed already, and the pair computes what it computed before, bit by bit: the 1x1
result is stored in its own type with its own destination scale, which is the depthwise
convolution's source scale; what stood behind the second step stands behind the post-op.

The cheaper home is taken, see `homes.py`. On oneDNN's targets that is a step of its own: the
post-op was measured over the shapes of MobileNetV2, see `targets.py`. In 3.2 the type between is
that of the destination descriptor and the scale that of DST; a zero point of DST gives results that
are neither of the two convolutions'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...ir.decision import Decision, Outcome
from ...ir.node import subject
from ...ir.rule import Refusal, Rule
from ...ir.types import DType, TensorType
from ...plan.arguments import at_run_time
from ...plan.attributes import DepthwiseConv, PrimitiveAttr, Scale, Sum
from ...plan.targets import Target
from ...plan.types import Step
from ..mapping.cost import alternatives
from ..mapping.homes import depthwise
from .builder import StepBuilder

_RULE = "depthwise convolution as post-op"


@dataclass(frozen=True)
class Pair:
    """Two convolutions of codes, the second of what the first gives.

    Attributes:
        target: the rules of post-ops.
        first, second: the steps.
        weights: shapes of their constant s8 weights, () where they are others.
        between, dst: what they give.
        readers: how many steps read what is between.
        returned: the model returns it.
    """

    target: Target
    first: Step
    second: Step
    weights: tuple[tuple[int, ...], tuple[int, ...]]
    between: TensorType
    dst: TensorType
    readers: int = 1
    returned: bool = False


def fuse_depthwise(builder: StepBuilder) -> None:
    """Merges each pair of steps where a post-op costs less, and leaves a decision for every pair of
    a 1x1 and a depthwise convolution.
    """
    writers = {
        value: pending for pending in builder.pending for value in pending.step.outputs if value
    }
    readers = Counter(
        value for pending in builder.pending for value in dict.fromkeys(pending.step.inputs)
    )
    for second in builder.pending:
        first = writers.get(second.step.arg("src") or "")
        pair = None if first is None else _pair(builder, first.step, second.step, readers)
        found = None if pair is None else DEPTHWISE.apply(pair)
        if first is None or pair is None or found is None:
            continue
        homes = depthwise(
            pair.between, pair.dst, pair.target, found.reason if isinstance(found, Refusal) else ""
        )
        node = builder.graph.node(second.step.name)
        if isinstance(found, DepthwiseConv) and homes[0].name == "post-op":
            builder.merge(first, second, _merged(first.step, second.step, found))
            reason = (
                f"what {subject(builder.graph.node(first.step.name))} gives stays inside the step"
            )
            decision = Decision(_RULE, subject(node), Outcome.FIRED, reason)
        else:
            decision = _why_apart(pair).at(_RULE, subject(node))
        builder.decide(replace(decision, alternatives=alternatives(homes)))


def _why_apart(pair: Pair) -> Refusal:
    """Why the pair stays two: what was measured says more than the scales and zero points between,
    which the composer, or a quantizer, could have left alike.
    """
    slower = pair.target.depthwise_is_slow
    dearer = Refusal(
        slower,
        "a post-op that is faster than a primitive of its own",
        "one that is not",
        "nothing to change: two primitives are as fast on this target",
    )
    if slower:
        return _needed_elsewhere(pair) or _sizes(pair) or dearer
    return _refusal(pair) or _two_scales(pair) or dearer


def _pair(
    builder: StepBuilder, first: Step, second: Step, readers: Mapping[str, int]
) -> Pair | None:
    """The two steps, where the second is a depthwise convolution; `readers`: how many steps read a
    value.
    """
    deep, between = _weights_shape(builder, second), first.output
    if not _is_depthwise(second, deep):
        return None
    types = builder.type(between), builder.type(second.output)
    weights, returned = (_weights_shape(builder, first), deep), builder.graph.is_output(between)
    return Pair(builder.target, first, second, weights, *types, readers[between], returned)


_DEFAULTS = {"pads": (0, 0, 0, 0), "strides": (1, 1), "dilations": (1, 1)}


def _ints(step: Step, param: str) -> tuple[int, ...]:
    found = step.params.get(param)
    given = tuple(v for v in found if isinstance(v, int)) if isinstance(found, tuple) else ()
    return given or _DEFAULTS[param]


def _weights_shape(builder: StepBuilder, step: Step) -> tuple[int, ...]:
    """The shape of a convolution's constant s8 weights; () where they are others."""
    name = step.arg("weights")
    if (
        step.primitive != "convolution"
        or name is None
        or builder.graph.producer(name) is not None
        or name in builder.graph.inputs
    ):
        return ()
    data = builder.constant(name)
    return data.shape if data.dtype == DType.S8.numpy else ()


def _is_pointwise(step: Step, weights: tuple[int, ...], gives: TensorType) -> bool:
    if len(weights) != 4 or weights[2:] != (1, 1) or not gives.dtype.is_code:
        return False
    plain = step.params.get("group", 1) == 1 and not any(_ints(step, "pads"))
    return plain and _ints(step, "strides") == (1, 1)


def _is_depthwise(step: Step, weights: tuple[int, ...]) -> bool:
    return (
        len(weights) == 4
        and weights[1] == 1
        and weights[2:] != (1, 1)
        and step.params.get("group", 1) == weights[0]
    )


def _as_post_op(pair: Pair) -> DepthwiseConv | Refusal | None:
    """A depthwise convolution of the codes that a 1x1 convolution stores is a post-op of that,
    which stores them in between.

    Legal because: both compute what they computed: the codes between are stored in their own type,
    by the destination scale of the first, which is the source scale of the second; what stood
    behind the second stands behind the post-op.
    Refuses when: others read the codes between, or they have a zero point; size, stride or padding
    differ between the axes, or there is a dilation; a sum reads the buffer of a destination; the
    target has no such post-op, or the two scales between are not one.
    """
    if not _is_depthwise(pair.second, pair.weights[1]) or not _is_pointwise(
        pair.first, pair.weights[0], pair.between
    ):
        return None
    return _refusal(pair) or _two_scales(pair) or _post_op(pair)


DEPTHWISE = Rule(
    "depthwise((q-0)*s), q = store(y, s, 0) = depthwise post-op(y), dst scale s",
    _as_post_op,
    float="bitwise",
)


def _refusal(pair: Pair) -> Refusal | None:
    """Why the pair stays two, whatever their scales are."""
    return _needed_elsewhere(pair) or _sizes(pair) or _attributes(pair)


def _needed_elsewhere(pair: Pair) -> Refusal | None:
    if pair.readers == 1 and not pair.returned:
        return None
    found = f"{pair.readers} readers" + (", and the model returns it" if pair.returned else "")
    return Refusal(
        "the result of the 1x1 convolution is needed elsewhere",
        "one reader",
        found,
        "nothing to change: what others read has to be written anyway",
    )


def _sizes(pair: Pair) -> Refusal | None:
    second, kernel = pair.second, pair.weights[1][2:]
    pads, strides = _ints(second, "pads"), _ints(second, "strides")
    one_number = (
        len({*kernel}) == len({*pads}) == len({*strides}) == 1
        and second.params.get("auto_pad", "NOTSET") == "NOTSET"
    )
    dilations = _ints(second, "dilations")
    if one_number and dilations == (1, 1):
        return None
    what = f"kernel {list(kernel)}, strides {list(strides)}, pads {list(pads)}, dilations {list(dilations)}"
    return Refusal(
        "the post-op has one size, stride and padding for both axes, and no dilation",
        "the same for both axes",
        what,
        "nothing to change: such a window is a convolution of its own",
    )


def _attributes(pair: Pair) -> Refusal | None:
    first, second, target = pair.first.attr, pair.second.attr, pair.target
    if any(isinstance(op, Sum | DepthwiseConv) for op in (*first.post_ops, *second.post_ops)):
        return Refusal(
            "a sum reads a buffer of the destination, which two convolutions share here",
            "no sum",
            "a sum",
            "nothing to change: the addition is fused, the two convolutions stay two steps",
        )
    zero = first.zero_points.get("dst") or second.zero_points.get("src")
    if zero is not None:
        hint = "quantize the 1x1 convolution's output symmetrically, or to unsigned codes behind a relu"
        return Refusal(
            "what lies between has a zero point, which the post-op has not",
            "zero point 0",
            str(zero.values[0]),
            hint,
        )
    if DepthwiseConv.kind not in target.capability("convolution").post_ops:
        return Refusal(
            f"convolution takes no depthwise post-op on {target.name}",
            "a depthwise post-op",
            "none",
            "nothing to change: two steps do the same",
        )
    return None


_ONE = Scale((1.0,))


def _two_scales(pair: Pair) -> Refusal | None:
    computed = at_run_time(pair.second.op, pair.second.args)
    if computed:
        what = "a scale of the second is computed at run time"
        return Refusal(
            what,
            "constant scales",
            next(iter(computed.values())),
            "quantize statically (quantize_static, nncf.quantize) instead of at run time",
        )
    if pair.first.attr.scales.get("dst", _ONE) == pair.second.attr.scales.get("src", _ONE):
        return None
    what = "the destination scale of the first holds a factor of its chain, too, and is not the source scale of the second"
    return Refusal(
        what,
        "one scale between the two",
        "two",
        "nothing to change in the quantizer: a factor of the network stands between the two convolutions",
    )


def _post_op(pair: Pair) -> DepthwiseConv:
    second, scales = pair.second, pair.second.attr.scales
    return DepthwiseConv(
        second.arg("weights") or "",
        second.arg("bias") or "",
        pair.weights[1][2],
        _ints(second, "strides")[0],
        _ints(second, "pads")[0],
        DType.S8,
        pair.dst.dtype,
        scales.get("weights", _ONE),
        scales.get("dst", _ONE),
        src_dtype=pair.between.dtype,
    )


def _merged(first: Step, second: Step, op: DepthwiseConv) -> Step:
    zero_points = {role: zero for role, zero in first.attr.zero_points.items() if role != "dst"}
    if "dst" in second.attr.zero_points:
        zero_points["dst"] = second.attr.zero_points["dst"]
    attr = PrimitiveAttr(
        first.attr.scales, zero_points, (*first.attr.post_ops, op, *second.attr.post_ops)
    )
    origin = tuple(dict.fromkeys((*first.origin, *second.origin)))
    return replace(second, args=first.args, params=first.params, attr=attr, origin=origin)
