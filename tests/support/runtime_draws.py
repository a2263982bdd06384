"""Random steps: data, scales, zero points and post-op chains, with values that provoke ties where
asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from support.codes import s8_codes

from fqfuse.ir.types import DType
from fqfuse.plan.attributes import (
    Binary,
    Eltwise,
    PostOp,
    Prelu,
    PrimitiveAttr,
    Scale,
    Sum,
    ZeroPoint,
)

INT8 = (DType.U8, DType.S8)


@dataclass
class Draw:
    """Random quantization. `ties`: scales are powers of two and zero points odd, so that many
    results lie on x.5.
    """

    rng: np.random.Generator
    ties: bool
    operands: dict[str, np.ndarray] = field(default_factory=dict)

    def data(self, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
        if dtype is DType.F32:
            return self.rng.normal(0, 40, shape).astype(np.float32)
        low, high = dtype.range if dtype in INT8 else (-100_000, 100_000)
        if dtype is DType.S8:
            return s8_codes(self.rng, shape)
        return self.rng.integers(low, high + 1, shape).astype(dtype.numpy)

    def scale(self, low: float, high: float, count: int = 1, mask: int = 0) -> Scale:
        if self.ties:
            values = 2.0 ** self.rng.integers(
                int(np.floor(np.log2(low))), int(np.ceil(np.log2(high))) + 1, count
            )
        else:
            values = np.exp(self.rng.uniform(np.log(low), np.log(high), count))
        return Scale(tuple(values.astype(np.float32).tolist()), mask)

    def zero_point(self, dtype: DType) -> ZeroPoint:
        low, high = dtype.range if dtype in INT8 else (-64, 64)
        value = int(self.rng.integers(low, high - 1))
        return ZeroPoint((value | 1 if self.ties else value,))

    def bias(self, count: int, span: float) -> np.ndarray:
        bias = self.rng.normal(0, span, count)
        return (np.rint(bias * 2) / 2 if self.ties else bias).astype(np.float32)

    def number(self, low: float, high: float) -> float:
        value = self.rng.uniform(low, high)
        return float(np.rint(value * 4) / 4 if self.ties else np.float32(value))

    def chain(
        self, name: str, shape: tuple[int, ...], channel: int, dst: DType
    ) -> tuple[PostOp, ...]:
        """The chain of that name for a destination; its operands land in `operands`."""
        per_channel = tuple(n if axis == channel else 1 for axis, n in enumerate(shape))

        def operand(kind: str, dims: tuple[int, ...], dtype: DType = DType.F32) -> str:
            label = f"{kind}{len(self.operands)}"
            array = (
                self.rng.uniform(0.5, 1.5, dims)
                if dtype is DType.F32
                else self.rng.integers(0, 9, dims)
            )
            self.operands[label] = array.astype(dtype.numpy)
            return label

        def old(scale: float = 1.0, zero_point: int = 0, dtype: DType | None = None) -> Sum:
            self.operands["old"] = self.data(dst, shape)
            return Sum(
                "old", scale, zero_point if dst in INT8 else 0, dtype if dst in INT8 else None
            )

        linear = Eltwise("linear", self.number(0.3, 2), self.number(-1, 1))
        chains = {
            "none": lambda: (),
            "relu": lambda: (Eltwise("relu"),),
            "leaky": lambda: (Eltwise("relu", self.number(0.01, 0.5)),),
            "linear": lambda: (linear,),
            "scaled": lambda: (Eltwise("linear", linear.alpha, 0.0),),
            "sum": lambda: (old(),),
            "sum_zero_point": lambda: (old(1.0, 77),),
            "sum_scale_zero_point": lambda: (old(self.number(0.05, 2), 5),),
            "sum_scale_relu": lambda: (old(self.number(0.05, 2)), Eltwise("relu")),
            "sum_other_type": lambda: (
                old(self.number(0.05, 2), 3, DType.S8 if dst is DType.U8 else DType.U8),
            ),
            "linear_sum": lambda: (linear, old(1.25, 2)),
            "clip_round": lambda: (Eltwise("clip", -3.5, 4.25), Eltwise("round")),
            "abs_sqrt_square": lambda: (Eltwise("abs"), Eltwise("sqrt"), Eltwise("square")),
            "hardswish": lambda: (Eltwise("hardswish", float(np.float32(1 / 6)), 0.5),),
            "hardsigmoid": lambda: (Eltwise("hardsigmoid", float(np.float32(0.2)), 0.5),),
            "mul_add": lambda: (
                Binary("mul", operand("m", per_channel)),
                Binary("add", operand("a", per_channel)),
            ),
            "sub_div": lambda: (
                Binary("sub", operand("s", per_channel)),
                Binary("div", operand("d", per_channel)),
            ),
            "max_min": lambda: (
                Binary("max", operand("m", per_channel)),
                Binary("min", operand("n", per_channel)),
            ),
            "compare": lambda: (
                Binary("ge", operand("c", per_channel)),
                Eltwise("linear", 3.0, -1.0),
            ),
            "add_full": lambda: (Binary("add", operand("a", shape)),),
            "add_full_u8": lambda: (Binary("add", operand("a", shape, DType.U8)), Eltwise("relu")),
            "prelu": lambda: (Prelu(operand("p", per_channel), 1 << channel),),
            # A FakeQuantize in the middle that leaves 256 values: what follows becomes a table.
            "codes_sum": lambda: (
                Eltwise("linear", self.number(4, 9), 30.0),
                Eltwise("round"),
                Eltwise("clip", 0.0, 255.0),
                Eltwise("linear", self.number(0.01, 0.5), self.number(-1, 1)),
                old(self.number(0.05, 0.5), 13),
                Eltwise("relu"),
            ),
            "codes_sum_other_type": lambda: (
                Eltwise("clip", -100.0, 27.0),
                Eltwise("round"),
                old(self.number(0.05, 0.5), 3, DType.S8 if dst is DType.U8 else DType.U8),
            ),
            "codes_chain": lambda: (
                Eltwise("round"),
                Eltwise("clip", -8.0, 7.0),
                Eltwise("linear", self.number(0.1, 2), self.number(-1, 1)),
                Eltwise("hardswish", float(np.float32(1 / 6)), 0.5),
                Eltwise("abs"),
                Eltwise("sqrt"),
            ),
            # A FakeQuantize in the middle: scale and shift, round, clip, scale and shift back.
            "fake_quantize": lambda: (
                Eltwise("linear", self.number(4, 9), 3.0),
                Eltwise("round"),
                Eltwise("clip", 0.0, 15.0),
                Eltwise("linear", self.number(0.1, 0.5), self.number(-1, 1)),
                Binary("mul", operand("m", per_channel)),
                Eltwise("relu"),
            ),
        }
        return chains[name]()


CHAINS = (
    "none",
    "relu",
    "leaky",
    "linear",
    "scaled",
    "sum",
    "sum_zero_point",
    "sum_scale_zero_point",
    "sum_scale_relu",
    "sum_other_type",
    "linear_sum",
    "clip_round",
    "abs_sqrt_square",
    "hardswish",
    "hardsigmoid",
    "mul_add",
    "sub_div",
    "max_min",
    "compare",
    "add_full",
    "add_full_u8",
    "prelu",
    "codes_sum",
    "codes_sum_other_type",
    "codes_chain",
    "fake_quantize",
)

TRANSCENDENTAL = (
    "tanh",
    "logistic",
    "gelu_erf",
    "gelu_tanh",
    "elu",
    "swish",
    "mish",
    "exp",
    "soft_relu",
    "pow",
)


def attributes(
    draw: Draw,
    src: DType,
    dst: DType,
    channels: int,
    mask: int,
    span: float,
    chain: tuple[PostOp, ...],
) -> PrimitiveAttr:
    """Scales and zero points of a compute primitive; `span`: how far its real results reach,
    roughly.
    """
    scales = {
        "src": draw.scale(0.01, 0.06),
        "weights": draw.scale(0.002, 0.01, channels if mask else 1, mask),
    }
    zero_points = {} if src is DType.F32 else {"src": draw.zero_point(src)}
    if dst is not DType.F32:
        scales["dst"] = draw.scale(span / 60, span / 30)
        zero_points["dst"] = draw.zero_point(dst)
    return PrimitiveAttr(scales, zero_points, chain)
