"""oneDNN's arithmetic in NumPy, in the order of the VNNI kernels of oneDNN 3.2, every intermediate
rounded to f32; and a runner.

The order: y = f32(acc) * (ss * ws) + bias; post-ops; y * (1 / ds) + zp; clip; round half to even.
`linear` and `sum` use one fused multiply-add (AVX2 and AVX-512 code), nothing else does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fqfuse.onednn.attributes import Binary, Eltwise, PostOp, PRelu, Sum
from fqfuse.onednn.defects import defect_of
from fqfuse.onednn.enums import AlgKind, Arg, DataType
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.memory import Memory, MemoryDesc, numpy_dtype
from fqfuse.onednn.primitive import run_once
from fqfuse.onednn.primitive_desc import PrimitiveDesc, describe

F32 = np.float32
# s32: largest f32 below 2**31
LIMITS = {
    DataType.u8: (0, 255),
    DataType.s8: (-128, 127),
    DataType.s32: (-(2**31), 2147483520),
}


def f32(value: Any) -> NDArray[np.float32]:
    return np.asarray(value, F32)


def fma(a: Any, b: Any, c: Any) -> NDArray[np.float32]:
    """a * b + c with one rounding to f32.

    The product of two f32 is exact in f64. The sum is rounded to odd there, which makes the second
    rounding to f32 the only one that counts (Boldo and Melquiond, 2008).
    """
    product = f32(a).astype(np.float64) * f32(b).astype(np.float64)
    addend = np.broadcast_to(
        f32(c).astype(np.float64), np.broadcast_shapes(product.shape, np.shape(c))
    )
    total = product + addend
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)
    even = (np.atleast_1d(total).view(np.int64).reshape(np.shape(total)) & 1) == 0
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & even, odd, total).astype(F32)


def saturate(value: NDArray[np.float32], dtype: DataType) -> NDArray[Any]:
    """Store an f32 as `dtype`: clip, then round half to even."""
    if dtype == DataType.f32:
        return value
    low, high = LIMITS[dtype]
    return np.rint(np.clip(value, F32(low), F32(high))).astype(numpy_dtype(dtype))


def dequantize(
    acc: NDArray[Any], src_scale: Any, weights_scale: Any, bias: Any = None
) -> NDArray[np.float32]:
    """f32(acc) * (ss * ws) + bias; per-channel values come broadcast to the shape of `acc`."""
    y = acc.astype(F32) * (f32(src_scale) * f32(weights_scale))
    return y if bias is None else y + f32(bias)


def requantize(
    y: NDArray[np.float32], dst_scale: Any, zero_point: int, dtype: DataType
) -> NDArray[Any]:
    """y * (1 / ds) + zp, clipped and rounded."""
    return saturate(y * (F32(1) / f32(dst_scale)) + F32(zero_point), dtype)


def linear(y: NDArray[np.float32], alpha: float, beta: float) -> NDArray[np.float32]:
    return fma(alpha, y, beta)


def add_sum(
    y: NDArray[np.float32], old: NDArray[Any], scale: float, zero_point: int
) -> NDArray[np.float32]:
    """The sum post-op: fma(scale, old - zp, y); plain addition for scale 1."""
    shifted = old.astype(F32) - F32(zero_point)
    return y + shifted if scale == 1.0 else fma(scale, shifted, y)


EXACT = {
    AlgKind.eltwise_relu: lambda y, a, _: np.where(y > 0, y, y * F32(a)),
    AlgKind.eltwise_linear: linear,
    AlgKind.eltwise_clip: lambda y, a, b: np.clip(y, F32(a), F32(b)),
    AlgKind.eltwise_round: lambda y, *_: np.rint(y),
    AlgKind.eltwise_abs: lambda y, *_: np.abs(y),
    AlgKind.eltwise_square: lambda y, *_: y * y,
    AlgKind.eltwise_sqrt: lambda y, *_: np.sqrt(y),
}
BINARY = {
    AlgKind.binary_add: np.add,
    AlgKind.binary_mul: np.multiply,
    AlgKind.binary_max: np.maximum,
    AlgKind.binary_min: np.minimum,
    AlgKind.binary_div: np.divide,
    AlgKind.binary_sub: np.subtract,
    AlgKind.binary_ge: np.greater_equal,
    AlgKind.binary_gt: np.greater,
    AlgKind.binary_le: np.less_equal,
    AlgKind.binary_lt: np.less,
    AlgKind.binary_eq: np.equal,
    AlgKind.binary_ne: np.not_equal,
}
# The formulas in f64: the library's polynomials are a few ulp away from them, see the tolerance
# where they are used.
TRANSCENDENTAL = {
    AlgKind.eltwise_elu: lambda y, a, _: np.where(y > 0, y, a * np.expm1(np.minimum(y, 0))),
    AlgKind.eltwise_tanh: lambda y, *_: np.tanh(y),
    AlgKind.eltwise_logistic: lambda y, *_: 1 / (1 + np.exp(-y)),
    AlgKind.eltwise_swish: lambda y, a, _: y / (1 + np.exp(-a * y)),
    AlgKind.eltwise_gelu_tanh: lambda y, *_: (
        0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    ),
    AlgKind.eltwise_mish: lambda y, *_: y * np.tanh(np.log1p(np.exp(y))),
    AlgKind.eltwise_hardswish: lambda y, a, b: y * np.clip(a * y + b, 0, 1),
    AlgKind.eltwise_hardsigmoid: lambda y, a, b: np.clip(a * y + b, 0, 1),
    AlgKind.eltwise_exp: lambda y, *_: np.exp(y),
}


def apply_post_ops(
    y: NDArray[np.float32],
    chain: Sequence[PostOp],
    operands: Mapping[int, NDArray[Any]],
    old: NDArray[Any] | None = None,
) -> NDArray[np.float32]:
    """The chain on `y`; `operands` has the arrays of binary and prelu by position, shaped to
    broadcast.
    """
    for index, op in enumerate(chain):
        match op:
            case Sum(scale, zero_point, dtype):
                assert old is not None
                y = add_sum(
                    y,
                    old if dtype == DataType.undef else old.view(numpy_dtype(dtype)),
                    scale,
                    zero_point,
                )
            case Eltwise(alg, alpha, beta) if alg in EXACT:
                y = f32(EXACT[alg](y, alpha, beta))
            case Eltwise(alg, alpha, beta):
                y = f32(TRANSCENDENTAL[alg](y.astype(np.float64), alpha, beta))
            case Binary(alg):
                y = f32(BINARY[alg](y, operands[index].astype(F32)))
            case PRelu():
                y = np.where(y >= 0, y, y * operands[index])
    return y


class Runner:
    """Runs a primitive descriptor on plain NumPy arrays, reordering into and out of the layouts it
    asks for.

    Attributes:
        packed: argument -> descriptor for which a reorder into another layout was needed.
    """

    def __init__(self, engine: Engine, stream: Stream) -> None:
        self.engine = engine
        self.stream = stream
        self.packed: dict[int, MemoryDesc] = {}

    def __call__(
        self,
        desc: PrimitiveDesc,
        arguments: Mapping[int, NDArray[Any]],
        initial: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """The destination as a row-major array; `initial` is what it held before (for sum)."""
        self.packed = {}
        memories = {arg: self._place(desc, arg, array) for arg, array in arguments.items()}
        dst = Memory.allocate(self.engine, desc.dst_md())
        assert isinstance(dst.data, np.ndarray)
        dst.data[:] = 0xCD  # a byte that is not written shows
        if initial is not None:
            self.reorder(Memory.wrap(self.engine, initial), dst)
        memories[Arg.DST] = dst
        run_once(self.stream, desc, memories)
        return self.plain(dst)

    def plain(self, memory: Memory) -> NDArray[Any]:
        """The contents of a memory in any layout as a row-major array."""
        result = np.empty(memory.desc.dims, numpy_dtype(memory.desc.dtype))
        self.reorder(memory, Memory.wrap(self.engine, result))
        return result

    def reorder(self, src: Memory, dst: Memory) -> None:
        run_once(
            self.stream,
            describe(self.engine, "reorder", src.desc, dst.desc),
            {Arg.SRC: src, Arg.DST: dst},
        )

    def _place(self, desc: PrimitiveDesc, arg: int, array: NDArray[Any]) -> Memory:
        plain = Memory.wrap(self.engine, np.ascontiguousarray(array))
        if arg & (Arg.ATTR_SCALES | Arg.ATTR_ZERO_POINTS):
            return plain
        wanted = desc.exec_arg_md(arg)
        # no dims: the slopes of a prelu post-op, whose layout is fixed
        if wanted == plain.desc or not wanted.dims:
            return plain
        self.packed[arg] = wanted
        if defect_of(describe(self.engine, "reorder", plain.desc, wanted)) is not None:
            # the library may leave compensations out; not of an array with gaps
            wide = np.repeat(array[..., None], 2, axis=-1)[..., 0]
            plain = Memory(self.engine, MemoryDesc.like(self.engine.library, wide), wide)
        placed = Memory.allocate(self.engine, wanted)
        self.reorder(plain, placed)
        return placed
