"""Constants of the graph around a body that it reads, of types that NumPy lacks: bf16, floats of 8 bits,
integers of 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from laws.runtimes import EACH_RUNTIME
from onnx import GraphProto, NodeProto, TensorProto, helper
from support.body_cases import BOOL, F32, S64, info
from support.onnx_cases import model, node

import fqfuse
from fqfuse.plan.file import plan_bytes

BF16 = TensorProto.BFLOAT16
CODES = ("int4", "uint4", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
X = np.float32([[1, -2, 3, 0.5]])
W = np.float32([[1, 2, 0, 4], [0, 1, 3, 0], [2, 0, 1, 1], [4, 2, 0, 6]])
"""Numbers that each of the types holds, and whose products bf16 does: whatever rounds in between, results
are these to the bit."""


def kind_of(name: str) -> tuple[np.dtype[Any], int]:
    dtype = np.dtype(getattr(ml_dtypes, name))
    return dtype, helper.np_dtype_to_tensor_dtype(dtype)


def branch(name: str, nodes: Sequence[NodeProto], output: str, element: int) -> GraphProto:
    return helper.make_graph(list(nodes), name, [], [info(output, element, None)])


def choice(then: GraphProto, otherwise: GraphProto) -> NodeProto:
    return node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)


def bf16_case(op: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray], np.ndarray]:
    """A model whose body multiplies by a constant of the model, what it is fed, and its result."""
    x, w = X.astype(ml_dtypes.bfloat16), W.astype(ml_dtypes.bfloat16)
    product, types = [node("MatMul", ["s", "w"], ["m"])], {"x": BF16, "c": BOOL}
    if op == "If":
        then = branch("then", [node("MatMul", ["x", "w"], ["t"])], "t", BF16)
        otherwise = branch("else", [node("Neg", ["x"], ["e"])], "e", BF16)
        nodes = [choice(then, otherwise)]
        proto = model(
            nodes, inputs={"x": [1, 4], "c": []}, constants={"w": w}, types=types, opset=21
        )
        return proto, {"x": x, "c": np.asarray(True)}, X @ W
    if op == "Loop":
        inputs = [info("i", S64, []), info("g", BOOL, []), info("s", BF16, [1, 4])]
        outputs = [info("on", BOOL, []), info("m", BF16, [1, 4])]
        body = helper.make_graph([*product, node("Identity", ["g"], ["on"])], "b", inputs, outputs)
        nodes = [node("Loop", ["n", "", "x"], ["y"], body=body)]
        constants = {"w": w, "n": np.int64(2)}
        proto = model(nodes, inputs={"x": [1, 4]}, constants=constants, types=types, opset=21)
        return proto, {"x": x}, X @ W @ W
    states = [info("s", BF16, [1, 4]), info("row", BF16, [1, 4])]
    body = helper.make_graph(
        [*product, node("Add", ["m", "row"], ["r"])], "b", states, [info("r", BF16, [1, 4])]
    )
    # the first state is a constant that the node itself reads
    nodes = [node("Scan", ["first", "x"], ["y"], body=body, num_scan_inputs=1)]
    constants = {"w": w, "first": w[:1]}
    proto = model(nodes, inputs={"x": [1, 1, 4]}, constants=constants, types=types, opset=21)
    return proto, {"x": x[None]}, W[:1] @ W + X


@EACH_RUNTIME
@pytest.mark.parametrize("op", ["If", "Loop", "Scan"])
def test_products_in_bodies_read_constants_of_bf16(runtime: str, op: str) -> None:
    proto, feeds, wanted = bf16_case(op)
    plan = fqfuse.compile(proto)
    assert [step.primitive for _, body in plan.within for step in body.steps].count("matmul") == 1
    for each in (plan, fqfuse.load_plan(plan_bytes(plan))):
        (found,) = fqfuse.InferenceSession(each, runtime, threads=1).run(None, feeds)
        assert found.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(found.astype(np.float32), wanted)


@EACH_RUNTIME
@pytest.mark.parametrize("name", CODES)
def test_bodies_decode_codes_of_the_graph_around_them(runtime: str, name: str) -> None:
    """Codes that a body reads are its own constants: the If is given its condition and x alone."""
    dtype, _ = kind_of(name)
    decoded = [node("DequantizeLinear", ["w", "scale"], ["d"]), node("MatMul", ["x", "d"], ["t"])]
    nodes = [
        choice(
            branch("then", decoded, "t", F32), branch("else", [node("Neg", ["x"], ["e"])], "e", F32)
        )
    ]
    constants = {"w": W.astype(dtype), "scale": np.float32(0.5)}
    inputs, types = {"x": [1, 4], "c": []}, {"c": BOOL}
    plan = fqfuse.compile(model(nodes, inputs=inputs, constants=constants, types=types, opset=21))
    (step,) = plan.steps
    assert set(step.inputs) == {"c", "x"}
    assert not plan.constants
    session = fqfuse.InferenceSession(plan, runtime, threads=1)
    for condition, wanted in ((True, X @ (W / 2)), (False, -X)):
        (found,) = session.run(None, {"x": X, "c": np.asarray(condition)})
        np.testing.assert_array_equal(found, wanted)


@EACH_RUNTIME
@pytest.mark.parametrize("name", ["bfloat16", "float8_e8m0fnu", *CODES])
def test_a_constant_is_returned_as_it_is(runtime: str, name: str) -> None:
    """By a branch and by the model, to the bit: infinities and what is no number, too."""
    dtype, element = kind_of(name)
    special = [np.inf, -np.inf, np.nan] if name in ("bfloat16", "float8_e5m2") else []
    w = np.float32([1, 2, 4, *special]).astype(dtype)
    then = branch("then", [node("Identity", ["w"], ["t"])], "t", element)
    otherwise = branch("else", [node("Identity", ["x"], ["e"])], "e", element)
    nodes = [choice(then, otherwise), node("Identity", ["w"], ["z"])]
    proto = model(
        nodes,
        inputs={"x": [len(w)], "c": []},
        outputs=["y", "z"],
        constants={"w": w},
        types={"x": element, "c": BOOL},
        opset=24,
    )
    plan = fqfuse.compile(proto)
    x = w[::-1].copy()
    for each in (plan, fqfuse.load_plan(plan_bytes(plan))):
        session = fqfuse.InferenceSession(each, runtime, threads=1)
        for condition, chosen in ((True, w), (False, x)):
            found = session.run(None, {"x": x, "c": np.asarray(condition)})
            assert [array.dtype for array in found] == [dtype, dtype]
            assert [array.tobytes() for array in found] == [chosen.tobytes(), w.tobytes()]
