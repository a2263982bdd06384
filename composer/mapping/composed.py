"""Both ends of composing: what stands in front of the post-ops, and a formula as attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...ir.rule import Refusal
from ...ir.telling import Told
from ...ir.types import DType
from ...plan.attributes import PostOp, Sum
from ..formula.formula import Vec
from .cost import Home, Saved


@dataclass(frozen=True, eq=False)
class Front:
    """What stands in front of the post-ops: y = scale * accumulator + bias.

    Attributes:
        primitive: its name in the target's table.
        step: name of the step, under which constants are filed.
        src: element type of the source.
        rank: dimensions of the destination.
        channel_axis: the destination's axis that vectors run along.
        channels: size of that axis.
        scale: what multiplies the accumulator; None where the primitive has no place for a factor.
        bias: constant bias in the real domain; None where it has no place for one, or the place is
            taken by a computed bias.
        per_channel: the scale may have one entry for each channel.
        positive: the scale takes factors above 0 only, since it stands in front of a maximum or
            minimum.
        told: which numbers what reads the chain tells from those next to them.
        largest: of the f32 weights that the scale multiplies as the plan is made; 1 where it
            multiplies the accumulator.
    """

    primitive: str
    step: str
    src: DType
    rank: int
    channel_axis: int = 1
    channels: int = 1
    scale: Vec | None = None
    bias: Vec | None = None
    per_channel: bool = True
    positive: bool = False
    told: Told = Told.NOTHING
    largest: float = 1.0

    def along_channels(self, values: Vec) -> npt.NDArray[np.float32]:
        """A vector in f32, of the destination's rank, 1 where it is broadcast."""
        shape = [1] * self.rank
        if values.size > 1:
            shape[self.channel_axis] = values.size
        return values.astype(np.float32).reshape(shape)


@dataclass(frozen=True, eq=False)
class Approximation:
    """A quantizer inside a chain that was approximated.

    Attributes:
        name: of `APPROXIMATIONS`.
        error: by how much its value may differ at most, within its range: one bound, or one for
            each channel.
    """

    name: str
    error: Vec


@dataclass(frozen=True, eq=False)
class Composed:
    """A formula as attributes.

    Attributes:
        scale: the front's scale with everything that was folded into it (None when the front has
            none).
        bias: the constant bias in the real domain, likewise.
        post_ops: in order.
        dst_scale, dst_zero_point: of the destination; None when absent.
        dst: element type of the destination.
        constants: data of the constants that the post-ops name.
        quantize: `dst_scale` when the store does all the quantizing, `post_op` when post-ops do
            part of it, '' when dst is f32.
        refusal: why the chain may not end here (the destination's type); the attributes are those
            it would have.
        adds: operand of each residual add -> the homes that it had, the chosen one first.
        scales: homes of the store's scale, likewise; empty without a store.
        zero_points: homes of the store's zero point, likewise; empty without one.
        parts: of the chain whose work each post-op does, as `Part.of` has them.
        unfolded: why scales and shifts stayed among the post-ops, by their parts.
        saved: what went into the front, and what the store does by rounding and saturating.
        approximated: quantizers inside the chain that were, in order.
    """

    scale: Vec | None
    bias: Vec | None
    post_ops: tuple[PostOp, ...]
    dst_scale: float | None
    dst_zero_point: int | None
    dst: DType
    constants: dict[str, npt.NDArray[np.float32]]
    quantize: str
    refusal: Refusal | None = None
    adds: Mapping[str, tuple[Home, ...]] = field(default_factory=dict)
    scales: tuple[Home, ...] = ()
    zero_points: tuple[Home, ...] = ()
    parts: tuple[int, ...] = ()
    unfolded: tuple[tuple[int, str], ...] = ()
    saved: tuple[Saved, ...] = ()
    approximated: tuple[Approximation, ...] = ()

    @property
    def sums(self) -> tuple[str, ...]:
        """Operands whose buffer the destination takes over."""
        return tuple(op.operand for op in self.post_ops if isinstance(op, Sum))
