"""The constants of oneDNN's C API, under oneDNN's own names without the `dnnl_` prefix.

Values are those of oneDNN 3.2; later 3.x releases only append to them. `DataType.u8` is `dnnl_u8`, `AlgKind.eltwise_relu` is
`dnnl_eltwise_relu`, `Arg.SRC` is `DNNL_ARG_SRC`. Training constants and blocked format tags are left out: blocked layouts
are chosen by the library (`FormatTag.any`) and never spelled by us.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

__all__ = [
    "AlgKind",
    "Arg",
    "CpuIsa",
    "CpuRuntime",
    "DataType",
    "EngineKind",
    "FormatKind",
    "FormatTag",
    "FpmathMode",
    "NormalizationFlags",
    "PrimitiveKind",
    "PropKind",
    "Query",
    "ScratchpadMode",
    "Status",
    "StreamFlags",
    "arg_dw_scales",
    "arg_multiple_src",
    "arg_post_op",
    "arg_scales",
    "arg_zero_points",
]


class Status(IntEnum):
    """`dnnl_status_t`: what a C call returns."""

    success = 0
    out_of_memory = 1
    invalid_arguments = 2
    unimplemented = 3
    last_impl_reached = 4
    runtime_error = 5
    not_required = 6
    invalid_graph = 7
    invalid_graph_op = 8
    invalid_shape = 9
    invalid_data_type = 10


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


class EngineKind(IntEnum):
    """`dnnl_engine_kind_t`."""

    any_engine = 0
    cpu = 1
    gpu = 2


class StreamFlags(IntFlag):
    """`dnnl_stream_flags_t`."""

    in_order = 1
    out_of_order = 2


class ScratchpadMode(IntEnum):
    """`dnnl_scratchpad_mode_t`: who owns the scratchpad. Only `user` is safe when threads share a primitive."""

    library = 0
    user = 1


class FpmathMode(IntEnum):
    """`dnnl_fpmath_mode_t`: which narrower float types an f32 primitive may compute in."""

    strict = 0
    bf16 = 1
    f16 = 2
    any = 3
    tf32 = 4


class FormatKind(IntEnum):
    """`dnnl_format_kind_t`: `opaque` layouts carry no strides and are only moved by a reorder."""

    undef = 0
    any = 1
    blocked = 2
    opaque = 3


class PropKind(IntEnum):
    """`dnnl_prop_kind_t`, forward only."""

    undef = 0
    forward_training = 64
    forward_inference = 96


class NormalizationFlags(IntFlag):
    """`dnnl_normalization_flags_t`."""

    none = 0
    use_global_stats = 1
    use_scale = 2
    use_shift = 4
    fuse_norm_relu = 8
    fuse_norm_add_relu = 16


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
    """`dnnl_cpu_isa_t`: a set of instruction-set bits, so `isa & CpuIsa.avx2 == CpuIsa.avx2` tests for a capability.

    Combinations that a newer library reports and 3.2 has no name for stay representable.
    """

    default = 0
    sse41 = 0x1
    avx = 0x3
    avx2 = 0x7
    avx2_vnni = 0xF
    avx2_vnni_2 = 0x1F
    avx512_core = 0x27
    avx512_core_vnni = 0x67
    avx512_core_bf16 = 0xE7
    avx512_core_fp16 = 0x1EF
    avx512_core_amx = 0xFEF
    avx512_core_amx_fp16 = 0x1FEF

    @property
    def has_vnni(self) -> bool:
        """True where u8*s8 products accumulate exactly in s32; without it adjacent pairs saturate to s16."""
        return bool(self & 0x48)


class PrimitiveKind(IntEnum):
    """`dnnl_primitive_kind_t`."""

    undef = 0
    reorder = 1
    shuffle = 2
    concat = 3
    sum = 4
    convolution = 5
    deconvolution = 6
    eltwise = 7
    lrn = 8
    batch_normalization = 9
    inner_product = 10
    binary = 13
    matmul = 14
    resampling = 15
    pooling = 16
    reduction = 17
    prelu = 18
    softmax = 19
    layer_normalization = 20


class AlgKind(IntEnum):
    """`dnnl_alg_kind_t`, forward algorithms."""

    undef = 0
    convolution_direct = 1
    convolution_auto = 3
    deconvolution_direct = 10
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
    lrn_across_channels = 2815
    lrn_within_channel = 3071
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
    reduction_norm_lp_max = 196599
    reduction_norm_lp_sum = 196600
    reduction_norm_lp_power_p_max = 196601
    reduction_norm_lp_power_p_sum = 196602
    softmax_accurate = 196608
    softmax_log = 196609


class Query(IntEnum):
    """`dnnl_query_t`: the queries used by this binding."""

    num_of_inputs_s32 = 3
    num_of_outputs_s32 = 4
    impl_info_str = 8
    strides = 14
    src_md = 129
    weights_md = 131
    dst_md = 133
    workspace_md = 135
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


class FormatTag(IntEnum):
    """`dnnl_format_tag_t`, plain layouts only: letters name the logical dimensions, outermost first in memory.

    Names such as `nhwc` are aliases of the letter form. Layouts without a tag are made from strides.
    """

    undef = 0
    any = 1
    a = 2
    ab = 3
    abc = 4
    abcd = 5
    abcde = 6
    abcdef = 7
    ba = 14
    acb = 15
    bac = 16
    bca = 17
    cab = 18
    cba = 19
    abdc = 20
    acbd = 21
    acdb = 22
    adbc = 23
    adcb = 24
    bacd = 25
    bcda = 26
    cdab = 27
    cdba = 28
    dcab = 29
    abced = 30
    abdec = 31
    acbde = 32
    acdeb = 33
    adecb = 34
    bacde = 35
    bcdea = 36
    cdeab = 37
    cdeba = 38
    decab = 39
    abcdfe = 40
    abdefc = 41
    abdfce = 42
    acbdef = 43
    adefcb = 44
    defcab = 45

    x = 2
    nc = 3
    cn = 14
    ncw = 4
    nwc = 15
    nchw = 5
    nhwc = 22
    chwn = 26
    ncdhw = 6
    ndhwc = 33
    oi = 3
    io = 14
    oiw = 4
    owi = 15
    wio = 19
    oihw = 5
    ohwi = 22
    hwio = 28
    ihwo = 26
    iohw = 25
    oidhw = 6
    odhwi = 33
    dhwio = 38
    goiw = 5
    wigo = 29
    goihw = 6
    gohwi = 31
    hwigo = 39
    goidhw = 7
    dhwigo = 45


class Arg(IntEnum):
    """`DNNL_ARG_*`: which argument of a primitive a memory is."""

    SRC = 1
    SRC_0 = 1
    SRC_1 = 2
    SRC_2 = 3
    DST = 17
    WEIGHTS = 33
    BIAS = 41
    MEAN = 49
    VARIANCE = 50
    SCALE = 51
    SHIFT = 52
    WORKSPACE = 64
    SCRATCHPAD = 80
    MULTIPLE_SRC = 1024
    ATTR_SCALES = 4096
    ATTR_ZERO_POINTS = 8192
    ATTR_POST_OP_DW = 16384
    ATTR_MULTIPLE_POST_OP_BASE = 32768


def arg_multiple_src(index: int) -> int:
    """Argument id of source `index` of concat and sum (`DNNL_ARG_MULTIPLE_SRC + index`)."""
    return Arg.MULTIPLE_SRC + index


def arg_scales(arg: int) -> int:
    """Argument id of the scales memory of argument `arg` (`DNNL_ARG_ATTR_SCALES | arg`)."""
    return Arg.ATTR_SCALES | arg


def arg_zero_points(arg: int) -> int:
    """Argument id of the zero points memory of argument `arg` (`DNNL_ARG_ATTR_ZERO_POINTS | arg`)."""
    return Arg.ATTR_ZERO_POINTS | arg


def arg_post_op(index: int, arg: int) -> int:
    """Argument id of an operand of post-op `index`: `Arg.SRC_1` for binary, `Arg.WEIGHTS` for prelu."""
    return Arg.ATTR_MULTIPLE_POST_OP_BASE * (index + 1) | arg


def arg_dw_scales(arg: int) -> int:
    """Argument id of the scales of the depthwise post-op's `Arg.WEIGHTS` or `Arg.DST`; its weights themselves are
    `Arg.ATTR_POST_OP_DW | Arg.WEIGHTS`."""
    return Arg.ATTR_SCALES | Arg.ATTR_POST_OP_DW | arg
