"""How oneDNN 3.2 sums products of codes, by instruction set: which of its implementations run, and
what each of them makes of u8 times s8 where there is no VNNI.

Found by experiment, under ONEDNN_MAX_CPU_ISA; tests hold each line to the library.

| implementation | u8 x s8 | s8 x s8 |
|---|---|---|
| any with VNNI | exact | exact |
| convolution `jit_*`, `brgconv*` | pairs of channels within a tap | halved weights, exact |
| convolution, depthwise | exact | halved weights, exact |
| convolution, depthwise and 3-D, `gemm` (AVX-512) | pairs of taps | halved weights, exact |
| convolution of groups that `brgconv` does not take, `gemm` (AVX-512) | pairs along taps and channels | halved weights, exact |
| deconvolution, depthwise | exact | exact |
| deconvolution, its own code | pairs of channels within a tap | halved weights, exact |
| deconvolution by `gemm` | pairs of channels within a tap | the same, behind a shift by 128 |
| matmul `brg` (AVX-512) | pairs along K | the same, behind a shift by 128 |
| matmul `gemm` (AVX2, SSE4.1) | pairs along K, anew in each block of K | the same, behind a shift by 128; exact with a source zero point |
| inner product `gemm` | pairs along K, anew in each block of K | the same, behind a shift by 128 |
| inner product `brgemm` (AVX-512) | pairs along K | the same, behind a shift by 128 |
| recurrent layers, by `gemm` | pairs along K, anew in each block of K | not on these CPUs |
| `ref` | exact | exact |

Padding takes part in no pair, whatever the zero point. Compensations (of zero points, and of the
shift by 128) are exact sums of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..ir.ops.spec import Array

LOWEST, HIGHEST = -(2**15), 2**15 - 1
"""What a sum of two products is cut to."""

Indices = npt.NDArray[np.intp]

_LARGEST = 255  # of u8 codes

ISAS = ("vnni", "avx512_core", "avx2", "sse41")
"""Names of the instruction sets, newest first: oneDNN's, but for `vnni`, which stands for all that
have it.
"""


@dataclass(frozen=True, slots=True)
class Summation:
    """How an implementation sums.

    Attributes:
        pairs: None: in s32, exactly; `channels`: sums of two products of neighbouring channels,
            (0, 1), (2, 3) ..., within a tap saturate to s16; `depth`: those of neighbours along all
            of the depth do; `any`: those of some two do, and nobody knows which: for proofs alone.
        halved: the weights are w' = round(w / 2), half to even, and sums are taken twice.
        shift: added to the codes of the source in front of the products, so that they are u8.
        block: the depth is cut as `depth_blocks` says, and pairs begin anew in each block; 0: it is
            not.
        whole: the deepest product that is not cut.
        rows_cut: of so many rows and more; fewer are not.
        turned: it is the codes of the weights, of a single column, that are made u8 by 128 more; those of
            the source stay s8.
    """

    pairs: str | None = None
    halved: bool = False
    shift: int = 0
    block: int = 0
    whole: int = 256
    rows_cut: int = 1
    turned: bool = False


EXACT = Summation()
_HALVED = Summation(halved=True)

_GEMM_BLOCKS = {"avx512_core": 768, "avx2": 384, "sse41": 256}
_GEMM_WHOLE = {"avx512_core": 384, "avx2": 256, "sse41": 256}


def summation(
    isa: str,
    kind: str,
    *,
    signed: bool,
    groups: int = 1,
    inputs: int = 0,
    outputs: int = 0,
    spatial: int = 0,
    zero_point: bool = False,
    by_gemm: bool = False,
) -> Summation:
    """How the implementation that oneDNN 3.2 takes first sums.

    Args:
        isa: one of `ISAS`.
        kind: `convolution`, `deconvolution`, `matmul` or `rnn`; any other is exact.
        signed: the source is s8, not u8.
        groups, inputs, outputs: of a convolution: groups, and channels of each.
        spatial: its spatial dimensions.
        zero_point: the source has one that is not 0.
        by_gemm: a deconvolution that no code of its own takes: see `deconvolves_by_gemm`.
    """
    if isa == "vnni":
        return EXACT
    if kind == "matmul":
        return _of_matmul(isa, signed, zero_point)
    if kind == "rnn":
        rows = 2 if isa == "avx512_core" else 1  # one row is a product with a vector
        return Summation("depth", False, 0, _GEMM_BLOCKS[isa], _GEMM_WHOLE[isa], rows)
    if kind not in ("convolution", "deconvolution"):
        return EXACT
    depthwise = groups > 1 and inputs == outputs == 1
    if depthwise and kind == "deconvolution":
        return EXACT  # of s8, and of volumes, by gemm, whose pairs are of channels: there is one
    if isa != "avx512_core" and kind == "convolution":
        # compiled code takes groups by fours of channels, and depthwise ones of images only
        uncompiled = spatial == 3 if depthwise else groups > 1 and (inputs % 4 or outputs % 4)
        if uncompiled:
            return EXACT
    if signed and by_gemm:
        return Summation("channels", shift=128)
    if signed:
        return _HALVED
    if depthwise:
        return Summation("depth") if kind == "convolution" and spatial == 3 else EXACT
    return Summation("channels")


def deconvolves_by_gemm(
    isa: str,
    groups: int,
    channels: tuple[int, int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    width: int,
) -> bool:
    """Whether oneDNN 3.2 runs a deconvolution as the gradient of a convolution, by gemm: its own code takes
    groups by fours of channels, no stride along a dilated axis, no padding as wide as the kernel, and
    rows whose ends fit its registers. With AVX-512 another one takes single taps without strides.

    Args:
        isa: one of `ISAS`.
        groups: of the deconvolution.
        channels: of each group, inputs and outputs.
        kernel, strides, dilations: along each axis; a dilation of 1 is none.
        pads: in front of all axes, and behind them.
        width: of the result, along the last axis.
    """
    if isa == "avx512_core" and {*kernel, *strides} == {1} and not any(pads):
        return False
    few = groups > 1 and channels != (1, 1) and any(count % 4 for count in channels)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    wide = any(size <= pad for size, pad in zip((*reach, *reach), pads, strict=True))
    gaps = any(s > 1 and d > 1 for s, d in zip(strides, dilations, strict=True))
    if few or wide or gaps:
        return True
    older = ISAS[ISAS.index(isa) :]  # each has code of its own, and is asked in turn
    ends = pads[len(kernel) - 1], max(0, pads[-1])
    row = width, strides[-1], reach[-1] - 1, ends
    return not any(_row_fits(each, groups, channels, *row) for each in older)


def _lanes(isa: str, groups: int, channels: tuple[int, int]) -> int:
    """How many output channels compiled code computes side by side: groups must fill them."""
    most = {"avx512_core": 16, "avx2": 8}.get(isa, 4)
    sizes = (size for size in (16, 8) if size <= most)
    return next((n for n in sizes if groups == 1 or not any(c % n for c in channels)), 4)


def _row_fits(
    isa: str,
    groups: int,
    channels: tuple[int, int],
    width: int,
    stride: int,
    span: int,
    pads: tuple[int, int],
) -> bool:
    """Whether the compiled deconvolution finds a number of positions to compute at once: a multiple of the
    stride, with all windows among them that reach beyond an end of the row.

    Args:
        isa, groups, channels: as `deconvolves_by_gemm`.
        width: of the result, along the last axis.
        stride, span, pads: along that axis; from the first tap to the last one.
    """
    registers = 28 if isa == "avx512_core" else 12
    blocks = -(-channels[1] // _lanes(isa, groups, channels))
    side_by_side = max(
        n for n in (1, 2, 3, 4) if blocks % n == 0 and (n == 1 or pads[0] <= registers // (n + 1))
    )
    most = registers // (side_by_side + 1)
    if width < most:
        return True
    return any(
        count % stride == 0
        and count >= max(0, span - pads[0]) // stride * stride
        and count >= max(0, span - pads[1] - width % count) // stride * stride
        for count in range(1, most + 1)
    )


def summation_of_inner_product(
    isa: str, *, signed: bool, rows: int, columns: int, by_gemm: bool
) -> Summation:
    """How the implementation sums that oneDNN 3.2 takes first for an inner product.

    Args:
        isa: one of `ISAS`.
        signed: the source is s8, not u8.
        rows, columns: of the result.
        by_gemm: AVX-512 does not take its own code for it, as for a source with spatial sizes, and a
            sum with a zero point.
    """
    if isa == "vnni":
        return EXACT
    shift = 128 if signed else 0
    if isa == "avx512_core" and (not by_gemm or 1 in (rows, columns)):
        # products with a vector are not cut
        turned = signed and by_gemm and columns == 1 < rows
        return Summation("depth", shift=0 if turned else shift, turned=turned)
    return Summation("depth", False, shift, _GEMM_BLOCKS[isa], _GEMM_WHOLE[isa])


def _of_matmul(isa: str, signed: bool, zero_point: bool) -> Summation:
    shift = 128 if signed else 0
    if isa == "avx512_core":
        return Summation("depth", shift=shift)
    if signed and zero_point:
        return EXACT  # gemm of s8 and s8 with an offset is a reference
    return Summation("depth", shift=shift, block=_GEMM_BLOCKS[isa])


def gemm_blocks(isa: str, depth: int) -> list[tuple[int, int]]:
    """The blocks in which gemm forms pairs along a depth, on an instruction set without VNNI."""
    return depth_blocks(depth, _GEMM_BLOCKS[isa], _GEMM_WHOLE[isa])


def depth_blocks(depth: int, block: int, whole: int = 256) -> list[tuple[int, int]]:
    """How gemm cuts the depth: one block up to `whole`, two halves (the first one longer) up to two
    blocks, blocks beyond.
    """
    if depth <= whole:
        size = depth
    elif depth < 2 * block:
        size = (depth + 1) // 2
    else:
        size = block
    return [(at, min(at + size, depth)) for at in range(0, depth, max(size, 1))]


def fits(weight: int, code: int) -> bool:
    """True where no sum of two products of weights up to this magnitude with u8 codes up to this one
    leaves s16, whatever their signs.
    """
    # only -128 has the magnitude 128: with such weights the lower end, -32768, is the nearer one
    most = min(weight, 127)
    return 2 * most * code <= HIGHEST and 2 * weight * code <= -LOWEST


def largest(weights: Array) -> int:
    """The largest magnitude of s8 weights."""
    return max(int(weights.max(initial=0)), -int(weights.min(initial=0)))


def pairs_at_risk(
    law: Summation, weights: Array, channels: int, codes: tuple[int, int] = (0, _LARGEST)
) -> tuple[Indices, npt.NDArray[np.bool_]]:
    """The pairs that a product forms, and which of them can leave s16.

    Args:
        law: how they are summed; with pairs.
        weights: [K, N] codes, s8.
        channels: how many neighbours along K belong to one tap.
        codes: the least and the largest u8 code of the other factor.

    Returns:
        [pairs]: where each begins along K; [pairs, N].
    """
    if law.pairs == "any":
        return _any_two_at_risk(weights, codes)
    # one without a neighbour fits s16
    firsts = [np.arange(a, b - 1, 2) for a, b in _runs(law, weights.shape[0], channels)]
    first = np.concatenate([np.zeros(0, np.intp), *firsts])
    wide, (low, high) = weights.astype(np.int32), codes
    ends = wide * low, wide * high
    most, least = np.maximum(*ends), np.minimum(*ends)
    above = most[first] + most[first + 1] > HIGHEST
    return first, above | (least[first] + least[first + 1] < LOWEST)


def _any_two_at_risk(
    weights: Array, codes: tuple[int, int]
) -> tuple[Indices, npt.NDArray[np.bool_]]:
    """As one pair: the two largest products of a column, and the two smallest."""
    if weights.shape[0] < 2:
        return np.zeros(0, np.intp), np.zeros((0, weights.shape[1]), np.bool_)
    wide, (low, high) = weights.astype(np.int32), codes
    ends = wide * low, wide * high
    # a neighbour in the padding adds nothing
    most = np.maximum(np.partition(np.maximum(*ends), -2, axis=0)[-2:], 0).sum(axis=0)
    least = np.minimum(np.partition(np.minimum(*ends), 1, axis=0)[:2], 0).sum(axis=0)
    return np.zeros(1, np.intp), ((most > HIGHEST) | (least < LOWEST))[None]


def _runs(law: Summation, depth: int, channels: int) -> Sequence[tuple[int, int]]:
    """The stretches of the depth within which pairs are formed."""
    if law.block:
        return depth_blocks(depth, law.block, law.whole)
    size = channels if law.pairs == "channels" else depth
    return [(at, at + size) for at in range(0, depth, size)] if size else []
