"""From the quanta of `onednn-v2` to real numbers: the scales that an output scale is made of, and post-ops in the real domain.

Behind each post-op of a v2 chain stands a current value; `domain` is the factor that makes it the real one: 1 where a nonlinear function
was applied to real numbers, the destination's scale at the end. Walking the chain from its end gives the domain in front of each post-op.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from ...ir.ops.spec import Array
from ...ir.rule import Equation, Refusal
from ...ir.types import TensorType
from ..attributes import Binary, Eltwise, PostOp, Prelu, Scale, Sum
from ..targets import TARGETS
from ..types import Plan, Step

__all__ = ["REAL", "REORDERED", "TAKEN_APART", "Behind", "Real", "RealRule", "Scales", "real_post_ops", "real_scales", "weights_mask"]

REORDERED = ("reorder",)
"""Primitives whose output scale multiplies the source itself: there are no weights."""

_EQUAL = 2.0**-21
"""Relative distance within which two products of f32 scales mean the same: each was rounded up to four times."""

_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Scales:
    """An output scale taken apart.

    Attributes:
        output: the output scale's values, f64.
        mask: of scales along the output channels: the weights' for the compute primitives, the output scale's own for a reorder.
        src: the source's scale; 1 where it holds real numbers.
        dst: the destination's; 1 where it holds real numbers.
        weighted: there are weights to take what is left.
    """

    output: npt.NDArray[np.float64]
    mask: int
    src: float
    dst: float
    weighted: bool

    def factor(self, domain: float) -> npt.NDArray[np.float64]:
        """What makes the accumulator the real result, by channel or alone."""
        return self.output * domain


class ApartRule(Equation[Callable[[Scales, float], "dict[str, Scale] | Refusal"]]):
    """The equation of an output scale and the scales by argument."""


def _taken_apart(scales: Scales, domain: float) -> dict[str, Scale] | Refusal:
    """An output scale is the source's scale, the weights' scales, and the factor that a destination scale undoes.

    `domain`: d, the factor that makes what stands in front of the post-ops the real result; without post-ops the destination's scale.

    Legal because: o*d = s*w for w = o*d/s, which is formed in f64 and rounded once; and (acc + b)*o*d = acc*(o*d) + b*(o*d).
    Refuses when: w is no normal f32; or there are no weights, and the output scale is not the source's over the destination's.
    """
    rest = scales.factor(domain) / scales.src
    found = {role: Scale((value,)) for role, value in (("src", scales.src), ("dst", scales.dst)) if value != 1}
    if not scales.weighted:
        if (np.abs(rest - 1) <= _EQUAL).all():
            return found
        wanted = f"{scales.src / scales.dst:g}"
        return Refusal("its output scale is not the source's scale over the destination's", wanted, _range(scales.output))
    with np.errstate(over="ignore", under="ignore"):
        values = rest.astype(np.float32)
    if not np.isfinite(values).all() or (np.abs(values) < _TINY).any():
        return Refusal("the scales of its weights leave f32's range", "normal f32 numbers", _range(rest))
    return {**found, "weights": Scale(tuple(values.tolist()), scales.mask if values.size > 1 else 0)}


TAKEN_APART = ApartRule("(acc + b)*o*d = s*w*acc + b*(o*d), w = o*d/s", _taken_apart, float="ties")


def weights_mask(plan: Plan, step: Step) -> int:
    """The mask of scales along the output channels of a step's weights, as `onednn-v3` writes it."""
    if step.primitive == "matmul":
        weights = step.arg("weights")
        assert weights is not None
        return 1 << (plan.type(weights).rank - 1)
    return 1 if step.params.get("group", 1) == 1 else 3


def real_scales(plan: Plan, step: Step) -> Scales | Refusal:
    """Takes the step's output scale apart by what the types of its source and destination say."""
    output = step.attr.output_scales
    assert output is not None
    source = step.args[0][1]
    src = _scale_of(plan.type(source))
    dst = _scale_of(plan.type(step.output)) if TARGETS["onednn-v3"].capability(step.primitive).dst_scale else 1.0
    if src is None or dst is None:
        vague = source if src is None else step.output
        return Refusal("a type does not say by which one scale its codes decode", "a scale per tensor", f"{plan.type(vague)}")
    weighted = step.primitive not in REORDERED
    mask = weights_mask(plan, step) if weighted else output.mask
    return Scales(output.array.astype(np.float64), mask, src, dst, weighted)


def _scale_of(kind: TensorType) -> float | None:
    """The scale of codes; 1 for real numbers; None for codes that nothing decodes by one scale."""
    if not kind.dtype.is_integer:
        return 1.0
    return kind.quant.scale[0] if kind.quant is not None and len(kind.quant.scale) == 1 else None


def real_post_ops(plan: Plan, step: Step, dst_scale: float, file: Callable[[str, Array], str]) -> tuple[float, tuple[PostOp, ...]]:
    """The step's post-ops in the real domain.

    Args:
        plan, step: where they stand.
        dst_scale: of the destination: what divides behind the last post-op.
        file: takes a constant under about that name, returns its name.

    Returns:
        The domain in front of the first post-op, and the post-ops, without eltwise scales.
    """
    domain = dst_scale
    chain: list[PostOp] = []
    for op in reversed(step.attr.post_ops):
        behind = Behind(domain, partial(_times, plan, file, factor=domain))
        found = next(real for rule in REAL if isinstance(real := rule.apply(op, behind), Real))
        domain, chain[:0] = found.domain, found.post_ops
    return domain, tuple(chain)


def _times(plan: Plan, file: Callable[[str, Array], str], operand: str, factor: float) -> str | None:
    """The name of a constant times a factor; None where the operand is no constant, or the product is infinite and the constant is not."""
    data = plan.constants.get(operand)
    if data is None or factor == 1:
        return operand if data is not None else None
    with np.errstate(over="ignore"):
        real = (data.astype(np.float64) * factor).astype(np.float32)
    return file(f"{operand}/real", real) if (np.isfinite(real) == np.isfinite(data)).all() else None


# -- one post-op -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Behind:
    """What stands behind a post-op.

    Attributes:
        domain: d, the factor that makes its result the real number.
        times: files an operand times d, where it is a constant and f32 holds the product, and returns its name; else None.
    """

    domain: float
    times: Callable[[str], str | None]


@dataclass(frozen=True)
class Real:
    """A post-op in real numbers: the domain in front of it, and what computes the real number behind it."""

    domain: float
    post_ops: tuple[PostOp, ...]


class RealRule(Equation[Callable[[PostOp, Behind], "Real | Refusal | None"]]):
    """One equation about a post-op and the domain d behind it; the domain in front is the factor of x on the right side."""


def _sum(op: PostOp, behind: Behind) -> Real | Refusal | None:
    """The domain moves in front of a sum, into its scale.

    Legal because: multiplication distributes over addition.
    Refuses when: never.
    """
    if not isinstance(op, Sum):
        return None
    return Real(behind.domain, (replace(op, scale=_f32(op.scale * behind.domain)),))


def _prelu(op: PostOp, behind: Behind) -> Real | Refusal | None:
    """The domain moves in front of a prelu.

    Legal because: d > 0 keeps the sign that prelu tests, and the slope multiplies either way.
    Refuses when: d is not positive.
    """
    if not isinstance(op, Prelu):
        return None
    return Real(behind.domain, (op,)) if behind.domain > 0 else _positive("prelu(x)*d = prelu(x*d)", behind.domain)


def _product(op: PostOp, behind: Behind) -> Real | Refusal | None:
    """The domain moves in front of a product or quotient.

    Legal because: multiplication commutes and is associative.
    Refuses when: never.
    """
    return Real(behind.domain, (op,)) if isinstance(op, Binary) and op.algorithm in ("mul", "div") else None


def _with_constant(op: PostOp, behind: Behind) -> Real | Refusal | None:
    """The domain moves in front of an addition, subtraction, maximum or minimum, and multiplies its constant.

    Legal because: multiplication distributes over addition, and by d > 0 it keeps the order.
    Refuses when: d is not positive, the operand is no constant, or f32 does not hold the product.
    """
    if not isinstance(op, Binary) or op.algorithm not in ("add", "sub", "max", "min"):
        return None
    if behind.domain <= 0:
        return _positive("f(x, c)*d = f(x*d, c*d)", behind.domain)
    real = behind.times(op.operand)
    if real is None:
        return Refusal("f(x, c)*d = f(x*d, c*d) needs c*d", "a constant whose product f32 holds", op.operand)
    return Real(behind.domain, (Binary(op.algorithm, real),))


def _homogeneous(op: PostOp, behind: Behind) -> Real | Refusal | None:
    """The domain and the scale of a relu, leaky or not, or of an absolute value move in front of it.

    Legal because: relu(x)*d = relu(x*d) for d > 0, and |x|*d = |x*d|.
    Refuses when: k*d is not positive.
    """
    if not isinstance(op, Eltwise) or op.algorithm not in ("relu", "abs"):
        return None
    factor = behind.domain * op.scale
    return Real(factor, (replace(op, scale=1.0),)) if factor > 0 else _positive("k*relu(x)*d = relu(x*(k*d))", factor)


def _clip(op: PostOp, behind: Behind) -> Real | Refusal | None:
    """The domain and the scale of a clip move in front of it, and multiply its bounds.

    Legal because: multiplying by k*d > 0 keeps the order of value and bounds.
    Refuses when: k*d is not positive.
    """
    if not isinstance(op, Eltwise) or op.algorithm not in ("clip", "clip_v2"):
        return None
    factor = behind.domain * op.scale
    if factor <= 0:
        return _positive("k*clip(x, l, h)*d = clip(x*(k*d), l*(k*d), h*(k*d))", factor)
    return Real(factor, (Eltwise(op.algorithm, _f32(factor * op.alpha), _f32(factor * op.beta)),))


def _linear_eltwise(op: PostOp, behind: Behind) -> Real | Refusal | None:
    """The domain, and the scale and the factor of a linear, move in front of it; what stays is its shift, if it has one.

    Legal because: k*(a*x + b)*d = x*(k*a*d) + b*(k*d).
    Refuses when: k*a*d is not positive, which others in front would refuse.
    """
    if not isinstance(op, Eltwise) or op.algorithm != "linear":
        return None
    factor = behind.domain * op.scale
    if factor * op.alpha <= 0:
        return _positive("k*(a*x + b)*d = x*(k*a*d) + b*(k*d)", factor * op.alpha)
    shift = _f32(factor * op.beta)
    return Real(factor * op.alpha, (Eltwise("linear", 1.0, shift),) if shift else ())


def _eltwise(op: PostOp, behind: Behind) -> Real | Refusal | None:
    """Any other function sees real numbers, and what is behind it is multiplied.

    Legal because: it is computed as it was, and a linear has the product k*d.
    Refuses when: never.
    """
    return Real(1.0, (replace(op, scale=1.0), *_linear(behind.domain * op.scale))) if isinstance(op, Eltwise) else None


def _otherwise(op: PostOp, behind: Behind) -> Real | Refusal | None:
    """Any other operation computes in the domain that it was written for, and its result is multiplied.

    Legal because: it is computed as it was, and a linear has the factor d.
    Refuses when: never.
    """
    return Real(1.0, (op, *_linear(behind.domain)))


REAL: tuple[RealRule, ...] = (
    RealRule("(x + k*(dst-z))*d = x*d + (k*d)*(dst-z)", _sum),
    RealRule("prelu(x)*d = prelu(x*d), d > 0", _prelu),
    RealRule("(x*t)*d = (x*d)*t", _product),
    RealRule("f(x, c)*d = f(x*d, c*d), d > 0", _with_constant),
    RealRule("k*relu(x)*d = relu(x*(k*d)), k*d > 0", _homogeneous),
    RealRule("k*clip(x, l, h)*d = clip(x*(k*d), l*(k*d), h*(k*d)), k*d > 0", _clip),
    RealRule("k*(a*x + b)*d = x*(k*a*d) + b*(k*d), k*a*d > 0", _linear_eltwise),
    RealRule("k*f(x)*d = linear(f(x), k*d, 0)", _eltwise),
    RealRule("f(x, t)*d = linear(f(x, t), d, 0)", _otherwise),
)


def _positive(name: str, factor: float) -> Refusal:
    return Refusal(f"{name} needs a factor above 0", "above 0", f"{factor:g}")


def _linear(factor: float) -> tuple[PostOp, ...]:
    """Multiplies by a factor, unless that is 1 up to the rounding of what it is made of."""
    return () if abs(factor - 1) <= _EQUAL else (Eltwise("linear", _f32(factor), 0.0),)


def _f32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _range(values: npt.NDArray[np.float64]) -> str:
    return f"{values.min():g}" if values.size == 1 else f"{values.min():g}..{values.max():g}"
