"""Rules for operations of two operands: the chain x and a constant c, an f32 tensor t, codes
s*(q-z), or x itself, as basic operations.

The first rule of `OPERANDS` that fires is taken. Comparisons, maximum and minimum with codes depend
on what stands in front, see `compared_codes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.rule import Equation, Refusal
from ...ir.types import DType
from .formula import Add, BasicOp, BinaryOp, Clip, EltwiseOp, ScaleBy, Shift, Vec, vec

__all__ = [
    "OPERANDS",
    "OperandRule",
    "WithCodes",
    "WithConstant",
    "WithItself",
    "WithTensor",
    "written_with",
]


@dataclass(frozen=True)
class WithItself:
    """algorithm(x, x)."""

    algorithm: str


@dataclass(frozen=True, eq=False)
class WithConstant:
    """algorithm(x, values), or algorithm(values, x) where the chain is not `first`; `operand` files
    them as a constant of the step.
    """

    algorithm: str
    values: Vec
    operand: Callable[[], str]
    first: bool = True


@dataclass(frozen=True)
class WithTensor:
    """algorithm(x, operand), or the other way round; `why_not`: why the destination may not
    overwrite the operand, '' where it may.
    """

    algorithm: str
    operand: str
    first: bool = True
    why_not: str = ""


@dataclass(frozen=True)
class WithCodes:
    """algorithm(x, scale * (operand - zero_point)), or the other way round; `why_not` as above."""

    algorithm: str
    operand: str
    dtype: DType
    scale: float
    zero_point: float
    first: bool = True
    why_not: str = ""


Operands = WithItself | WithConstant | WithTensor | WithCodes


class OperandRule(Equation[Callable[[Operands], "tuple[BasicOp, ...] | Refusal | None"]]):
    """One equation about two operands."""


def written_with(both: Operands) -> Sequence[BasicOp] | Refusal | None:
    """The basic operations, by the first rule that fires; the last refusal where none does, None
    where none matches.
    """
    refusal: Refusal | None = None
    for rule in OPERANDS:
        found = rule.apply(both)
        if isinstance(found, tuple):
            return found
        refusal = found or refusal
    return refusal


def _is(both: Operands, kind: type[Operands], algorithm: str, *, first: bool | None = None) -> bool:
    """True of an operation of that kind and name, with the chain where it is wanted."""
    wanted = first is None or (not isinstance(both, WithItself) and both.first == first)
    return isinstance(both, kind) and both.algorithm == algorithm and wanted


# -- x itself --------------------------------------------------------------------------------------


def _twice(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """The sum of the chain and itself is a factor.

    Legal because: x + x = 2*x.
    Refuses when: never.
    """
    return (ScaleBy(vec(2.0)),) if _is(both, WithItself, "add") else None


def _squared(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """The product of the chain and itself is an eltwise: a chain has its value once.

    Legal because: x*x is the square's definition.
    Refuses when: never.
    """
    return (EltwiseOp("square"),) if _is(both, WithItself, "mul") else None


# -- a constant ------------------------------------------------------------------------------------


def _plus(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """A constant that is added, or taken away, is a shift.

    Legal because: x - c = x + (-c).
    Refuses when: never.
    """
    if (
        isinstance(both, WithConstant)
        and both.algorithm in ("add", "sub")
        and (both.first or both.algorithm == "add")
    ):
        return (Shift(both.values if both.algorithm == "add" else -both.values),)
    return None


def _from_constant(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """A chain that is taken away from a constant is turned, and shifted.

    Legal because: c - x = x*(-1) + c.
    Refuses when: never.
    """
    if isinstance(both, WithConstant) and _is(both, WithConstant, "sub", first=False):
        return ScaleBy(vec(-1.0)), Shift(both.values)
    return None


def _times(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """A constant that multiplies, or divides, is a factor.

    Legal because: x/c = x*(1/c); 1/c is formed in f64 and rounded once.
    Refuses when: a c is 0, for other rules divide by factors.
    """
    if not (
        isinstance(both, WithConstant)
        and (both.algorithm == "mul" or _is(both, WithConstant, "div", first=True))
    ):
        return None
    if not both.values.all():
        return Refusal("a factor is not 0: rules divide by it", "c != 0", "c = 0")
    return (ScaleBy(both.values if both.algorithm == "mul" else 1.0 / both.values),)


def _constant_over(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """A constant over the chain is a power.

    Legal because: c/x = c*x^-1, which is eltwise_pow's definition.
    Refuses when: there is one c for each channel.
    """
    if not (isinstance(both, WithConstant) and _is(both, WithConstant, "div", first=False)):
        return None
    if both.values.size != 1:
        return Refusal(
            "c/x = c*x^-1 is one eltwise for one c", "one for the tensor", "one for each channel"
        )
    return (EltwiseOp("pow", float(both.values[0]), -1.0),)


def _constants_over(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """Constants for each channel over the chain are a power and a product.

    Legal because: c/x = x^-1 * c.
    Refuses when: never.
    """
    if isinstance(both, WithConstant) and _is(both, WithConstant, "div", first=False):
        return EltwiseOp("pow", 1.0, -1.0), BinaryOp("mul", both.operand())
    return None


def _at_least(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """The maximum of the chain and a constant is a clip.

    Legal because: max(x, c) = clip(x, c, inf).
    Refuses when: never.
    """
    return (
        (Clip(both.values, vec(np.inf)),)
        if isinstance(both, WithConstant) and both.algorithm == "max"
        else None
    )


def _at_most(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """The minimum of the chain and a constant is a clip.

    Legal because: min(x, c) = clip(x, -inf, c).
    Refuses when: never.
    """
    return (
        (Clip(vec(-np.inf), both.values),)
        if isinstance(both, WithConstant) and both.algorithm == "min"
        else None
    )


def _binary_constant(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """Any other operation with a constant is that with a tensor: a comparison, or a product with a
    factor of 0.

    Legal because: the constant is filed as the tensor that it broadcasts to.
    Refuses when: the chain is taken away from the constant, or divides it.
    """
    if not isinstance(both, WithConstant):
        return None
    return _turned(both) or (BinaryOp(both.algorithm, both.operand()),)


# -- an f32 tensor ---------------------------------------------------------------------------------


def _residual(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """A tensor that is added is a residual add; so is one that the chain is taken away from, once
    that is turned.

    Legal because: t - x = x*(-1) + t.
    Refuses when: never.
    """
    if not (
        isinstance(both, WithTensor)
        and (both.algorithm == "add" or _is(both, WithTensor, "sub", first=False))
    ):
        return None
    turn = (ScaleBy(vec(-1.0)),) if both.algorithm == "sub" else ()
    return (*turn, Add(both.operand, DType.F32, in_place=not both.why_not, why_not=both.why_not))


def _tensor_over(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """A tensor over the chain is a power and a product.

    Legal because: t/x = x^-1 * t.
    Refuses when: never.
    """
    if isinstance(both, WithTensor) and _is(both, WithTensor, "div", first=False):
        return EltwiseOp("pow", 1.0, -1.0), BinaryOp("mul", both.operand)
    return None


def _binary_tensor(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """Any other operation with a tensor is itself.

    Legal because: `BinaryOp` computes with the chain in front; what does not commute has been
    turned.
    Refuses when: the chain is taken away from the tensor, or divides it.
    """
    if not isinstance(both, WithTensor):
        return None
    return _turned(both) or (BinaryOp(both.algorithm, both.operand),)


def _turned(both: WithConstant | WithTensor) -> Refusal | None:
    """Why a binary with the chain in front would not be the operation; None where it is."""
    if both.first or both.algorithm not in ("sub", "div"):
        return None
    return Refusal(
        "a binary post-op has the chain in front",
        f"{both.algorithm}(x, t)",
        f"{both.algorithm}(t, x)",
    )


# -- codes -----------------------------------------------------------------------------------------


def _residual_codes(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """Codes that are added, or taken away, are a residual add; so are those that the chain is taken
    away from, once that is turned.

    Legal because: x - k*(q - z) = x + (-k)*(q - z), and k*(q - z) - x = x*(-1) + k*(q - z).
    Refuses when: never.
    """
    if not (isinstance(both, WithCodes) and both.algorithm in ("add", "sub")):
        return None
    away = both.algorithm == "sub"
    turn = (ScaleBy(vec(-1.0)),) if away and not both.first else ()
    scale = -both.scale if away and both.first else both.scale
    return (
        *turn,
        Add(both.operand, both.dtype, scale, both.zero_point, not both.why_not, both.why_not),
    )


def _product_of_codes(both: Operands) -> tuple[BasicOp, ...] | Refusal | None:
    """A product with codes, or a quotient of the two, takes the scale of the codes apart.

    Legal because: x*(s*q) = (x*s)*q, x/(s*q) = (x*(1/s))/q, (s*q)/x = (s*x^-1)*q.
    Refuses when: the codes have a zero point: x*(q - z) = x*q - x*z would need x twice.
    """
    if not (isinstance(both, WithCodes) and both.algorithm in ("mul", "div")):
        return None
    if both.zero_point != 0:
        return Refusal(
            "x*(q - z) would need x twice",
            "zero point 0",
            f"{both.zero_point:g}",
            "quantize the operand symmetrically",
        )
    if both.algorithm == "mul":
        return ScaleBy(vec(both.scale)), BinaryOp("mul", both.operand)
    if both.first:
        return ScaleBy(vec(1.0 / both.scale)), BinaryOp("div", both.operand)
    return EltwiseOp("pow", both.scale, -1.0), BinaryOp("mul", both.operand)


OPERANDS: tuple[OperandRule, ...] = (
    OperandRule("x + x = x*2", _twice),
    OperandRule("x*x = square(x)", _squared),
    OperandRule("x - c = x + (-c)", _plus),
    OperandRule("c - x = x*(-1) + c", _from_constant),
    OperandRule("x/c = x*(1/c), c != 0", _times),
    OperandRule("c/x = pow(x, c, -1)", _constant_over),
    OperandRule("[c, ...]/x = pow(x, 1, -1)*[c, ...]", _constants_over),
    OperandRule("max(x, c) = clip(x, c, inf)", _at_least),
    OperandRule("min(x, c) = clip(x, -inf, c)", _at_most),
    OperandRule("f(x, c) = f(x, t), t = c", _binary_constant),
    OperandRule("t - x = x*(-1) + 1*(t-0)", _residual),
    OperandRule("t/x = pow(x, 1, -1)*t", _tensor_over),
    OperandRule("f(x, t) = binary_f(x, t)", _binary_tensor),
    OperandRule("s*(q-z) - x = x*(-1) + s*(q-z)", _residual_codes),
    OperandRule("x*(s*q) = (x*s)*q", _product_of_codes),
)
