"""PostOpsComposer: from a formula to attributes of one primitive.

Operations are appended one at a time. Each append checks first and commits then: on a refusal the
composer is what it was before. The rules write the formula otherwise (`writing.py`), simplify it
(`algebra.py`), bring factors and shifts to the front (`scale_propagation.py`), leave to the store what it
does anyway (`store_rules.py`), and give what is left a post-op (`to_post_ops.py`); this file chooses
between homes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

import numpy as np

from ...ir.rule import Refusal, first_fired
from ...ir.telling import Told
from ...ir.types import DType
from ...plan.attributes import PostOp
from ...plan.targets import TARGETS, Capability, Target
from ..formula.algebra import simplify
from ..formula.approximating import APPROXIMATING
from ..formula.exact_zeros import tells
from ..formula.formula import (
    Add,
    BasicOp,
    BinaryOp,
    ChainOp,
    CodesOp,
    ScaleBy,
    Shift,
    Store,
    Vec,
)
from ..formula.linked import Linked
from ..formula.store_rules import (
    NARROW_STORE,
    absorb,
    scale_apart,
    with_factor,
    written_out,
    zero_point_apart,
)
from ..formula.writing import ADD_OF_CODES, ADDING, Written, zero_point_in_front
from .compared_codes import on_codes
from .composed import Approximation, Composed, Front
from .cost import Home, Saved
from .homes import adding, attributes_cost, saved, scaling, shifting
from .scale_propagation import ScalePropagation
from .to_post_ops import place

# more basic operations fit the post-ops of no network, and each walks over those in front of it
_OPS_A_POST_OP = 3


_WITH_WEIGHTS = frozenset({"convolution", "deconvolution", "matmul", "inner_product"})

# operations at the end of a chain that the rules for a residual add, and approximations, look at
_READ_BACK = 16

_Chain = Linked[ChainOp, Linked[BasicOp, "_Known"]]


@dataclass(frozen=True, eq=False)
class _Resolved:
    """Basic operations whose residual adds are written as sums and binary additions.

    Attributes:
        ops: the operations; the state behind each is the simplified chain.
        taken: the operand that the destination's buffer holds, or ''.
        homes: homes of each residual add.
    """

    ops: Linked[BasicOp, tuple[BasicOp, ...]]
    taken: str
    homes: Mapping[str, tuple[Home, ...]]


@dataclass(frozen=True, eq=False)
class _Known:
    """What a chain of basic operations is resolved to, as far as that was asked.

    Attributes:
        adds: there is a residual add among them; without one they are the same for all that
            follows.
        found: by the destination's type, and whether what stands behind the chain tells zeros.
    """

    adds: bool = False
    found: dict[tuple[DType, bool], _Resolved | Refusal] = field(default_factory=dict)

    def key(self, dst: DType, *, told: bool) -> tuple[DType, bool]:
        """The entry of `found` for a destination's type."""
        return (dst, told) if self.adds else (DType.F32, False)


class _Lowered(NamedTuple):
    """A chain, and what the destination does behind it; the homes of its zero point, and the parts
    of the chain that the store does anyway.
    """

    ops: list[BasicOp]
    scale: float | None = None
    zero_point: int | None = None
    zero_points: tuple[Home, ...] = ()
    stored: tuple[Saved, ...] = ()


@dataclass
class PostOpsComposer:
    """Maps a chain of basic operations behind `front` to attributes on `target`.

    Attributes:
        target: the rules of scales and post-ops.
        front: what the chain starts from.
        approximate: names of the approximations that may be made.
        result: attributes of the chain so far.
        last: the part that was taken in last, as `Part.of` has it.
    """

    target: Target
    front: Front
    approximate: Collection[str] = ()
    result: Composed = field(init=False)
    last: int = field(default=1, init=False)
    _chain: _Chain = field(init=False, repr=False, compare=False)
    _propagated: ScalePropagation = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._chain = Linked.empty(Linked.empty(_Known()))
        self._propagated = ScalePropagation(self.front)
        found = self._map(self._chain)
        assert isinstance(found, Composed)
        self.result = found

    @property
    def chain(self) -> tuple[ChainOp, ...]:
        """The operations that were taken in."""
        return tuple(self._chain.items())

    @property
    def capability(self) -> Capability:
        """What the primitive takes."""
        return self.target.capability(self.front.primitive)

    def append(self, ops: Sequence[ChainOp]) -> Refusal | None:
        """Takes the operations into the chain, all or none.

        Returns None when they are in (`result` has the attributes), or the reason why they have no
        home. A quantizer at the end is approximated where that is asked for and saves something.
        """
        ops = [replace(op, of=2 * self.last) for op in ops]
        chain = self._taken(ops)
        found = self._map(chain)
        made = self.result.approximated
        for name in filter(self.approximate.__contains__, APPROXIMATING):
            other, error = self._approximated(ops, name)
            mapped = None if error is None else self._map(other)
            if isinstance(mapped, Composed) and self._cost(mapped) < self._cost(found):
                assert error is not None
                chain, found = other, mapped
                made = (*self.result.approximated, Approximation(name, error))
        if isinstance(found, Refusal):
            return found
        self._chain, self.result = chain, replace(found, approximated=made) if made else found
        self.last *= 2
        return None

    def _taken(self, ops: Sequence[ChainOp]) -> _Chain:
        """The chain with the operations."""
        chain = self._chain
        for op in ops:
            chain = chain.then(op, self._expanded(chain, op))
        return chain

    def _approximated(self, ops: Sequence[ChainOp], name: str) -> tuple[_Chain, Vec | None]:
        """The chain with the operations, where a quantizer in front of one of them is approximated, and
        by how much it may differ; None where there is none.
        """
        chain, error = self._chain, None
        for op in ops:
            found = APPROXIMATING[name].apply(chain.state.last(_READ_BACK), op)
            if isinstance(found, Written) and error is None:
                kept = found.credited(chain.state.last(found.replaced))
                written = _then(chain.state.without(found.replaced), kept)
                chain, error = Linked(chain.before, chain.item, written), found.error
            chain = chain.then(op, self._expanded(chain, op))
        return chain, error

    # -- the whole way -----------------------------------------------------------------------------

    def _map(self, chain: _Chain) -> Composed | Refusal:
        store = chain.item if isinstance(chain.item, Store) else None
        dst = DType.F32 if store is None else store.dtype
        resolved = self._resolved((chain if store is None else chain.without(1)).state, dst)
        if isinstance(resolved, Refusal):
            return resolved
        ops, adds = list(resolved.ops.state), resolved.homes
        longest = _OPS_A_POST_OP * self.target.max_post_ops
        if len(ops) > longest:
            return Refusal(
                "the chain is too long",
                f"at most {longest} basic operations",
                str(len(ops)),
                "nothing to change: the rest of the chain begins a step of its own",
            )
        found = self._attributes(ops, store, dst, divide=self.capability.dst_scale)
        if store is not None:
            found = self._cheapest_scale(ops, store, found)
        return replace(found, adds=adds) if adds and isinstance(found, Composed) else found

    def _cheapest_scale(
        self, ops: list[BasicOp], store: Store, divided: Composed | Refusal
    ) -> Composed | Refusal:
        """The attributes with a destination scale, or those without one where they cost less."""
        if isinstance(divided, Refusal) and not self.capability.dst_scale:
            return divided
        scaled = isinstance(divided, Composed) and divided.dst_scale is not None
        other = divided
        if scaled or isinstance(divided, Refusal):
            other = self._attributes(ops, store, store.dtype, divide=False)
        why_not = ""
        if isinstance(divided, Refusal):
            why_not = divided.reason
        elif not self.capability.dst_scale:
            why_not = "the primitive has none"
        elif not scaled:
            many = store.scale.size > 1
            why_not = "it is one number for the whole tensor" if many else "the scale is 1"
        refused = other.reason if isinstance(other, Refusal) else ""
        folds = isinstance(other, Composed) and other.quantize == "dst_scale"
        if refused and isinstance(divided, Refusal):
            return divided
        costs = self._cost(divided), self._cost(other)
        homes = scaling(*costs, why_not=why_not, refused=refused, folds=folds)
        if isinstance(divided, Composed) and homes[0].name == "destination scale":
            return replace(divided, scales=homes)
        assert isinstance(other, Composed)
        return replace(other, scales=homes)

    def _cost(self, found: Composed | Refusal) -> float:
        if isinstance(found, Refusal):
            return inf
        return attributes_cost(self.target, found.post_ops, dst_scale=found.dst_scale is not None)

    def _attributes(
        self, ops: list[BasicOp], store: Store | None, dst: DType, *, divide: bool
    ) -> Composed | Refusal:
        """A simplified chain as attributes; `divide`: the store has a scale."""
        lowered = _Lowered(ops) if store is None else self._lower(ops, store, divide=divide)
        propagated = self._propagated(lowered.ops)
        placed = place(self.target, self.front, dst, propagated.ops, lowered.scale)
        if isinstance(placed, Refusal):
            return placed
        post_ops, parts, constants = placed
        refusal = self._refuse_post_ops(post_ops)
        if refusal is not None:
            return refusal
        quantize = "" if store is None else "dst_scale"
        if store is not None and any(of & store.of for of in parts):
            quantize = "post_op"
        return Composed(
            propagated.front.scale,
            propagated.front.bias,
            post_ops,
            lowered.scale,
            lowered.zero_point,
            dst,
            constants,
            quantize,
            self._refuse_dst(dst),
            zero_points=lowered.zero_points,
            parts=parts,
            unfolded=tuple(
                (op.of, op.why)
                for op in propagated.ops
                if isinstance(op, ScaleBy | Shift) and op.why
            ),
            saved=propagated.folded + lowered.stored,
        )

    def _refuse_post_ops(self, post_ops: Sequence[PostOp]) -> Refusal | None:
        if len(post_ops) > self.target.max_post_ops:
            return Refusal(
                "the chain is too long",
                f"at most {self.target.max_post_ops} post-ops",
                str(len(post_ops)),
                "nothing to change: the rest of the chain begins a step of its own",
            )
        taken = self.capability.post_ops
        for op in post_ops:
            if op.kind not in taken:
                listed = ", ".join(sorted(taken)) or "none"
                return Refusal(
                    f"{self.front.primitive} takes no {op.kind} post-op on {self.target.name}",
                    f"post-ops: {listed}",
                    op.kind,
                    f"nothing is lost but a step: it runs by itself{self._elsewhere(op.kind)}",
                )
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
            self._dst_hint(),
        )

    def _dst_hint(self) -> str:
        """What lets the primitive store this type: f32 gives f32, and codes of a pooling give codes."""
        if self.front.src is not DType.F32:
            return "quantize the output of this operation, too"
        if self.front.primitive in _WITH_WEIGHTS:
            return "quantize the input and the weights of this layer to 8 bits, too"
        return "quantize the input of this operation, too"

    def _elsewhere(self, kind: str) -> str:
        """The other targets whose primitive takes a post-op."""
        others = [
            f"--target {name}"
            for name, target in TARGETS.items()
            if kind in target.capability(self.front.primitive).post_ops
        ]
        return f"; {' or '.join(others)} takes it in" if others else ""

    def _expanded(self, chain: _Chain, op: ChainOp) -> Linked[BasicOp, _Known]:
        """The basic operations with one operation more: a store as scale, shift, round, clip;
        likewise what compares with codes.
        """
        result, basic = chain.state, [op] if isinstance(op, BasicOp) else []
        if isinstance(op, CodesOp):
            written = on_codes(self.front, (*chain.items(), op))
            basic = [*written.credited([*result.last(written.replaced - 1), op])]
            result = result.without(written.replaced - 1)
        elif isinstance(op, Store):
            basic = [replace(each, of=op.of) for each in written_out(op)]
        return _then(result, basic)

    # -- residual adds -----------------------------------------------------------------------------

    def _resolved(self, chain: Linked[BasicOp, _Known], dst: DType) -> _Resolved | Refusal:
        """Leaves the one Add whose cheapest home is a sum, and writes the others as binary
        additions; with the homes of each operand.

        How an Add is written depends on what tells zeros behind it. What is known of the beginning
        of the chain is not looked for again.
        """
        told, missing, known = dst is DType.F32 and self.front.told is not Told.NOTHING, [], None
        while (
            chain.item is not None
            and (known := chain.state.found.get(chain.state.key(dst, told=told))) is None
        ):
            missing.append((chain, told))
            told = told or tells(chain.item) is not Told.NOTHING
            chain = chain.without(1)
        found = _NOTHING if known is None else known
        for each, told in reversed(missing):
            assert each.item is not None
            found = (
                found
                if isinstance(found, Refusal)
                else self._resolve(found, each.item, dst, told=told)
            )
            each.state.found[each.state.key(dst, told=told)] = found
        return found

    def _resolve(
        self, done: _Resolved, op: BasicOp, dst: DType, *, told: bool
    ) -> _Resolved | Refusal:
        """The chain with one operation more."""
        if not isinstance(op, Add):
            return replace(done, ops=_simplified(done.ops, op))
        homes = adding(op, self.front.src, dst, done.taken, self.capability)
        summed = homes[0].name == "sum"
        written = Written(1, (op,))
        if self.target.operand_scale and not summed:
            shift, add = zero_point_in_front(op)
            binary = BinaryOp("add", add.operand, add.scale, add.channels)
            written = Written(1, (shift, binary))
        elif summed and not float(op.zero_point).is_integer():  # as that of a sum must be
            written = Written(1, zero_point_in_front(op))
        elif not summed:  # what tells zeros behind it wants those of codes to be exact
            found = first_fired(
                ADDING if told else (ADD_OF_CODES,), [*done.ops.last(_READ_BACK - 1), op]
            )
            if isinstance(found, Refusal):
                return found
            assert found is not None  # it is an Add
            written = found
        ops = done.ops.without(written.replaced - 1)
        for each in written.credited([*done.ops.last(written.replaced - 1), op]):
            ops = _simplified(ops, each)
        return _Resolved(
            ops, op.operand if summed else done.taken, {**done.homes, op.operand: homes}
        )

    # -- the store ---------------------------------------------------------------------------------

    def _lower(self, ops: list[BasicOp], store: Store, *, divide: bool) -> _Lowered:
        """The chain with what the destination cannot do of the store."""
        low, high = store.dtype.range
        if store.exact:  # what stands in front keeps to the codes, so it must stay
            store = replace(store, low=low, high=high)
        behind = ops
        ops = absorb(ops, store)
        stored = tuple(saved(op, "store") for op in behind[len(ops) :])
        narrow = store.low > low or store.high < high
        in_bias = self.front.bias is not None and divide and store.scale.size == 1
        homes = shifting(store, self.capability, bias=in_bias) if store.zero_point.any() else ()
        home = homes[0].name if homes else "destination zero point"
        divided = (
            divide
            and store.scale.size == 1
            and home != "shift"
            and (not narrow or store.scale[0] > 0)
        )
        before: list[BasicOp] = []
        if not divided:
            factor, store = scale_apart(store)
            before.append(factor)
        if home != "destination zero point":
            shift, store = zero_point_apart(store)
            before.append(shift)
        if narrow:
            found = NARROW_STORE.apply(store)
            assert not isinstance(found, Refusal)  # s > 0
            clip, store = found
            before.append(clip)
        ops = simplify([replace(op, of=store.of) for op in before], behind=ops)
        if divided and (joined := with_factor(ops[-1] if ops else None, store)) is not None:
            ops, store = ops[:-1], joined
        scale = float(store.scale[0]) if divided and np.float32(store.scale[0]) != 1 else None
        return _Lowered(ops, scale, int(store.zero_point[0]) or None, homes, stored)


_NOTHING = _Resolved(Linked.empty(()), "", {})


def _then(chain: Linked[BasicOp, _Known], ops: Sequence[BasicOp]) -> Linked[BasicOp, _Known]:
    """The chain with basic operations more."""
    for op in ops:
        chain = chain.then(op, _Known(chain.state.adds or isinstance(op, Add)))
    return chain


def _simplified(
    ops: Linked[BasicOp, tuple[BasicOp, ...]], op: BasicOp
) -> Linked[BasicOp, tuple[BasicOp, ...]]:
    return ops.then(op, tuple(simplify([op], behind=ops.state)))
