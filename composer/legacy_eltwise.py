"""Eltwise post-ops as oneDNN 2 takes them: without its defect, and without the algorithms that came later.

From 2.0 to 2.7 the generated code keeps one set of parameters (alpha, beta, scale) for each algorithm in a chain: the second `linear`
computes with the parameters of the first. So later uses with other parameters are written as binary post-ops with constants, or refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .attributes import Binary, Eltwise, PostOp
from .formula import Refusal

__all__ = ["distinct_eltwise"]

_FLT_MAX = float(np.finfo(np.float32).max)


def distinct_eltwise(
    post_ops: Sequence[PostOp], step: str, rank: int, constants: dict[str, npt.NDArray[np.float32]]
) -> tuple[PostOp, ...] | Refusal:
    """The same chain with each eltwise algorithm under one set of parameters only.

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

    def append(algorithm: str, value: float, neutral: float) -> None:
        if value == neutral:
            return
        name = f"{step}/scalar{len(result)}"
        constants[name] = np.full((1,) * rank, value, np.float32)
        result.append(Binary(algorithm, name))

    for op in post_ops:
        used = first.setdefault(op.algorithm, op) if isinstance(op, Eltwise) else None
        if used is None or used == op or not isinstance(op, Eltwise):
            result.append(op)
        elif op.algorithm == "linear":
            append("mul", op.alpha, 1.0)
            append("add", op.beta, 0.0)
            append("mul", op.scale, 1.0)
        elif (used.alpha, used.beta) == (op.alpha, op.beta) and abs(op.scale) <= abs(used.scale) * _FLT_MAX and used.scale != 0:
            result.append(used)
            append("mul", op.scale / used.scale, 1.0)
        elif op.algorithm == "clip" or (op.algorithm == "relu" and op.alpha == 0):
            append("max", op.alpha, -_FLT_MAX)
            append("min", op.beta if op.algorithm == "clip" else _FLT_MAX, _FLT_MAX)
            append("mul", op.scale, 1.0)
        else:
            return Refusal(
                f"oneDNN 2 computes the second {op.algorithm} of a chain with the parameters of the first",
                f"alpha {used.alpha:g}, beta {used.beta:g}",
                f"alpha {op.alpha:g}, beta {op.beta:g}",
            )
    return tuple(result)
