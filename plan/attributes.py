"""Primitive attributes as data: scales, zero points, output scales and post-ops, in oneDNN's terms.

What they mean, in the order of `onednn-v3` (every intermediate is f32)::

    y   = src_scale * weights_scale[oc] * sum((src - src_zp) * weights) + bias
    y   = post-ops of y, in the order of the list
    dst = saturate(round_half_even(y / dst_scale + dst_zp))

and of `onednn-v2`, whose bias lives in the accumulator's domain::

    y   = output_scale[oc] * (sum((src - src_zp) * weights) + bias)
    y   = post-ops of y
    dst = saturate(round_half_even(y + dst_zp))

The sum runs over those elements of a window that lie inside of the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from ..ir.types import DType
from ..masks import mask_of

# What the fields of a post-op are: the text form, the plan file and the verifier read it from the
# annotations.
Algorithm: TypeAlias = str
"""The name of an algorithm of oneDNN."""

Value: TypeAlias = str
"""The name of a value or constant of the plan."""

Constant: TypeAlias = str
"""The name of a constant of the plan."""

OptionalConstant: TypeAlias = str
"""The name of a constant of the plan, or ''."""

Mask: TypeAlias = int
"""The mask of dimensions; its name is taken, too."""

_OPERANDS = ("Value", "Constant", "OptionalConstant")


@dataclass(frozen=True)
class Scale:
    """Scales of one argument: one f32 value, or one for each index of the dimensions that `mask`
    selects (bit i: dimension i; `masks.py` has names for them, which are taken, too).
    """

    values: tuple[float, ...]
    mask: int = 0

    def __post_init__(self) -> None:
        # a list or an array stays the caller's
        object.__setattr__(self, "values", tuple(map(float, self.values)))
        object.__setattr__(self, "mask", mask_of(self.mask))

    @property
    def array(self) -> npt.NDArray[np.float32]:
        """The values as a 1-D f32 array."""
        return np.asarray(self.values, np.float32)


_ONE = Scale((1.0,))


@dataclass(frozen=True)
class ZeroPoint:
    """Zero points of one argument (s32), masked like scales.

    The one of a (de)convolution's source may be a real number (f32). The library is given the
    nearest integer; what is left has a part in the bias, which then varies with the position where
    windows reach into the padding (`runtime/padding.py`). Integers are held as `int`.
    """

    values: tuple[float, ...]
    mask: int = 0

    def __post_init__(self) -> None:
        values = (v if isinstance(v, int) or not v.is_integer() else int(v) for v in self.values)
        object.__setattr__(self, "values", tuple(values))
        object.__setattr__(self, "mask", mask_of(self.mask))

    @property
    def array(self) -> npt.NDArray[np.int32]:
        """The nearest integers (half to even) as a 1-D s32 array."""
        return np.asarray([round(value) for value in self.values], np.int32)

    @property
    def fraction(self) -> float:
        """What the first value has beyond the nearest integer: from -0.5 to 0.5."""
        return float(self.values[0] - round(self.values[0]))


@dataclass(frozen=True)
class Eltwise:
    """y = scale * algorithm(y; alpha, beta). `scale` is 1 on every target but `onednn-v2`."""

    kind: ClassVar[str] = "eltwise"

    algorithm: Algorithm
    alpha: float = 0.0
    beta: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class Binary:
    """y = algorithm(y, operand). The operand is a value or constant of the plan with dst's rank,
    each dimension dst's or 1.

    On `unified` the operand is `scale * (operand - zero_point)`, zero points of codes only; on every
    other target both are None.
    """

    kind: ClassVar[str] = "binary"

    algorithm: Algorithm
    operand: Value
    scale: Scale | None = None
    zero_point: ZeroPoint | None = None


@dataclass(frozen=True)
class Sum:
    """y = y + scale * (old - zero_point), where `old` is what the destination's buffer held, read
    as `dtype`.

    `operand` names the value that lived there: it must be dead after this step, and have dst's
    shape and element size.
    """

    kind: ClassVar[str] = "sum"

    operand: Value
    scale: float = 1.0
    zero_point: int = 0
    dtype: DType | None = None


@dataclass(frozen=True)
class Prelu:
    """y = y if y >= 0 else slope * y; `operand` names the f32 constant, shaped to dst's rank;
    `mask` selects its dimensions.
    """

    kind: ClassVar[str] = "prelu"

    operand: Constant
    mask: Mask = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask", mask_of(self.mask))


@dataclass(frozen=True)
class DepthwiseConv:
    """A depthwise convolution behind a 1x1 convolution (2-D): its own weights, bias, scales; the
    1x1 result is stored in between.

    In between it is stored as `src_dtype`, by the step's own destination scale, which is the source
    scale here; there is no zero point there. (oneDNN 3.2, by experiment: the type is that of the
    destination descriptor; a zero point of DST spoils the result.) Post-ops behind this one,
    `dst_scale`, `dst_dtype` and the step's destination zero point belong to the second result.
    """

    kind: ClassVar[str] = "depthwise_conv"

    weights: Constant
    bias: OptionalConstant
    kernel: int
    stride: int
    padding: int
    weights_dtype: DType = DType.S8
    dst_dtype: DType = DType.U8
    weights_scale: Scale = _ONE
    dst_scale: Scale = _ONE
    src_dtype: DType = DType.U8


PostOp = Eltwise | Binary | Sum | Prelu | DepthwiseConv

OPERANDS: Mapping[type[PostOp], Mapping[str, str]] = {
    kind: {item.name: str(item.type) for item in fields(kind) if item.type in _OPERANDS}
    for kind in get_args(PostOp)
}
"""Kind of post-op -> its fields that name what it reads -> `Value`, `Constant` or
`OptionalConstant`.
"""


SCALES = ("output_scales", "rnn_data_qparams", "rnn_weights_qparams")
"""The scales of a step that belong to no argument."""

RNN_QPARAMS = ("rnn_data_qparams", "rnn_weights_qparams", "rnn_weights_projection_qparams")
"""The parameters of codes of a recurrent layer, as oneDNN has them."""


@dataclass(frozen=True)
class PrimitiveAttr:
    """All attributes of one primitive.

    Attributes:
        scales: argument (`src`, `weights`, `dst`, `src_0`, `src_1` ...) -> scales.
        zero_points: argument -> zero points.
        post_ops: applied in order, in f32, to the dequantized result.
        output_scales: `onednn-v2` only: multiplied to the accumulator (with its bias) before the
            post-ops; mask over dst's dimensions.
        rnn_data_qparams: of a recurrent layer in int8, `onednn-v2` and `onednn-v3`: scale and shift
            of its source and hidden state, two values of mask 0: code = scale * x + shift.
        rnn_weights_qparams: of its weights, both kinds, in all directions: what they were
            multiplied by; one value, or with mask 24 one for each gate and output (bits 3 and 4 of
            the library's five dimensions), in the order of the op's gates. On `unified` both are
            scales and a zero point of src, w and r, in the common sense: x = s * (code - z).
        rnn_weights_projection_qparams: of the weights of a projection, one or with mask 8 one for
            each output. Steps have no projections: primitives alone (`primitives/`) have it.
    """

    scales: Mapping[str, Scale] = field(default_factory=dict)
    zero_points: Mapping[str, ZeroPoint] = field(default_factory=dict)
    post_ops: tuple[PostOp, ...] = ()
    output_scales: Scale | None = None
    rnn_data_qparams: Scale | None = None
    rnn_weights_qparams: Scale | None = None
    rnn_weights_projection_qparams: Scale | None = None

    def alone(self) -> Iterator[tuple[str, Scale]]:
        """The scales that belong to no argument, where there are such, by `SCALES`."""
        for name in SCALES:
            scale = getattr(self, name)
            if scale is not None:
                yield name, scale

    @property
    def operands(self) -> tuple[str, ...]:
        """Values that the post-ops read, in order."""
        return tuple(
            value
            for op in self.post_ops
            for name, what in OPERANDS[type(op)].items()
            if (value := getattr(op, name)) or what != "OptionalConstant"
        )
