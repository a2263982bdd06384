"""Small plans of several steps, written by hand."""

from __future__ import annotations

import numpy as np

from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.attributes import Eltwise, PrimitiveAttr, Scale, Sum, ZeroPoint
from fqfuse.plan.types import Plan, Step

U8, F32 = DType.U8, DType.F32


def _scales(**values: float | np.ndarray) -> dict[str, Scale]:
    found = {}
    for role, value in values.items():
        array = np.atleast_1d(np.asarray(value, np.float32))
        found[role] = Scale(tuple(array.tolist()), int(array.size > 1))
    return found


def residual_network() -> Plan:
    """quantize -> conv -> max pool -> two convs with a residual sum -> average -> flatten ->
    matmul; outputs scores and features.
    """
    rng = np.random.default_rng(7)

    def weights(*shape: int) -> np.ndarray:
        return rng.integers(-127, 128, shape).astype(np.int8)

    constants = {
        "w1": weights(8, 3, 3, 3),
        "b1": rng.normal(size=8).astype(np.float32),
        "w2": weights(8, 1, 3, 3),
        "w3": weights(8, 8, 1, 1),
        "w4": weights(8, 5),
    }
    shapes = {
        "image": (F32, ("N", 3, 10, 12)),
        "codes": (U8, ("N", 3, 10, 12)),
        "c1": (U8, ("N", 8, 10, 12)),
        "pooled": (U8, ("N", 8, 5, 6)),
        "c2": (U8, ("N", 8, 5, 6)),
        "features": (U8, ("N", 8, 5, 6)),
        "mean": (U8, ("N", 8, 1, 1)),
        "flat": (U8, ("N", 8)),
        "scores": (F32, ("N", 5)),
    }
    window = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    zero = {"src": ZeroPoint((128,))}
    attr1 = PrimitiveAttr(
        _scales(src=0.02, weights=rng.uniform(0.005, 0.01, 8), dst=0.04), zero, (Eltwise("relu"),)
    )
    per_group = {
        "weights": Scale(tuple(rng.uniform(0.005, 0.01, 8).astype(np.float32).tolist()), 3)
    }
    attr2 = PrimitiveAttr(_scales(src=0.04, dst=0.03) | per_group, {}, (Eltwise("relu"),))
    attr3 = PrimitiveAttr(
        _scales(src=0.03, weights=0.004, dst=0.05), {}, (Sum("pooled", 0.04), Eltwise("relu"))
    )
    steps = (
        Step(
            "quantize",
            "reorder",
            "Identity",
            (("src", "image"),),
            ("codes",),
            {},
            PrimitiveAttr(_scales(dst=0.02), {"dst": ZeroPoint((128,))}),
        ),
        Step(
            "conv1",
            "convolution",
            "Conv",
            (("src", "codes"), ("weights", "w1"), ("bias", "b1")),
            ("c1",),
            window,
            attr1,
        ),
        Step(
            "pool",
            "pooling",
            "MaxPool",
            (("src", "c1"),),
            ("pooled",),
            {"kernel_shape": (2, 2), "strides": (2, 2)},
        ),
        Step(
            "conv2",
            "convolution",
            "Conv",
            (("src", "pooled"), ("weights", "w2")),
            ("c2",),
            window | {"group": 8},
            attr2,
        ),
        Step(
            "conv3",
            "convolution",
            "Conv",
            (("src", "c2"), ("weights", "w3")),
            ("features",),
            {"kernel_shape": (1, 1)},
            attr3,
        ),
        Step("mean", "pooling", "GlobalAveragePool", (("src", "features"),), ("mean",)),
        Step("flatten", "onnx.Flatten", "Flatten", (("x", "mean"),), ("flat",), {"axis": 1}),
        Step(
            "classify",
            "matmul",
            "MatMul",
            (("src", "flat"), ("weights", "w4")),
            ("scores",),
            {},
            PrimitiveAttr(_scales(src=0.05, weights=0.01)),
        ),
    )
    values = {name: TensorType(dtype, shape) for name, (dtype, shape) in shapes.items()}
    return Plan(
        "residual", "onednn-v3", ("image",), ("scores", "features"), values, constants, steps
    )


def shape_arithmetic() -> Plan:
    """A Reshape to a shape that Shape, Gather and Concat compute: (x + y) [N, 6] -> [N, 3, 2] ->
    transposed -> [N, 6].
    """
    constants = {"zero": np.array([0]), "three_two": np.array([3, 2]), "six": np.array([6])}
    s64, f32 = DType.S64, DType.F32
    values = {
        "x": TensorType(f32, ("N", 6)),
        "y": TensorType(f32, ("N", 6)),
        "sum": TensorType(f32, ("N", 6)),
        "shape": TensorType(s64, (2,)),
        "batch": TensorType(s64, (1,)),
        "split": TensorType(s64, (3,)),
        "cubes": TensorType(f32, ("N", 3, 2)),
        "turned": TensorType(f32, ("N", 2, 3)),
        "joined": TensorType(s64, (2,)),
        "flat": TensorType(f32, ("N", 6)),
        "z": TensorType(f32, ("N", 6)),
    }
    steps = (
        Step(
            "add", "binary", "Add", (("src_0", "x"), ("src_1", "y")), ("sum",), {"algorithm": "add"}
        ),
        Step("shape", "onnx.Shape", "Shape", (("x", "x"),), ("shape",)),
        Step(
            "gather",
            "onnx.Gather",
            "Gather",
            (("x", "shape"), ("indices", "zero")),
            ("batch",),
            {"axis": 0},
        ),
        Step(
            "concat",
            "onnx.Concat",
            "Concat",
            (("x_0", "batch"), ("x_1", "three_two")),
            ("split",),
            {"axis": 0},
        ),
        Step("reshape", "onnx.Reshape", "Reshape", (("x", "sum"), ("shape", "split")), ("cubes",)),
        Step(
            "transpose",
            "onnx.Transpose",
            "Transpose",
            (("x", "cubes"),),
            ("turned",),
            {"perm": (0, 2, 1)},
        ),
        Step(
            "join",
            "onnx.Concat",
            "Concat",
            (("x_0", "batch"), ("x_1", "six")),
            ("joined",),
            {"axis": 0},
        ),
        Step("back", "onnx.Reshape", "Reshape", (("x", "turned"), ("shape", "joined")), ("flat",)),
        Step(
            "keep",
            "eltwise",
            "Identity",
            (("src", "flat"),),
            ("z",),
            {"algorithm": "linear", "alpha": 1.0, "beta": 0.0},
        ),
    )
    return Plan("shapes", "onednn-v3", ("x", "y"), ("z",), values, constants, steps)
