"""How oneDNN 3.2 sums products of codes, by instruction set: which of its implementations run, and
what each of them makes of u8 times s8 where there is no VNNI.

Found by experiment, under ONEDNN_MAX_CPU_ISA; tests hold each line to the library.

| implementation | u8 x s8 | s8 x s8 |
|---|---|---|
| any with VNNI | exact | exact |
| convolution `jit_*`, `brgconv*` | pairs of channels within a tap | halved weights, exact |
| convolution, depthwise | exact | halved weights, exact |
| convolution, depthwise and 3-D, `gemm` (AVX-512) | pairs of taps | halved weights, exact |
| deconvolution, any | pairs of channels within a tap | halved weights, exact |
| matmul `brg` (AVX-512) | pairs along K | the same, behind a shift by 128 |
| matmul `gemm` (AVX2, SSE4.1) | pairs along K, anew in each block of K | the same, behind a shift by 128; exact with a source zero point |
| `ref` | exact | exact |

Padding takes part in no pair, whatever the zero point. Compensations (of zero points, and of the
shift by 128) are exact sums of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

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
            of the depth do.
        halved: the weights are w' = round(w / 2), half to even, and sums are taken twice.
        shift: added to the codes of the source in front of the products, so that they are u8.
        block: the depth is cut as `depth_blocks` says, and pairs begin anew in each block; 0: it is
            not.
    """

    pairs: str | None = None
    halved: bool = False
    shift: int = 0
    block: int = 0


EXACT = Summation()
_HALVED = Summation(halved=True)

_GEMM_BLOCKS = {"avx2": 384, "sse41": 256}
_WHOLE = 256  # the deepest product that gemm does not cut


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
) -> Summation:
    """How the implementation that oneDNN 3.2 takes first sums.

    Args:
        isa: one of `ISAS`.
        kind: `convolution`, `deconvolution` or `matmul`; any other is exact.
        signed: the source is s8, not u8.
        groups, inputs, outputs: of a convolution: groups, and channels of each.
        spatial: its spatial dimensions.
        zero_point: the source has one that is not 0.
    """
    if isa == "vnni":
        return EXACT
    if kind == "matmul":
        return _of_matmul(isa, signed, zero_point)
    if kind not in ("convolution", "deconvolution"):
        return EXACT
    depthwise = groups > 1 and inputs == outputs == 1
    if isa != "avx512_core" and kind == "convolution":
        # compiled code takes groups by fours of channels, and depthwise ones of images only
        uncompiled = spatial == 3 if depthwise else groups > 1 and (inputs % 4 or outputs % 4)
        if uncompiled:
            return EXACT
    if signed:
        return _HALVED
    if depthwise:
        return Summation("depth") if kind == "convolution" and spatial == 3 else EXACT
    return Summation("channels")


def _of_matmul(isa: str, signed: bool, zero_point: bool) -> Summation:
    shift = 128 if signed else 0
    if isa == "avx512_core":
        return Summation("depth", shift=shift)
    if signed and zero_point:
        return EXACT  # gemm of s8 and s8 with an offset is a reference
    return Summation("depth", shift=shift, block=_GEMM_BLOCKS[isa])


def depth_blocks(depth: int, block: int) -> list[tuple[int, int]]:
    """How gemm cuts the depth: one block as long as it is small, two halves (the first one longer)
    up to two blocks, blocks beyond.
    """
    if depth <= _WHOLE:
        size = depth
    elif depth < 2 * block:
        size = (depth + 1) // 2
    else:
        size = block
    return [(at, min(at + size, depth)) for at in range(0, depth, max(size, 1))]
