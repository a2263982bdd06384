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
from fqfuse.ir.ops.small_floats import decoded
from fqfuse.ir.types import DType
from fqfuse.measure.feeds import made_feeds

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


VALUES = {
    "BFLOAT16": (1.1, -3.0078125, "bfloat16"),
    "FLOAT8E4M3FN": (1.1, 500.0, "float8_e4m3fn"),
    "FLOAT8E4M3FNUZ": (1.1, np.inf, "float8_e4m3fnuz"),
    "FLOAT8E5M2": (1.1, 1e6, "float8_e5m2"),
    "FLOAT8E5M2FNUZ": (1.1, np.inf, "float8_e5m2fnuz"),
    "FLOAT8E8M0": (3.0, -1.0, "float8_e8m0fnu"),
    "FLOAT4E2M1": (1.1, np.nan, "float4_e2m1fn"),
    "INT4": (100, -128, "int4"),
    "UINT4": (16, 255, "uint4"),
    "INT2": (2, -3, "int2"),
    "UINT2": (4, 255, "uint2"),
}
"""Element type -> two numbers that it lacks, and its name."""


def fed_with(kind: str, runtime: str) -> fqfuse.InferenceSession:
    proto = model(
        [node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)],
        inputs={"x": [None]},
        types={"x": TensorProto.DataType.Value(kind)},
        opset=25,
    )
    return fqfuse.InferenceSession(proto, runtime)


@EACH_RUNTIME
@pytest.mark.parametrize("kind", VALUES)
def test_numbers_that_the_type_of_an_input_lacks_are_refused(runtime: str, kind: str) -> None:
    """And nothing is rounded or wraps around in silence, whichever runtime computes."""
    session = fed_with(kind, runtime)
    carrier, name = session.plan.type("x").dtype.numpy, VALUES[kind][2]
    for value in VALUES[kind][:2]:
        feeds = {"x": np.array([1, value], carrier)}
        with pytest.raises(fqfuse.InvalidInput, match=f"x holds .*, which is no {name}"):
            session.run(None, feeds)
    with pytest.raises(fqfuse.InvalidInput, match=f"complex64, expected {name}"):
        session.run(None, {"x": np.ones(2, np.complex64)})


@EACH_RUNTIME
@pytest.mark.parametrize("kind", VALUES)
def test_every_number_of_the_type_may_be_fed_in_the_carrying_one(runtime: str, kind: str) -> None:
    session = fed_with(kind, runtime)
    dtype = session.plan.type("x").dtype
    if dtype.is_integer:
        numbers = np.arange(dtype.range[0], dtype.range[1] + 1, dtype=dtype.numpy)
    elif dtype is DType.BF16:
        numbers = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    else:
        numbers = decoded(dtype)
    np.testing.assert_array_equal(session.run(None, {"x": numbers})[0], numbers)
    made = made_feeds(session.plan, {"x_0": 100})
    assert session.run(None, made)[0].shape == (100,)
