"""Primitives on their own, on NumPy and on the library: what oneDNN's documentation says, in Python.

    from fqfuse.primitives import Eltwise, PrimitiveAttr, Scale, prim

    attr = PrimitiveAttr(scales={"src": Scale((0.5,)), "weights": Scale((), 1)}, post_ops=(Eltwise("relu"),))
    p = prim("convolution", attr, src="u8[1,16,8,8]", weights="s8[32,16,3,3]", dst="f32[1,32,6,6]")
    y = p.execute({"src": x, "weights": w, "scales_weights": s})

- `kinds.py`: what each kind is described by
- `description.py`: a description from the caller's words, and the values that come at execution
- `depthwise.py`: the two convolutions that one with a depthwise post-op is
- `operation.py`, `refusal.py`: what contradicts itself, and what a target does not have
  at creation, and with which status
- `untold.py`: what it is not told there, and takes to be so
- `neglected.py`: what it takes there, and neglects when it runs
- `narrowing.py`: fpmath modes
- `schemes.py`: attributes of `onednn-v2` and `unified`
- `summations.py`: how CPUs without VNNI sum what no step of a plan has
- `on_numpy.py`, `on_library.py`: a description -> the result
- `recurrent.py`, `recurrent_on_numpy.py`: recurrent layers, what is refused of them, and their
  result
- `primitive.py`: `prim`
- `gemm.py`, `gemm_on_numpy.py`: oneDNN's products of matrices that are functions, and their arithmetic
"""

from ..plan.attributes import (
    Binary,
    DepthwiseConv,
    Eltwise,
    Prelu,
    PrimitiveAttr,
    Scale,
    Sum,
    ZeroPoint,
)
from .gemm import gemm_s8s8s32, gemm_u8s8s32, sgemm
from .primitive import Primitive, prim

__all__ = [
    "Binary",
    "DepthwiseConv",
    "Eltwise",
    "Prelu",
    "Primitive",
    "PrimitiveAttr",
    "Scale",
    "Sum",
    "ZeroPoint",
    "gemm_s8s8s32",
    "gemm_u8s8s32",
    "prim",
    "sgemm",
]
