"""Random attributes of `onednn-v2`: output scales, bias in the accumulator's units, and chains of
post-ops in units of the destination.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from support.runtime_draws import Draw

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

SPREAD = 60.0
"""Results before the post-ops lie roughly within +-SPREAD: a good part of the codes, some of them
saturated.
"""


@dataclass
class LegacyDraw(Draw):
    """Draws for `onednn-v2`."""

    def output_scale(self, accumulator: float, count: int = 1, mask: int = 0) -> Scale:
        """Scales that bring accumulators of that mean magnitude to the codes' range."""
        return self.scale(SPREAD / accumulator / 2, SPREAD / accumulator, count, mask)

    def factor(self) -> float:
        """The scale of an eltwise or sum post-op."""
        return self.scale(0.3, 1.7).values[0]

    def operand(
        self, dims: Sequence[int], dtype: DType = DType.F32, low: float = 0.5, high: float = 1.5
    ) -> str:
        """The name of a new operand of a post-op."""
        label = f"operand{len(self.operands)}"
        if dtype is DType.F32:
            array = self.rng.uniform(low, high, tuple(dims))
            array = np.rint(array * 4) / 4 if self.ties else array
        else:
            array = self.rng.integers(0, 60, tuple(dims))
        self.operands[label] = array.astype(dtype.numpy)
        return label

    def legacy_chain(
        self, name: str, shape: tuple[int, ...], channel: int, dst: DType
    ) -> tuple[PostOp, ...]:
        """The chain of that name, in units of the destination; its operands land in `operands`."""
        along = tuple(n if axis == channel else 1 for axis, n in enumerate(shape))
        one = (1,) * len(shape)
        alpha, beta, scale = self.number(0.3, 2), self.number(-9, 9), self.factor()

        def old(scale: float = 1.0, zero_point: int = 0, dtype: DType | None = None) -> Sum:
            self.operands["old"] = self.data(dst, shape)
            return Sum(
                "old",
                scale,
                zero_point if dst is not DType.F32 else 0,
                dtype if dst is not DType.F32 else None,
            )

        chains = {
            "none": lambda: (),
            "relu": lambda: (Eltwise("relu"),),
            "relu_scale": lambda: (Eltwise("relu", 0.0, 0.0, scale),),
            "leaky_scale": lambda: (Eltwise("relu", self.number(0.1, 0.6), 0.0, scale),),
            "linear": lambda: (Eltwise("linear", alpha, beta),),
            "linear_scale": lambda: (Eltwise("linear", alpha, beta, scale),),
            "linear_negative_scale": lambda: (Eltwise("linear", alpha, beta, -scale),),
            "clip": lambda: (Eltwise("clip", -20.5, 33.25),),
            "clip_scale": lambda: (Eltwise("clip", -20.5, 33.25, scale),),
            "round_scale": lambda: (
                Eltwise("linear", 0.25, 0.5),
                Eltwise("round", 0.0, 0.0, scale),
            ),
            "abs_sqrt_square": lambda: (
                Eltwise("abs", 0.0, 0.0, scale),
                Eltwise("sqrt", 0.0, 0.0, scale),
                Eltwise("square"),
            ),
            "sum": lambda: (old(),),
            "sum_zero_point": lambda: (old(1.0, 77),),
            "sum_scale": lambda: (old(scale),),
            "sum_scale_zero_point": lambda: (old(scale, 5),),
            "sum_scale_relu": lambda: (old(scale), Eltwise("relu", 0.0, 0.0, self.factor())),
            "sum_other_type": lambda: (old(scale, 3, DType.S8 if dst is DType.U8 else DType.U8),),
            "linear_sum": lambda: (Eltwise("linear", alpha, beta, scale), old(1.25, 2)),
            "mul_add": lambda: (
                Binary("mul", self.operand(along)),
                Binary("add", self.operand(along, low=-9, high=9)),
            ),
            "sub_div": lambda: (
                Binary("sub", self.operand(along, low=-9, high=9)),
                Binary("div", self.operand(along)),
            ),
            "max_min": lambda: (
                Binary("max", self.operand(along, low=-40, high=0)),
                Binary("min", self.operand(along, low=0, high=40)),
            ),
            "per_tensor": lambda: (
                Binary("mul", self.operand(one)),
                Binary("add", self.operand(one, low=-9, high=9)),
            ),
            "compare": lambda: (
                Binary("ge", self.operand(along, low=-9, high=9)),
                Eltwise("linear", 30.0, -10.0),
            ),
            "add_full": lambda: (Binary("add", self.operand(shape, low=-30, high=30)),),
            "mul_full": lambda: (Binary("mul", self.operand(shape)), Eltwise("relu")),
            "add_full_u8": lambda: (
                Binary("add", self.operand(shape, DType.U8)),
                Eltwise("linear", alpha, beta, scale),
            ),
            "add_full_s8": lambda: (Binary("add", self.operand(shape, DType.S8)),),
            "prelu": lambda: (Prelu(self.operand(along, low=-1, high=1), 1 << channel),),
            # A FakeQuantize in the middle: scale and shift, round, clip, scale and shift back; see
            # the test of repeated algorithms.
            "fake_quantize": lambda: (
                Eltwise("linear", self.number(0.1, 0.3), 3.0),
                Eltwise("round"),
                Eltwise("clip", 0.0, 15.0),
                Binary("add", self.operand(one, low=-4, high=-3)),
                Binary("mul", self.operand(along, low=2, high=5)),
                Eltwise("relu"),
            ),
        }
        return tuple(_f32(op) for op in chains[name]())

    def legacy_attributes(
        self,
        src: DType,
        dst: DType,
        scale: Scale,
        chain: Sequence[PostOp],
        weights_zero_point: int = 0,
    ) -> PrimitiveAttr:
        """The attributes of a convolution, deconvolution or matmul."""
        zero_points = {"src": self.zero_point(src)}
        if weights_zero_point:
            zero_points["weights"] = ZeroPoint((weights_zero_point,))
        if dst is not DType.F32:
            zero_points["dst"] = self.zero_point(dst)
        return PrimitiveAttr({}, zero_points, tuple(chain), scale)


def _f32(op: PostOp) -> PostOp:
    """The same with parameters that are f32 numbers, as plans have them."""
    if isinstance(op, Eltwise):
        return Eltwise(op.algorithm, *(float(np.float32(v)) for v in (op.alpha, op.beta, op.scale)))
    return (
        Sum(op.operand, float(np.float32(op.scale)), op.zero_point, op.dtype)
        if isinstance(op, Sum)
        else op
    )


CHAINS = (
    "none",
    "relu",
    "relu_scale",
    "leaky_scale",
    "linear",
    "linear_scale",
    "linear_negative_scale",
    "clip",
    "clip_scale",
    "round_scale",
    "abs_sqrt_square",
    "sum",
    "sum_zero_point",
    "sum_scale",
    "sum_scale_zero_point",
    "sum_scale_relu",
    "sum_other_type",
    "linear_sum",
    "mul_add",
    "sub_div",
    "max_min",
    "per_tensor",
    "compare",
    "add_full",
    "mul_full",
    "add_full_u8",
    "add_full_s8",
    "prelu",
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
    "log",
)


def transcendental(name: str) -> tuple[PostOp, ...]:
    """That algorithm on numbers within +-8 (above 1/8 where it needs positive ones), scaled back to
    a good part of the codes.
    """
    low = {"pow": 0.125, "log": 0.125}.get(name, -8.0)
    ends = {"elu": (1.0, 0.0), "swish": (1.0, 0.0), "soft_relu": (1.0, 0.0), "pow": (1.0, 0.5)}.get(
        name, (0.0, 0.0)
    )
    reach = {"tanh": 100.0, "logistic": 200.0, "exp": 0.05, "pow": 40.0, "log": 40.0}.get(
        name, 12.0
    )
    return tuple(
        _f32(op)
        for op in (
            Eltwise("linear", 0.125, 0.0),
            Eltwise("clip", low, 8.0),
            Eltwise(name, *ends, reach),
        )
    )
