"""What each operation that is left in a chain is among the post-ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

import numpy as np
import numpy.typing as npt

from ...ir.rule import Refusal, Rule
from ...ir.telling import Told
from ...ir.types import DType
from ...plan.attributes import Binary, Eltwise, PostOp, Prelu, Scale, Sum
from ...plan.targets import Target
from ..formula.algebra import is_normal
from ..formula.exact_zeros import exact_zeros
from ..formula.formula import (
    LARGEST,
    Add,
    BasicOp,
    BinaryOp,
    Clip,
    PreluOp,
    Round,
    ScaleBy,
    Shift,
    Vec,
    vec,
)
from .composed import Front

Constants = dict[str, npt.NDArray[np.float32]]

Part = Eltwise | tuple[str, float]
"""An eltwise, or a binary of an algorithm with one number."""


def place(
    target: Target, front: Front, dst: DType, ops: Sequence[BasicOp], scale: float | None = None
) -> tuple[tuple[PostOp, ...], tuple[int, ...], Constants] | Refusal:
    """The post-ops of a chain behind `front`, the parts of the chain whose work each does, and the
    constants that they name; or why oneDNN 2 cannot have them all. `scale`: of the destination, if it
    has one.
    """
    placing = _Placing(target, front, dst)
    # a store rounds
    told, step = (front.told, None) if dst is DType.F32 else (Told.NOTHING, scale or 1.0)
    left = exact_zeros(ops, told=told, step=step, linear=not target.eltwise_scale)
    with np.errstate(over="ignore"):  # what f32 does not hold is refused
        while left:
            taken = placing.take(left[0], left[1] if len(left) > 1 else None)
            placing.credit(reduce(or_, (op.of for op in left[:taken])))
            left = left[taken:]
    refusal = placing.make_distinct() if target.legacy_eltwise else None
    made = tuple(placing.post_ops), tuple(placing.parts), placing.constants
    return refusal or placing.beyond or made


@dataclass
class _Placing:
    """Post-ops in the making."""

    target: Target
    front: Front
    dst: DType
    post_ops: list[PostOp] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    constants: Constants = field(default_factory=dict)
    beyond: Refusal | None = None

    def take(self, op: BasicOp, behind: BasicOp | None) -> int:
        """Adds what an operation is by the definitions of oneDNN, in the shortest form, which may
        do what stands behind, too; how many operations it did.

        With an entry for each channel, a factor, a shift or a bound is a binary with a constant of
        the destination's rank, 1 where it is broadcast. An absent bound of a clip is the largest
        f32, so that an infinity becomes that.
        """
        if isinstance(op, ScaleBy):
            return self._scale(op, behind)
        if isinstance(op, Shift) and op.values.size > 1:
            self._binary("add", op.values)
        elif isinstance(op, Shift):
            self._eltwise("linear", 1.0, op.values[0])
        elif isinstance(op, Clip):
            self._clip(op)
        elif isinstance(op, Round):
            self._eltwise("round")
        elif isinstance(op, PreluOp):
            self.post_ops.append(Prelu(op.operand, op.mask))
        elif isinstance(op, BinaryOp):
            self.post_ops.append(Binary(op.algorithm, op.operand, self._operand_scale(op)))
        elif isinstance(op, Add):  # its zero point is an integer: the composer sees to it
            dtype = None if op.dtype is self.dst else op.dtype
            self._check(vec(op.scale))
            self.post_ops.append(Sum(op.operand, _f32(op.scale), int(op.zero_point), dtype))
        elif op.algorithm == "hardsigmoid" and self.target.legacy_eltwise:  # 2.6 lacks it
            self._eltwise("linear", op.alpha, op.beta)
            self._eltwise("clip", 0.0, 1.0)
        else:
            self._eltwise(op.algorithm, op.alpha, op.beta)
        return 1

    def credit(self, parts: int) -> None:
        """Notes whose work the newest post-ops do; that of the last one, where there is none."""
        if len(self.parts) == len(self.post_ops):
            self.parts[-1:] = [of | parts for of in self.parts[-1:]]
        self.parts += [parts] * (len(self.post_ops) - len(self.parts))

    def _operand_scale(self, op: BinaryOp) -> Scale | None:
        self._check(vec(op.scale))
        if isinstance(op.scale, tuple):
            return Scale(tuple(map(_f32, op.scale)), 1 << self.front.channel_axis)
        return None if op.scale == 1 else Scale((_f32(op.scale),))

    def _scale(self, op: ScaleBy, behind: BasicOp | None) -> int:
        shift = behind if isinstance(behind, Shift) and behind.values.size == 1 else None
        last = self.post_ops[-1] if self.post_ops else None
        scaled = _eltwise_scale(self.target, last, op)
        if shift is None and isinstance(scaled, Eltwise):
            self.post_ops[-1] = scaled
            return 1
        if op.values.size > 1:
            self._binary("mul", op.values)
            return 1
        self._eltwise("linear", op.values[0], 0.0 if shift is None else shift.values[0])
        return 1 if shift is None else 2

    def _clip(self, op: Clip) -> None:
        low, high = np.maximum(op.low, -LARGEST), np.minimum(op.high, LARGEST)
        bounded = bool((op.low > -np.inf).any()), bool((op.high < np.inf).any())
        if low.size > 1 or high.size > 1:
            if bounded[0]:
                self._binary("max", low)
            if bounded[1]:
                self._binary("min", high)
        elif low[0] == 0 and not bounded[1]:
            self._eltwise("relu")
        elif any(bounded):
            self._eltwise("clip", low[0], high[0])

    def _eltwise(self, algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> None:
        self._check(vec([alpha, beta]))
        self.post_ops.append(Eltwise(algorithm, _f32(alpha), _f32(beta)))

    def _binary(self, algorithm: str, values: Vec) -> None:
        """A binary with a vector, which becomes a constant of the step."""
        self._check(values)
        name = f"{self.front.step}/post_op{len(self.post_ops)}"
        self.constants[name] = self.front.along_channels(values)
        self.post_ops.append(Binary(algorithm, name))

    def _check(self, values: Vec) -> None:
        """Notes a number that is too large for f32, as a zero point times a scale may be."""
        if any(LARGEST < abs(value) < np.inf for value in values.tolist()):
            self.beyond = Refusal(
                "f32 does not hold a number of the post-ops",
                f"{LARGEST:g} at most",
                f"{np.abs(values).max():g}",
                "calibrate again: the scales are far too large or too small",
            )

    def make_distinct(self) -> Refusal | None:
        """Brings each eltwise algorithm under one set of parameters, by `SECOND_ELTWISE`; or which
        one cannot be written otherwise.
        """
        first: dict[str, Eltwise] = {}
        several = {
            op.algorithm
            for op in self.post_ops
            if isinstance(op, Eltwise) and first.setdefault(op.algorithm, op) != op
        }
        given, self.post_ops, self.parts = zip(self.post_ops, self.parts, strict=True), [], []
        first.clear()
        for op, of in given:
            found: tuple[Part, ...] | Refusal = ()
            if not isinstance(op, Eltwise) or op.algorithm not in several:
                self.post_ops.append(op)
            else:
                found = _second_eltwise(op, first.setdefault(op.algorithm, replace(op, scale=1.0)))
            if isinstance(found, Refusal):
                return found
            for part in found:
                self._part(part)
            self.credit(of)
        return None

    def _part(self, part: Part) -> None:
        if isinstance(part, Eltwise):
            self.post_ops.append(part)
        elif part[1] != _NEUTRAL[part[0]]:
            name = f"{self.front.step}/scalar{len(self.post_ops)}"
            self.constants[name] = np.full((1,) * self.front.rank, part[1], np.float32)
            self.post_ops.append(Binary(part[0], name))


def _f32(value: float) -> float:
    return float(np.float32(value))


# -- what oneDNN 2 takes ---------------------------------------------------------------------------


def _eltwise_scale(target: Target, last: PostOp | None, op: ScaleBy) -> Eltwise | Refusal:
    """A factor behind an eltwise joins its scale.

    Legal because: an eltwise of oneDNN 2 multiplies its result by a scale; (k*f(x))*A = (k*A)*f(x).
    Refuses when: the target's eltwise has no scale, there is one A for each channel, no eltwise
    stands in front, or f32 does not hold k*A. (It is not taken where a shift behind the factor would
    need a post-op anyway.)
    """
    if not target.eltwise_scale or not isinstance(last, Eltwise):
        found = "an eltwise without one" if isinstance(last, Eltwise) else "no eltwise"
        return Refusal(
            "f(x)*A is one eltwise where that has a scale",
            "an eltwise with a scale in front",
            found,
            "nothing to change: the factor becomes a post-op of its own",
        )
    if op.values.size != 1:
        reason = "f(x)*A is one eltwise where A stands alone"
        return Refusal(
            reason,
            "one factor",
            "one for each channel",
            "quantize per tensor, or leave it: a post-op multiplies by one factor for each channel",
        )
    scale = last.scale * float(op.values[0])
    if not is_normal(vec(scale)):
        return Refusal(
            "f(x)*A is one eltwise where f32 holds its scale",
            "a normal f32",
            f"{scale:g}",
            "calibrate again: the scales are far too large or too small",
        )
    return replace(last, scale=_f32(scale))


ELTWISE_SCALE = Rule("k*f(x)*A = (k*A)*f(x)", _eltwise_scale)

_NEUTRAL = {"mul": 1.0, "add": 0.0, "max": -LARGEST, "min": LARGEST}


def _second_eltwise(op: Eltwise, used: Eltwise) -> tuple[Part, ...] | Refusal:
    """An eltwise in a chain with another one of its algorithm, which has other parameters: the factor
    behind it, where the scale alone differs; a linear, a clip and a relu as binaries with constants.

    From 2.0 to 2.7 the generated code keeps one set of parameters (alpha, beta, scale) for each
    algorithm in a chain: the second `linear` computes with the parameters of the first.

    `used`: the first one, without its scale: codes that are rounded or clipped stay whole numbers.

    Legal because: k*f(x) = f(x)*k; k*(a*x + b) = (x*a + b)*k; clip(x, l, h) = min(max(x, l), h),
    and relu(x) = max(x, 0).
    Refuses when: neither is so; the slope of a leaky relu needs x twice.
    """
    if (used.alpha, used.beta) == (op.alpha, op.beta):
        return used, ("mul", op.scale)
    if op.algorithm == "linear":
        return ("mul", op.alpha), ("add", op.beta), ("mul", op.scale)
    if op.algorithm == "clip" or (op.algorithm == "relu" and op.alpha == 0):
        high = op.beta if op.algorithm == "clip" else LARGEST
        return ("max", op.alpha), ("min", high), ("mul", op.scale)
    return Refusal(
        f"oneDNN 2 computes the second {op.algorithm} of a chain with the parameters of the first",
        f"alpha {used.alpha:g}, beta {used.beta:g}",
        f"alpha {op.alpha:g}, beta {op.beta:g}",
        "compile with --target onednn-v3, whose library keeps the parameters apart",
    )


SECOND_ELTWISE = Rule("k*f(x, a, b) = f(x, a, b)*k, or binaries with constants", _second_eltwise)
