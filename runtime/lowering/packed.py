"""Matrix products with packed weights (`MatMulBlocks`): oneDNN 3.2 has no type of 4 bits and no
scales in groups, so its f32 product runs on a few decoded columns at a time.

Rows are multiplied by the packed weights themselves where the CPU has a kernel for it
(`onednn/block_kernels.py`), and a further primitive adds bias and post-ops. Elsewhere each part of
the columns is decoded into one scratch buffer, [K, columns], and multiplied from there
into its place in the destination, with the step's bias and post-ops: every part is the whole step,
seen through descriptors that are narrower in the last dimension and have the strides of the whole.
Where no kernel of the library takes the post-ops of a part, they follow behind, too.

Where the rows become codes in each run, codes are multiplied by kernels of their own (`coded.py`),
with bias and post-ops behind them; what has none runs on NumPy, whose numbers these are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...onednn.attributes import Attributes, Binary, PRelu
from ...onednn.block_kernels import block_kernels
from ...onednn.coded_kernels import coded_kernels, takes_tiles
from ...onednn.enums import AlgKind, Arg, DataType
from ...onednn.layouts import row_major
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive_desc import PrimitiveDesc
from ...plan.types import Step, codes_source
from ..kernels.block_gemm import Blocks
from .binding import Binder, first_accepted, first_lowered, need
from .coded import CodedRows
from .constants import Arranged
from .decoder import LANES, Decoder
from .joining import Groups, Way, joined, joined_frame, wide
from .program import Buffer, Owner, Tensor
from .translation import bias_of, translate
from .values import NotLowered, Offer, Wanted

_SCRATCH_BYTES = 3 << 19  # of decoded columns for each thread: about a second-level cache
_MOST_APART = 1 << 24  # bytes of a bare product beside the step's output
_MOST_COLUMNS = 256  # for each thread; with fewer they wait for each other more often


def packed_matmul(binder: Binder, step: Step, views: Iterable[Way]) -> None:
    """A product with packed weights.

    Args:
        binder: the binder.
        step: the step.
        views: how to see it, best first.
    """
    blocks = Blocks(step, binder.constants.data)

    def arranged(role: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        return binder.constants.arranged(need(step, role), "panels of columns", make)

    if codes_source(step):
        _coded(binder, step, blocks, arranged)
        return
    kernels = block_kernels(binder.library, blocks.bits)
    decoder = Decoder(blocks, kernels, binder.threads, arranged)
    if binder.dtype(need(step, "src")) != DataType.f32:
        raise NotLowered("packed weights are multiplied by f32 only")
    if decoder.multiplies(math.prod(binder.dims(step.output)[:-1])):
        try:
            _apart(binder, step, decoder, by_rows=True)
        except NotLowered:
            pass  # by columns, then
        else:
            return
    try:
        first_lowered(views, lambda view: _by_columns(binder, step, decoder, view))
    except NotLowered as refusal:
        try:
            _apart(binder, step, decoder, by_rows=False)
        except NotLowered as other:
            raise NotLowered(f"{refusal}; {other}") from other


# -- columns ---------------------------------------------------------------------------------------


def _by_columns(binder: Binder, step: Step, decoder: Decoder, view: Way) -> None:
    library = binder.library
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

    def attempt(width: int) -> Offer:
        desc = _described(binder, step, decoder, source, target, args, translated.attributes, width)
        return translated.offer(desc, args)

    offer, parts = _parts(binder, decoder, attempt)
    offer = offer.reading({Arg.SRC: Wanted(need(step, "src"), source)})
    binder.commit_parts(step, offer, target, parts, decoder)


def _parts(
    binder: Binder, decoder: Decoder, attempt: Callable[[int], Offer]
) -> tuple[Offer, list[tuple[PrimitiveDesc, int]]]:
    """The primitive of the widest part, and for all parts their primitives and first columns."""
    blocks = decoder.blocks
    columns = min(blocks.rows, _columns(blocks) * binder.threads)
    widths = dict.fromkeys(width for width in (columns, blocks.rows % columns) if width)
    offers = {width: first_accepted(binder, (width,), attempt) for width in widths}
    starts = range(0, blocks.rows, columns)
    parts = [(offers[min(columns, blocks.rows - start)].desc, start) for start in starts]
    return offers[columns], parts


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


# -- the product apart -----------------------------------------------------------------------------


def _apart(binder: Binder, step: Step, decoder: Decoder, *, by_rows: bool) -> None:
    """The bare product, by the kernel for rows or by columns, and what follows it by a binary
    primitive.
    """
    flat, source = _flat(binder, step, decoder.blocks)
    product, bare = _product_of(binder, step, flat)
    if by_rows and not bare and flat.size > _MOST_APART:
        raise NotLowered("a product apart takes much memory")
    behind = None if bare else _behind(binder, step, product.buffer)
    wanted = Wanted(need(step, "src"), source)
    if by_rows:
        binder.commit_product(step, binder.rows_action(wanted, product, decoder), product, behind)
        return

    def attempt(width: int) -> Offer:
        return Offer(_described(binder, step, decoder, source, flat, {}, Attributes(), width), {})

    offer, parts = _parts(binder, decoder, attempt)
    action = binder.parts_action(step, offer.reading({Arg.SRC: wanted}), product, parts, decoder)
    binder.commit_product(step, action, product, behind)


def _flat(binder: Binder, step: Step, blocks: Blocks) -> tuple[MemoryDesc, MemoryDesc]:
    """The bare product and its source as matrices."""
    dims = binder.dims(step.output)
    rows = math.prod(dims[:-1])
    product, source = (
        row_major(binder.library, (rows, size), DataType.f32) for size in (dims[-1], blocks.size)
    )
    return product, source


def _product_of(binder: Binder, step: Step, flat: MemoryDesc) -> tuple[Tensor, bool]:
    """Where the bare product goes, and whether it is the step's whole result."""
    dtype, attr = binder.dtype(step.output), step.attr
    if attr.scales or attr.zero_points:
        raise NotLowered("codes are stored behind the product")
    bare = not attr.post_ops and step.arg("bias") is None and dtype == DataType.f32
    name = step.output if bare else f"{step.name} product"
    return Tensor(Buffer(name, Owner.ARENA, flat.size), flat), bare


def _coded(binder: Binder, step: Step, blocks: Blocks, arranged: Arranged) -> None:
    """A product of rows that become codes."""
    kernels = coded_kernels(binder.library, blocks.bits)
    if kernels is None:
        raise NotLowered(
            f"no kernel multiplies codes of {blocks.bits} bits in blocks by codes: it takes 4 or 8 bits, and was compiled"
        )
    refusal = CodedRows.refusal(blocks)
    if refusal is not None:
        raise NotLowered(refusal)
    if binder.dtype(need(step, "src")) != DataType.f32:
        raise NotLowered("codes are made of f32 only")
    flat, source = _flat(binder, step, blocks)
    product, bare = _product_of(binder, step, flat)
    behind = None if bare else _behind(binder, step, product.buffer)
    tiles = takes_tiles(kernels, blocks.block)
    weights = CodedRows(blocks, kernels, binder.threads, arranged, tiles=tiles)
    action = binder.coded_action(Wanted(need(step, "src"), source), product, weights)
    binder.commit_product(step, action, product, behind)


def _behind(binder: Binder, step: Step, product: Buffer) -> Offer:
    """The primitive that makes a step's output of the bare product: over rows and columns, or over
    all dimensions.
    """
    rank = len(binder.dims(step.output))
    flat = (tuple(range(rank - 1)), (rank - 1,))
    plain = tuple((axis,) for axis in range(rank))
    reasons = []
    for groups in dict.fromkeys((flat, plain)):
        try:
            return _behind_as(binder, step, product, groups)
        except NotLowered as refusal:
            reasons.append(str(refusal))
    raise NotLowered("; ".join(reasons))


def _behind_as(binder: Binder, step: Step, product: Buffer, groups: Groups) -> Offer:
    dims, dtype, bias = binder.dims(step.output), binder.dtype(step.output), step.arg("bias")
    seen = joined(dims, groups)
    given, whole = (row_major(binder.library, seen, kind) for kind in (DataType.f32, dtype))
    frame = joined_frame(dims, groups, whole, frozenset())
    translated = translate(binder, step.attr, frame, dtype, 0, step)
    # the kernels of eltwise take no post-ops, those of binary do: x + bias, or x * 1
    alg, second = AlgKind.binary_mul, row_major(binder.library, (1,) * len(seen), DataType.f32)
    args: dict[int, Wanted | Tensor | Memory] = {Arg.SRC_0: Tensor(product, given)}
    args[Arg.SRC_1] = Memory(binder.engine, second, np.ones(1, np.float32))
    if bias is not None:
        shift = bias_of(binder, step, joined(wide(binder.dims(bias), len(dims)), groups))
        assert shift is not None
        alg, second, args[Arg.SRC_1] = AlgKind.binary_add, shift.desc, shift

    def attempt(second: MemoryDesc) -> Offer:
        desc = binder.describe(
            step, "binary", given, second, whole, alg=alg, attributes=translated.attributes
        )
        return translated.offer(desc, {})

    return first_accepted(binder, (second,), attempt).reading(args)
