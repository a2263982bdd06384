"""The interface of onnx.backend, which ONNX's own test runner drives."""

from __future__ import annotations

import unittest
import warnings

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.backend.test.runner import Runner
from support.onnx_cases import model, node
from support.onnx_suite import RUNTIMES

import fqfuse
from fqfuse.runtime import onnx_backend

X = np.float32([[-1, 2], [3, -4]])
RELU = model([node("Relu", ["x"])], inputs={"x": [2, 2]})


def test_a_model_runs() -> None:
    np.testing.assert_array_equal(onnx_backend.run_model(RELU, [X])[0], np.maximum(X, 0))
    prepared = onnx_backend.prepare(RELU, "CPU:0", threads=1)
    for inputs in ([X], X, {"x": X}):
        np.testing.assert_array_equal(prepared.run(inputs)["y"], np.maximum(X, 0))


@pytest.mark.parametrize("backend", RUNTIMES.values())
def test_a_runtime_can_be_chosen(backend) -> None:
    assert backend.prepare(RELU).session.backend == backend.runtime
    assert onnx_backend.prepare(RELU, backend=backend.runtime).session.backend == backend.runtime
    with pytest.raises(fqfuse.InvalidInput, match="no backend 'cuda'"):
        backend.prepare(RELU, backend="cuda")


def test_constants_among_the_inputs_may_be_left_out_or_given() -> None:
    proto = model([node("Add", ["x", "b"])], inputs={"x": [2, 2], "b": [2]}, constants={"b": X[0]})
    prepared = onnx_backend.prepare(proto)
    np.testing.assert_array_equal(prepared.run([X])[0], X + X[0])
    np.testing.assert_array_equal(prepared.run([X, X[0]])[0], X + X[0])
    with pytest.raises(fqfuse.InvalidInput, match="3 inputs are given, and the model has 1"):
        prepared.run([X, X, X])


def test_a_node_runs() -> None:
    relu = helper.make_node("Clip", ["x", "", "most"], ["y"])
    (found,) = onnx_backend.run_node(relu, [X, np.float32(1)])
    np.testing.assert_array_equal(found, np.minimum(X, 1))
    old = helper.make_node("Clip", ["x"], ["y"], max=1.0)
    (found,) = onnx_backend.run_node(old, X, opset_version=6, outputs_info=[(np.float32, (2, 2))])
    np.testing.assert_array_equal(found, np.minimum(X, 1))


def test_arrays_have_the_types_of_onnx() -> None:
    proto = model([node("Relu", ["x"])], inputs={"x": [2, 2]}, types={"x": TensorProto.BFLOAT16})
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    (found,) = onnx_backend.run_model(proto, [X.astype(ml_dtypes.bfloat16)])
    assert found.dtype == ml_dtypes.bfloat16


def test_what_is_not_there_is_refused() -> None:
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA:0")
    with pytest.raises(fqfuse.InvalidInput, match="no device 'CUDA'"):
        onnx_backend.prepare(RELU, "CUDA")
    assert onnx_backend.is_compatible(RELU)
    unknown = model([node("Nonesuch", ["x"], domain="com.example")], domains={"com.example": 1})
    assert not onnx_backend.is_compatible(unknown)
    with pytest.raises(fqfuse.InvalidInput, match="run has no option fast"):
        onnx_backend.prepare(RELU).run([X], fast=True)


@pytest.mark.slow
@pytest.mark.parametrize("backend", RUNTIMES.values())
def test_onnx_runs_its_cases_through_it(backend) -> None:
    with warnings.catch_warnings():
        # the suite computes its expectations with NumPy, infinities and all
        warnings.simplefilter("ignore")
        runner = Runner(backend, __name__)
    cases = runner.include("^test_(relu|add|conv|gelu|matmul|softmax)_").test_suite
    result = unittest.TestResult()
    cases.run(result)
    assert result.wasSuccessful(), result.failures + result.errors
    assert result.testsRun - len(result.skipped) > 30
