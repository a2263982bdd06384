"""The C API of oneDNN 3.2 and later for ctypes: prototypes, structures and checked calls.

One table, `PROTOTYPES`, declares every function this binding calls; `declare` sets them on a loaded library and reports
the first that is missing. Handles travel as plain addresses (`c_void_p`), descriptors come back through a leading
out-pointer, and each function returns a `Status` unless the table says otherwise.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from typing import Any

from ..errors import BackendUnavailable, FqfuseError
from .enums import Status

__all__ = ["ExecArg", "OneDnnError", "Unimplemented", "VersionStruct", "check", "declare", "failure", "int64_array"]


class VersionStruct(ctypes.Structure):
    """`dnnl_version_t`."""

    _fields_ = [
        ("major", c_int),
        ("minor", c_int),
        ("patch", c_int),
        ("hash", c_char_p),
        ("cpu_runtime", c_uint),
        ("gpu_runtime", c_uint),
    ]


class ExecArg(ctypes.Structure):
    """`dnnl_exec_arg_t`: argument id and memory handle."""

    _fields_ = [("arg", c_int), ("memory", c_void_p)]


_H = c_void_p  # any handle: engine, stream, memory, descriptor, attribute, primitive
_OUT = POINTER(c_void_p)
_DIMS = POINTER(c_int64)
_KIND = c_int  # every C enum is an int

# Arguments after the leading (out, engine) of the `dnnl_<name>_primitive_desc_create` functions.
_PRIMITIVE_DESCS: dict[str, tuple[Any, ...]] = {
    "convolution_forward": (_KIND, _KIND, _H, _H, _H, _H, _DIMS, _DIMS, _DIMS, _DIMS, _H),
    "deconvolution_forward": (_KIND, _KIND, _H, _H, _H, _H, _DIMS, _DIMS, _DIMS, _DIMS, _H),
    "inner_product_forward": (_KIND, _H, _H, _H, _H, _H),
    "matmul": (_H, _H, _H, _H, _H),
    "pooling_forward": (_KIND, _KIND, _H, _H, _DIMS, _DIMS, _DIMS, _DIMS, _DIMS, _H),
    "eltwise_forward": (_KIND, _KIND, _H, _H, c_float, c_float, _H),
    "binary": (_KIND, _H, _H, _H, _H),
    "softmax_forward": (_KIND, _KIND, _H, _H, c_int, _H),
    "layer_normalization_forward": (_KIND, _H, _H, _H, c_float, c_uint, _H),
    "batch_normalization_forward": (_KIND, _H, _H, c_float, c_uint, _H),
    "prelu_forward": (_KIND, _H, _H, _H, _H),
    "lrn_forward": (_KIND, _KIND, _H, _H, c_int64, c_float, c_float, c_float, _H),
    "resampling_forward": (_KIND, _KIND, POINTER(c_float), _H, _H, _H),
    "reduction": (_KIND, _H, _H, c_float, c_float, _H),
    "shuffle_forward": (_KIND, _H, _H, c_int, c_int64, _H),
    "concat": (_H, c_int, c_int, POINTER(c_void_p), _H),
    "sum": (_H, c_int, POINTER(c_float), POINTER(c_void_p), _H),
}

# name without `dnnl_` -> (result type, argument types)
PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "version": (POINTER(VersionStruct), ()),
    "get_effective_cpu_isa": (_KIND, ()),
    "get_primitive_cache_capacity": (_KIND, (POINTER(c_int),)),
    "set_primitive_cache_capacity": (_KIND, (c_int,)),
    "engine_create": (_KIND, (_OUT, _KIND, c_size_t)),
    "engine_destroy": (_KIND, (_H,)),
    "stream_create": (_KIND, (_OUT, _H, c_uint)),
    "stream_wait": (_KIND, (_H,)),
    "stream_destroy": (_KIND, (_H,)),
    "memory_desc_create_with_tag": (_KIND, (_OUT, c_int, _DIMS, _KIND, _KIND)),
    "memory_desc_create_with_strides": (_KIND, (_OUT, c_int, _DIMS, _KIND, _DIMS)),
    "memory_desc_create_submemory": (_KIND, (_OUT, _H, _DIMS, _DIMS)),
    "memory_desc_reshape": (_KIND, (_OUT, _H, c_int, _DIMS)),
    "memory_desc_permute_axes": (_KIND, (_OUT, _H, POINTER(c_int))),
    "memory_desc_clone": (_KIND, (_OUT, _H)),
    "memory_desc_query": (_KIND, (_H, _KIND, c_void_p)),
    "memory_desc_get_size": (c_size_t, (_H,)),
    "memory_desc_equal": (c_int, (_H, _H)),
    "memory_desc_destroy": (_KIND, (_H,)),
    "memory_create": (_KIND, (_OUT, _H, _H, c_void_p)),
    "memory_set_data_handle": (_KIND, (_H, c_void_p)),
    "memory_get_data_handle": (_KIND, (_H, _OUT)),
    "memory_destroy": (_KIND, (_H,)),
    "primitive_attr_create": (_KIND, (_OUT,)),
    "primitive_attr_set_scales_mask": (_KIND, (_H, c_int, c_int)),
    "primitive_attr_set_zero_points_mask": (_KIND, (_H, c_int, c_int)),
    "primitive_attr_set_post_ops": (_KIND, (_H, _H)),
    "primitive_attr_set_scratchpad_mode": (_KIND, (_H, _KIND)),
    "primitive_attr_set_fpmath_mode": (_KIND, (_H, _KIND)),
    "primitive_attr_destroy": (_KIND, (_H,)),
    "post_ops_create": (_KIND, (_OUT,)),
    "post_ops_len": (c_int, (_H,)),
    "post_ops_append_sum": (_KIND, (_H, c_float, ctypes.c_int32, _KIND)),
    "post_ops_append_eltwise": (_KIND, (_H, _KIND, c_float, c_float)),
    "post_ops_append_binary": (_KIND, (_H, _KIND, _H)),
    "post_ops_append_prelu": (_KIND, (_H, c_int)),
    "post_ops_append_dw": (_KIND, (_H, _KIND, _KIND, _KIND, c_int64, c_int64, c_int64)),
    "post_ops_destroy": (_KIND, (_H,)),
    "primitive_desc_query": (_KIND, (_H, _KIND, c_int, c_void_p)),
    "primitive_desc_query_md": (c_void_p, (_H, _KIND, c_int)),
    "primitive_desc_next_impl": (_KIND, (_H,)),
    "primitive_desc_destroy": (_KIND, (_H,)),
    "primitive_create": (_KIND, (_OUT, _H)),
    "primitive_execute": (_KIND, (_H, _H, c_int, c_void_p)),
    "primitive_destroy": (_KIND, (_H,)),
    # reorder alone names an engine for each side
    "reorder_primitive_desc_create": (_KIND, (_OUT, _H, _H, _H, _H, _H)),
    **{f"{name}_primitive_desc_create": (_KIND, (_OUT, _H, *rest)) for name, rest in _PRIMITIVE_DESCS.items()},
}

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
        status: the `Status`; a plain int when the library is newer than this binding and the value unknown.
    """

    status: Status | int

    def __init__(self, what: str, *, where: str = "", hint: str = "", status: Status | int = Status.runtime_error) -> None:
        super().__init__(what, where=where, hint=hint)
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.where, self.hint, self.status)


class Unimplemented(OneDnnError):
    """`dnnl_unimplemented`: the request is well formed, but this CPU and library have no implementation for it."""


def _rebuild(kind: type[OneDnnError], what: str, where: str, hint: str, status: int) -> OneDnnError:
    return kind(what, where=where, hint=hint, status=status)


def failure(status: int, what: str, origin: str = "") -> OneDnnError:
    """The error for a failed call.

    Args:
        status: what the C function returned, not `Status.success`.
        what: the call and the primitive it was for, such as `convolution u8[1,64,56,56] ...`.
        origin: the names of the nodes in the user's model that the call serves.
    """
    try:
        known: Status | int = Status(status)
        text = f"{Status(status).name} ({status}): {_MEANING.get(Status(status), 'no further detail')}"
    except ValueError:
        known, text = status, f"status {status}, unknown to this binding"
    kind = Unimplemented if known == Status.unimplemented else OneDnnError
    return kind(f"oneDNN: {what} failed with {text}", where=origin, status=known)


def check(status: int, what: str, origin: str = "") -> None:
    """Raise the error of a failed call, see `failure`; return on success."""
    if status:
        raise failure(status, what, origin)


def declare(cdll: ctypes.CDLL, where: str) -> None:
    """Set result and argument types of every function in `PROTOTYPES`.

    Args:
        cdll: a loaded libdnnl.
        where: its path, for the message.

    Raises:
        BackendUnavailable: a function is missing, so this is not a oneDNN 3.2 or later.
    """
    for name, (result, arguments) in PROTOTYPES.items():
        try:
            function = getattr(cdll, f"dnnl_{name}")
        except AttributeError:
            raise BackendUnavailable(
                f"the library exports no dnnl_{name}, so it is not a complete oneDNN 3.2 or later",
                where=where,
                hint='install a complete one with `pip install "fqfuse[onednn]"`',
            ) from None
        function.restype = result
        function.argtypes = arguments


def int64_array(values: tuple[int, ...]) -> ctypes.Array[c_int64]:
    """`dnnl_dims_t`-compatible array; its length is that of `values`.

    oneDNN copies as many entries as the descriptor has dimensions, so no padding to DNNL_MAX_NDIMS is needed.
    """
    return (c_int64 * len(values))(*values)
