"""Of convolutions and deconvolutions, and of packing their weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from ..attributes import Binary, PRelu, Sum
from ..enums import Arg, CpuIsa, DataType
from ..primitive_desc import Request
from .defect import BOTH, Defect, operand

_WITH_OPERAND = Binary | PRelu | Sum


def _spans(request: Request) -> Sequence[int]:
    """Length of the kernel along each spatial dimension, dilation included."""
    dilations = request.parameters["dilations"]
    kernel = operand(request, "weights").dims[-len(dilations) :]
    return [(k - 1) * (d + 1) + 1 for k, d in zip(kernel, dilations, strict=True)]


def _axes(request: Request) -> Iterator[tuple[int, ...]]:
    """(source, destination, stride, padding in front, span of the kernel) of each axis."""
    src, dst = (operand(request, role).dims[2:] for role in ("src", "dst"))
    strides, begin = request.parameters["strides"], request.parameters["padding_l"]
    return zip(src, dst, strides, begin, _spans(request), strict=True)


def _behind_the_last_tap(request: Request) -> bool:
    return any(b + out > (n - 1) * s + span for n, out, s, b, span in _axes(request))


def _compensated_gaps(request: Request) -> bool:
    src = operand(request, "src")
    compensated = src.dtype == DataType.s8 or bool(request.attributes.zero_points)
    gaps = [
        s - span for s, span in zip(request.parameters["strides"], _spans(request), strict=True)
    ]
    return compensated and any(gap >= 2 for gap in gaps[:-1])


def _is_depthwise(request: Request) -> bool:
    src, weights = operand(request, "src"), operand(request, "weights")
    return len(weights.dims) == len(src.dims) + 1 and weights.dims[1:3] == (1, 1)


def _depthwise_tail(lanes: int) -> Callable[[Request], bool]:
    """Several channels in the last vector of so many lanes, and post-ops with operands."""

    def occurs(request: Request) -> bool:
        return (
            _is_depthwise(request)
            and operand(request, "weights").dims[0] % lanes > 1
            and any(isinstance(op, _WITH_OPERAND) for op in request.attributes.post_ops)
        )

    return occurs


_SUMS_IN_REGISTERS = 14
"""Vectors of a depthwise convolution of u8 with VNNI. It has 16 registers, and a sum's factor and zero point
take one of those 14 (max_regs_ur in jit_uni_x8s8s32x_conv_kernel.cpp).
"""


def _depthwise_sum(lanes: int) -> Callable[[Request], bool]:
    """A sum with a factor or zero point behind so many vectors that all registers are taken. Kernels of two and
    three neighbours, which windows share, keep the source in registers, and have less vectors.
    """

    def occurs(request: Request) -> bool:
        src, columns = operand(request, "src"), operand(request, "dst").dims[-1]
        sums = [op for op in request.attributes.post_ops if isinstance(op, Sum)]
        kernel = operand(request, "weights").dims[-1]
        step, apart = (request.parameters[name][-1] for name in ("strides", "dilations"))
        return (
            src.library.effective_isa() & CpuIsa.avx2_vnni == CpuIsa.avx2_vnni
            and src.dtype == DataType.u8
            and _is_depthwise(request)
            and not (step < kernel < 4 and apart == 0)
            and columns * -(-src.dims[1] // lanes) >= _SUMS_IN_REGISTERS
            and any((op.scale, op.zero_point) != (1.0, 0) for op in sums)
        )

    return occurs


def _five_positions(request: Request) -> bool:
    """Channels of groups are blocked by 16, all of a whole convolution by 64."""
    dims, weights = operand(request, "dst").dims, operand(request, "weights").dims
    of_a_group = dims[1] // weights[0] if len(weights) > len(dims) else 0
    return math.prod(dims[2:]) == 5 and (dims[1] > 64 or of_a_group > 16)


def _three_tiles(request: Request) -> bool:
    """The library cuts the positions of a sample into tiles of the same number of rows, at most 16."""
    positions = math.prod(operand(request, "dst").dims[2:])
    rows = max(n for n in range(1, 17) if positions % n == 0)
    return positions == 3 * rows


def _strided_tail(lanes: int) -> Callable[[Request], bool]:
    """Strides, and channels that do not fill the last vector of so many lanes."""

    def occurs(request: Request) -> bool:
        channels = operand(request, "src").dims[1]
        return channels % lanes > 0 and any(step > 1 for step in request.parameters["strides"])

    return occurs


def _padding_that_looks_like_none(request: Request) -> bool:
    """The library takes accumulators of their own for its passes over padded windows where the width
    with all padding differs from the width without, and counts elements that no window reads as
    negative padding behind (`iwp != iw`, brg_blocking_t::iterate_ker_block).
    """
    n, out, stride, begin, span = list(_axes(request))[-1]
    return begin > 0 and (out - 1) * stride + span == n


def _wide_padding_of_zero_points(request: Request) -> bool:
    """Whether a window may reach further into the padding than the kernel has rows in a block.

    The library checks that before it gives registers to the zero point (brgemm_desc_set_attr), which
    leaves fewer rows: instead of at least 4, 3 of 64 channels, and of fewer channels, more. It is so along
    the last dimension only.
    """
    if Arg.SRC not in request.attributes.zero_points:
        return False
    before, behind = (request.parameters[side][-1] for side in ("padding_l", "padding_r"))
    if request.kind == "deconvolution":  # runs as the convolution of the turned kernel
        if any(step != 1 for step in request.parameters["strides"]):
            return False
        before, behind = (_spans(request)[-1] - 1 - width for width in (before, behind))
    return bool(max(before, behind) >= 4)


def _high_padding_of_zero_points(request: Request) -> bool:
    """A zero point of the source, and padding of 4 rows or planes and more."""
    widths = [w for side in ("padding_l", "padding_r") for w in request.parameters[side][:-1]]
    return Arg.SRC in request.attributes.zero_points and max(widths, default=0) >= 4


def _padded_plane(request: Request) -> bool:
    """A zero point of the source, whose volumes have one plane, as the kernel has, and padding around it."""
    if Arg.SRC not in request.attributes.zero_points or len(operand(request, "src").dims) != 5:
        return False
    n, _, _, _, span = next(_axes(request))
    padding = (request.parameters[side] for side in ("padding_l", "padding_r"))
    return n == span == 1 and any(width > 0 for side in padding for width in side)


def _compensated(request: Request) -> bool:
    """Sums of the weights are taken off: of an s8 source, or of one with a zero point."""
    src = operand(request, "src")
    return src.dtype == DataType.s8 or Arg.SRC in request.attributes.zero_points


def _met(request: Request) -> list[list[bool]]:
    """For each axis, and each element of the result along it: does a tap meet an element of the source?"""
    dilations = request.parameters["dilations"]
    kernel = operand(request, "weights").dims[-len(dilations) :]
    spread = request.kind == "deconvolution"

    def meets(n: int, stride: int, begin: int, place: int, tap: int) -> bool:
        if spread:
            return place + begin - tap in range(0, n * stride, stride)
        return 0 <= place * stride - begin + tap < n

    return [
        [
            any(
                meets(n, stride, begin, place, tap)
                for tap in range(0, taps * (apart + 1), apart + 1)
            )
            for place in range(out)
        ]
        for (n, out, stride, begin, _), taps, apart in zip(
            _axes(request), kernel, dilations, strict=True
        )
    ]


def _windows_of_padding(request: Request) -> bool:
    """A window reads padding alone: no tap of it along some dimension meets an element."""
    return _compensated(request) and not all(map(all, _met(request)))


def _padding_alone(request: Request) -> bool:
    """Along some dimension but the last no window meets an element: all is padding."""
    return not all(map(any, _met(request)[:-1]))


def _of_one_channel(request: Request) -> bool:
    """One input channel in each group, and a kernel of several elements: rows of the kernel become channels
    ("relo" in jit_brgemm_conv_utils.cpp).
    """
    rank = len(operand(request, "src").dims) - 2
    kernel = operand(request, "weights").dims
    return kernel[-rank - 1] == 1 and max(kernel[-rank:]) > 1


def _spread_and_compensated(request: Request) -> bool:
    return _compensated(request) and any(step > 1 for step in request.parameters["strides"])


def _not_zero_without_taps(request: Request) -> bool:
    """An element of the destination gets nothing of the source, and is something else than 0."""
    attributes = request.attributes
    added = request.operands["bias"] is not None or attributes.post_ops
    return bool(added or Arg.DST in attributes.zero_points) and not all(map(all, _met(request)))


def _of_codes(request: Request) -> bool:
    return operand(request, "src").dtype in (DataType.u8, DataType.s8)


def _compensation(request: Request) -> bool:
    """Sums behind packed weights, of a source whose elements lie side by side.

    Which shapes take the code that leaves them out depends on how the library splits dimensions for its
    cache and its threads; it is never taken where no two elements lie side by side (jit_uni_reorder.cpp:
    the loads of 4 and of 8 neighbours, `fast_return` and `tr8x8`).
    """
    src, dst = operand(request, "src"), operand(request, "dst")
    dense = src.is_plain and any(
        step == 1 for step, size in zip(src.strides, src.dims, strict=True) if size > 1
    )
    # the sums lie behind the elements; so does the rest of a larger tensor behind a part, which is plain
    summed = not dst.is_plain and dst.size > math.prod(dst.padded_dims)
    return dense and dst.dtype == DataType.s8 and summed


_AFTER = (3, 3, 0)
"""The first version whose implementations are not those of 3.2, whatever their names."""

_NEXT = "the next implementation, or NumPy"
_ZERO_TAPS = "zero taps are put behind the kernel's, which changes no sum"
_DECONVOLUTION = r"jit_deconvolution:|jit_uni_int8:"

CONVOLUTIONS: tuple[Defect, ...] = (
    Defect(
        "deconvolution behind the last tap",
        "deconvolution",
        _DECONVOLUTION,
        _behind_the_last_tap,
        "the output reaches beyond the last tap: output_padding above the padding behind, or SAME padding with strides above the kernel",
        "the last elements along that dimension lack taps, or have those of others",
        _ZERO_TAPS,
        "146 of 406 drawn shapes",
        versions=BOTH,
    ),
    Defect(
        "deconvolution between the taps",
        "deconvolution",
        _DECONVOLUTION,
        _compensated_gaps,
        "a stride leaves two rows (or planes) or more between the taps of neighbours, with a zero point or an s8 source",
        "rows between the taps hold garbage: what compensates for the zero point or the shift of signed codes is left in them",
        _ZERO_TAPS,
        "88 of 114 drawn shapes; between columns, none of 33",
        versions=BOTH,
    ),
    *(
        Defect(
            f"depthwise tail of {lanes}",
            "convolution",
            rf"jit_uni_int8:{isa}",
            _depthwise_tail(lanes),
            f"a depthwise convolution whose channels leave two or more in the last vector of {lanes}, with a binary, prelu or sum post-op",
            "each channel of the last vector but its first has wrong operands",
            "the next implementation, or NumPy",
            f"{seen}",
            mended=(3, 13, 2),
        )
        for lanes, isa, seen in (
            (8, "avx", "all of 2 to 7, 10 to 15, 18 to 23 channels"),
            (4, "sse41", "all of 2, 3, 6, 7, 10, 11 channels"),
        )
    ),
    *(
        Defect(
            f"depthwise sum in vectors of {lanes}",
            "convolution",
            rf"jit_uni_int8:{isa}",
            _depthwise_sum(lanes),
            "on a CPU with AVX-VNNI, a depthwise convolution of u8 with a sum that has a factor or a zero point, whose columns times "
            f"vectors of {lanes} channels are {_SUMS_IN_REGISTERS} or more, but for dense kernels of 2 and 3 columns wider than the stride",
            f"the last of each {_SUMS_IN_REGISTERS} vectors is another number",
            "the next implementation, or NumPy",
            figure,
            versions=BOTH,
        )
        for lanes, isa, figure in (
            (8, "avx2_vnni", "163 of 249 drawn shapes; none of 2,540 others"),
            (4, "sse41", "158 of 324 drawn shapes; none of 2,676 others"),
        )
    ),
    *(
        Defect(
            name,
            kind,
            r"(jit_1x1_deconvolution:undef\+)?jit_int8_1x1:avx512_core$",
            _five_positions,
            f"a 1x1 {kind} with five positions and more than 64 output channels, or 16 of a group, on AVX-512 without VNNI",
            "every element is wrong",
            "the next implementation, or NumPy",
            figure,
            versions=BOTH,
        )
        for kind, name, figure in (
            (
                "convolution",
                "1x1 over five positions",
                (
                    "of 1 to 40 positions only 5; from 65 channels on for one thread, 129 for two, 257 for four; "
                    "and groups of 20, 40, 48, 64 and more channels, not of 32"
                ),
            ),
            (
                "deconvolution",
                "1x1 deconvolution over five positions",
                "groups of 20, 40, 48, 64 and more channels; not of 32",
            ),
        )
    ),
    *(
        Defect(
            f"strided 1x1 in vectors of {lanes}",
            "convolution",
            rf"jit_uni_int8_1x1:{isa}",
            _strided_tail(lanes),
            f"a 1x1 convolution with strides, whose input channels are no multiple of {lanes}",
            "each thread gathers the positions that it needs, and writes whole vectors: "
            f"up to {lanes - 1} bytes into what the next thread gathered; which elements are wrong differs from run to run",
            "the next implementation, or NumPy",
            f"512 samples of {channels} channels, 4 positions of 8, two threads on a busy machine: {seen} of 200 runs wrong; "
            f"of {lanes} and of 17 channels none, because a thread's room is cut for multiples of {lanes // 2}",
            versions=BOTH,
        )
        for lanes, isa, channels, seen in ((16, "avx2", 23, 81), (8, "sse41", 20, 1))
    ),
    Defect(
        "padding as wide as what no window reads",
        "convolution",
        r"brgconv:|brg_conv_fwd:",
        _padding_that_looks_like_none,
        "along the last dimension there is padding in front, and as many elements behind the last window that none reads",
        "accumulators of 32 bits are stored in place of int8 codes, over what neighbours store and beyond the end of the destination: "
        "wrong numbers in each run, or with several threads in some",
        "the next implementation, or NumPy",
        "with 2 to 8 threads, in five runs each, 6 of 117 drawn shapes of this kind and none of 4,883 others; "
        "with one thread 49 of 3,886 of all, each with 24 bytes or more behind the destination overwritten",
        versions=BOTH,
    ),
    *(
        Defect(
            f"{kind} with zero points and wide padding",
            kind,
            implementation,
            _wide_padding_of_zero_points,
            f"a zero point of the source, and padding of 4 or more along the last dimension{as_what}",
            "windows that reach into the padding, and neighbours of theirs, are wrong, "
            "depending on the number of positions, and of threads",
            "the next implementation, or NumPy",
            "one dimension of 4 to 31 positions, padding of 2 to 31, 8 to 130 channels: 1,587 of 9,240 wrong; "
            "least padding in blocks of 16 channels 14, of 32 and 48 channels 8, of 64 channels 4, without VNNI 13, 7, 7 and 4",
            mended=(3, 13, 2),
        )
        for kind, implementation, as_what in (
            ("convolution", r"brgconv:", ""),
            ("deconvolution", r"brg_conv:", ", as a convolution of the turned kernel"),
        )
    ),
    Defect(
        "1x1 in three tiles",
        "convolution",
        r"jit_1x1:.*amx",
        _three_tiles,
        "on a CPU with AMX, a 1x1 convolution whose positions, by their largest divisor up to 16, are three tiles: "
        "27, 33, 36, 39, 42, 45 or 48",
        "tiles are stored in pairs, a fourth one beyond the end of the sample: over what lies behind the destination, "
        "or over another sample while another thread computes it",
        _NEXT,
        "170 of 170 drawn shapes; none of 730 with another number of positions up to 81",
        mended=(3, 13, 2),
    ),
    Defect(
        "convolution with zero points and high padding",
        "convolution",
        r"jit:.*amx",
        _high_padding_of_zero_points,
        "on a CPU with AMX, a zero point of the source, and padding of 4 or more along another dimension than the last",
        "the last rows are wrong, or the process ends",
        _NEXT,
        "16 of 653 drawn shapes, of which 3 end the process; of narrower padding none of 1,900",
        versions=BOTH,
    ),
    *(
        Defect(
            f"{kind} of padding alone",
            kind,
            implementation,
            _padding_alone,
            "on a CPU with AMX, along a dimension but the last no window meets an element of the source",
            "the process ends when the primitive is made",
            _NEXT,
            f"all of {seen} others",
            versions=BOTH,
        )
        for kind, implementation, seen in (
            ("convolution", r"brgconv:.*amx|brg_conv_fwd:.*amx", "16 drawn shapes, none of 4,940"),
            ("deconvolution", r"brg_conv:.*amx|brg_deconv:.*amx", "19 drawn shapes, none of 1,235"),
        )
    ),
    Defect(
        "convolution of one padded plane",
        "convolution",
        r"jit:.*amx",
        _padded_plane,
        "on a CPU with AMX, a zero point of the source, three spatial dimensions the first of one element in source and kernel, "
        "and padding along another",
        "the process ends",
        _NEXT,
        "54 of 107 drawn shapes; none of 416 other ones of three dimensions",
    ),
    Defect(
        "compensation of weights side by side",
        "reorder",
        r"jit:uni$",
        _compensation,
        "weights whose elements lie side by side are packed, and the kernel wants sums of theirs behind them (s8 sources, zero points); "
        "it depends on how the library cuts the shape: avoided for all",
        "where several elements are loaded at once and transposed, the sums are left zero: every element of the convolution is wrong",
        "the weights are handed over with gaps, of which each element is loaded by itself, in no more time",
        "of 6,000 packings each 53 with AVX-512 and VNNI, 62 without VNNI, 51 with AVX2, none with SSE4.1; with gaps none",
        mended=(3, 13, 2),
    ),
    Defect(
        "convolution of codes with a bias of bf16",
        "convolution",
        r".*x64:gemm_s8",
        lambda request: getattr(request.operands["bias"], "dtype", None) == DataType.bf16,
        "the source is u8 or s8, and the bias bf16",
        "other numbers than the bias, from beside it",
        "the next implementation, or NumPy",
        "1 and 8 channels, 1x1 and 3x3",
        versions=BOTH,
    ),
    Defect(
        "convolution of codes with a sum of f16",
        "convolution",
        r"jit_int8",
        lambda request: any(
            isinstance(op, Sum) and op.dtype == DataType.f16 for op in request.attributes.post_ops
        ),
        "the source is u8 or s8, and a sum reads the destination as f16",
        "0, or another element, is added",
        "the next implementation, or NumPy",
        "1 and 8 channels of 1x8",
    ),
    Defect(
        "windows of padding alone",
        "convolution",
        r"brg_conv_fwd:|brdgmm_dw:",
        _windows_of_padding,
        "an s8 source or a zero point, and a window that along some dimension reads padding alone",
        "what they are compensated by is left as it is in the scratchpad: garbage",
        _NEXT,
        "51 of 12,424 drawn shapes; of depthwise ones 6 of 670 such, and of 455 others none",
        versions=BOTH[1:],
        since=_AFTER,
    ),
    Defect(
        "convolution of one channel",
        "convolution",
        r"brg_conv_fwd:",
        _of_one_channel,
        "a group has one input channel, and the kernel several elements",
        "with several groups all groups but the first are wrong; with one, windows but those of the first row, "
        "or any that reach into padding, or blocks of channels that they do not fill",
        _NEXT,
        "of codes 121 of 2,199 drawn shapes, 4 of them u8 without zero point; of f32 one of 154",
        versions=BOTH[1:],
        since=_AFTER,
    ),
    Defect(
        "deconvolution with strides and compensation",
        "deconvolution",
        r"brg_deconv:.*brgconv_strided",
        _spread_and_compensated,
        "strides, with a zero point or an s8 source",
        "windows behind the last tap or between taps hold garbage, or the process ends",
        _NEXT,
        "93 of 483 drawn shapes, of which 10 end the process; of u8 without zero point none of 715",
        versions=BOTH[1:],
        since=_AFTER,
    ),
    Defect(
        "convolution by brgemm with AMX",
        "convolution",
        r"brg_conv_fwd:.*amx",
        lambda _: True,
        "on a CPU with AMX: the three kinds that were seen have nothing in common that tells the others apart",
        "of several groups all but the first are wrong, or of windows all but those of the first row, or those of the first row",
        _NEXT,
        "68 of 1,423 drawn shapes: input channels of a group that are no multiple of 4, or a result of one column; "
        "and 16 columns of 16 channels with a zero point and padded rows",
        versions=BOTH[1:],
        since=_AFTER,
    ),
    Defect(
        "deconvolution where no tap reaches",
        "deconvolution",
        r"brg_deconv:.*amx.*brgconv_strided",
        _not_zero_without_taps,
        "on a CPU with AMX, no tap reaches an element of the result (a stride above the kernel), "
        "and there is a bias, a post-op or a zero point of the destination",
        "such elements are 0, as if there were neither",
        _NEXT,
        "8 of 21 drawn shapes, and none of 26 whose elements are all reached",
        versions=BOTH[1:],
        since=_AFTER,
    ),
    Defect(
        "convolution of codes by brgemm between the versions",
        "convolution",
        r"brgconv:|brg_conv_fwd:",
        _of_codes,
        "the source is u8 or s8; versions after 3.2 and before 3.13, in which no narrower condition was measured",
        "the process ends, or wrong numbers",
        _NEXT,
        "3.3.0 and 3.7.1: a process ends once in 200 to 500 drawn shapes",
        versions=("3.3.0",),
        since=_AFTER,
        mended=(3, 13, 0),
    ),
)
