"""A thin ctypes binding of oneDNN's C API (3.2 <= version < 4). Importing it loads no library; `load` does.

    library = load()                                        # or load("/path/of/libdnnl.so.3")
    library.set_threads(2)                                  # OpenMP threads of the calling thread
    engine = Engine(library)
    stream = Stream(engine)
    desc = convolution(engine, src_md, weights_md, bias_md, dst_md, strides=..., attributes=Attributes(...), origin="Conv_3")
    primitive = Primitive(desc)
    args = ExecArgs(desc, {Arg.SRC: Memory.wrap(engine, x), ...})  # once
    primitive.execute(stream, args)                          # one C call

Handles free themselves; `close()` or `with` does it at once. Several threads may execute one primitive, each with its own
`ExecArgs`, outputs and scratchpad.
"""

from __future__ import annotations

from .attributes import Attributes, Binary, Depthwise, Eltwise, PostOp, PRelu, Sum
from .capi import OneDnnError, Unimplemented
from .compute import convolution, deconvolution, inner_product, matmul, pooling
from .enums import (
    AlgKind,
    Arg,
    CpuIsa,
    CpuRuntime,
    DataType,
    FormatKind,
    FormatTag,
    FpmathMode,
    NormalizationFlags,
    PrimitiveKind,
    ScratchpadMode,
    Status,
    arg_dw_scales,
    arg_multiple_src,
    arg_post_op,
    arg_scales,
    arg_zero_points,
)
from .handles import Engine, Handle, Stream
from .library import Library, Version, effective_isa, load, set_threads, version
from .memory import Memory, MemoryDesc, aligned_empty, data_type_of, numpy_dtype, view
from .normalization import batch_normalization, layer_normalization, lrn, softmax
from .pointwise import binary, concat, eltwise, prelu, reduction, reorder, resampling, shuffle, sum_
from .primitive import ExecArgs, Primitive
from .primitive_desc import PrimitiveDesc

__all__ = [
    "AlgKind",
    "Arg",
    "Attributes",
    "Binary",
    "CpuIsa",
    "CpuRuntime",
    "DataType",
    "Depthwise",
    "Eltwise",
    "Engine",
    "ExecArgs",
    "FormatKind",
    "FormatTag",
    "FpmathMode",
    "Handle",
    "Library",
    "Memory",
    "MemoryDesc",
    "NormalizationFlags",
    "OneDnnError",
    "PRelu",
    "PostOp",
    "Primitive",
    "PrimitiveDesc",
    "PrimitiveKind",
    "ScratchpadMode",
    "Status",
    "Stream",
    "Sum",
    "Unimplemented",
    "Version",
    "aligned_empty",
    "arg_dw_scales",
    "arg_multiple_src",
    "arg_post_op",
    "arg_scales",
    "arg_zero_points",
    "batch_normalization",
    "binary",
    "concat",
    "convolution",
    "data_type_of",
    "deconvolution",
    "effective_isa",
    "eltwise",
    "inner_product",
    "layer_normalization",
    "load",
    "lrn",
    "matmul",
    "numpy_dtype",
    "pooling",
    "prelu",
    "reduction",
    "reorder",
    "resampling",
    "set_threads",
    "shuffle",
    "softmax",
    "sum_",
    "version",
    "view",
]
