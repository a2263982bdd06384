"""The constants of oneDNN's C API, under oneDNN's own names without the `dnnl_` prefix.

Values are those of oneDNN 3.2; later 3.x releases only append to them. `DataType.u8` is `dnnl_u8`,
`AlgKind.eltwise_relu` is `dnnl_eltwise_relu`, `Arg.SRC` is `DNNL_ARG_SRC`. What serves training is
left out, and so are format tags: plain layouts are said by strides, blocked ones are chosen by the
library.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag


class DataType(IntEnum):
    """`dnnl_data_type_t`."""

    undef = 0
    f16 = 1
    bf16 = 2
    f32 = 3
    s32 = 4
    s8 = 5
    u8 = 6
    f64 = 7
    boolean = 8


class FormatKind(IntEnum):
    """`dnnl_format_kind_t`: `opaque` layouts carry no strides and are only moved by a reorder."""

    undef = 0
    any = 1
    blocked = 2
    opaque = 3


class NormalizationFlags(IntFlag):
    """`dnnl_normalization_flags_t`."""

    none = 0
    use_global_stats = 1
    use_scale = 2
    use_shift = 4


class RnnDirection(IntEnum):
    """`dnnl_rnn_direction_t`: which way a recurrent layer goes through time, and what becomes of
    the two results where it goes both.
    """

    left2right = 1
    right2left = 2
    concat = 3
    sum = 4


class ScratchpadMode(IntEnum):
    """`dnnl_scratchpad_mode_t`: who allocates the memory that a primitive needs while it runs."""

    library = 0
    user = 1


class FpmathMode(IntEnum):
    """`dnnl_fpmath_mode_t`: the types that f32 may be narrowed to inside of a primitive."""

    strict = 0
    bf16 = 1
    f16 = 2
    any = 3
    tf32 = 4


class CpuRuntime(IntEnum):
    """`DNNL_RUNTIME_*`: what the CPU engine runs its threads on."""

    none = 0
    sequential = 1
    openmp = 2
    tbb = 4
    threadpool = 8
    opencl = 256
    sycl = 512


class CpuIsa(IntFlag):
    """`dnnl_cpu_isa_t`: a set of instruction-set bits, so `isa & CpuIsa.avx2 == CpuIsa.avx2` tests
    for a capability.

    Combinations that a newer library reports and 3.2 has no name for stay representable.
    """

    default = 0
    sse41 = 0x1
    avx2 = 0x7
    avx2_vnni = 0xF
    avx512_core = 0x27
    avx512_core_vnni = 0x67
    avx512_core_bf16 = 0xE7
    avx512_core_fp16 = 0x1EF
    avx512_core_amx = 0xFEF

    @property
    def has_vnni(self) -> bool:
        """True where u8*s8 products accumulate exactly in s32; without it adjacent pairs saturate
        to s16.
        """
        return bool(self & 0x48)

    @property
    def has_fma(self) -> bool:
        """True where generated code has a multiply-add that rounds once: from AVX2 on."""
        return bool(self & 0x4)

    @property
    def has_amx(self) -> bool:
        """True where there is code for tiles: products of codes and of bf16."""
        return self & CpuIsa.avx512_core_amx == CpuIsa.avx512_core_amx


class AlgKind(IntEnum):
    """`dnnl_alg_kind_t`, forward algorithms."""

    eltwise_relu = 32
    eltwise_tanh = 33
    eltwise_elu = 34
    eltwise_square = 35
    eltwise_abs = 36
    eltwise_sqrt = 37
    eltwise_linear = 38
    eltwise_soft_relu = 39
    eltwise_hardsigmoid = 40
    eltwise_logistic = 41
    eltwise_exp = 42
    eltwise_gelu_tanh = 43
    eltwise_swish = 44
    eltwise_log = 45
    eltwise_clip = 46
    eltwise_clip_v2 = 47
    eltwise_pow = 48
    eltwise_gelu_erf = 49
    eltwise_round = 50
    eltwise_mish = 51
    eltwise_hardswish = 52
    pooling_max = 511
    pooling_avg_include_padding = 767
    pooling_avg_exclude_padding = 1023
    binary_add = 131056
    binary_mul = 131057
    binary_max = 131058
    binary_min = 131059
    binary_div = 131060
    binary_sub = 131061
    binary_ge = 131062
    binary_gt = 131063
    binary_le = 131064
    binary_lt = 131065
    binary_eq = 131066
    binary_ne = 131067
    resampling_nearest = 196592
    resampling_linear = 196593
    reduction_max = 196594
    reduction_min = 196595
    reduction_sum = 196596
    reduction_mul = 196597
    reduction_mean = 196598
    softmax_accurate = 196608
    softmax_log = 196609


class Query(IntEnum):
    """`dnnl_query_t`: the queries used by this binding."""

    memory_consumption_s64 = 6
    impl_info_str = 8
    strides = 14
    src_md = 129
    weights_md = 131
    dst_md = 133
    scratchpad_md = 136
    exec_arg_md = 255
    ndims_s32 = 256
    dims = 257
    data_type = 258
    submemory_offset_s64 = 259
    padded_dims = 260
    format_kind = 262
    inner_nblks_s32 = 263
    inner_blks = 264
    inner_idxs = 265


class Arg(IntEnum):
    """`DNNL_ARG_*`: which argument of a primitive a memory is."""

    SRC = 1
    SRC_0 = 1
    SRC_1 = 2
    SRC_LAYER = 1
    SRC_ITER = 2
    SRC_ITER_C = 3
    ATTENTION = 4
    DST = 17
    DST_LAYER = 17
    DST_ITER = 18
    DST_ITER_C = 19
    WEIGHTS = 33
    WEIGHTS_LAYER = 33
    WEIGHTS_ITER = 34
    WEIGHTS_PEEPHOLE = 35
    WEIGHTS_PROJECTION = 36
    BIAS = 41
    MEAN = 49
    VARIANCE = 50
    SCALE = 51
    SHIFT = 52
    SCRATCHPAD = 80
    MULTIPLE_SRC = 1024
    ATTR_SCALES = 4096
    ATTR_ZERO_POINTS = 8192
    ATTR_POST_OP_DW = 16384
    ATTR_MULTIPLE_POST_OP_BASE = 32768


def arg_multiple_src(index: int) -> int:
    """Argument id of source `index` of concat (`DNNL_ARG_MULTIPLE_SRC + index`)."""
    return Arg.MULTIPLE_SRC + index


def arg_scales(arg: int) -> int:
    """Argument id of the scales memory of argument `arg` (`DNNL_ARG_ATTR_SCALES | arg`)."""
    return Arg.ATTR_SCALES | arg


def arg_zero_points(arg: int) -> int:
    """Argument id of the zero points memory of argument `arg` (`DNNL_ARG_ATTR_ZERO_POINTS |
    arg`).
    """
    return Arg.ATTR_ZERO_POINTS | arg


def arg_post_op(index: int, arg: int) -> int:
    """Argument id of an operand of post-op `index`: `Arg.SRC_1` for binary, `Arg.WEIGHTS` for
    prelu.
    """
    return Arg.ATTR_MULTIPLE_POST_OP_BASE * (index + 1) | arg


def arg_name(arg: int) -> str:
    """An argument id in words, for messages: `weights`, `src2`, `scales of dst`, `src_1 of post-op
    3`.
    """
    if arg >= Arg.ATTR_MULTIPLE_POST_OP_BASE:
        index, arg = divmod(arg, Arg.ATTR_MULTIPLE_POST_OP_BASE)
        return f"{arg_name(arg)} of post-op {index - 1}"
    for flag, text in (
        (Arg.ATTR_SCALES, "scales of "),
        (Arg.ATTR_ZERO_POINTS, "zero points of "),
        (Arg.ATTR_POST_OP_DW, "depthwise "),
    ):
        if arg & flag:
            return text + arg_name(arg & ~flag)
    if arg >= Arg.MULTIPLE_SRC:
        return f"src{arg - Arg.MULTIPLE_SRC}"
    try:
        return Arg(arg).name.lower()
    except ValueError:
        return f"argument {arg}"
