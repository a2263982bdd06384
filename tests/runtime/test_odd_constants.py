"""Operations with constants that are infinite, no numbers, or at the ends of f32, behind a
convolution and on their own: both runtimes give what ONNX's reference gives.
"""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from support.onnx_cases import model, node

import fqfuse

ODD = (np.inf, -np.inf, np.nan, 0.0, -0.0, 3e38, -3e38, 1e-45, -1e-40, 1.0)
X = np.float32([[-3.5, -3e38, -2.5, -1.0], [-1e-40, 0.0, 1.5, 3e38]]).reshape(1, 2, 2, 2)
TINY = np.finfo(np.float32).tiny
TWO = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Greater", "LessOrEqual")
SLOPED = ("PRelu", "LeakyRelu", "Elu")


def case(op: str, value: float, where: str, front: bool) -> onnx.ModelProto:
    c = np.float32(value)
    source = "f" if front else "x"
    constants = {"c": c} if where != "attribute" else {}
    inputs, told = [source, "c"], {}
    if where == "first":
        inputs = ["c", source]
    if where == "bounds":
        inputs, constants = [source, "l", "c"], {"c": c, "l": np.float32(-1)}
    if where == "attribute":
        inputs, told = [source], {"alpha": value}
    nodes = [node(op, inputs, ["d"], **told)]
    nodes.append(
        node("Cast", ["d"], to=1) if op in ("Greater", "LessOrEqual") else node("Abs", ["d"])
    )
    if front:
        constants["w"] = np.eye(2, dtype=np.float32).reshape(2, 2, 1, 1)
        nodes.insert(0, node("Conv", ["x", "w"], ["f"]))
    return model(nodes, inputs={"x": list(X.shape)}, constants=constants, opset=17)


CASES = [
    *((op, "second") for op in TWO),
    *((op, "first") for op in ("Sub", "Max", "Less")),
    ("Clip", "second"),
    ("Clip", "bounds"),
]


@pytest.mark.each_case
@pytest.mark.parametrize("front", [False, True], ids=["alone", "behind"])
@pytest.mark.parametrize(("op", "where"), CASES, ids=str)
def test_odd_constants(op: str, where: str, front: bool) -> None:
    for value in ODD:
        proto = case(op, value, where, front)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (expected,) = ReferenceEvaluator(proto).run(None, {"x": X})
        for backend in ("numpy", "onednn"):
            (found,) = fqfuse.InferenceSession(proto, backend=backend).run(None, {"x": X})
            # Below the normal numbers a CPU may flush to zero, and at their upper end the order of
            # two factors decides whether they overflow.
            np.testing.assert_allclose(
                found, expected, rtol=1e-5, atol=4 * TINY, err_msg=f"{backend} {value}"
            )


@pytest.mark.parametrize("front", [False, True], ids=["alone", "behind"])
@pytest.mark.parametrize("op", SLOPED)
def test_odd_slopes_run(op: str, front: bool) -> None:
    for value in ODD:
        proto = case(op, value, "second" if op == "PRelu" else "attribute", front)
        for backend in ("numpy", "onednn"):
            (found,) = fqfuse.InferenceSession(proto, backend=backend).run(None, {"x": X})
            assert found.shape == X.shape
