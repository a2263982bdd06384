"""From the quanta of `onednn-v2` to real numbers: the scales that an output scale is made of, and
post-ops in the real domain.

Behind each post-op of a v2 chain stands a value; the domain d is the factor, above 0, that makes it
the real one: 1 where a nonlinear function was applied to real numbers, the destination's scale at
the end. Walking the chain from its end gives d in front of each post-op.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from ...ir.algorithms import ELTWISE
from ...ir.ops.spec import Array
from ...ir.rule import Refusal, Rule
from ...ir.telling import FAR
from ...ir.types import TensorType
from ...masks import mask_text
from ..attributes import Binary, DepthwiseConv, Eltwise, PostOp, Prelu, Scale, Sum
from ..types import Plan, Step
from .output_scale import argument_of

COMPILE_AGAIN = "compile the model for onednn-v3"
"""What helps where a plan for oneDNN 2 has no reading in real numbers: mechanically it keeps all of them."""

_EQUAL = 2.0**-21
"""Relative distance within which two products of f32 scales mean the same: each was rounded up to
four times.
"""

_TINY = float(np.finfo(np.float32).tiny)

Real = tuple[float, tuple[PostOp, ...]]
"""The domain in front of a post-op, and what computes the real number behind it."""

Times = Callable[[str], str | None]
"""Files an operand times d, and returns its name; None where it is no constant."""


class LeavesF32(Exception):
    """A number of the real domain is no normal f32; the message is that number."""


def rounded(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Products, formed in f64, as f32.

    Raises:
        LeavesF32: one is beyond the normal numbers of f32, and neither 0 nor infinite.
    """
    wide = np.asarray(values, np.float64)
    with np.errstate(over="ignore", under="ignore"):
        found = wide.astype(np.float32)
    lost = (np.isfinite(wide) & ~np.isfinite(found)) | ((wide != 0) & (np.abs(found) < _TINY))
    if lost.any():
        raise LeavesF32(f"{wide[lost][0]:g}")
    return found


# -- an output scale -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scales:
    """An output scale, and what it is made of.

    Attributes:
        output: the output scale's values, f64.
        mask: of the weights' scales; None for a reorder, which has no weights.
        src: the source's scale; 1 where it holds real numbers.
        dst: the destination's, above 0; 1 where it holds real numbers.
    """

    output: npt.NDArray[np.float64]
    mask: int | None
    src: float
    dst: float


def _taken_apart(scales: Scales, domain: float) -> dict[str, Scale] | Refusal:
    """An output scale is the source's scale, the weights' scales, and the factor that a destination
    scale undoes.

    `domain`: d, the factor that makes what stands in front of the post-ops the real result; without
    post-ops the destination's scale.

    Legal because: o*d = s*w for w = o*d/s, which is formed in f64 and rounded once; and (acc +
    b)*o*d = acc*(o*d) + b*(o*d).
    Refuses when: there are no weights, and the output scale is not the source's over the
    destination's.
    """
    found = {
        role: Scale((value,))
        for role, value in (("src", scales.src), ("dst", scales.dst))
        if value != 1
    }
    product = scales.output * domain
    rest = product / scales.src
    if scales.mask is None:
        wanted = f"{scales.src / scales.dst:g}"
        told = Refusal(
            "its output scale is not the source's scale over the destination's",
            wanted,
            _range(scales.output),
            COMPILE_AGAIN,
        )
        return found if (np.abs(rest - 1) <= _EQUAL).all() else told
    rounded(product)  # runtimes form s*w
    return {**found, "weights": Scale(tuple(rounded(rest).tolist()), scales.mask)}


TAKEN_APART = Rule("(acc + b)*o*d = s*w*acc + b*(o*d), w = o*d/s", _taken_apart, float="ties")


def real_scales(plan: Plan, step: Step, output: Scale) -> Scales | Refusal:
    """Takes the step's output scale apart by what the types of its source and destination say."""
    if any(isinstance(op, DepthwiseConv) for op in step.attr.post_ops):
        return Refusal(
            "its depthwise post-op decodes codes that no type describes",
            "no such post-op",
            "one",
            COMPILE_AGAIN,
        )
    source = step.args[0][1]
    src, dst = (_scale_of(plan.type(value)) for value in (source, step.output))
    if src is None or dst is None or dst < 0:
        vague = step.output if src is not None else source
        return Refusal(
            "a type does not say by which one scale its codes decode",
            "a scale per tensor, above 0",
            f"{plan.type(vague)}",
            COMPILE_AGAIN,
        )
    role, mask = argument_of(plan, step, output)
    if mask is None:
        return Refusal(
            "its output scale does not run along the output channels",
            "one for each of them",
            f"mask {mask_text(output.mask)}",
            COMPILE_AGAIN,
        )
    return Scales(output.array.astype(np.float64), mask if role == "weights" else None, src, dst)


def _scale_of(kind: TensorType) -> float | None:
    """The scale of codes; 1 for real numbers; None for codes that no one scale decodes."""
    if not kind.dtype.is_integer:
        return 1.0
    if kind.quant is None or len(kind.quant.scale) > 1:
        return None
    rounded(1 / kind.quant.scale[0])  # runtimes multiply by it
    return float(rounded(kind.quant.scale[0]))


def _range(values: npt.NDArray[np.float64]) -> str:
    return f"{values.min():g}" if values.size == 1 else f"{values.min():g}..{values.max():g}"


# -- post-ops --------------------------------------------------------------------------------------


def real_post_ops(plan: Plan, step: Step, domain: float, file: Callable[[str, Array], str]) -> Real:
    """The step's post-ops in the real domain, without eltwise scales.

    Args:
        plan, step: where they stand.
        domain: behind the last one: the destination's scale.
        file: takes a constant under about that name, returns its name.

    Raises:
        LeavesF32: a number in them would be no f32.
    """
    chain: tuple[PostOp, ...] = ()
    for op in reversed(step.attr.post_ops):
        times = partial(_times, plan, file, domain)
        domain, real = next(
            found for rule in REAL if isinstance(found := rule.apply(op, domain, times), tuple)
        )
        chain = (*real, *chain)
    return domain, chain


def _times(
    plan: Plan, file: Callable[[str, Array], str], factor: float, operand: str
) -> str | None:
    """See `Times`."""
    data = plan.constants.get(operand)
    if data is None or factor == 1:
        return None if data is None else operand
    return file(f"{operand}/real", rounded(data.astype(np.float64) * factor))


def _sum(op: PostOp, domain: float, times: Times) -> Real | Refusal | None:
    """The domain moves in front of a sum, into its scale.

    Legal because: multiplication distributes over addition.
    Refuses when: never.
    """
    return (
        (domain, (replace(op, scale=float(rounded(op.scale * domain))),))
        if isinstance(op, Sum)
        else None
    )


def _homogeneous(op: PostOp, domain: float, times: Times) -> Real | Refusal | None:
    """The domain moves in front of a prelu, a product or a quotient.

    Legal because: multiplication commutes and is associative, and d > 0 keeps the sign that prelu
    tests.
    Refuses when: never.
    """
    return (
        (domain, (op,))
        if isinstance(op, Prelu) or (isinstance(op, Binary) and op.algorithm in ("mul", "div"))
        else None
    )


def _with_constant(op: PostOp, domain: float, times: Times) -> Real | Refusal | None:
    """The domain moves in front of an addition, subtraction, maximum or minimum, and multiplies its
    constant.

    Legal because: multiplication distributes over addition, and by d > 0 it keeps the order.
    Refuses when: the operand is no constant.
    """
    if not isinstance(op, Binary) or op.algorithm not in ("add", "sub", "max", "min"):
        return None
    real = times(op.operand)
    if real is None:
        return Refusal(
            "f(x, c)*d = f(x*d, c*d) needs a constant",
            "a constant",
            op.operand,
            COMPILE_AGAIN,
        )
    return domain, (Binary(op.algorithm, real),)


def _rectified(op: PostOp, domain: float, times: Times) -> Real | Refusal | None:
    """The domain and the scale of a relu, leaky or not, of an absolute value or of a clip move in
    front of it, and multiply the bounds.

    Legal because: relu(x)*d = relu(x*d) and |x|*d = |x*d| for d > 0, which keeps the order of value
    and bounds.
    Refuses when: k*d is not above 0.
    """
    if not isinstance(op, Eltwise) or not (
        op.algorithm in ("relu", "abs") or ELTWISE[op.algorithm].clips
    ):
        return None
    factor = domain * op.scale
    if not 0 < factor < np.inf:
        return Refusal(
            "k*f(x)*d = f(x*(k*d)) needs a finite factor above 0",
            "above 0",
            f"{factor:g}",
            COMPILE_AGAIN,
        )
    if ELTWISE[op.algorithm].clips:
        return factor, (
            Eltwise(op.algorithm, *rounded((factor * op.alpha, factor * op.beta)).tolist()),
        )
    return factor, (replace(op, scale=1.0),)


def _linear(op: PostOp, domain: float, times: Times) -> Real | Refusal | None:
    """The domain, and the scale and the factor of a linear, move in front of it; what stays is its
    shift, if it has one.

    Legal because: k*(a*x + b)*d = x*(k*a*d) + b*(k*d).
    Refuses when: k*a*d is not above 0, which others in front need; it takes off a zero point that
    decodes to a number far from 0, from which x*(k*d) would keep the roundings of large numbers.
    """
    if not isinstance(op, Eltwise) or op.algorithm != "linear":
        return None
    factor = domain * op.scale
    if factor * op.alpha <= 0:
        return Refusal(
            "k*(a*x + b)*d = x*(k*a*d) + b*(k*d) needs a factor above 0",
            "above 0",
            f"{factor * op.alpha:g}",
            COMPILE_AGAIN,
        )
    shift = float(rounded(factor * op.beta))
    if op.alpha == 1 and abs(shift) > FAR:
        return Refusal(
            "what is small beside the zero point would be lost",
            f"a shift of at most {FAR:g}",
            f"{shift:g}",
            "nothing to change: the zero point is taken off in front of the scale",
        )
    return factor * op.alpha, (Eltwise("linear", 1.0, shift),) if shift else ()


def _otherwise(op: PostOp, domain: float, times: Times) -> Real:
    """Any other operation computes in the domain that it was written for, and its result is
    multiplied.

    Legal because: it is computed as it was, and a linear has the factor k*d; k = 1 but for an
    eltwise.
    Refuses when: never.
    """
    factor = domain
    if isinstance(op, Eltwise):
        factor, op = domain * op.scale, replace(op, scale=1.0)
    is_one = abs(factor - 1) <= _EQUAL  # up to the rounding of what it is made of
    return 1.0, (op,) if is_one else (op, Eltwise("linear", float(rounded(factor)), 0.0))


REAL: tuple[Rule[Callable[[PostOp, float, Times], Real | Refusal | None]], ...] = (
    Rule("(x + k*(dst-z))*d = x*d + (k*d)*(dst-z)", _sum),
    Rule("f(x, t)*d = f(x*d, t), f = prelu, mul, div", _homogeneous),
    Rule("f(x, c)*d = f(x*d, c*d), f = add, sub, max, min", _with_constant),
    Rule("k*f(x, l, h)*d = f(x*(k*d), l*(k*d), h*(k*d)), f = relu, abs, clip", _rectified),
    Rule("k*(a*x + b)*d = x*(k*a*d) + b*(k*d)", _linear),
    Rule("k*f(x)*d = linear(f(x), k*d, 0)", _otherwise),
)
