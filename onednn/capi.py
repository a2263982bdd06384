"""The C API of oneDNN 3.2 and later for ctypes: prototypes, and what is said of a call that fails.

`PROTOTYPES` and `PRIMITIVES` declare every function that this binding calls, one row each;
`declare` sets them on a loaded library and reports the first that is missing. Handles travel as
addresses (`c_void_p`), and new ones come back through a leading out-pointer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import BackendUnavailable, FqfuseError


class Status(IntEnum):
    """`dnnl_status_t`: what a C call returns."""

    success = 0
    out_of_memory = 1
    invalid_arguments = 2
    unimplemented = 3
    last_impl_reached = 4
    runtime_error = 5
    not_required = 6
    invalid_shape = 9
    invalid_data_type = 10


class Version(ctypes.Structure):
    """`dnnl_version_t`; `cpu_runtime` is a `CpuRuntime`, or the number of one that is unknown
    here.
    """

    _fields_ = [
        ("major", c_int),
        ("minor", c_int),
        ("patch", c_int),
        ("hash", c_char_p),
        ("cpu_runtime", c_uint),
        ("gpu_runtime", c_uint),
    ]

    def __str__(self) -> str:
        return ".".join(map(str, self.triple))

    @property
    def triple(self) -> tuple[int, int, int]:
        """What versions are compared by."""
        return self.major, self.minor, self.patch


class ExecArg(ctypes.Structure):
    """`dnnl_exec_arg_t`: argument id and memory handle."""

    _fields_ = [("arg", c_int), ("memory", c_void_p)]


class Signature(NamedTuple):
    """How the descriptor of a primitive is asked for.

    Attributes:
        function: `dnnl_<function>_primitive_desc_create`.
        arguments: its arguments between the out-pointer and the attributes, by name: operands
            (`OPERANDS`), parameters, and what is always the same.
        text: the parameters in messages.
        defaults: parameters that need not be given.
    """

    function: str
    arguments: str
    text: str = ""
    defaults: Mapping[str, Any] = MappingProxyType({})

    @property
    def operands(self) -> list[str]:
        """Those among the arguments that are memory descriptors, in their order."""
        return [word for word in self.arguments.split() if word in OPERANDS]


_STATES = frozenset(
    {
        "src_layer",
        "src_iter",
        "src_iter_c",
        "attention",
        "weights_layer",
        "weights_iter",
        "weights_peephole",
        "weights_projection",
        "dst_layer",
        "dst_iter",
        "dst_iter_c",
    }
)
OPERANDS = frozenset({"src", "src0", "src1", "weights", "bias", "dst"}) | _STATES

_WINDOW = "strides={strides} dilations={dilations} padding={padding_l}..{padding_r}"
_CONVOLUTION = "engine prop alg src weights bias dst strides dilations padding_l padding_r"
_AUGRU = "engine prop direction src_layer src_iter attention weights_layer weights_iter bias dst_layer dst_iter flags"
_GRU = "engine prop direction src_layer src_iter weights_layer weights_iter bias dst_layer dst_iter flags"

PRIMITIVES = {
    # src (N, C, spatial...), weights (O, I, spatial...), with groups (G, O/G, I/G, spatial...),
    # bias (O), dst (N, O, spatial...). Scales on SRC (mask 0), WEIGHTS (0, 1, or 3 with groups) and
    # DST (0), zero points on SRC and DST. The algorithm is the direct one.
    "convolution": Signature("convolution_forward", _CONVOLUTION, _WINDOW, {"alg": 1}),
    # Transposed convolution; arguments as of convolution, weights still (O, I, spatial...).
    "deconvolution": Signature("deconvolution_forward", _CONVOLUTION, _WINDOW, {"alg": 10}),
    # src (N, I, spatial...) times weights (O, I, spatial...) plus bias (O): dst (N, O). Scales on SRC
    # (mask 0), WEIGHTS (0 or 1) and DST (0), no zero points.
    "inner_product": Signature("inner_product_forward", "engine prop src weights bias dst"),
    # src (..., M, K) times weights (..., K, N) plus bias (broadcast to dst, same number of
    # dimensions). Leading dimensions are equal or 1. Weights scales: mask 0, or 1 << (ndims - 1)
    # for one value per column.
    "matmul": Signature("matmul", "engine src weights bias dst"),
    # Over (N, C, spatial...) by `AlgKind.pooling_*`; it takes neither scales nor zero points.
    "pooling": Signature(
        "pooling_forward",
        "engine prop alg src dst strides kernel dilations padding_l padding_r",
        "{alg.name} strides={strides} kernel={kernel} dilations={dilations} padding={padding_l}..{padding_r}",
    ),
    # dst = alg(src; alpha, beta), same shape and type; on int8 and s32 oneDNN 3.2 takes relu and
    # linear only.
    "eltwise": Signature(
        "eltwise_forward",
        "engine prop alg src dst alpha beta",
        "{alg.name}({alpha:g}, {beta:g})",
        {"alpha": 0.0, "beta": 0.0},
    ),
    # dst = alg(src0 * scale0, src1 * scale1); dimensions of 1 broadcast. Scales on SRC_0 and SRC_1
    # (mask 0), none on DST.
    "binary": Signature("binary", "engine alg src0 src1 dst", "{alg.name}"),
    # dst = src where src > 0, else weights * src; weights have the number of dimensions of src,
    # each 1 or equal.
    "prelu": Signature("prelu_forward", "engine prop src weights dst"),
    # The sources, joined along `axis`, are `arg_multiple_src(i)`, each with an optional scale (mask
    # 0). dst None: chosen.
    "concat": Signature("concat", "engine dst count axis sources", "axis={axis}"),
    # The sources `arg_multiple_src(i)`, each times its own of `scales`, added up in f32. No attributes.
    "sum": Signature("sum", "engine dst count scales sources", "scales={scales}"),
    # Copy between layouts and types: dst = scale_src * (src - zp_src) / scale_dst + zp_dst, rounded
    # half to even. It packs weights too: the `dst` that a primitive wants (`weights_md`) carries
    # what compensation it needs.
    "reorder": Signature("reorder", "src engine dst engine"),
    # View `axis` as (C/group_size, group_size) and transpose the two, as channel shuffle does.
    "shuffle": Signature(
        "shuffle_forward",
        "engine prop src dst axis group_size",
        "axis={axis} group_size={group_size}",
    ),
    # Resize the spatial dimensions of (N, C, spatial...) with half-pixel coordinates, by the ratios
    # of the shapes.
    "resampling": Signature("resampling_forward", "engine prop alg factors src dst", "{alg.name}"),
    # Reduce every dimension that is 1 in `dst` and not in `src`.
    "reduction": Signature(
        "reduction", "engine alg src dst p epsilon", "{alg.name}", {"p": 0.0, "epsilon": 0.0}
    ),
    # Softmax (or `softmax_log`) along `axis`. On int8 tensors the SRC scale multiplies the
    # *result*: it is no dequantization of the input.
    "softmax": Signature(
        "softmax_forward", "engine prop alg src dst axis", "{alg.name} axis={axis}"
    ),
    # Over the last dimension; `Arg.SCALE` and `Arg.SHIFT` (f32, C) with `use_scale` and
    # `use_shift`. It takes no post-ops in 3.2, and as with softmax the SRC scale multiplies the
    # result.
    "layer_normalization": Signature(
        "layer_normalization_forward",
        "engine prop src dst statistics epsilon flags",
        "epsilon={epsilon:g} flags={flags:d}",
    ),
    # Each channel of (N, C, spatial...); with `use_global_stats` by `Arg.MEAN` and `Arg.VARIANCE`
    # (f32, C).
    "batch_normalization": Signature(
        "batch_normalization_forward",
        "engine prop src dst epsilon flags",
        "epsilon={epsilon:g} flags={flags:d}",
    ),
    # Recurrent layers over src_layer (T, N, I). The gates of weights_layer and weights_iter
    # (1, D, inputs, G, H; layout `any`), and of bias (1, D, G, H), stand in the order i f c o of
    # LSTM, u r o of GRU, whose linear-before-reset form has a fourth bias, of weights_iter's o.
    # Peephole weights (1, D, 3, H): i f o; of a projection (1, D, H, P), behind which there are P
    # hidden values. dst_layer is (T, N, H), with `RnnDirection.concat` (T, N, 2 H); states are
    # (1, D, N, H), and 0 where they are absent.
    "lstm": Signature(
        "lstm_forward",
        "engine prop direction src_layer src_iter src_iter_c weights_layer weights_iter weights_peephole weights_projection bias "
        "dst_layer dst_iter dst_iter_c flags",
        "{direction.name}",
        {"flags": 0},
    ),
    "gru": Signature("gru_forward", _GRU, "{direction.name}", {"flags": 0}),
    "augru": Signature("augru_forward", _AUGRU, "{direction.name}", {"flags": 0}),
    "lbr_gru": Signature("lbr_gru_forward", _GRU, "{direction.name}", {"flags": 0}),
    "lbr_augru": Signature("lbr_augru_forward", _AUGRU, "{direction.name}", {"flags": 0}),
    "vanilla_rnn": Signature(
        "vanilla_rnn_forward",
        "engine prop alg direction src_layer src_iter weights_layer weights_iter bias dst_layer dst_iter flags alpha beta",
        "{alg.name} {direction.name}",
        {"flags": 0, "alpha": 0.0, "beta": 0.0},
    ),
    # Across channels: src * (k + alpha / local_size * sum of squares) ** -beta. Float types only.
    "lrn": Signature(
        "lrn_forward",
        "engine prop alg src dst local_size alpha beta k",
        "lrn_across_channels local_size={local_size} alpha={alpha:g} beta={beta:g} k={k:g}",
        {"alg": 2815},
    ),
}
"""Kind of primitive -> how its descriptor is asked for.

Layouts may be `any` where the library may choose. Spatial parameters have one entry for each
spatial dimension; dilations are 0-based (0: none; ONNX's value minus 1).
"""

# name without `dnnl_` -> argument types, and the type of the result where it is no status
PROTOTYPES = {
    "version": "-> version",
    "get_effective_cpu_isa": "-> int",
    "engine_create": "out int size",
    "engine_get_count": "int -> size",
    "engine_destroy": "handle",
    "stream_create": "out handle int",
    "stream_destroy": "handle",
    "stream_wait": "handle",
    "memory_desc_create_with_tag": "out int dims int int",
    "memory_desc_create_with_strides": "out int dims int dims",
    "memory_desc_create_submemory": "out handle dims dims",
    "memory_desc_reshape": "out handle int dims",
    "memory_desc_clone": "out handle",
    "memory_desc_query": "handle int address",
    "memory_desc_get_size": "handle -> size",
    "memory_desc_equal": "handle handle -> int",
    "memory_desc_destroy": "handle",
    "memory_create": "out handle handle address",
    "memory_set_data_handle": "handle address",
    "memory_destroy": "handle",
    "primitive_attr_create": "out",
    "primitive_attr_set_scales_mask": "handle int int",
    "primitive_attr_set_zero_points_mask": "handle int int",
    "primitive_attr_set_post_ops": "handle handle",
    "primitive_attr_set_scratchpad_mode": "handle int",
    "primitive_attr_set_fpmath_mode": "handle int",
    "primitive_attr_set_rnn_data_qparams": "handle float float",
    "primitive_attr_set_rnn_weights_qparams": "handle int64 int factors",
    "primitive_attr_set_rnn_weights_projection_qparams": "handle int64 int factors",
    "primitive_attr_destroy": "handle",
    "post_ops_create": "out",
    "post_ops_append_sum": "handle float int int",
    "post_ops_append_eltwise": "handle int float float",
    "post_ops_append_binary": "handle int handle",
    "post_ops_append_prelu": "handle int",
    "post_ops_append_dw": "handle int int int int64 int64 int64",
    "post_ops_destroy": "handle",
    "primitive_desc_query": "handle int int address",
    "primitive_desc_query_md": "handle int int -> address",
    "primitive_desc_next_impl": "handle",
    "primitive_desc_destroy": "handle",
    "primitive_create": "out handle",
    "primitive_execute": "handle handle int address",
    "primitive_destroy": "handle",
    **{
        f"{row.function}_primitive_desc_create": f"out {row.arguments} handle"
        for row in PRIMITIVES.values()
    },
}

_TYPES: dict[str, Any] = {
    "version": POINTER(Version),
    "out": POINTER(c_void_p),
    "sources": POINTER(c_void_p),
    **dict.fromkeys(("factors", "scales"), POINTER(c_float)),
    "size": c_size_t,
    **dict.fromkeys(("handle", "address", "engine", "statistics", *OPERANDS), c_void_p),
    # each C enum is an int
    **dict.fromkeys(("int", "prop", "alg", "direction", "flags", "axis", "count"), c_int),
    **dict.fromkeys(("int64", "local_size", "group_size"), c_int64),
    **dict.fromkeys(("float", "alpha", "beta", "k", "p", "epsilon"), c_float),
    **dict.fromkeys(
        ("dims", "strides", "kernel", "dilations", "padding_l", "padding_r"), POINTER(c_int64)
    ),
}


def int64_array(values: tuple[int, ...]) -> ctypes.Array[c_int64]:
    """`dnnl_dims_t`-compatible array; its length is that of `values`.

    oneDNN copies as many entries as the descriptor has dimensions, so no padding to DNNL_MAX_NDIMS
    is needed.
    """
    return (c_int64 * len(values))(*values)


def declare(cdll: ctypes.CDLL, where: str) -> None:
    """Set result and argument types of every function in `PROTOTYPES`.

    Args:
        cdll: a loaded libdnnl.
        where: its path, for the message.

    Raises:
        BackendUnavailable: a function is missing, so this is not a oneDNN 3.2 or later.
    """
    for name, prototype in PROTOTYPES.items():
        try:
            function = getattr(cdll, f"dnnl_{name}")
        except AttributeError:
            raise BackendUnavailable(
                f"the library exports no dnnl_{name}, so it is not a complete oneDNN 3.2 or later",
                where=where,
                hint='install a complete one with `pip install "fqfuse[onednn]"`',
            ) from None
        arguments, _, result = prototype.partition("->")
        function.restype = _TYPES[result.strip() or "int"]
        function.argtypes = [_TYPES[word] for word in arguments.split()]


_MEANING = {
    Status.out_of_memory: "memory ran out, or more than 32 post-ops were appended",
    Status.invalid_arguments: "shapes, data types, layouts or attributes contradict each other",
    Status.unimplemented: "no implementation for this CPU takes this combination of shapes, data types and attributes",
    Status.last_impl_reached: "no further implementation",
    Status.runtime_error: "the library failed while it ran",
    Status.not_required: "the queried item does not exist for this primitive",
    Status.invalid_shape: "the shapes are not supported",
    Status.invalid_data_type: "the data types are not supported",
}


class OneDnnError(FqfuseError):
    """A call of the C API failed.

    Attributes:
        status: the `Status`; a plain int when the library is newer than this binding and the value
            unknown.
    """

    status: Status | int = Status.runtime_error

    @property
    def is_refusal(self) -> bool:
        """The library does not take a request, and has not failed otherwise."""
        return self.status in (Status.unimplemented, Status.invalid_arguments)

    def __reduce__(self) -> tuple[object, ...]:
        return *super().__reduce__(), {"status": self.status}


class Unimplemented(OneDnnError):
    """`dnnl_unimplemented`: the request is well formed, but this CPU and library have no
    implementation for it.
    """


def failure(status: int, what: str, origin: str = "") -> OneDnnError:
    """The error for a failed call.

    Args:
        status: what the C function returned, not `Status.success`.
        what: the call and the primitive it was for, such as `convolution u8[1,64,56,56] ...`.
        origin: the names of the nodes in the user's model that the call serves.
    """
    try:
        known: Status | int = Status(status)
        text = (
            f"{Status(status).name} ({status}): {_MEANING.get(Status(status), 'no further detail')}"
        )
    except ValueError:
        known, text = status, f"status {status}, unknown to this binding"
    kind = Unimplemented if known == Status.unimplemented else OneDnnError
    error = kind(f"oneDNN: {what} failed with {text}", where=origin)
    error.status = known
    return error


def check(status: int, what: str, origin: str = "") -> None:
    """Raise the error of a failed call, see `failure`; return on success."""
    if status:
        raise failure(status, what, origin)
