"""The op table: one row an op, read by the frontend, the verifier, the composer and the runtimes.

A graph op named X means the ONNX op X at its newest opset. Where a row writes an attribute in
another way than ONNX does:

    Cast.to                       a DType
    ConstantOfShape               value (a number) and dtype (a DType) instead of a tensor
    Split.num_outputs             0 when absent; a node without the input `split` gives the number of its outputs
    Shape.end                     None when absent
    LSTM, GRU, RNN                hidden_size 0 and clip None when absent; layout 0
    kernel_shape, strides, pads, dilations, output_padding, output_shape, perm, axes: () when absent

FakeQuantize, FakeQuantizeGrid, Quantize, Dequantize, DequantizeBlocks, DynamicBlocks, MatMulBlocks, Lookup, Shuffle, SliceLike and Onnx
are fqfuse's own (`onnx=False`). A node with more outputs than its row, and one whose `infer` raises NotCovered, is imported as the foreign
op `Onnx`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .activation import ACTIVATION
from .computed_ranges import COMPUTED_RANGES
from .convolution import CONVOLUTION
from .elementwise import ELEMENTWISE
from .foreign import FOREIGN
from .linear import LINEAR
from .matmul import MATMUL
from .movement import MOVEMENT
from .normalization import NORMALIZATION
from .pooling import POOLING
from .quantization import QUANTIZATION
from .recurrent import RECURRENT
from .reduction import REDUCTION
from .reshaping import RESHAPING
from .resize import RESIZE
from .shape import SHAPE
from .slicing import SLICING
from .softmax import SOFTMAX
from .spec import OpSpec

__all__ = ["OPS"]

_ROWS: tuple[OpSpec, ...] = (
    *CONVOLUTION,
    *MATMUL,
    *POOLING,
    *NORMALIZATION,
    *SOFTMAX,
    *ACTIVATION,
    *RECURRENT,
    *ELEMENTWISE,
    *REDUCTION,
    *RESHAPING,
    *MOVEMENT,
    *SLICING,
    *RESIZE,
    *SHAPE,
    *QUANTIZATION,
    *COMPUTED_RANGES,
    *LINEAR,
    *FOREIGN,
)

OPS: Mapping[str, OpSpec] = MappingProxyType({row.name: row for row in _ROWS})
