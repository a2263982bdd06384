"""The weights of a layer whose steps are kernels of our own, and the library's products of codes with
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...aligned import aligned_bytes
from ...ir.ops.recurrent import DYNAMIC
from ...ir.types import DType
from ...onednn.attributes import Attributes, Binary, Sum
from ...onednn.enums import AlgKind, Arg, DataType, arg_post_op, arg_scales, arg_zero_points
from ...onednn.layouts import row_major
from ...onednn.library import Stream
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive import ExecArgs, Primitive
from ...onednn.recurrent_kernel import LANES
from ...plan.accumulator import EXACT_IN_F32, as_s8, largest_sum
from ...plan.types import Step
from .binding import Binder, need
from .values import NotLowered, Weights

F32 = NDArray[np.float32]

_GATES = 4


@dataclass(frozen=True)
class Product:
    """A product of rows of u8 codes with weights.

    Attributes:
        primitive: the library's.
        args: its arguments that are the same in each call.
        scales: of the weights, where the primitive multiplies codes in f32; None: it is one of codes.
    """

    primitive: Primitive
    args: dict[int, Memory]
    scales: F32 | None = None

    @property
    def implementation(self) -> str:
        """What computes it, for the placement."""
        return self.primitive.desc.impl_info

    def call(
        self,
        stream: Stream,
        codes: NDArray[np.uint8],
        target: F32,
        scale: F32,
        zero: NDArray[np.int32],
    ) -> Callable[[], None]:
        """The call for these arrays, which it holds.

        Returns:
            What computes the product, and raises `OneDnnError` where the library fails.
        """
        primitive, engine = self.primitive, stream.engine
        prepare = _nothing
        memories = {**self.args, Arg.DST: Memory.wrap(engine, target)}
        if self.scales is None:
            memories[Arg.SRC] = Memory.wrap(engine, codes)
            memories[arg_scales(Arg.SRC)] = Memory.wrap(engine, scale)
            memories[arg_zero_points(Arg.SRC)] = Memory.wrap(engine, zero)
        else:
            source = np.empty(codes.shape, np.float32)
            factors = np.empty_like(self.scales)
            memories[Arg.SRC] = Memory.wrap(engine, source)
            memories[arg_post_op(0, Arg.SRC_1)] = Memory.wrap(engine, factors)
            prepare = partial(_in_f32, codes, zero, source, self.scales, scale, factors)
        if primitive.desc.scratchpad_size:
            memories[Arg.SCRATCHPAD] = Memory.allocate(engine, primitive.desc.scratchpad_md)
        args = ExecArgs(primitive.desc, memories)
        execute = primitive.call(stream, args)

        def call(held: object = (args, stream)) -> None:  # noqa: ARG001
            prepare()
            status = execute()
            if status:
                raise primitive.execution_error(status)

        return call


def _nothing() -> None:
    """What a product of codes needs beforehand."""


def _in_f32(
    codes: NDArray[np.uint8],
    zero: NDArray[np.int32],
    source: F32,
    scales: F32,
    scale: F32,
    factors: F32,
) -> None:
    """Codes less their zero point, and the scales of their sums, as the library multiplies them."""
    np.subtract(codes, zero[0].astype(np.float32), source)
    np.multiply(scales, scale[0], factors)


def product(binder: Binder, step: Step, role: str, of: Sequence[int], rows: int) -> Product:
    """The product of `rows` rows with `w` or `r` of some directions, side by side; that with `r` is
    added to what its destination holds.

    Raises:
        NotLowered: the weights are of another form, or the library has no exact product.
    """
    codes, scales = _joined([weights(binder, step, role, d) for d in of])
    library = binder.library
    operands = (
        row_major(library, (rows, codes.shape[0]), DataType.u8),
        MemoryDesc.any(library, codes.shape, DataType.s8),
        None,
        row_major(library, (rows, codes.shape[1]), DataType.f32),
    )
    attributes = Attributes(
        {Arg.SRC: 0, Arg.WEIGHTS: 0 if scales.size == 1 else 2},
        {Arg.SRC: 0},
        (Sum(),) if role == "r" else (),
    )
    desc = binder.describe(step, "matmul", *operands, attributes=attributes)
    form = f"{DYNAMIC}: directions {list(of)}"
    given = Weights(need(step, role), codes.shape, DataType.s8, form, lambda: codes)
    if binder.saturates(desc, given, None):
        return _product_in_f32(binder, step, role, of, codes, scales, rows)
    objection = binder.objection(desc)
    if objection:
        raise NotLowered(objection)
    packed = binder.constants.packed(given.name, form, codes, desc.weights_md())
    args = {Arg.WEIGHTS: packed, arg_scales(Arg.WEIGHTS): binder.constants.vector(scales)}
    return Product(Primitive(desc), args)


def _product_in_f32(
    binder: Binder,
    step: Step,
    role: str,
    of: Sequence[int],
    codes: NDArray[np.int8],
    scales: NDArray[np.float32],
    rows: int,
) -> Product:
    """As `product`, by an f32 kernel, which is exact (see `in_f32.py`)."""
    reach = DType.U8.range[1]
    wide = codes.astype(np.float32)
    if largest_sum(wide, (-reach, reach), (0,)) >= EXACT_IN_F32:
        raise NotLowered("sums of products that f32 does not hold")
    library, f32 = binder.library, DataType.f32
    factors = row_major(library, (1, codes.shape[1]), f32)
    post_ops = (Binary(AlgKind.binary_mul, factors), *((Sum(),) if role == "r" else ()))
    desc = binder.describe(
        step,
        "matmul",
        row_major(library, (rows, codes.shape[0]), f32),
        MemoryDesc.any(library, codes.shape, f32),
        None,
        row_major(library, (rows, codes.shape[1]), f32),
        attributes=Attributes(post_ops=post_ops),
    )
    objection = binder.objection(desc)
    if objection:
        raise NotLowered(objection)
    packed = binder.constants.packed(
        need(step, role), f"{DYNAMIC} in f32: directions {list(of)}", wide, desc.weights_md()
    )
    each = np.broadcast_to(scales, (1, codes.shape[1])).astype(np.float32)
    return Product(Primitive(desc), {Arg.WEIGHTS: packed}, np.ascontiguousarray(each))


def _joined(each: Sequence[tuple[NDArray[np.int8], F32]]) -> tuple[NDArray[np.int8], F32]:
    if len(each) == 1:
        return each[0]
    columns = each[0][0].shape[1]
    scales = [np.broadcast_to(scale, columns) for _, scale in each]
    return np.concatenate([codes for codes, _ in each], axis=1), np.concatenate(scales)


def weights(binder: Binder, step: Step, role: str, d: int) -> tuple[NDArray[np.int8], F32]:
    """Codes of s8 without zero point, [inputs, G*H], and their scales, of a direction.

    Raises:
        NotLowered: they are of another form.
    """
    names = [need(step, name) for name in (role, f"{role}_zero_point", f"{role}_scale")]
    if not all(map(binder.is_constant, names)):
        raise NotLowered(f"its {role} is computed at run time")
    codes, zero, scale = (binder.constants.data(name)[d] for name in names)
    kind = DType.from_numpy(codes.dtype)
    if (zero != kind.beyond_s8).any():
        raise NotLowered(f"its {role} has another zero point than {kind.beyond_s8}")
    return np.ascontiguousarray(as_s8(codes, kind)), np.atleast_1d(scale).astype(np.float32)


def biases(binder: Binder, step: Step) -> F32 | None:
    """Sums of those of w and r, [D, G*H]; None where there are none.

    Raises:
        NotLowered: they are computed at run time.
    """
    name = step.arg("b")
    if name is None:
        return None
    if not binder.is_constant(name):
        raise NotLowered("its b is computed at run time")
    of_w, of_r = np.split(binder.constants.data(name), 2, axis=1)
    return np.asarray(of_w + of_r, np.float32)


def by_blocks(rows: NDArray[Any]) -> NDArray[Any]:
    """Numbers of each gate and hidden value, [D, 4H], as kernels of our own read them: [D, blocks, 4,
    16].
    """
    directions, hidden = rows.shape[0], rows.shape[1] // _GATES
    blocks = -(-hidden // LANES)
    whole = np.zeros((directions, _GATES, blocks * LANES), rows.dtype)
    whole[..., :hidden] = rows.reshape(directions, _GATES, hidden)
    found = aligned_zeros((directions, blocks, _GATES, LANES), rows.dtype)
    found[...] = whole.reshape(directions, _GATES, blocks, LANES).swapaxes(1, 2)
    return found


def aligned_zeros(shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """Zeros that start on a cache line."""
    kind = np.dtype(dtype)
    found = aligned_bytes(int(np.prod(shape)) * kind.itemsize).view(kind).reshape(shape)
    found[...] = 0
    return found
