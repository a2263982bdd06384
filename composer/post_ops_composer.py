"""PostOpsComposer: from a formula to attributes of one primitive.

Operations are appended one at a time. Each append checks first and commits then: on a refusal the composer is what it was before. The
algebra (`algebra.py`) rewrites the formula; this file gives every operation that is left a home on the target: weights or output scale,
bias, destination scale and zero point, a post-op, or the store itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
import numpy.typing as npt

from ..ir.types import DType
from .algebra import is_normal, simplify
from .attributes import Binary, Eltwise, PostOp, Prelu, Scale, Sum
from .compared_codes import on_codes
from .composed import Composed, Front
from .cost import Home
from .exact_zeros import exact_zeros, tells
from .formula import Add, BasicOp, BinaryOp, ChainOp, Clip, CodesOp, EltwiseOp, PreluOp, Refusal, Round, ScaleBy, Shift, Store, Vec, vec
from .hoisting import Fold, Hoister
from .homes import adding, attributes_cost, scaling, shifting
from .legacy_eltwise import distinct_eltwise, spelled_out
from .store_rules import absorb
from .targets import Capability, Target

__all__ = ["Composed", "Front", "PostOpsComposer"]

Operand = Callable[[Vec], str]
"""Files a vector as a constant of the step, and returns its name."""

_Expanded = tuple[tuple[ChainOp, ...], tuple[BasicOp, ...]]
"""A chain as it is given, and as basic operations."""

_OPS_A_POST_OP = 3  # more basic operations fit the post-ops of no network, and each walks over those in front of it
_FLT_MAX = float(np.finfo(np.float32).max)


@dataclass
class _Tail:
    """What the store is left to do."""

    dst_scale: float | None = None
    dst_zero_point: int | None = None
    quantize: str = ""
    zero_points: tuple[Home, ...] = ()


@dataclass
class PostOpsComposer:
    """Maps a chain of basic operations behind `front` to attributes on `target`.

    Attributes:
        target: the rules of scales and post-ops.
        front: what the chain starts from.
        result: attributes of the chain so far.
    """

    target: Target
    front: Front
    chain: tuple[ChainOp, ...] = ()
    result: Composed = field(init=False)
    _expanded: Fold[ChainOp, _Expanded] = field(init=False, repr=False, compare=False)
    _simplified: Fold[BasicOp, tuple[BasicOp, ...]] = field(init=False, repr=False, compare=False)
    _hoisted: Hoister = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._expanded = Fold(((), ()), self._expand)
        self._simplified = Fold((), lambda done, op: tuple(simplify([op], behind=done)))
        self._hoisted = Hoister(self.front)
        found = self._map(())
        assert isinstance(found, Composed)
        self.result = found

    @property
    def capability(self) -> Capability:
        """What the primitive takes."""
        return self.target.capability(self.front.primitive)

    def append(self, ops: Sequence[ChainOp]) -> Refusal | None:
        """Takes the operations into the chain, all or none.

        Returns None when they are in (`result` has the attributes), or the reason why they have no home.
        """
        chain = (*self.chain, *ops)
        found = self._map(chain)
        if isinstance(found, Refusal):
            return found
        self.chain, self.result = chain, found
        return None

    # -- the whole way ---------------------------------------------------------------------------------------------------------

    def _map(self, chain: Sequence[ChainOp]) -> Composed | Refusal:
        store = chain[-1] if chain and isinstance(chain[-1], Store) else None
        dst = DType.F32 if store is None else store.dtype
        resolved, adds = self._resolve_adds(self._expanded(chain[:-1] if store else chain)[1], dst)
        ops = list(self._simplified(resolved))
        longest = _OPS_A_POST_OP * self.target.max_post_ops
        if len(ops) > longest:
            return Refusal("the chain is too long", f"at most {longest} basic operations", str(len(ops)))
        found = self._attributes(ops, store, dst, divide=self.capability.dst_scale)
        if store is not None:
            found = self._cheapest_scale(ops, store, found)
        return replace(found, adds=adds) if adds and isinstance(found, Composed) else found

    def _cheapest_scale(self, ops: list[BasicOp], store: Store, divided: Composed | Refusal) -> Composed | Refusal:
        """The attributes with a destination scale, or those without one where they cost less."""
        if isinstance(divided, Refusal) and not self.capability.dst_scale:
            return divided
        scaled = isinstance(divided, Composed) and divided.dst_scale is not None
        other = self._attributes(ops, store, store.dtype, divide=False) if scaled or isinstance(divided, Refusal) else divided
        if isinstance(other, Refusal) and isinstance(divided, Refusal):
            return divided
        why_not = "" if scaled else "the primitive has none" if not self.capability.dst_scale else "it is one number for the whole tensor"
        costs = (inf if isinstance(divided, Refusal) else self._cost(divided), inf if isinstance(other, Refusal) else self._cost(other))
        refused = other if isinstance(other, Refusal) else None
        folds = isinstance(other, Composed) and (other.quantize == "dst_scale" if not scaled else _no_longer(other, divided))
        homes = scaling(*costs, refused, why_not=divided.reason if isinstance(divided, Refusal) else why_not, folds=folds)
        if homes[0].name == "destination scale":
            assert isinstance(divided, Composed)
            return replace(divided, scales=homes)
        assert isinstance(other, Composed)
        return replace(other, scales=homes, quantize="dst_scale" if folds else other.quantize)

    def _cost(self, found: Composed) -> float:
        return attributes_cost(self.target, found.post_ops, dst_scale=found.dst_scale is not None)

    def _attributes(self, ops: list[BasicOp], store: Store | None, dst: DType, *, divide: bool) -> Composed | Refusal:
        """A simplified chain as attributes; `divide`: the store has a scale."""
        tail = _Tail()
        if store is not None:
            ops = self._lower(ops, store, tail, divide=divide)
        hoisted = self._hoisted(ops)
        placed = _Placer(self.target, self.front, dst).place(hoisted.ops)
        if isinstance(placed, Refusal):
            return placed
        post_ops, constants = placed
        refusal = self._refuse_post_ops(post_ops)
        if refusal is not None:
            return refusal
        if store is not None and not tail.quantize:
            tail.quantize = "post_op" if post_ops and _quantizes(post_ops[-1], constants) else "dst_scale"
        sums = tuple(op.operand for op in post_ops if isinstance(op, Sum))
        return Composed(
            hoisted.scale, hoisted.bias, post_ops, tail.dst_scale, tail.dst_zero_point, dst, constants, tail.quantize, sums,
            self._refuse_dst(dst), zero_points=tail.zero_points, unfolded=tuple(why for why in hoisted.reasons if why),
        )  # fmt: skip

    def _refuse_post_ops(self, post_ops: Sequence[PostOp]) -> Refusal | None:
        if len(post_ops) > self.target.max_post_ops:
            return Refusal("the chain is too long", f"at most {self.target.max_post_ops} post-ops", str(len(post_ops)))
        taken = self.capability.post_ops
        for op in post_ops:
            kind = {Eltwise: "eltwise", Binary: "binary", Sum: "sum", Prelu: "prelu"}.get(type(op), "depthwise")
            if kind not in taken:
                listed = ", ".join(sorted(taken)) or "none"
                return Refusal(f"{self.front.primitive} takes no {kind} post-op on {self.target.name}", f"post-ops: {listed}", kind)
        return None

    def _refuse_dst(self, dst: DType) -> Refusal | None:
        allowed = self.capability.dst.get(self.front.src, frozenset())
        if dst in allowed:
            return None
        listed = ", ".join(sorted(kind.value for kind in allowed)) or "none"
        return Refusal(
            f"{self.front.primitive} from {self.front.src.value} cannot store {dst.value} on {self.target.name}",
            f"destination: {listed}",
            dst.value,
        )

    def _expand(self, done: _Expanded, op: ChainOp) -> _Expanded:
        """The chain with one operation more, a store written out as scale, shift, round, clip; likewise what compares with codes."""
        chain, ops = done
        if isinstance(op, CodesOp):
            replaced, found = on_codes(self.front, chain, op)
            return (*chain, op), (*ops[: len(ops) - replaced], *found)
        if isinstance(op, Store):
            rest: list[BasicOp] = [] if op.exact else [Round(), Clip(vec(float(op.low)), vec(float(op.high)))]
            return (*chain, op), (*ops, ScaleBy(vec(1.0 / op.scale)), Shift(op.zero_point), *rest)
        return (*chain, op), (*ops, op)

    # -- residual adds ---------------------------------------------------------------------------------------------------------

    def _resolve_adds(self, ops: Sequence[BasicOp], dst: DType) -> tuple[list[BasicOp], dict[str, tuple[Home, ...]]]:
        """Leaves the one Add whose cheapest home is a sum, and writes the others as binary additions; with the homes of each operand.

        x + k*(q - z) = ((x/k - z) + q)*k adds codes as plain numbers; the scale and shift in front find homes of their own. A target that
        scales operands adds k*q as it is.
        """
        homes: dict[str, tuple[Home, ...]] = {}
        last_told = len(ops) if self.front.zero_shows else max((place for place, op in enumerate(ops) if tells(op)), default=0)
        taken = ""
        result: list[BasicOp] = []
        for place, op in enumerate(ops):
            if not isinstance(op, Add):
                result.append(op)
                continue
            homes[op.operand] = adding(op, dst.numpy.itemsize, taken, self.capability, same_type=op.dtype is dst)
            if homes[op.operand][0].name == "sum":
                taken = op.operand
                if float(op.zero_point).is_integer():
                    result.append(op)
                else:
                    result += [Shift(vec(-op.scale * op.zero_point)), replace(op, zero_point=0.0)]
            elif self.target.operand_scale:
                result += [Shift(vec(-op.scale * op.zero_point)), BinaryOp("add", op.operand, op.scale)]
            else:
                onto = _onto_grid(result, op) if place < last_told else None
                result[len(result) - 2 * bool(onto) :] = onto or [ScaleBy(vec(1.0 / op.scale)), Shift(vec(-op.zero_point))]
                result += [BinaryOp("add", op.operand), ScaleBy(vec(op.scale))]
        return result, homes

    # -- the store -------------------------------------------------------------------------------------------------------------

    def _lower(self, ops: list[BasicOp], store: Store, tail: _Tail, *, divide: bool) -> list[BasicOp]:
        low, high = store.dtype.range
        if store.exact:  # what stands in front keeps to the codes, so it must stay
            store = replace(store, low=low, high=high)
        ops = absorb(ops, store)
        narrow = store.low > low or store.high < high
        in_bias = self.front.bias is not None and divide and store.scale.size == 1  # y/s + z = (y + z*s)/s
        homes = shifting(store, self.capability, bias=in_bias) if store.zero_point.any() else ()
        tail.zero_points = tail.zero_points or homes
        takes_zero = not homes or homes[0].name == "destination zero point"
        shift_zero = bool(homes) and homes[0].name == "shift before the scale"
        if divide and store.scale.size == 1 and (takes_zero or shift_zero or not store.zero_point.any()):
            scale = float(store.scale[0])
            if shift_zero:  # y/s + z = (y + z*s)/s
                ops = simplify([Shift(store.zero_point * scale)], behind=ops)
                return self._lower(ops, replace(store, zero_point=vec(0.0)), tail, divide=divide)
            if narrow:
                ops = simplify([_clip_between((store.low - store.zero_point) * scale, (store.high - store.zero_point) * scale)], behind=ops)
            if ops and isinstance(ops[-1], ScaleBy) and ops[-1].values.size == 1 and is_normal(scale / ops[-1].values):
                scale /= float(ops[-1].values[0])
                ops = ops[:-1]
            tail.dst_scale, tail.quantize = scale, "dst_scale"
            tail.dst_zero_point = int(store.zero_point[0]) or None
            return ops
        last: list[BasicOp] = [ScaleBy(vec(1.0 / store.scale))]
        if takes_zero:
            tail.dst_zero_point = int(store.zero_point[0]) or None
        else:
            last.append(Shift(store.zero_point))
        if narrow:
            offset = store.zero_point if takes_zero else np.zeros(1)
            last.append(_clip_between(store.low - offset, store.high - offset))
        return simplify(last, behind=ops)


def _no_longer(found: Composed, than: Composed | Refusal) -> bool:
    return isinstance(than, Composed) and len(found.post_ops) <= len(than.post_ops)


def _quantizes(last: PostOp, constants: Mapping[str, object]) -> bool:
    """True when the last post-op does what the front's scale could not take of a quantizer."""
    if isinstance(last, Eltwise):
        return last.algorithm in ("linear", "clip", "round") or last.scale != 1
    return isinstance(last, Binary) and last.operand in constants


def _onto_grid(ops: Sequence[BasicOp], add: Add) -> list[BasicOp] | None:
    """Decoded codes in units of the operand's codes, so that 0 and 0 add up to 0; None where `ops` does not end with what decodes some.

    ((x - z1)*s1)/k - z is not x*(s1/k) - (z1*s1/k + z) there, whose shift is rounded.
    """
    if len(ops) < 2 or not (isinstance(shift := ops[-2], Shift) and isinstance(scale := ops[-1], ScaleBy)):
        return None
    if (len(ops) > 2 and not isinstance(ops[-3], Round | Clip)) or shift.values.size != 1 or scale.values.size != 1:
        return None
    linear = ((1.0, float(shift.values[0])), (float(scale.values[0]) / add.scale, -add.zero_point))
    return [EltwiseOp("linear", alpha, beta) for alpha, beta in linear if (alpha, beta) != (1.0, 0.0)]


def _clip_between(a: Vec | float, b: Vec | float) -> Clip:
    a, b = np.asarray(a, np.float64).reshape(-1), np.asarray(b, np.float64).reshape(-1)
    return Clip(vec(np.minimum(a, b)), vec(np.maximum(a, b)))


@dataclass(frozen=True)
class _Placer:
    """Gives each operation that is left in the chain a post-op."""

    target: Target
    front: Front
    dst: DType

    def place(self, ops: Sequence[BasicOp]) -> tuple[tuple[PostOp, ...], dict[str, npt.NDArray[np.float32]]] | Refusal:
        """The post-ops, and the constants that they name."""
        post_ops: list[PostOp] = []
        constants: dict[str, npt.NDArray[np.float32]] = {}

        def operand(values: Vec) -> str:
            name = f"{self.front.step}/post_op{len(post_ops)}"
            shape = [1] * self.front.rank
            if values.size > 1:
                shape[self.front.channel_axis] = values.size
            constants[name] = values.astype(np.float32).reshape(shape)
            return name

        pending = list(reversed(exact_zeros(ops, told=self.front.zero_shows)))
        while pending:
            op = pending.pop()
            if isinstance(op, ScaleBy) and op.values.size == 1:
                follower = pending[-1] if pending else None
                shift = 0.0
                if isinstance(follower, Shift) and follower.values.size == 1:
                    shift = float(follower.values[0])
                    pending.pop()
                self._linear(float(op.values[0]), shift, post_ops)
            elif isinstance(op, ScaleBy):
                post_ops.append(Binary("mul", operand(op.values)))
            elif isinstance(op, Shift):
                one = op.values.size == 1
                post_ops.append(Eltwise("linear", 1.0, _f32(float(op.values[0]))) if one else Binary("add", operand(op.values)))
            elif isinstance(op, Clip):
                self._clip(op, post_ops, operand)
            else:
                direct = self._direct(op)
                post_ops += spelled_out(direct) if self.target.legacy_eltwise and isinstance(direct, Eltwise) else (direct,)
        if not self.target.legacy_eltwise:
            return tuple(post_ops), constants
        distinct = distinct_eltwise(post_ops, self.front.step, self.front.rank, constants)
        return distinct if isinstance(distinct, Refusal) else (distinct, constants)

    def _direct(self, op: Round | EltwiseOp | PreluOp | BinaryOp | Add) -> PostOp:
        """The post-op of an operation that is one already."""
        if isinstance(op, Round):
            return Eltwise("round")
        if isinstance(op, EltwiseOp):
            return Eltwise(op.algorithm, _f32(op.alpha), _f32(op.beta))
        if isinstance(op, PreluOp):
            return Prelu(op.operand, op.mask)
        if isinstance(op, BinaryOp):
            return Binary(op.algorithm, op.operand, None if op.scale == 1 else Scale((_f32(op.scale),)))
        return Sum(op.operand, _f32(op.scale), int(op.zero_point), None if op.dtype is self.dst else op.dtype)

    def _linear(self, scale: float, shift: float, post_ops: list[PostOp]) -> None:
        """eltwise(x)*s into the scale of the eltwise where the target has one; else an eltwise_linear."""
        last = post_ops[-1] if post_ops else None
        if self.target.eltwise_scale and not shift and isinstance(last, Eltwise) and is_normal(vec(last.scale * scale)):
            post_ops[-1] = replace(last, scale=_f32(last.scale * scale))
        else:
            post_ops.append(Eltwise("linear", _f32(scale), _f32(shift)))

    def _clip(self, op: Clip, post_ops: list[PostOp], operand: Operand) -> None:
        if op.low.size == 1 and op.high.size == 1:
            low, high = float(op.low[0]), float(op.high[0])
            if low == 0 and high == np.inf:
                post_ops.append(Eltwise("relu"))
            elif low > -np.inf or high < np.inf:
                post_ops.append(Eltwise("clip", _f32(max(low, -_FLT_MAX)), _f32(min(high, _FLT_MAX))))
            return
        if bool((op.low > -np.inf).any()):
            post_ops.append(Binary("max", operand(np.maximum(op.low, -_FLT_MAX))))
        if bool((op.high < np.inf).any()):
            post_ops.append(Binary("min", operand(np.minimum(op.high, _FLT_MAX))))


def _f32(value: float) -> float:
    return float(np.float32(value))
