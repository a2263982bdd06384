"""normalize_gemm: golden cases, each held to the laws."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from laws.golden import check_pass
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import fqfuse
from fqfuse.passes.normalize_gemm import NORMALIZE_GEMM


@pytest.mark.golden("normalize_gemm")
def test_golden(golden) -> None:
    check_pass(golden, NORMALIZE_GEMM)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("dtype", "alpha", "beta"),
    [
        (np.float64, 0.5, 1.0),
        (np.float64, 0.3, -2.7),
        (np.float16, 0.5, 2.0),
        (np.int32, 2.0, 3.0),
        (np.int64, -2.0, 1.0),
        (np.int32, 0.5, 1.0),
        (np.uint32, -1.0, 1.0),
    ],
)
def test_factors_have_the_type_of_the_matrices(dtype, alpha, beta, constant) -> None:
    rng, kind = np.random.default_rng(0), helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    a, b, c = (rng.integers(0, 9, shape).astype(dtype) for shape in ((2, 3), (3, 4), (4,)))
    fed = {"a": a} if constant else {"a": a, "c": c}
    kept = {"b": b, "c": c} if constant else {"b": b}
    node = helper.make_node("Gemm", ["a", "b", "c"], ["y"], alpha=alpha, beta=beta)
    inputs = [helper.make_tensor_value_info(name, kind, data.shape) for name, data in fed.items()]
    results = [helper.make_tensor_value_info("y", kind, [2, 4])]
    graph = helper.make_graph(
        [node],
        "g",
        inputs,
        results,
        [numpy_helper.from_array(data, name) for name, data in kept.items()],
    )
    model: onnx.ModelProto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    )
    (found,) = fqfuse.InferenceSession(fqfuse.compile(model), backend="numpy").run(None, fed)
    (wanted,) = ReferenceEvaluator(model).run(None, fed)
    assert found.dtype == wanted.dtype
    # Small integers times a factor: exact but for the factors 0.3 and -2.7, which round a few
    # times.
    np.testing.assert_allclose(found, wanted, rtol=1e-15 if dtype is np.float64 else 0)


@pytest.mark.parametrize("shape", [(4, 3), None])
def test_a_transpose_without_an_order_turns_constant_codes(shape) -> None:
    """All axes backwards; and a Transpose of unknown rank beside it is left alone."""
    codes = np.arange(12, dtype=np.uint8).reshape(4, 3)
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["weights"]),
        helper.make_node("Transpose", ["weights"], ["turned"]),
        helper.make_node("MatMul", ["x", "turned"], ["y"]),
        helper.make_node("Transpose", ["other"], ["z"]),
    ]
    kind = onnx.TensorProto.FLOAT
    kept = {"codes": codes, "scale": np.float32(0.5), "zero": np.uint8(3)}
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", kind, [2, 3]),
            helper.make_tensor_value_info("other", kind, shape),
        ],
        [helper.make_tensor_value_info(name, kind, None) for name in ("y", "z")],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in kept.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    fed = {"x": np.ones((2, 3), np.float32), "other": np.ones((4, 3), np.float32)}
    found = fqfuse.InferenceSession(model, backend="numpy").run(None, fed)
    for one, wanted in zip(found, ReferenceEvaluator(model).run(None, fed), strict=True):
        np.testing.assert_array_equal(one, wanted)
