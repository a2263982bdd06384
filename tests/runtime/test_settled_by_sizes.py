"""What the sizes of the inputs settle is computed once for them, and not again in each run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support.judge import ort_session
from support.onnx_cases import model, node

import fqfuse

INPUTS = {"x": ["n", "t", 8]}
FROM_SIZES = [
    node("Shape", ["x"], ["sizes"]),
    node("Gather", ["sizes", "one"], ["t"]),
    node("Unsqueeze", ["t", "zero"], ["t1"]),
    node("Concat", ["t1", "t1"], ["square"], axis=0),
]
CONSTANTS = {
    "one": np.int64(1),
    "zero": np.array([0]),
    "ones": np.array([1]),
    "eight": np.array([8]),
}


def mask() -> onnx.ModelProto:
    """A causal mask made from the size, added to scores by a primitive."""
    nodes = [
        *FROM_SIZES,
        node(
            "ConstantOfShape",
            ["square"],
            ["full"],
            value=onnx.numpy_helper.from_array(np.array([-9.0], "f")),
        ),
        node("Trilu", ["full", "above"], ["mask"], upper=1),
        node("Transpose", ["x"], ["xt"], perm=[0, 2, 1]),
        node("MatMul", ["x", "xt"], ["scores"]),
        node("Add", ["scores", "mask"], ["y"]),
    ]
    return model(nodes, inputs=INPUTS, constants=CONSTANTS | {"above": np.int64(1)})


def cut() -> onnx.ModelProto:
    """A Slice up to half of the size."""
    nodes = [
        *FROM_SIZES,
        node("Div", ["t1", "two"], ["half"]),
        node("Slice", ["x", "zero", "half", "ones"], ["part"]),
        node("Relu", ["part"], ["y"]),
    ]
    return model(nodes, inputs=INPUTS, constants=CONSTANTS | {"two": np.array([2])})


def handed_out() -> onnx.ModelProto:
    """The size itself is an output, and so is a view of it."""
    nodes = [
        *FROM_SIZES,
        node("Unsqueeze", ["t1", "zero"], ["z"]),
        node("Relu", ["x"], ["y"]),
    ]
    return model(
        nodes, inputs=INPUTS, outputs=("y", "t1", "z"), constants=CONSTANTS, types={"t1": 7, "z": 7}
    )


def grown() -> onnx.ModelProto:
    """A settled array of f32 that NumPy and a primitive read."""
    nodes = [
        *FROM_SIZES,
        node("Cast", ["t1"], ["number"], to=1),
        node("CumSum", ["x", "one"], ["sums"]),
        node("Mul", ["sums", "number"], ["y"]),
        node("Expand", ["number", "eight"], ["many"]),
        node("Where", ["odd", "many", "y"], ["z"]),
    ]
    constants = CONSTANTS | {"odd": np.arange(8) % 2 == 1}
    return model(nodes, inputs=INPUTS, outputs=("y", "z"), constants=constants)


CASES = {"mask": mask, "cut": cut, "handed out": handed_out, "grown": grown}


@pytest.mark.parametrize("backend", ["onednn", "numpy"])
@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_several_sizes_in_turns(make, backend: str) -> None:
    proto = make()
    oracle = ort_session(proto, optimized=True)
    session = fqfuse.InferenceSession(proto, backend=backend)
    rng = np.random.default_rng(0)
    for sizes in ((1, 4), (2, 6), (1, 4), (1, 2), (2, 6)):
        feeds = {"x": rng.integers(-4, 5, (*sizes, 8)).astype(np.float32)}  # exact sums
        for found, expected in zip(session.run(None, feeds), oracle.run(None, feeds), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_every_value_can_be_seen(make) -> None:
    proto, feeds = make(), {"x": np.ones((2, 6, 8), np.float32)}
    found, expected = (
        fqfuse.InferenceSession(proto, backend=backend).run_steps(feeds)
        for backend in ("onednn", "numpy")
    )
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("make", [mask, cut])
def test_nothing_of_it_runs_on_numpy(make) -> None:
    session = fqfuse.InferenceSession(make(), backend="onednn")
    session.run(None, {"x": np.ones((2, 6, 8), np.float32)})
    placed = {entry.step.op: entry for entry in session.placement()}
    assert {entry.runtime for entry in placed.values()} <= {"onednn", "view"}
    assert placed["Gather"].reason == "the sizes of the inputs settle it"


def test_what_is_handed_out_is_the_callers() -> None:
    session = fqfuse.InferenceSession(handed_out(), backend="onednn")
    feeds = {"x": np.ones((2, 6, 8), np.float32)}
    _, size, view = session.run(None, feeds)
    size[...] = view[...] = -1
    for array in session.run(None, feeds)[1:]:
        assert array.reshape(-1).tolist() == [6]
