"""What oneDNN's implementations compute wrongly: one row each, which the binder asks before it
takes an implementation.

A defective implementation is passed over: the library's next one is taken, another layout or kernel
where the lowering knows one, or NumPy.
Each row has a test that shows the defect on the bare library (`tests/onednn/test_defects.py`):
where one fails with a new version of the library, the defect is `mended` there. `make docs` writes
docs/onednn-defects.md from these rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .attributes import Binary, Eltwise, PRelu, Sum
from .enums import AlgKind, DataType
from .layouts import channels_last, row_major
from .memory import MemoryDesc
from .primitive_desc import PrimitiveDesc, Request
from .strides import row_major_strides

_CHANNELS = 1 << 1
"""The mask of an operand with one number for each channel."""


@dataclass(frozen=True)
class Defect:
    """A known defect.

    Attributes:
        name: unique.
        kind: of the primitive.
        implementation: a regular expression for the beginning of the implementation's name.
        occurs: whether it concerns what was asked for.
        when: the same in words.
        symptom: what comes out.
        instead: what is done.
        figure: what was measured with oneDNN 3.2.0.
        mended: the first version that computes it right; None: none is known.
    """

    name: str
    kind: str
    implementation: str
    occurs: Callable[[Request], bool]
    when: str
    symptom: str
    instead: str
    figure: str
    mended: tuple[int, int, int] | None = None

    def concerns(self, desc: PrimitiveDesc) -> bool:
        """True where the implementation computes this wrongly."""
        if desc.kind != self.kind or (
            self.mended is not None and desc.library.version.triple >= self.mended
        ):
            return False
        return re.match(self.implementation, desc.impl_info) is not None and self.occurs(
            desc.request
        )


def defect_of(desc: PrimitiveDesc) -> Defect | None:
    """The defect that makes an implementation compute wrongly; None where none is known."""
    return next((defect for defect in DEFECTS if defect.concerns(desc)), None)


_WITH_OPERAND = Binary | PRelu | Sum

# -- when ------------------------------------------------------------------------------------------


def _operand(request: Request, role: str) -> MemoryDesc:
    desc = request.operands[role]
    if desc is None:
        raise ValueError(f"{request} has no {role}")
    return desc


def _slopes_of_bf16(request: Request) -> bool:
    """True of a product of bf16 with a prelu post-op: of a convolution where the slopes vary with more than
    the channel, of an inner product where the result is f32.
    """
    if _operand(request, "src").dtype != DataType.bf16:
        return False
    masks = [op.mask for op in request.attributes.post_ops if isinstance(op, PRelu)]
    if request.kind == "convolution":
        return any(mask & ~_CHANNELS for mask in masks)
    return bool(masks) and _operand(request, "dst").dtype == DataType.f32


def _spans(request: Request) -> Sequence[int]:
    """Length of the kernel along each spatial dimension, dilation included."""
    dilations = request.parameters["dilations"]
    kernel = _operand(request, "weights").dims[-len(dilations) :]
    return [(k - 1) * (d + 1) + 1 for k, d in zip(kernel, dilations, strict=True)]


def _axes(request: Request) -> Iterator[tuple[int, ...]]:
    """(source, destination, stride, padding in front, span of the kernel) of each axis."""
    src, dst = (_operand(request, role).dims[2:] for role in ("src", "dst"))
    strides, begin = request.parameters["strides"], request.parameters["padding_l"]
    return zip(src, dst, strides, begin, _spans(request), strict=True)


def _behind_the_last_tap(request: Request) -> bool:
    return any(b + out > (n - 1) * s + span for n, out, s, b, span in _axes(request))


def _compensated_gaps(request: Request) -> bool:
    src = _operand(request, "src")
    compensated = src.dtype == DataType.s8 or bool(request.attributes.zero_points)
    gaps = [
        s - span for s, span in zip(request.parameters["strides"], _spans(request), strict=True)
    ]
    return compensated and any(gap >= 2 for gap in gaps[:-1])


def _depthwise_tail(lanes: int) -> Callable[[Request], bool]:
    """Several channels in the last vector of so many lanes, and post-ops with operands."""

    def occurs(request: Request) -> bool:
        src, weights = _operand(request, "src"), _operand(request, "weights")
        depthwise = len(weights.dims) == len(src.dims) + 1 and weights.dims[1:3] == (1, 1)
        return (
            depthwise
            and weights.dims[0] % lanes > 1
            and any(isinstance(op, _WITH_OPERAND) for op in request.attributes.post_ops)
        )

    return occurs


def _five_positions(request: Request) -> bool:
    dims = _operand(request, "dst").dims
    return math.prod(dims[2:]) == 5 and dims[1] > 64


def _strided_tail(lanes: int) -> Callable[[Request], bool]:
    """Strides, and channels that do not fill the last vector of so many lanes."""

    def occurs(request: Request) -> bool:
        channels = _operand(request, "src").dims[1]
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
    if not request.attributes.zero_points:
        return False
    dst, weights = _operand(request, "dst"), _operand(request, "weights")
    channels = weights.dims[-len(dst.dims)]
    before, behind = request.parameters["padding_l"], request.parameters["padding_r"]
    if request.kind == "deconvolution":  # runs as the convolution of the turned kernel
        if any(step != 1 for step in request.parameters["strides"]):
            return False
        before, behind = (
            [span - 1 - width for span, width in zip(_spans(request), sides, strict=True)]
            for sides in (before, behind)
        )
    return channels > 48 and max(*before, *behind) >= 4  # of fewer channels, no block has 64


def _compensation_of_eights(request: Request) -> bool:
    src, dst = _operand(request, "src"), _operand(request, "dst")
    dense = src.is_plain and any(
        step == 1 for step, size in zip(src.strides, src.dims, strict=True) if size > 1
    )
    compensated = dst.dtype == DataType.s8 and dst.size > math.prod(dst.dims)
    return dense and compensated and _has_run_of(8, dst.dims)


def _has_run_of(product: int, dims: Sequence[int]) -> bool:
    """True where the lengths of some neighbouring dimensions multiply to `product`."""
    return any(
        math.prod(dims[i:j]) == product
        for i in range(len(dims))
        for j in range(i + 1, len(dims) + 1)
    )


def _binary_operands(request: Request) -> list[tuple[int, ...]]:
    return [op.src1.dims for op in request.attributes.post_ops if isinstance(op, Binary)]


def _row_major(desc: MemoryDesc) -> bool:
    return desc == row_major(desc.library, desc.dims, desc.dtype)


def _softmax_of_channels(request: Request) -> bool:
    return request.parameters["axis"] != 1 and any(
        size != 1 for dims in _binary_operands(request) for size in dims
    )


def _channels_elsewhere(request: Request) -> bool:
    return _vector_elsewhere(request) or _channels_between(request)


def _vector_elsewhere(request: Request) -> bool:
    dst = _operand(request, "dst")
    for_channels = any(
        dims[1] > 1 and math.prod(dims) == dims[1]
        for dims in _binary_operands(request)
        if len(dims) > 1
    )
    if not for_channels and not any(
        isinstance(op, PRelu) and op.mask == 2 for op in request.attributes.post_ops
    ):
        return False
    maps = len(dst.dims) > 2 and (math.prod(dst.dims[2:]) > 1 or dst.dims[0] == 1)
    read_right = [channels_last, row_major] if maps else [channels_last]
    return not dst.is_plain or all(
        dst.strides != like(dst.library, dst.dims, dst.dtype).strides for like in read_right
    )


def _channels_between(request: Request) -> bool:
    src = _operand(request, "src0")
    if not src.is_plain or not any(
        dims[0] == 1 and dims[1] > 1 for dims in _binary_operands(request) if len(dims) > 1
    ):
        return False
    samples, channels, *spatial = src.strides
    return channels != 1 and not samples >= channels >= max(spatial, default=1)


def _codes_of_part_filled_blocks(request: Request) -> bool:
    src = _operand(request, "src0")
    return (
        _operand(request, "dst").dtype in (DataType.u8, DataType.s8) and src.padded_dims != src.dims
    )


def _inner_blocks(request: Request) -> bool:
    """True where blocks of channels lie within a spatial dimension."""
    src = _operand(request, "src0")
    if src.is_plain or not request.attributes.post_ops:
        return False
    around = [step for step, size in zip(src.strides[2:], src.dims[2:], strict=True) if size > 1]
    return max(around, default=0) > src.strides[1]


def _transposing_pooling(request: Request) -> bool:
    src = _operand(request, "src")
    if src.dtype not in (DataType.f32, DataType.bf16) or not _row_major(src):
        return False
    return any(map(_varies_beyond_channels, _binary_operands(request)))


def _pooling_of_blocks(request: Request) -> bool:
    return not _operand(request, "src").is_plain and any(
        op.src1.is_plain and _varies_beyond_channels(op.src1.dims)
        for op in request.attributes.post_ops
        if isinstance(op, Binary)
    )


def _varies_beyond_channels(dims: Sequence[int]) -> bool:
    return any(size != 1 for axis, size in enumerate(dims) if axis != 1)


def _averaged_and_compared(request: Request) -> bool:
    dst = _operand(request, "dst")
    return (
        request.parameters["alg"] != AlgKind.pooling_max
        and dst.dtype in (DataType.u8, DataType.s8)
        and dst.dims[1] > 16
        and any(
            isinstance(op, Binary) and op.alg in _COMPARISONS for op in request.attributes.post_ops
        )
    )


_COMPARISONS = frozenset(AlgKind[f"binary_{name}"] for name in ("ge", "gt", "le", "lt", "eq", "ne"))


def _with_sum(request: Request) -> bool:
    return any(isinstance(op, Sum) for op in request.attributes.post_ops)


def _resampled_last(request: Request) -> bool:
    # The destination tells: of a source of length 1 the layout cannot be told.
    dst = _operand(request, "dst")
    first = 1 if dst.is_plain else 0  # in blocks, an operand for each sample is read wrongly, too
    return not _row_major(dst) and any(
        size != 1 for dims in _binary_operands(request) for size in dims[first:]
    )


def _resampled_vector(request: Request) -> bool:
    dims = _operand(request, "dst").dims
    return dims[0] == math.prod(dims[2:]) == 1 and any(
        operand[1] > 1 for operand in _binary_operands(request)
    )


def _matrices_with_gaps(request: Request) -> bool:
    dst = _operand(request, "dst")
    gaps = len(dst.dims) > 2 and dst.is_plain and dst.strides != row_major_strides(dst.dims)
    return gaps and any(
        dims != dst.dims and math.prod(dims) > 1 for dims in _binary_operands(request)
    )


def _scales_of_dimensions_apart(request: Request) -> bool:
    """The dimensions that a mask of scales selects are not next to each other."""
    masks = [mask // (mask & -mask) for mask in request.attributes.scales.values() if mask > 0]
    return any(mask & (mask + 1) for mask in masks)


def _rounded_twice(request: Request) -> bool:
    """True where something is added to a product that f32 does not hold: one rounding, or two,
    makes a difference.
    """
    terms = [
        (op.alg, op.alpha, op.beta) for op in request.attributes.post_ops if isinstance(op, Eltwise)
    ]
    if request.kind == "eltwise":
        terms.append(tuple(request.parameters[name] for name in ("alg", "alpha", "beta")))
    return any(
        alg == AlgKind.eltwise_linear and beta != 0 and not _keeps_every_bit(alpha)
        for alg, alpha, beta in terms
    ) or any(
        isinstance(op, Sum) and not _keeps_every_bit(op.scale) for op in request.attributes.post_ops
    )


def _keeps_every_bit(factor: float) -> bool:
    """True where a product with it is exact, as with 0 and powers of two (but below 2**-126)."""
    return abs(math.frexp(factor)[0]) in (0.0, 0.5)


def _without_fma(request: Request) -> bool:
    if _operand(request, "dst").library.effective_isa().has_fma:
        return False
    if request.kind in _SUMMING and _operand(request, "src").dtype == DataType.f32:
        return False  # sums in no defined order
    return _rounded_twice(request)


# -- the rows --------------------------------------------------------------------------------------

_SUMMING = ("convolution", "deconvolution", "matmul")
_TWICE = "the product and the sum are rounded one by one: the last bit differs from that of other implementations, which round once"
_INEXACT = "linear with a shift, or a sum, whose factor is no power of two, so that f32 does not hold each product"
_DIFFERENT = "1.3363229 * x + 0.5486123 differs {}"
_OF_NORMAL, _OF_SUMS = "for 36 % of normal x", "for 28 % of x that are sums of codes"
_ZERO_TAPS = "zero taps are put behind the kernel's, which changes no sum"
_DECONVOLUTION = r"jit_deconvolution:|jit_uni_int8:"

DEFECTS: tuple[Defect, ...] = (
    Defect(
        "deconvolution behind the last tap",
        "deconvolution",
        _DECONVOLUTION,
        _behind_the_last_tap,
        "the output reaches beyond the last tap: output_padding above the padding behind, or SAME padding with strides above the kernel",
        "the last elements along that dimension lack taps, or have those of others",
        _ZERO_TAPS,
        "146 of 406 drawn shapes",
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
        )
        for lanes, isa, seen in (
            (8, "avx", "all of 2 to 7, 10 to 15, 18 to 23 channels"),
            (4, "sse41", "all of 2, 3, 6, 7, 10, 11 channels"),
        )
    ),
    Defect(
        "1x1 over five positions",
        "convolution",
        r"jit_int8_1x1:avx512_core$",
        _five_positions,
        "a 1x1 convolution with five positions and more than 64 output channels, on AVX-512 without VNNI",
        "every element is wrong",
        "the next implementation, or NumPy",
        "of 1 to 40 positions only 5; from 65 channels on for one thread, 129 for two, 257 for four",
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
        )
        for lanes, isa, channels, seen in ((16, "avx2", 23, 81), (8, "sse41", 20, 1))
    ),
    Defect(
        "padding as wide as what no window reads",
        "convolution",
        r"brgconv:",
        _padding_that_looks_like_none,
        "along the last dimension there is padding in front, and as many elements behind the last window that none reads",
        "accumulators of 32 bits are stored in place of int8 codes, over what neighbours store and beyond the end of the destination: "
        "wrong numbers in each run, or with several threads in some",
        "the next implementation, or NumPy",
        "with 2 to 8 threads, in five runs each, 6 of 117 drawn shapes of this kind and none of 4,883 others; "
        "with one thread 49 of 3,886 of all, each with 24 bytes or more behind the destination overwritten",
    ),
    *(
        Defect(
            f"{kind} with zero points and wide padding",
            kind,
            implementation,
            _wide_padding_of_zero_points,
            f"a zero point of the source, more than 48 output channels, and padding of 4 or more{as_what}",
            "windows that reach into the padding, and neighbours of theirs, are wrong, depending on the number of threads",
            "the next implementation, or NumPy",
            "in blocks of 64 channels 149 of 2,887 shapes with padding of 4 to 6, 2 of 1,900 with more; in smaller blocks none of 3,400",
        )
        for kind, implementation, as_what in (
            ("convolution", r"brgconv:", ""),
            ("deconvolution", r"brg_conv:", ", as a convolution of the turned kernel"),
        )
    ),
    Defect(
        "compensation of a transposition of 8x8",
        "reorder",
        r"jit:uni$",
        _compensation_of_eights,
        "weights are packed by a transposition of 8x8 elements, and the kernel wants sums of theirs behind them (s8 sources, zero points)",
        "the sums are left zero: every element of the convolution is wrong",
        "the weights are handed over with gaps, for which no such transposition is taken",
        "[8, 8, 1] and depthwise kernels of 8 taps for 8 channels",
    ),
    Defect(
        "softmax with an operand",
        "softmax",
        r"jit:",
        _softmax_of_channels,
        "a post-op has an operand for each channel, and the softmax runs along another axis",
        "the operand is read as if the channels were the axis of the softmax, beyond its end: errors up to 1e36",
        "NumPy",
        "3 to 16 channels, ranks 3 to 5",
    ),
    Defect(
        "binary of another order",
        "binary",
        r"jit:",
        _channels_elsewhere,
        "a post-op has an operand for each channel, and the tensors lie neither channels last nor row-major with spatial dimensions; "
        "or one that samples share, and the channels lie between other dimensions",
        "wrong elements of the operand",
        "channels last, or as a matrix [N, C]",
        "632 of 804 drawn orders in ranks 2 to 5",
    ),
    Defect(
        "binary of blocks into codes",
        "binary",
        r"jit:",
        _codes_of_part_filled_blocks,
        "the source lies in blocks that its channels do not fill (an f32 convolution of 2 or 3 channels), and the destination has 8 bits",
        "the process ends: the kernel for the last block is not made, and called",
        "a plain layout, or NumPy",
        "2 and 3 channels in blocks of 8 and 16",
    ),
    Defect(
        "binary of inner blocks",
        "binary",
        r"jit:",
        _inner_blocks,
        "the blocks of channels lie further inside than a spatial dimension (aeBcd16b, which a concat along the last dimension takes), "
        "and a post-op follows",
        "where the channels do not fill their last block and a post-op is not 0 at 0, elements are overwritten with zeros; "
        "an operand for each channel is read at wrong places",
        "a plain layout, in which concat is made beforehand",
        "clipped 26 of 300 drawn shapes, with an operand for each channel 72 of 288",
    ),
    Defect(
        "pooling of blocks with a tensor",
        "pooling",
        r"jit:",
        _pooling_of_blocks,
        "the source lies in blocks of channels, and a post-op has an operand, row-major or channels last, that varies along "
        "another dimension",
        "the operand is read as if it lay in blocks as well, beyond its end",
        "channels last",
        "52 of 60 drawn shapes row-major, 47 of 60 channels last, none in blocks",
    ),
    Defect(
        "row-major pooling with a tensor",
        "pooling",
        r"jit:",
        _transposing_pooling,
        "f32 or bf16 in row-major order, and a post-op has an operand that varies along another dimension than the channels",
        "wrong elements of the operand: it is read as if it had been transposed with the source",
        "channels last",
        "maximum and average, 8 to 20 channels",
    ),
    Defect(
        "average of codes with a comparison",
        "pooling",
        r"jit_int:avx512",
        _averaged_and_compared,
        "an average of more than 16 channels is stored in 8 bits, and a post-op compares",
        "channels from the 17th on are those of others, or 0",
        "the next implementation",
        "u8 and s8, of 17 to 70 channels; each of gt, ge, lt, le with all of 9 counts of channels, "
        "eq and ne with 6 or 7 of them; maxima, an f32 destination, AVX2 and SSE4.1 are right",
    ),
    Defect(
        "pooling with a sum",
        "pooling",
        r"",
        _with_sum,
        "a post-op is a sum, which pooling does not have (a reduction, which has it, may run as one)",
        "the sum is left out, without an error",
        "NumPy",
        "row-major, maximum, 48 elements",
    ),
    Defect(
        "resampling with a tensor",
        "resampling",
        r"simple:",
        _resampled_last,
        "the tensors lie channels last, and a post-op has an operand that varies with the channel or within it; or they lie in blocks, "
        "and it varies at all",
        "wrong elements of the operand: they are counted in row-major order",
        "row-major",
        "nearest and linear, 3 to 20 channels",
    ),
    Defect(
        "product of matrices with gaps",
        "matmul",
        r"gemm:jit",
        _matrices_with_gaps,
        "a destination of three dimensions or more has gaps between its rows, and a post-op has an operand for each column, or each row",
        "from the second matrix on, other elements of the operand: they are counted as if there were no gaps",
        "the next implementation, or a primitive behind the product",
        "two matrices of one row, 64 and 256 columns",
    ),
    Defect(
        "resampling of one vector",
        "resampling",
        r"jit:",
        _resampled_vector,
        "the result is one sample of one element for each channel, and a post-op has an operand for each channel",
        "all channels get the operand's first element",
        "NumPy",
        "[1, C, 1] and [1, C, 1, 1]",
    ),
    Defect(
        "reorder with scales of dimensions apart",
        "reorder",
        r"jit:uni",
        _scales_of_dimensions_apart,
        "scales run along several dimensions that are not next to each other, such as the first and the third",
        "other scales, and numbers behind the last one: they are counted as if the dimensions were next to each other",
        "NumPy",
        "[2, 3, 4, 5], row-major and channels last: all five such masks of a destination, one of a source",
    ),
    *(
        Defect(
            f"{kind} that rounds twice",
            kind,
            implementation,
            _rounded_twice,
            _INEXACT,
            _TWICE,
            "the next implementation, or NumPy",
            _DIFFERENT.format(_OF_SUMS if kind in _SUMMING else _OF_NORMAL),
        )
        for kind, implementation in (
            ("pooling", r"simple_|jit:sse41|jit:avx$"),
            ("resampling", r"simple:|jit:sse41|jit:avx$"),
            ("convolution", r"jit_uni_int8:sse41|jit_uni_int8_1x1:sse41"),
            ("deconvolution", r"jit_uni_int8:sse41|jit_uni_int8_1x1:sse41"),
        )
    ),
    *(
        Defect(
            f"{kind} without FMA",
            kind,
            r"",
            _without_fma,
            f"{_INEXACT}; on a CPU without AVX2{' (sources of codes)' if kind in _SUMMING else ''}",
            _TWICE,
            "NumPy",
            _DIFFERENT.format(_OF_SUMS if kind in _SUMMING else _OF_NORMAL),
        )
        for kind in ("binary", "eltwise", *_SUMMING, "pooling", "resampling")
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
    *(
        Defect(
            f"{kind} of bf16 with slopes",
            kind,
            r"x64:gemm:jit",
            _slopes_of_bf16,
            f"source and weights are bf16, and a prelu post-op {when}",
            "other slopes",
            "the next implementation, or NumPy",
            figure,
        )
        for kind, when, figure in (
            ("inner_product", "is stored as f32", "8 by 16 outputs"),
            ("convolution", "has slopes that vary with more than the channel", "8 channels of 3x3"),
        )
    ),
    *(
        Defect(
            f"{kind} of s8",
            kind,
            r"ref$",
            lambda request: _operand(request, "src_layer").dtype == DataType.s8,
            "its codes are s8, on a CPU without AMX",
            "hidden states below 0 become 0: they are stored as codes of u8",
            "NumPy",
            "every layer with such a state",
        )
        for kind in ("gru", "lstm")
    ),
)


def defects_document() -> str:
    """docs/onednn-defects.md."""
    parts = [_INTRODUCTION, *(_section(defect) for defect in DEFECTS)]
    return "\n".join(parts)


_INTRODUCTION = """# What oneDNN computes wrongly

Written by `make docs` from `onednn/defects.py`. Each was measured on the bare library, oneDNN 3.2.0, against exact integers or
float64, and `tests/onednn/test_defects.py` shows it again. fqfuse passes such an implementation over; `session.placement()` says where
that sends a step to NumPy. What oneDNN's int8 code loses by design on CPUs without VNNI (sums of products saturate to 16 bits) is no
part of this list.
"""


def _section(defect: Defect) -> str:
    implementation = defect.implementation.rstrip("$").replace("|", "`, `")
    lines = [
        f"## {defect.name}",
        "",
        f"- Implementation: {defect.kind}, `{implementation}`",
        f"- When: {defect.when}",
        f"- Result: {defect.symptom}",
        f"- Measured: {defect.figure}",
        f"- Instead: {defect.instead}",
    ]
    if defect.mended is not None:
        lines.append(f"- Mended: in {'.'.join(map(str, defect.mended))}")
    return "\n".join([*lines, ""])
