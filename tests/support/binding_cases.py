"""Quantized product primitives to be run and compared: random data, post-op chains, exact integer
accumulators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from support.binding_order import Runner, apply_post_ops, dequantize, f32, requantize
from support.codes import s8_codes

from fqfuse.onednn.attributes import Attributes, Binary, Eltwise, PostOp, PRelu, Sum
from fqfuse.onednn.enums import AlgKind, Arg, DataType, arg_post_op, arg_scales, arg_zero_points
from fqfuse.onednn.layouts import channels_last, row_major
from fqfuse.onednn.memory import numpy_dtype

U8, S8, FLOAT = DataType.u8, DataType.s8, DataType.f32
INT8_RANGE = {U8: (0, 256), S8: (-128, 128)}


@dataclass
class Draw:
    """Random quantization. `ties`: scales are powers of two and zero points odd, so that many
    results lie on x.5.
    """

    rng: np.random.Generator
    ties: bool

    def scale(self, low: float, high: float, count: int | None = None) -> Any:
        if self.ties:
            exponents = self.rng.integers(np.floor(np.log2(low)), np.ceil(np.log2(high)) + 1, count)
            return f32(2.0**exponents)
        return f32(np.exp(self.rng.uniform(np.log(low), np.log(high), count)))

    def zero_point(self, dtype: DataType) -> int:
        low, high = INT8_RANGE.get(dtype, (-64, 64))
        value = int(self.rng.integers(low, high - 1))
        return value | 1 if self.ties else value

    def bias(self, count: int, span: float) -> Any:
        bias = self.rng.normal(0, span, count)
        return f32(np.rint(bias * 2) / 2 if self.ties else bias)

    def integers(self, dtype: DataType, shape: tuple[int, ...], limit: int | None = None) -> Any:
        if dtype == S8 and limit is None:
            return s8_codes(self.rng, shape)
        low, high = INT8_RANGE[dtype] if limit is None else (-limit, limit + 1)
        return self.rng.integers(low, high, shape).astype(numpy_dtype(dtype))


def relu(slope: float = 0.0) -> Eltwise:
    return Eltwise(AlgKind.eltwise_relu, slope)


def lin(alpha: float, beta: float) -> Eltwise:
    return Eltwise(AlgKind.eltwise_linear, alpha, beta)


@dataclass(frozen=True)
class PerChannel:
    """A binary post-op whose operand has one value for each channel, or for each element when
    `full`.
    """

    alg: AlgKind
    full: bool = False
    dtype: DataType = FLOAT


CHAINS: dict[str, tuple[PostOp | PerChannel, ...]] = {
    "none": (),
    "relu": (relu(),),
    "leaky": (relu(0.1),),
    "linear": (lin(1.7, -0.3),),
    "sum": (Sum(),),
    "sum_scale_zp": (Sum(0.37, 5),),
    "sum_then_relu": (Sum(0.21, 128), relu()),
    "linear_then_sum": (lin(0.7, 0.9), Sum(1.3)),
    "clip_round": (Eltwise(AlgKind.eltwise_clip, -3.5, 4.25), Eltwise(AlgKind.eltwise_round)),
    "abs_sqrt_square": (
        Eltwise(AlgKind.eltwise_abs),
        Eltwise(AlgKind.eltwise_sqrt),
        Eltwise(AlgKind.eltwise_square),
    ),
    "mul_add": (PerChannel(AlgKind.binary_mul), PerChannel(AlgKind.binary_add)),
    "sub_div": (PerChannel(AlgKind.binary_sub), PerChannel(AlgKind.binary_div)),
    "max_min": (PerChannel(AlgKind.binary_max), PerChannel(AlgKind.binary_min)),
    "compare": (PerChannel(AlgKind.binary_ge), lin(3.0, -1.0)),
    "add_full": (PerChannel(AlgKind.binary_add, full=True),),
    "add_full_u8": (PerChannel(AlgKind.binary_add, full=True, dtype=U8), relu()),
    "prelu": (PRelu(2),),
    # A FakeQuantize in the middle: scale and shift, round, clip, scale and shift back.
    "fake_quantize": (
        lin(8.1, 3.0),
        Eltwise(AlgKind.eltwise_round),
        Eltwise(AlgKind.eltwise_clip, 0.0, 15.0),
        lin(0.1234, -0.37),
        PerChannel(AlgKind.binary_mul),
        relu(),
    ),
}
TRANSCENDENTAL_CHAINS = {
    "elu": Eltwise(AlgKind.eltwise_elu, 1.0),
    "tanh": Eltwise(AlgKind.eltwise_tanh),
    "logistic": Eltwise(AlgKind.eltwise_logistic),
    "swish": Eltwise(AlgKind.eltwise_swish, 1.0),
    "gelu_tanh": Eltwise(AlgKind.eltwise_gelu_tanh),
    "mish": Eltwise(AlgKind.eltwise_mish),
    "hardswish": Eltwise(AlgKind.eltwise_hardswish, 1 / 6, 0.5),
    "hardsigmoid": Eltwise(AlgKind.eltwise_hardsigmoid, 0.2, 0.5),
}


@dataclass
class Case:
    """A quantized product primitive: data, its exact integer accumulator, and where the channels
    are.
    """

    run: Runner
    draw: Draw
    src: Any
    weights: Any
    acc: Any  # int64, zero point already subtracted
    dst_shape: tuple[int, ...]
    channels: int
    weights_mask: int
    src_zp: int

    def along_channels(self, values: Any) -> Any:
        """Channels are dimension 1 of spatial results and the last one of matmul's."""
        shape = [1] * len(self.dst_shape)
        shape[1 if len(self.dst_shape) != 3 else 2] = self.channels
        return np.reshape(values, shape)

    def check(
        self,
        build: Any,
        chain: tuple[PostOp | PerChannel, ...],
        dst: DataType,
        *,
        zero_points: bool = True,
        bias: bool = True,
        lsb: int = 0,
    ) -> Any:
        """Build with attributes, run, compare; returns the descriptor."""
        draw = self.draw
        ss, ws = draw.scale(0.01, 0.06), draw.scale(0.002, 0.01, self.channels)
        span = float(np.abs(self.acc).mean() * ss * ws.mean()) + 1e-3
        ds, dzp = draw.scale(span / 60, span / 30), draw.zero_point(dst) if zero_points else 0
        b = draw.bias(self.channels, span / 4) if bias else None
        arguments = {Arg.SRC: self.src, Arg.WEIGHTS: self.weights}
        scales = {Arg.SRC: 0, Arg.WEIGHTS: self.weights_mask, Arg.DST: 0}
        arguments |= {
            arg_scales(Arg.SRC): f32([ss]),
            arg_scales(Arg.WEIGHTS): ws,
            arg_scales(Arg.DST): f32([ds]),
        }
        zps = {Arg.SRC: 0, Arg.DST: 0} if zero_points else {}
        if zero_points:
            arguments[arg_zero_points(Arg.SRC)] = np.array([self.src_zp], np.int32)
            arguments[arg_zero_points(Arg.DST)] = np.array([dzp], np.int32)
        if b is not None:
            arguments[Arg.BIAS] = (
                b if len(self.dst_shape) != 3 and self.weights_mask != 2 else self.along_channels(b)
            )
        chain, operands, old = self.operands(chain, dst, arguments)
        desc = build(Attributes(scales, zps, chain), dst, b is not None)
        got = self.run(desc, arguments, old)
        y = dequantize(
            self.acc, ss, self.along_channels(ws), None if b is None else self.along_channels(b)
        )
        want = requantize(apply_post_ops(y, chain, operands, old), ds, dzp, dst)
        assert got.shape == want.shape
        assert len(np.unique(want)) > 1, "the case is degenerate"
        if lsb:
            assert np.abs(got.astype(np.int64) - want.astype(np.int64)).max() <= lsb, desc
        else:
            np.testing.assert_array_equal(got, want, err_msg=repr(desc))
        return desc

    def operands(self, chain: Any, dst: DataType, arguments: dict[int, Any]) -> Any:
        """Operands of binary, prelu and sum; PerChannel becomes Binary with a layout the fast
        kernels take (channels last).
        """
        library, rng = self.run.engine.library, self.draw.rng
        operands: dict[int, Any] = {}
        old, result = None, []
        for index, op in enumerate(chain):
            match op:
                case PerChannel(alg, full, dtype):
                    shape = (
                        self.dst_shape
                        if full
                        else self.along_channels(np.zeros(self.channels)).shape
                    )
                    drawn = (
                        rng.uniform(0.5, 1.5, shape)
                        if dtype == FLOAT
                        else rng.integers(0, 9, shape)
                    )
                    operands[index] = drawn.astype(numpy_dtype(dtype))
                    desc = channels_last(library, shape, dtype) if len(shape) == 4 else None
                    result.append(Binary(alg, desc or row_major(library, shape, dtype)))
                    arguments[arg_post_op(index, Arg.SRC_1)] = operands[index]
                case PRelu():
                    operands[index] = self.along_channels(
                        f32(rng.uniform(-0.5, 0.5, self.channels))
                    )
                    arguments[arg_post_op(index, Arg.WEIGHTS)] = operands[index]
                    result.append(op)
                case Sum(scale):
                    # only integer data has a zero point
                    result.append(op if dst in INT8_RANGE else Sum(scale))
                    low, high = INT8_RANGE.get(dst, (-100, 100))
                    old = rng.integers(low, high, self.dst_shape).astype(numpy_dtype(dst))
                case _:
                    result.append(op)
        return tuple(result), operands, old


# ---- reference accumulators, exact in int64 ----


def windows(x: Any, kernel: tuple[int, int], strides: Any, dilations: Any) -> Any:
    """(N, C, OH, OW, KH, KW) of a padded (N, C, H, W)."""
    extent = tuple((k - 1) * (d + 1) + 1 for k, d in zip(kernel, dilations, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, extent, axis=(2, 3))
    return view[:, :, :: strides[0], :: strides[1], :: dilations[0] + 1, :: dilations[1] + 1]


def convolve(x: Any, w: Any, strides: Any, dilations: Any, padding: Any) -> Any:
    """x (N, C, H, W) with the zero point subtracted, w (G, O/G, I/G, KH, KW)."""
    groups, outputs = w.shape[0], w.shape[0] * w.shape[1]
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    v = windows(padded, w.shape[3:], strides, dilations)
    v = v.reshape(v.shape[0], groups, -1, *v.shape[2:])
    acc = np.einsum("ngihwkl,goikl->ngohw", v, w.astype(np.int64))
    return acc.reshape(acc.shape[0], outputs, *acc.shape[3:])


def deconvolve(x: Any, w: Any, strides: Any, padding: Any) -> Any:
    """x (N, C, H, W), w (O, I, KH, KW): every input element spreads its kernel; the padding is cut
    off.
    """
    n, _, h, wide = x.shape
    o, _, kh, kw = w.shape
    full = np.zeros((n, o, (h - 1) * strides[0] + kh, (wide - 1) * strides[1] + kw), np.int64)
    for i in range(kh):
        for j in range(kw):
            part = np.einsum("nihw,oi->nohw", x.astype(np.int64), w[:, :, i, j].astype(np.int64))
            full[
                :, :, i : i + h * strides[0] : strides[0], j : j + wide * strides[1] : strides[1]
            ] += part
    return full[
        :, :, padding[0] : full.shape[2] - padding[0], padding[1] : full.shape[3] - padding[1]
    ]
