"""Matrix products with packed weights (`MatMulBlocks`): oneDNN 3.2 has no type of 4 bits and no
scales in groups, so its f32 product runs on a few decoded columns at a time.

Each part of the columns is decoded into one scratch buffer, [K, columns], and multiplied from there
into its place in the destination, with the step's bias and post-ops: every part is the whole step,
seen through descriptors that are narrower in the last dimension and have the strides of the whole.
One to three rows are multiplied by the packed weights themselves where the CPU has a kernel for it
(`onednn/block_kernels.py`), and a primitive behind that adds bias and post-ops.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...onednn.attributes import Attributes, Binary, PRelu
from ...onednn.block_kernels import block_kernels
from ...onednn.enums import AlgKind, Arg, DataType
from ...onednn.layouts import row_major
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive_desc import PrimitiveDesc
from ...plan.types import Step
from ..kernels.block_gemm import Blocks
from .binding import Binder, NotLowered, Offer, Wanted, first_accepted, first_lowered, need
from .convolving import bias_of
from .decoder import LANES, Decoder
from .joining import Way, joined, joined_frame, wide
from .program import Buffer, Owner, Tensor
from .translation import Translated, same_frame, translate

__all__ = ["packed_matmul"]

_SCRATCH_BYTES = 3 << 19  # of decoded columns: about the second-level cache
_MOST_COLUMNS = 256
_FEW_ROWS = 3


def packed_matmul(binder: Binder, step: Step, views: Iterable[Way]) -> None:
    """A product with packed weights.

    Args:
        binder: the binder.
        step: the step.
        views: how to see it, best first.
    """
    blocks = Blocks(step, binder.constants.data)
    decoder = Decoder(blocks, block_kernels(binder.library), binder.threads)
    if binder.dtype(need(step, "src")) != DataType.f32:
        raise NotLowered("packed weights are multiplied by f32 only")
    if decoder.multiplies and math.prod(binder.dims(step.output)[:-1]) <= _FEW_ROWS:
        try:
            _few_rows(binder, step, decoder)
        except NotLowered:
            pass  # by columns, then
        else:
            return
    first_lowered(views, lambda view: _by_columns(binder, step, decoder, view))


# -- columns ---------------------------------------------------------------------------------------


def _by_columns(binder: Binder, step: Step, decoder: Decoder, view: Way) -> None:
    library, blocks = binder.library, decoder.blocks
    dims, dtype, bias = binder.dims(step.output), binder.dtype(step.output), step.arg("bias")
    target = row_major(library, (*joined(dims, view.groups), dims[-1]), dtype)
    frame = joined_frame(dims, (*view.groups, (len(dims) - 1,)), target, view.written_out)
    left = wide(binder.dims(need(step, "src")), len(dims))
    inner = (*joined(left, view.groups), left[-1])
    args: dict[int, Wanted | Memory] = {}
    if bias is not None:
        full = frame.operand(wide(binder.dims(bias), len(dims)))
        shift = None if full is None else bias_of(binder, step, full)
        if shift is None:
            raise NotLowered(f"a bias {list(binder.dims(bias))} for {list(dims)}")
        args[Arg.BIAS] = shift
    translated = translate(binder, step.attr, frame, dtype, 0, step)
    source = row_major(library, inner, DataType.f32)
    columns = min(blocks.rows, _columns(blocks))

    def attempt(width: int) -> Offer:
        desc = _described(binder, step, decoder, source, target, args, translated.attributes, width)
        return translated.offer(desc, args)

    offers = {
        width: first_accepted(binder, (width,), attempt)
        for width in dict.fromkeys((columns, blocks.rows % columns))
        if width
    }
    parts = [
        (offers[min(columns, blocks.rows - start)].desc, start)
        for start in range(0, blocks.rows, columns)
    ]
    offer = offers[columns].reading({Arg.SRC: Wanted(need(step, "src"), source)})
    binder.commit_parts(step, offer, target, parts, decoder)


def _columns(blocks: Blocks) -> int:
    fit = _SCRATCH_BYTES // (4 * blocks.width) // LANES * LANES
    return max(LANES, min(fit, _MOST_COLUMNS))


def _described(
    binder: Binder,
    step: Step,
    decoder: Decoder,
    source: MemoryDesc,
    target: MemoryDesc,
    args: Mapping[int, Wanted | Memory],
    attributes: Attributes,
    width: int,
) -> PrimitiveDesc:
    """The product for so many columns."""
    if any(isinstance(op, PRelu) for op in attributes.post_ops):
        raise NotLowered("slopes of a prelu post-op are read from their first one on")
    full = target.dims[-1]
    chain = tuple(
        replace(op, src1=_narrowed(op.src1, full, width)) if isinstance(op, Binary) else op
        for op in attributes.post_ops
    )
    matrix, _ = decoder.desc(binder.library, width)
    batch = (1,) * (len(target.dims) - 2)
    # of a dimension of length 1 the stride does not matter
    weights = MemoryDesc.with_strides(
        binder.library,
        (*batch, *matrix.dims),
        DataType.f32,
        (*(math.prod(matrix.dims),) * len(batch), *matrix.strides),
    )
    bias = args[Arg.BIAS].desc if Arg.BIAS in args else None
    return binder.describe(
        step,
        "matmul",
        source,
        weights,
        None if bias is None else _narrowed(bias, full, width),
        _narrowed(target, full, width),
        attributes=replace(attributes, post_ops=chain),
    )


def _narrowed(desc: MemoryDesc, full: int, width: int) -> MemoryDesc:
    """The first columns of a tensor that lies as it did; itself where it has one column."""
    if desc.dims[-1] == 1 or width == full:
        return desc
    if not desc.is_plain or desc.strides[-1] != 1 or desc.dims[-1] != full:
        raise NotLowered(f"columns of {desc} do not lie side by side")
    return MemoryDesc.with_strides(desc.library, (*desc.dims[:-1], width), desc.dtype, desc.strides)


# -- rows ------------------------------------------------------------------------------------------


def _few_rows(binder: Binder, step: Step, decoder: Decoder) -> None:
    """The product by the kernel, and what follows it by a binary primitive that adds the bias, or by
    an eltwise one.
    """
    dims, dtype, bias = binder.dims(step.output), binder.dtype(step.output), step.arg("bias")
    rows, attr = math.prod(dims[:-1]), step.attr
    if attr.scales or attr.zero_points:
        raise NotLowered("codes are stored behind the product")
    library = binder.library
    flat = row_major(library, (rows, dims[-1]), DataType.f32)
    source = Wanted(
        need(step, "src"), row_major(library, (rows, decoder.blocks.size), DataType.f32)
    )
    product = Tensor(Buffer(f"{step.name} product", Owner.ARENA, flat.size), flat)
    if bias is None and not attr.post_ops and dtype == DataType.f32:
        binder.commit_rows(step, source, product, decoder, None)
        return
    whole = row_major(library, dims, dtype)
    seen = Tensor(product.buffer, row_major(library, dims, DataType.f32))
    translated: Translated = translate(binder, attr, same_frame(dims, whole), dtype, 0, step)

    def attempt(shift: Wanted | None) -> Offer:
        attributes = translated.attributes
        if shift is None:
            desc = binder.describe(
                step,
                "eltwise",
                seen.desc,
                whole,
                alg=AlgKind.eltwise_linear,
                alpha=1.0,
                attributes=attributes,
            )
            return translated.offer(desc, {})
        desc = binder.describe(
            step,
            "binary",
            seen.desc,
            shift.desc,
            whole,
            alg=AlgKind.binary_add,
            attributes=attributes,
        )
        return translated.offer(desc, {Arg.SRC_1: shift})

    shift = None if bias is None else bias_of(binder, step, wide(binder.dims(bias), len(dims)))
    offer = first_accepted(binder, (shift,), attempt)
    first = Arg.SRC if shift is None else Arg.SRC_0
    binder.commit_rows(step, source, product, decoder, offer.reading({first: seen}))
