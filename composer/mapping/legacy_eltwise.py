"""Eltwise post-ops as oneDNN 2 takes them: without its defect, and without the algorithms that came
later.

From 2.0 to 2.7 the generated code keeps one set of parameters (alpha, beta, scale) for each
algorithm in a chain: the second `linear` computes with the parameters of the first. So later uses
with other parameters are written as binary post-ops with constants, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ...ir.rule import Equation, Refusal
from ...plan.attributes import Binary, Eltwise, PostOp

__all__ = ["LEGACY", "LegacyRule", "Part", "distinct_eltwise"]

_FLT_MAX = float(np.finfo(np.float32).max)

_NEUTRAL = {"mul": 1.0, "add": 0.0, "max": -_FLT_MAX, "min": _FLT_MAX}

Part = Eltwise | tuple[str, float]
"""An eltwise, or a binary of an algorithm with one number."""


class LegacyRule(Equation[Callable[[Eltwise, Eltwise], "tuple[Part, ...] | Refusal | None"]]):
    """One equation about an eltwise behind the first of its algorithm in a chain, which has other
    parameters.
    """


def _linear(op: Eltwise, _: Eltwise) -> tuple[Part, ...] | Refusal | None:
    """A second linear is a product and a sum with constants.

    Legal because: k*(a*x + b) = (x*a + b)*k is the linear's definition.
    Refuses when: never.
    """
    if op.algorithm != "linear":
        return None
    return ("mul", op.alpha), ("add", op.beta), ("mul", op.scale)


def _same_but_for_the_scale(op: Eltwise, used: Eltwise) -> tuple[Part, ...] | Refusal | None:
    """A second eltwise with another scale alone has that of the first, and a product with a
    constant behind it.

    Legal because: k*f(x) = (k1*f(x))*(k/k1).
    Refuses when: alpha or beta differ too, k1 is 0, or f32 does not hold the quotient.
    """
    if (
        (used.alpha, used.beta) != (op.alpha, op.beta)
        or used.scale == 0
        or abs(op.scale) > abs(used.scale) * _FLT_MAX
    ):
        return _parameters_differ(op, used)
    return used, ("mul", op.scale / used.scale)


def _clip(op: Eltwise, used: Eltwise) -> tuple[Part, ...] | Refusal | None:
    """A second clip, or relu, is a maximum and a minimum with constants.

    Legal because: clip(x, l, h) = min(max(x, l), h), and relu(x) = max(x, 0).
    Refuses when: it is a leaky relu, whose slope needs x twice.
    """
    if op.algorithm not in ("clip", "relu"):
        return None
    if op.algorithm == "relu" and op.alpha != 0:
        return _parameters_differ(op, used)
    high = op.beta if op.algorithm == "clip" else _FLT_MAX
    return ("max", op.alpha), ("min", high), ("mul", op.scale)


def _parameters_differ(op: Eltwise, used: Eltwise) -> Refusal:
    return Refusal(
        f"oneDNN 2 computes the second {op.algorithm} of a chain with the parameters of the first",
        f"alpha {used.alpha:g}, beta {used.beta:g}",
        f"alpha {op.alpha:g}, beta {op.beta:g}",
    )


LEGACY: tuple[LegacyRule, ...] = (
    LegacyRule("k*linear(x, a, b) = binary_mul(binary_add(binary_mul(x, a), b), k)", _linear),
    LegacyRule("k*f(x) = binary_mul(k1*f(x), k/k1)", _same_but_for_the_scale),
    LegacyRule("k*clip(x, l, h) = binary_mul(binary_min(binary_max(x, l), h), k)", _clip),
)


def distinct_eltwise(
    post_ops: Sequence[PostOp], step: str, rank: int, constants: dict[str, npt.NDArray[np.float32]]
) -> tuple[PostOp, ...] | Refusal:
    """The same chain with each eltwise algorithm under one set of parameters only, by the first of
    `LEGACY` that fires.

    Args:
        post_ops: the chain.
        step: name of the step, under which constants are filed.
        rank: dimensions of the destination.
        constants: gets the constants that the new post-ops name.

    Returns:
        The chain, or the algorithm that cannot be written otherwise.
    """
    first: dict[str, Eltwise] = {}
    result: list[PostOp] = []
    for op in post_ops:
        used = first.setdefault(op.algorithm, op) if isinstance(op, Eltwise) else None
        if used is None or used == op or not isinstance(op, Eltwise):
            result.append(op)
            continue
        found = next(
            (made for rule in LEGACY if isinstance(made := rule.apply(op, used), tuple)), None
        )
        if found is None:
            return _parameters_differ(op, used)
        for part in found:
            if isinstance(part, Eltwise):
                result.append(part)
            elif part[1] != _NEUTRAL[part[0]]:
                name = f"{step}/scalar{len(result)}"
                constants[name] = np.full((1,) * rank, part[1], np.float32)
                result.append(Binary(part[0], name))
    return tuple(result)
