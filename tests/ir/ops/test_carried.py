"""The quantization of a type through ops that move codes: kept only where decoding before and after
gives the same values.
"""

from __future__ import annotations

import numpy as np
import pytest

from fqfuse.ir.ops import OPS
from fqfuse.ir.ops.spec import Trait
from fqfuse.ir.types import DType, Quantization, TensorType

from .cases import CASES
from .harness import Case, case, infer, normal, rng, run_row, types_of

MOVERS = {
    name for name, spec in OPS.items() if spec.traits & {Trait.LAYOUT_ONLY, Trait.SELECTS}
} | {"Concat", "Pad", "Resize"}

# Of the cases for values these have float inputs as well; the codes have the same shapes. Some
# more, where an axis keeps its size but not its elements, or keeps them although it is named.
X = normal(2, 3, 4, 5)
EXTRA = (
    case("Slice", X, [3], [-1000], [2], [-1]),
    case("Slice", X, [0], [4], [2]),
    case("Pad", X, [0, 0, 1, 0, 0, 0, -1, 0]),
    case("Pad", X, [0, 1, 0, 0], None, [1, -1]),
    case("MaxPool", X, kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
    case(
        "Resize",
        X,
        None,
        np.asarray([1, 1, 1.1, 2], np.float32),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    case("Resize", X, None, None, [2, 3, 4, 10]),
    case("Gather", X, [2, 1, 0], axis=1),
    case("Gather", X, np.asarray([[0, 1], [1, 0]]), axis=0),
    case("GatherElements", X, [[[[1] * 5] * 4] * 3, [[[0] * 5] * 4] * 3], axis=0),
    case("Tile", X, [1, 1, 2, 1]),
    case("Expand", X[:1], [2, 1, 1, 1]),
    case("Reshape", X, [2, 3, 20]),
    case("Reshape", X, [6, 4, 5]),
    case("TopK", X, [4], axis=2),
    case("ReduceMax", X, [0, 3], keepdims=0),
)

MOVED = [
    c
    for c in (*CASES, *EXTRA)
    if c.op in MOVERS and c.inputs[0] is not None and c.inputs[0].ndim and c.inputs[0].size
]


def decode(codes: np.ndarray, quant: Quantization) -> np.ndarray:
    scale, zero = quant.shaped(codes.ndim)
    return (codes.astype(np.float32) - zero) * scale


def quantized(
    case: Case, quant: Quantization
) -> tuple[list[np.ndarray | None], list[TensorType | None]]:
    """The case with random codes in place of its data (all inputs of one that joins them), and
    their types.
    """
    inputs = list(case.inputs)
    count = len(inputs) if case.op == "Concat" else 1
    for index in range(count):
        inputs[index] = (
            rng("codes", str(case), index).integers(-100, 100, inputs[index].shape).astype(np.int8)
        )
    if case.op == "Pad" and len(inputs) > 2 and inputs[2] is not None:
        inputs[2] = np.asarray(0, np.int8)
    types = types_of(inputs)
    types[:count] = [t.with_quant(quant) for t in types[:count]]
    return inputs, types


def per_axis(size: int, axis: int) -> Quantization:
    """Different scales that are powers of two: max pooling over values and over codes agree where
    they should.
    """
    return Quantization(
        tuple(2.0**-k for k in range(size)), tuple(float(k) for k in range(size)), axis
    )


@pytest.mark.parametrize("case", MOVED, ids=str)
def test_quantization_that_is_kept_is_right(case: Case):
    if case.attrs.get("mode") in ("linear", "cubic"):
        return  # floats only
    shapes = [a.shape for a in (case.inputs if case.op == "Concat" else case.inputs[:1])]
    sizes = [{shape[axis] for shape in shapes} for axis in range(len(shapes[0]))]
    quants = [
        Quantization.of(0.25, 3),
        *(per_axis(max(n), axis) for axis, n in enumerate(sizes) if len(n) == 1 and max(n) > 1),
    ]
    for quant in quants:
        inputs, types = quantized(case, quant)
        count = len(inputs) if case.op == "Concat" else 1
        values = run_row(case, [decode(a, quant) if i < count else a for i, a in enumerate(inputs)])
        for type_, codes, expected in zip(
            infer(case, types), run_row(case, inputs), values, strict=True
        ):
            if quant.per_tensor and type_.dtype is DType.S8:
                assert type_.quant == quant
            # what is padded is a code: there is no value to compare it with
            if type_.quant is not None and case.op != "Pad":
                np.testing.assert_array_equal(decode(codes, type_.quant), expected)


KEPT = {
    # op and attributes -> (axis before, axis after) that must survive
    "transposed": (case("Transpose", X, perm=(0, 2, 3, 1)), 1, 3),
    "flattened behind it": (case("Reshape", X, [2, 3, 20]), 1, 1),
    "split in front of it": (case("Reshape", X, [1, 2, 3, 4, 5]), 1, 2),
    "flattened batch": (case("Flatten", X), 0, 0),
    "unsqueezed": (case("Unsqueeze", X, [0, 3]), 1, 2),
    "squeezed": (case("Squeeze", normal(1, 3, 1, 2), [0]), 1, 0),
    "pooled": (case("MaxPool", X, kernel_shape=(2, 2)), 1, 1),
    "globally pooled": (case("GlobalMaxPool", X), 1, 1),
    "sliced elsewhere": (case("Slice", X, [1], [3], [2]), 1, 1),
    "padded elsewhere": (case("Pad", X, [1, 1], None, [3]), 1, 1),
    "split elsewhere": (case("Split", X, [2, 2], axis=2), 1, 1),
    "joined elsewhere": (case("Concat", X, X, axis=2), 1, 1),
    "gathered in front": (case("Gather", X, np.asarray([[0, 1], [1, 0]]), axis=0), 1, 2),
    "gathered behind": (case("Gather", X, np.asarray(0), axis=2), 1, 1),
    "resized elsewhere": (case("Resize", X, None, np.asarray([1, 1, 2, 2], np.float32)), 1, 1),
    "repeated elsewhere": (case("Tile", X, [1, 1, 2, 1]), 1, 1),
    "broadcast": (case("Expand", X, [7, 1, 1, 1, 1]), 1, 2),
    "reduced elsewhere": (case("ReduceMax", X, [0, 3], keepdims=0), 1, 0),
}


@pytest.mark.parametrize(("case", "before", "after"), KEPT.values(), ids=KEPT)
def test_an_axis_that_survives_is_kept(case: Case, before: int, after: int):
    quant = per_axis(case.inputs[0].shape[before], before)
    _, types = quantized(case, quant)
    assert {t.quant for t in infer(case, types)} == {quant.with_axis(after)}


def test_joined_codes_must_decode_alike():
    a, b = Quantization.of(0.25, 3), Quantization.of(0.5, 3)
    pair = case("Concat", X, X, axis=1)
    _, types = quantized(pair, a)
    assert infer(pair, types)[0].quant == a
    assert infer(pair, [types[0], types[1].with_quant(b)])[0].quant is None
    assert infer(pair, [types[0], types[1].with_quant(None)])[0].quant is None


@pytest.mark.parametrize("op", sorted(set(OPS) - MOVERS - {"Onnx", "Quantize"}))
def test_everything_else_drops_it(op: str):
    for one in CASES:
        if one.op == op and one.inputs[0] is not None and one.inputs[0].dtype.kind in "iu":
            types = types_of(one.inputs)
            types[0] = types[0].with_quant(Quantization.of(0.5, 1))
            assert all(t.quant is None for t in infer(one, types))
