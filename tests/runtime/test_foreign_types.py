"""Outputs of types that NumPy lacks are arrays of ml_dtypes, as they are taken and as ONNX's evaluator
gives them.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from laws.runtimes import EACH_RUNTIME
from onnx import TensorProto, helper
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


FLOATS = (
    "BFLOAT16",
    "FLOAT8E4M3FN",
    "FLOAT8E4M3FNUZ",
    "FLOAT8E5M2",
    "FLOAT8E5M2FNUZ",
    "FLOAT8E8M0",
)


@pytest.mark.parametrize("kind", FLOATS)
def test_what_the_fix_of_another_type_says_gives_the_numbers(kind: str) -> None:
    """Followed word for word: bits are viewed, and values of integers and of other floats converted."""
    element = TensorProto.DataType.Value(kind)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
    cast = [node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)]
    session = fqfuse.InferenceSession(
        model(cast, inputs={"x": [3]}, types={"x": element}, opset=24)
    )
    wanted = np.float32([1, 2, 4])
    bits = wanted.astype(dtype).view(f"u{dtype.itemsize}")
    other = ml_dtypes.float8_e5m2 if kind == "FLOAT8E4M3FN" else ml_dtypes.float8_e4m3fn
    wide = np.int64([1, 2, 4])
    for array, is_bits in (
        (bits, True),
        (bits.view(f"i{dtype.itemsize}"), True),
        (wanted.astype(bits.dtype), False),
        (wanted.astype(np.float16), False),
        (wanted.astype(other), False),
        (wide, False),
    ):
        with pytest.raises(fqfuse.InvalidInput, match=f", expected {dtype}") as caught:
            session.run(None, {"x": array})
        fixes = re.findall(r"array(?:\.\w+\([\w.']+\))+", caught.value.hint)
        assert len(fixes) == (2 if array.dtype in (bits.dtype, f"i{dtype.itemsize}") else 1)
        (fix,) = (f for f in fixes if is_bits == f.startswith("array.view("))
        fed = eval(fix, {"array": array, "ml_dtypes": ml_dtypes})  # noqa: S307  (what a user would type)
        np.testing.assert_array_equal(session.run(None, {"x": fed})[0], wanted)


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
