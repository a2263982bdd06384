"""Outputs of types that NumPy lacks are arrays of ml_dtypes, as they are taken and as ONNX's evaluator
gives them.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from laws.runtimes import EACH_RUNTIME
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from support.onnx_cases import model, node

import fqfuse

KINDS = {
    TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.INT4: ml_dtypes.int4,
    TensorProto.UINT4: ml_dtypes.uint4,
}


@EACH_RUNTIME
@pytest.mark.parametrize("kind", KINDS)
def test_an_output_has_the_type_that_the_model_states(runtime: str, kind: int) -> None:
    proto = model(
        [node("Cast", ["x"], ["y"], to=kind), node("Neg", ["x"], ["z"])],
        inputs={"x": [4]},
        outputs=["y", "z"],
    )
    proto.graph.output[0].type.tensor_type.elem_type = kind
    feeds = {"x": np.array([0.1, 1.3, 2.0, 6.7], np.float32)}
    session = fqfuse.InferenceSession(proto, runtime)
    assert session.plan.type("y").dtype.numpy != KINDS[kind]
    both, alone = session.run(None, feeds), session.run(["z", "y"], feeds)
    for found in (both[0], alone[1]):
        assert found.dtype == KINDS[kind]
        (wanted, _) = ReferenceEvaluator(proto).run(None, feeds)
        np.testing.assert_array_equal(found, wanted, strict=True)
    assert both[1].dtype == alone[0].dtype == np.float32
    assert session.run_carried(None, feeds)[0].dtype == session.plan.type("y").dtype.numpy
