"""From the quanta of `onednn-v2` to real numbers: the scales that an output scale is made of, and post-ops in the real domain.

Behind each post-op of a v2 chain stands a current value; `domain` is the factor that makes it the real one: 1 where a nonlinear function
was applied to real numbers, the destination's scale at the end. Walking the chain from its end gives the domain in front of each post-op.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..ir.ops.spec import Array
from ..ir.types import TensorType
from .attributes import Binary, Eltwise, PostOp, Prelu, Scale, Sum
from .formula import Refusal
from .plan import Plan, Step
from .targets import TARGETS

__all__ = ["REORDERED", "Scales", "real_post_ops", "real_scales", "weights_mask"]

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

    def split(self, domain: float) -> dict[str, Scale] | Refusal:
        """The scales by argument, given the domain in front of the post-ops; or why they cannot be f32 scales."""
        rest = self.factor(domain) / self.src
        found = {role: Scale((value,)) for role, value in (("src", self.src), ("dst", self.dst)) if value != 1}
        if not self.weighted:
            if (np.abs(rest - 1) <= _EQUAL).all():
                return found
            wanted = f"{self.src / self.dst:g}"
            return Refusal("its output scale is not the source's scale over the destination's", wanted, _range(self.output))
        with np.errstate(over="ignore", under="ignore"):
            values = rest.astype(np.float32)
        if not np.isfinite(values).all() or (np.abs(values) < _TINY).any():
            return Refusal("the scales of its weights leave f32's range", "normal f32 numbers", _range(rest))
        return {**found, "weights": Scale(tuple(values.tolist()), self.mask if values.size > 1 else 0)}


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
    walk = _Walk(plan, file)
    domain = dst_scale
    chain: list[PostOp] = []
    for op in reversed(step.attr.post_ops):
        domain, parts = walk.real(op, domain)
        chain[:0] = parts
    return domain, tuple(chain)


@dataclass
class _Walk:
    plan: Plan
    file: Callable[[str, Array], str]

    def real(self, op: PostOp, domain: float) -> tuple[float, list[PostOp]]:
        """The domain in front of a post-op, and what computes the real number behind it; `domain` is the one behind."""
        match op:
            case Eltwise():
                return _eltwise(op, domain)
            case Sum(operand, scale, zero_point, dtype):
                return domain, [Sum(operand, _f32(scale * domain), zero_point, dtype)]
            case Prelu() if domain > 0:
                return domain, [op]
            case Binary("mul" | "div"):
                return domain, [op]
            case Binary("add" | "sub" | "max" | "min", operand) if domain > 0 and operand in self.plan.constants:
                real = self._times(operand, domain)
                return (1.0, [op, *_linear(domain)]) if real is None else (domain, [Binary(op.algorithm, real)])
            case _:  # it computes in the domain it was written for, and its result becomes real behind it
                return 1.0, [op, *_linear(domain)]

    def _times(self, operand: str, domain: float) -> str | None:
        """The name of the constant in real numbers; None where that is infinite and the constant is not."""
        data = self.plan.constants[operand]
        if domain == 1:
            return operand
        with np.errstate(over="ignore"):
            real = (data.astype(np.float64) * domain).astype(np.float32)
        return self.file(f"{operand}/real", real) if (np.isfinite(real) == np.isfinite(data)).all() else None


def _eltwise(op: Eltwise, domain: float) -> tuple[float, list[PostOp]]:
    """s*f(y) times the domain behind it: positively homogeneous functions take the whole factor in front, others see real numbers."""
    factor = domain * op.scale
    if factor > 0 and op.algorithm in ("relu", "abs"):
        return factor, [Eltwise(op.algorithm, op.alpha, op.beta)]
    if factor > 0 and op.algorithm in ("clip", "clip_v2"):
        return factor, [Eltwise(op.algorithm, _f32(factor * op.alpha), _f32(factor * op.beta))]
    if op.algorithm == "linear" and factor * op.alpha > 0:
        shift = _f32(factor * op.beta)
        return factor * op.alpha, [Eltwise("linear", 1.0, shift)] if shift else []
    return 1.0, [Eltwise(op.algorithm, op.alpha, op.beta), *_linear(factor)]


def _linear(factor: float) -> list[PostOp]:
    """Multiplies by a factor, unless that is 1 up to the rounding of what it is made of."""
    return [] if abs(factor - 1) <= _EQUAL else [Eltwise("linear", _f32(factor), 0.0)]


def _f32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _range(values: npt.NDArray[np.float64]) -> str:
    return f"{values.min():g}" if values.size == 1 else f"{values.min():g}..{values.max():g}"
