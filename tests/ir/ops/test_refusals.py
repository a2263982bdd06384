"""What does not fit is refused with a message that says what was expected and what was found."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fqfuse.ir.ops import OPS, dims
from fqfuse.ir.ops.spec import NotCovered, ShapeError
from fqfuse.ir.types import DType, Quantization, TensorType

from .cases import CASES
from .harness import Case
from .own_cases import OWN_CASES

F, I, B = DType.F32, DType.S64, DType.BOOL  # noqa: E741


def t(*shape: int | str, dtype: DType = F) -> TensorType:
    return TensorType(dtype, shape)


def ints(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def refusal(op: str, inputs: list[Any], attrs: dict[str, Any]) -> ShapeError:
    """The error for inputs that are types, or arrays for constants."""
    spec = OPS[op]
    types = [
        TensorType(DType.from_numpy(i.dtype), tuple(i.shape)) if isinstance(i, np.ndarray) else i
        for i in inputs
    ]
    data = [i if isinstance(i, np.ndarray) else None for i in inputs]
    with pytest.raises(ShapeError) as caught:
        spec.infer(types, spec.complete(attrs), data)
    return caught.value


X = t("N", 8, 14, 14)
Q = Quantization.of([1, 2, 3], [0, 0, 0], 1)

REFUSED: list[tuple[str, list[Any], dict[str, Any], str]] = [
    # inputs
    ("Relu", [], {}, "input x of Relu is missing"),
    ("Relu", [X, X], {}, "Relu has 1 inputs, found 2"),
    ("MatMul", [X, None], {}, "input b of MatMul is missing"),
    ("Concat", [], {"axis": 0}, "input x of Concat is missing"),
    (
        "Add",
        [X, t(8, 14, 14, dtype=I)],
        {},
        "b must have the element type of a, f32, found s64[8,14,14]",
    ),
    # attributes
    ("Concat", [X], {}, "Concat needs the attribute axis"),
    ("Relu", [X], {"alpha": 1.0}, "Relu has no attribute alpha"),
    ("Softmax", [X], {"axis": "1"}, "attribute axis must be an integer, found '1'"),
    ("Softmax", [X], {"axis": 4}, "axis 4 is out of range for 4 dimensions"),
    ("ReduceMean", [X], {"keepdims": 2}, "attribute keepdims must be 0 or 1, found 2"),
    (
        "AveragePool",
        [X],
        {"kernel_shape": (2, 2), "count_include_pad": 3},
        "attribute count_include_pad must be 0 or 1, found 3",
    ),
    ("TopK", [X, ints(1)], {"largest": 2}, "attribute largest must be 0 or 1, found 2"),
    ("Resize", [X], {"exclude_outside": 2}, "attribute exclude_outside must be 0 or 1, found 2"),
    (
        "Reshape",
        [TensorType(F, None), ints(1)],
        {"allowzero": 2},
        "attribute allowzero must be 0 or 1, found 2",
    ),
    (
        "Gelu",
        [X],
        {"approximate": "cubic"},
        "attribute approximate must be none or tanh, found 'cubic'",
    ),
    (
        "MaxPool",
        [X],
        {"kernel_shape": 3},
        "attribute kernel_shape must be a tuple of integers, found 3",
    ),
    (
        "Pad",
        [X, ints(0)],
        {"mode": "mirror"},
        "attribute mode must be constant or edge or reflect or wrap, found 'mirror'",
    ),
    ("Cast", [X], {"to": 1}, "attribute to must be an element type, found 1"),
    ("ConstantOfShape", [ints(2)], {"value": "0"}, "value a number"),
    # convolution
    (
        "Conv",
        [X, t(16, 4, 3, 3)],
        {},
        "channels of the input: expected 4 from f32[16,4,3,3], found 8 in f32[N,8,14,14]",
    ),
    ("Conv", [X, t(16, 8, 3)], {}, "weights must have as many dimensions as x, 4"),
    ("Conv", [t(2, 8), t(16, 8)], {}, "x must have 3 dimensions or more"),
    (
        "Conv",
        [X, t(16, 8, 3, 3), t(8)],
        {},
        "bias must have 16 entries, one an output channel, found f32[8]",
    ),
    ("Conv", [X, t(16, 8, 3, 3), t(16, 1)], {}, "bias must have one dimension, found f32[16,1]"),
    ("Conv", [X, t(15, 4, 3, 3)], {"group": 2}, "15 output channels cannot be split into 2 groups"),
    (
        "ConvTranspose",
        [X, t(8, 4, 3, 3)],
        {"group": 3},
        "8 input channels cannot be split into 3 groups",
    ),
    ("Conv", [X, t(16, 8, 3, 3)], {"kernel_shape": (5, 5)}, "kernel_shape [5, 5] differs"),
    ("Conv", [X, t(16, 8, "K", 3)], {}, "the kernel's size must be known"),
    (
        "Conv",
        [X, t(16, 8, 17, 3)],
        {"pads": (1, 0, 1, 0)},
        "a window of 17 elements does not fit into 14 + 2 of padding",
    ),
    ("Conv", [X, t(16, 8, 3, 3)], {"pads": (1, 1)}, "pads must have 4 entries, found [1, 1]"),
    ("Conv", [X, t(16, 8, 3, 3)], {"strides": (0, 1)}, "strides and dilations must be positive"),
    (
        "Conv",
        [X, t(16, 8, 3, 3)],
        {"pads": (1 << 31, 0, 0, 0)},
        "2147483648 is too large for a stride, dilation or pad",
    ),
    (
        "Conv",
        [X, t(16, 8, 3, 3)],
        {"dilations": (1 << 30, 1)},
        "a window of 2147483649 elements is too large",
    ),
    ("Conv", [X, t(16, 8, 3, 3)], {"auto_pad": "SAME"}, "attribute auto_pad must be"),
    ("ConvTranspose", [X, t(4, 8, 3, 3)], {}, "channels of the input: expected 4"),
    (
        "ConvTranspose",
        [X, t(8, 4, 2, 2)],
        {"pads": (9, 9, 9, 9)},
        "the pads crop more than there is",
    ),
    (
        "ConvTranspose",
        [X, t(8, 4, 2, 2)],
        {"output_padding": (1,)},
        "output_padding must have 2 entries",
    ),
    ("MaxPool", [X], {"kernel_shape": (3,)}, "the kernel must have 2 dimensions"),
    (
        "AveragePool",
        [X],
        {"kernel_shape": (2, -128), "ceil_mode": 1},
        "the sizes of the kernel must be positive, found [2, -128]",
    ),
    # products
    (
        "MatMul",
        [t(4, 7), t(6, 5)],
        {},
        "the inner dimensions must be equal: 7 of f32[4,7] is not 6 of f32[6,5]",
    ),
    (
        "MatMul",
        [t(2, 4, 7), t(3, 7, 5)],
        {},
        "batch dimensions: [2] and [3] do not broadcast against each other",
    ),
    ("MatMul", [t(), t(3)], {}, "a must have one dimension or more, found f32[]"),
    ("Gemm", [t(4, 7), t(7, 5)], {"transA": 1}, "the inner dimensions must be equal: 4"),
    ("Gemm", [t(1, 7), t(7, 5), t(2, 5)], {}, "c must broadcast to [1,5], found f32[2,5]"),
    # elementwise
    (
        "Add",
        [t(2, 3), t(2, 4)],
        {},
        "the inputs: [2,3] and [2,4] do not broadcast against each other (dimension -1)",
    ),
    ("Clip", [X, t(3)], {}, "min must be a scalar, found f32[3]"),
    ("PRelu", [t(1, 4), t(3, 4)], {}, "slope must broadcast to x, f32[1,4], found f32[3,4]"),
    # normalization
    (
        "BatchNormalization",
        [X, t(8), t(8), t(7), t(8)],
        {},
        "mean must have 8 entries, one a channel, found f32[7]",
    ),
    ("LayerNormalization", [t(2, 5), t(4)], {}, "do not broadcast"),
    (
        "LayerNormalization",
        [t(2, 1), t(4)],
        {},
        "scale must broadcast to x, f32[2,1], found f32[4]",
    ),
    (
        "GroupNormalization",
        [X, t(8), t(8)],
        {"num_groups": 3},
        "8 channels cannot be split into 3 groups",
    ),
    ("LRN", [X], {"size": 0}, "size must be positive, found 0"),
    # movement
    ("Reshape", [t(2, 3), ints(4, 2)], {}, "f32[2,3] has 6 elements, the new shape [4, 2] has 8"),
    ("Reshape", [t(1), np.asarray(1)], {}, "shape must have one dimension, found s64[]"),
    ("Expand", [t(1), np.asarray(1)], {}, "shape must have one dimension, found s64[]"),
    ("Tile", [t(1), np.asarray(1)], {}, "repeats must have one dimension, found s64[]"),
    ("ConstantOfShape", [np.asarray(1)], {}, "shape must have one dimension, found s64[]"),
    ("ReduceSum", [t(2, 3), np.asarray(1)], {}, "axes must have one dimension, found s64[]"),
    ("Pad", [t(), np.asarray(1)], {}, "pads must have one dimension, found s64[]"),
    ("Reshape", [t(2, 3), ints(-1, 4)], {}, "6 elements of f32[2,3] cannot be split into [-1, 4]"),
    ("Reshape", [t(2, 3), ints(-1, -1)], {}, "shape may hold -1 once"),
    ("Reshape", [t(2, 3), ints(-2)], {}, "shape must hold sizes, 0 or -1, found [-2]"),
    ("Reshape", [t(2, 3), ints(6, 1, 0)], {}, "copies dimension 2, which f32[2,3] has not"),
    (
        "Reshape",
        [t(2, 3), ints(0, -1)],
        {"allowzero": 1},
        "-1 in a shape with no elements says nothing",
    ),
    ("Flatten", [X], {"axis": 5}, "axis 5 is out of range for 4 dimensions"),
    (
        "Squeeze",
        [X, ints(1)],
        {},
        "only dimensions of size 1 can be squeezed, dimension 1 of f32[N,8,14,14] is not",
    ),
    ("Unsqueeze", [t(2), ints(1, 1)], {}, "axes must differ, found [1, 1]"),
    (
        "Transpose",
        [X],
        {"perm": (0, 1, 2, 2)},
        "perm must order the 4 dimensions, found [0, 1, 2, 2]",
    ),
    ("Concat", [X, t("N", 8, 14)], {"axis": 1}, "x must have 4 dimensions, found f32[N,8,14]"),
    ("Concat", [X, t("N", 9, 7, 14)], {"axis": 1}, "all inputs must agree outside of dimension 1"),
    (
        "Split",
        [X, ints(3, 4)],
        {"axis": 1},
        "the pieces [3, 4] do not add up to 8, dimension 1 of f32[N,8,14,14]",
    ),
    (
        "Split",
        [X],
        {"axis": 1},
        "either the input split or the attribute num_outputs must be given, found none",
    ),
    ("Split", [X, t("K", dtype=I)], {}, "the number of pieces must be known"),
    ("Expand", [t(2, 3), ints(2)], {}, "x and shape: [2,3] and [2] do not broadcast"),
    ("Tile", [X, ints(1, 2)], {}, "repeats must hold 4 numbers >= 0, found [1, 2]"),
    ("DepthToSpace", [X], {"blocksize": 3}, "dimension 1 of f32[N,8,14,14] cannot be divided by 9"),
    ("SpaceToDepth", [X], {"blocksize": 0}, "blocksize must be positive"),
    ("Slice", [X, ints(0), ints(1), ints(4)], {}, "axis 4 is out of range"),
    ("Slice", [X, ints(0), ints(1), ints(1), ints(0)], {}, "steps must not be 0"),
    (
        "Slice",
        [X, ints(0, 0), ints(1, 1), ints(1, -3)],
        {},
        "axes must name 2 different dimensions",
    ),
    ("Pad", [X, ints(1, 2)], {}, "pads must hold 8 numbers, found [1, 2]"),
    ("Pad", [X, ints(0, 0, -9, 0, 0, 0, -9, 0)], {}, "crop more than there is in f32[N,8,14,14]"),
    ("Gather", [t(), ints(0)], {}, "x must have one dimension or more"),
    ("GatherElements", [t(2, 3), t(2, dtype=I)], {}, "indices must have 2 dimensions as x"),
    (
        "GatherElements",
        [t(2, 3), t(3, 3, dtype=I)],
        {"axis": 1},
        "indices must not be larger than x",
    ),
    ("GatherND", [t(2, 3), t(2, 3, dtype=I)], {}, "indices of 3 dimensions do not fit"),
    ("GatherND", [t(2, 3), t(2, 1, dtype=I)], {"batch_dims": 2}, "batch_dims 2 is out of range"),
    ("GatherND", [t(2, 3), t(4, 1, dtype=I)], {"batch_dims": 1}, "differ in the first 1 dim"),
    ("ConstantOfShape", [ints(2, -1)], {}, "sizes must not be negative, found [2, -1]"),
    ("Range", [np.asarray(0), np.asarray(3), np.asarray(0)], {}, "delta must not be 0"),
    # reductions and others
    ("ReduceSum", [X, ints(1, -3)], {}, "axes must differ, found [1, -3]"),
    ("ReduceSum", [X, ints(4)], {}, "axis 4 is out of range"),
    ("TopK", [X, ints(15)], {}, "k must lie between 0 and 14, found 15"),
    ("Resize", [X], {}, "either scales or sizes must be given, found none"),
    ("Resize", [X, None, np.ones(3, np.float32)], {}, "scales must hold 4 numbers, found 3"),
    (
        "Resize",
        [X, None, np.asarray([1, 1, 0, 2], np.float32)],
        {},
        "scales must be positive, found 0.0",
    ),
    ("Resize", [X, None, None, ints(1)], {"axes": (7,)}, "axes [7] are out of range"),
    # quantization
    ("FakeQuantize", [X, t(), t(), t(), t()], {"levels": 1}, "levels must be 2 or more, found 1"),
    ("FakeQuantize", [X, t(1, 7, 1, 1), t(), t(), t()], {"levels": 8}, "do not broadcast"),
    (
        "FakeQuantize",
        [t(1, 4), t(3, 4), t(), t(), t()],
        {"levels": 8},
        "input_low must broadcast to x, f32[1,4], found f32[3,4]",
    ),
    (
        "FakeQuantize",
        [X, t(1), t(1), t(1), t(1)],
        {"levels": 8, "auto_broadcast": "none"},
        "input_low must broadcast to x",
    ),
    (
        "FakeQuantize",
        [X, t(), t(), t(), t()],
        {"levels": 8, "auto_broadcast": "pdpd"},
        "must be none or numpy, found 'pdpd'",
    ),
    (
        "FakeQuantizeGrid",
        [t()] * 4,
        {"levels": 257, "rank": 2},
        "levels must be from 2 to 256, found 257",
    ),
    (
        "FakeQuantizeGrid",
        [t()] * 4,
        {"levels": 16, "rank": 1 << 30},
        "rank must be from 0 to 64, found 1073741824",
    ),
    (
        "FakeQuantizeGrid",
        [t(3, 1, 1), t(), t(), t()],
        {"levels": 16, "rank": 2},
        "the ranges must have fixed sizes and at most 2 dimensions",
    ),
    (
        "FakeQuantizeGrid",
        [t("C"), t(), t(), t()],
        {"levels": 16, "rank": 2},
        "the ranges must have fixed sizes",
    ),
    (
        "Dequantize",
        [t(2, 4, dtype=DType.U8)],
        {"quant": Q},
        "3 scales do not fit dimension 1 of u8[2,4]",
    ),
    (
        "Dequantize",
        [t(3, dtype=DType.U8)],
        {"quant": Q},
        "the axis of the quantization, 1, is out of range for u8[3]",
    ),
    (
        "Dequantize",
        [t(3, dtype=DType.U8)],
        {"quant": 0.5},
        "attribute quant must be a Quantization, found 0.5",
    ),
    (
        "Onnx",
        [X],
        {"op_type": "Foo", "opset": 1, "proto": b""},
        "the output types of the foreign op 'Foo' must be given",
    ),
]


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "message"),
    REFUSED,
    ids=[f"{i}-{r[0]}" for i, r in enumerate(REFUSED)],
)
def test_refused(op, inputs, attrs, message):
    spec = OPS[op]
    if "needs the attribute" in message or "has no attribute" in message:
        with pytest.raises(ShapeError, match=re.escape(message)):
            spec.complete(attrs)
        return
    error = refusal(op, inputs, attrs)
    assert message in str(error)
    assert not isinstance(error, NotCovered)


def attrs_of_quantize(**changes: Any) -> dict[str, Any]:
    return {
        "quant": Quantization.of(1),
        "dtype": DType.U8,
        "lo": 0,
        "hi": 255,
        "order": "zp_first",
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lo": -1}, "lo and hi must lie in the range of u8, [0, 255], found [-1, 255]"),
        ({"lo": 9, "hi": 8}, "found [9, 8]"),
        ({"order": "first"}, "order must be round_first or zp_first"),
        ({"dtype": DType.F32}, "attribute dtype must be an integer type"),
        ({"quant": Q}, "3 scales do not fit dimension 1"),
    ],
)
def test_quantize_refuses(changes, message):
    assert message in str(refusal("Quantize", [X], attrs_of_quantize(**changes)))


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("BatchNormalization", [X, t(8), t(8), t(8), t(8)], {"training_mode": 1}),
        ("Cast", [X], {"to": DType.STRING}),
        ("Cast", [t(3, dtype=DType.STRING)], {"to": F}),
        (
            "Resize",
            [X, t(8), np.ones(4, np.float32)],
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
        ),
        ("Resize", [X, None, np.ones(4, np.float32)], {"mode": "linear", "antialias": 1}),
        ("Resize", [X, None, None, ints(1, 8, 3, 3)], {"keep_aspect_ratio_policy": "not_larger"}),
        ("Resize", [t(2, 4, dtype=DType.U8), None, np.ones(2, np.float32)], {"mode": "cubic"}),
        ("ReduceMean", [t(2, 3, dtype=I)], {}),
        ("Sqrt", [t(2, 3, dtype=B)], {}),
        ("Gemm", [t(2, 2, dtype=DType.S32)] * 2, {"alpha": 0.5}),
        ("Gemm", [t(2, 2, dtype=DType.U32)] * 2, {"beta": -1.0}),
    ],
)
def test_valid_uses_without_a_row_say_so(op, inputs, attrs):
    """The frontend imports these as foreign ops."""
    assert isinstance(refusal(op, inputs, attrs), NotCovered)


# -- anything else is a bug ------------------------------------------------------------------------

_BY_OP: dict[str, list[Case]] = {}
for _case in (*CASES, *OWN_CASES):
    _BY_OP.setdefault(_case.op, []).append(_case)

_DIMS = st.sampled_from([0, 1, 2, 3, 4, 6, "N", "H", dims.UNKNOWN])
_TYPES = st.builds(
    TensorType,
    st.sampled_from([F, F, F, I, I, DType.U8, DType.S32, B]),
    st.one_of(st.none(), st.lists(_DIMS, max_size=5).map(tuple)),
    st.sampled_from(
        [
            None,
            None,
            Quantization.of(0.5, 3),
            Quantization.of([1, 2], 0, 0),
            Quantization.of([1, 2], 0, 1),
        ]
    ),
)


@given(st.data())
@settings(max_examples=settings.default.max_examples // 5)  # there are a hundred rows
@pytest.mark.parametrize("op", sorted(_BY_OP))
def test_infer_refuses_or_answers(op, data):
    """Whatever the types, the attributes and the constants are: a ShapeError or types, never
    another exception.
    """
    spec, one = OPS[op], _BY_OP[op][data.draw(st.integers(0, len(_BY_OP[op]) - 1))]
    mixed = [draw_like(data, a) for a in one.inputs]
    types = [t for t, _ in mixed]
    # a quantization whose axis the shape has not is no type at all
    for index, type_ in enumerate(types):
        if type_ is not None and type_.quant is not None and type_.quant.axis is not None:
            fits = (
                type_.shape is not None
                and len(type_.shape) > type_.quant.axis
                and type_.shape[type_.quant.axis] in (2, "N")
            )
            types[index] = type_ if fits else type_.with_quant(None)
    attrs = dict(one.attrs)
    for name in (
        data.draw(st.lists(st.sampled_from(sorted(spec.attrs)), max_size=2)) if spec.attrs else []
    ):
        attrs[name] = data.draw(
            st.sampled_from(
                [-1, 0, 1, 2, 7, 0.5, "constant", "nearest", (), (1,), (2, 1), (0, 1, 2, 3), None]
            )
        )
    try:
        found = spec.infer(types, spec.complete(attrs), [d for _, d in mixed])
    except ShapeError:
        return
    assert all(isinstance(t, TensorType) for t in found)
    assert all(
        d == dims.UNKNOWN or isinstance(d, str) or d >= 0 for t in found for d in t.shape or ()
    )


def draw_like(
    data: st.DataObject, array: np.ndarray | None
) -> tuple[TensorType | None, np.ndarray | None]:
    """The array as a constant, or as a type; or another type, or another constant; or nothing."""
    choice = data.draw(st.integers(0, 5))
    if array is None or choice == 0:
        return data.draw(st.one_of(st.none(), _TYPES)), None
    if choice == 1:
        return data.draw(_TYPES), None
    if choice == 2:
        array = np.asarray(
            data.draw(st.lists(st.integers(-3, 5), max_size=4)),
            array.dtype if array.dtype.kind in "if" else np.int64,
        )
    known = TensorType(DType.from_numpy(array.dtype), tuple(array.shape))
    return known, array if choice in (2, 3, 4) else None
