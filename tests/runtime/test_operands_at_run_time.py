"""Axes and shapes that are fed, or do not fit: both runtimes look at them, and say the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import fqfuse
from fqfuse.errors import InvalidInput, InvalidModel
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.types import Plan, Step

BACKENDS = ("numpy", "onednn")
TYPES = {np.float32: TensorProto.FLOAT, np.bool_: TensorProto.BOOL}


def model(
    op: str,
    kind: type[np.generic],
    shape: Sequence[int],
    operand: np.ndarray | None,
    fed: Sequence[int] | None = None,
) -> bytes:
    """One node whose second input is a constant, or is fed (`fed`: its declared shape)."""
    inputs = [helper.make_tensor_value_info("x", TYPES[kind], shape)]
    if operand is None:
        inputs.append(helper.make_tensor_value_info("by", TensorProto.INT64, fed))
    outputs = [helper.make_tensor_value_info("y", TYPES[kind], None)]
    constants = [] if operand is None else [numpy_helper.from_array(operand, "by")]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "by"], ["y"], "node")], "g", inputs, outputs, constants
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("op", "shape", "by"),
    [
        ("Squeeze", (1,), (0, 0)),
        ("Squeeze", (1,), (-3, 1)),
        ("Squeeze", (1, 1), (0, 0)),
        ("Squeeze", (1, 1), (0, 5)),
        ("Squeeze", (3, 1), (0, 1)),
        ("Unsqueeze", (3,), (7,)),
        ("Unsqueeze", (1,), (0, 0)),
        ("Reshape", (3,), ()),
        ("Reshape", (8,), (2, 2)),
        ("Reshape", (8,), (-1, -1)),
    ],
)
def test_what_is_fed_does_not_fit(
    op: str, shape: tuple[int, ...], by: tuple[int, ...], kind: type[np.generic], backend: str
) -> None:
    plan = fqfuse.compile(model(op, kind, shape, None, None))
    session = fqfuse.InferenceSession(plan, backend=backend)
    with pytest.raises(InvalidInput, match=op):
        session.run(None, {"x": np.ones(shape, kind), "by": np.array(by, np.int64)})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("op", "shape", "by", "want"),
    [
        ("Squeeze", (1, 1), (0, -1), ()),
        ("Squeeze", (1, 3, 1), (0,), (3, 1)),
        ("Reshape", (1,), (), ()),
        ("Reshape", (8,), (2, -1), (2, 4)),
    ],
)
def test_what_is_fed_fits(
    op: str,
    shape: tuple[int, ...],
    by: tuple[int, ...],
    want: tuple[int, ...],
    kind: type[np.generic],
    backend: str,
) -> None:
    session = fqfuse.InferenceSession(
        fqfuse.compile(model(op, kind, shape, None, [len(by)])), backend=backend
    )
    (found,) = session.run(None, {"x": np.ones(shape, kind), "by": np.array(by, np.int64)})
    assert found.shape == want


@pytest.mark.parametrize(
    ("op", "shape", "by"),
    [
        ("Reshape", (0, 2), np.int64(0)),
        ("Reshape", (4,), np.int64(4)),
        ("Squeeze", (1, 2), np.int64(0)),
    ],
)
def test_a_lone_number_is_no_list(op: str, shape: tuple[int, ...], by: np.int64) -> None:
    with pytest.raises(
        InvalidModel,
        match=f"{'shape' if op == 'Reshape' else 'axes'} must have one dimension, found s64",
    ):
        fqfuse.compile(model(op, np.float32, shape, np.asarray(by)))


def test_more_axes_than_dimensions_are_found_while_compiling() -> None:
    with pytest.raises(InvalidModel, match="2 axes cannot be squeezed"):
        fqfuse.compile(model("Squeeze", np.float32, (1,), None, [2]))


@pytest.mark.parametrize("dtype", [DType.F32, DType.BOOL])
def test_a_plan_that_states_what_the_fed_shape_does_not_give(dtype: DType) -> None:
    values = {
        "x": TensorType(dtype, (8,)),
        "by": TensorType(DType.S64, (2,)),
        "y": TensorType(dtype, (4, 2)),
    }
    step = Step("s", "onnx.Reshape", "Reshape", (("x", "x"), ("shape", "by")), ("y",))
    plan = Plan("stated", "onednn-v3", ("x", "by"), ("y",), values, {}, (step,))
    session = fqfuse.InferenceSession(plan, backend="onednn")
    x = np.ones(8, dtype.numpy)
    assert session.run(None, {"x": x, "by": np.array([4, 2])})[0].shape == (4, 2)
    with pytest.raises(fqfuse.FqfuseError, match=r"y is .*\[2, 4\], and the plan says .*\[4, 2\]"):
        session.run(None, {"x": x, "by": np.array([2, 4])})
