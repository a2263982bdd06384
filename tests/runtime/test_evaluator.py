"""Operators in the place of the evaluator's own give ONNX Runtime's numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from laws import quantizers
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from support.onnx_cases import model, node, random, run_ort

import fqfuse
from fqfuse.runtime.evaluator import IN_PLACE


def agree(made, feeds, *, outputs=("y",), types=None, tolerance=0.0, opset=20) -> None:
    shapes = {name: list(array.shape) for name, array in feeds.items()}
    proto = model([made], inputs=shapes, outputs=list(outputs), types=types, opset=opset)
    wanted = run_ort(proto, feeds)
    plan = fqfuse.compile(proto)
    assert "Onnx" in {step.op for step in plan.steps}
    for backend in ("numpy", "onednn"):
        found = fqfuse.InferenceSession(plan, backend).run(None, feeds)
        for mine, theirs in zip(found, wanted, strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grids_read_images(mode: str, padding: str, aligned: int) -> None:
    """Far outside as well; positions and sums in f32 differ in their last bits."""
    grid = random([2, 9, 11, 2]) * 1.3
    grid[0, 0, :4] = [[-1, 1], [1, -1], [0, 0], [-3, 5]]
    made = node(
        "GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=aligned
    )
    agree(made, {"x": random([2, 3, 6, 7]), "g": grid}, tolerance=2e-5)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_place_between_pixels_is_rounded_first(dtype: type, padding: str, aligned: int) -> None:
    """Multiples of 1/4 over an image with even sides lie in the middle of two pixels."""
    quarters = np.arange(-12, 13) / 4
    grid = np.stack(np.meshgrid(quarters, quarters), axis=-1)[None].astype(dtype)
    image = np.arange(8, dtype=dtype).reshape(1, 1, 4, 2)
    made = node(
        "GridSample", ["x", "g"], ["y"], mode="nearest", padding_mode=padding, align_corners=aligned
    )
    kind = TensorProto.FLOAT16 if dtype is np.float16 else TensorProto.FLOAT
    agree(made, {"x": image, "g": grid}, types={"x": kind, "g": kind, "y": kind})


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_grids_read_volumes(mode: str) -> None:
    feeds = {"x": random([1, 2, 4, 5, 6]), "g": random([1, 3, 4, 5, 3])}
    agree(node("GridSample", ["x", "g"], ["y"], mode=mode), feeds, tolerance=2e-5)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    "window",
    [
        {"kernel_shape": [1, 1]},
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [1, 2]},
        {"kernel_shape": [2, 2], "dilations": [2, 3]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ],
    ids=str,
)
def test_places_of_the_largest_count_through_the_whole_tensor(window, order: int) -> None:
    made = node("MaxPool", ["x"], ["y", "i"], storage_order=order, **window)
    x = np.round(random([2, 3, 8, 7]) * 3)  # ties: the first is it
    agree(made, {"x": x}, outputs=["y", "i"], types={"i": TensorProto.INT64})


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_updates_go_to_their_places(reduction: str) -> None:
    """Twice to some, counted from either end, in the order in which they stand."""
    generator = np.random.default_rng(1)
    for axis, shape in itertools.product((0, 1, -1), ([2, 3, 4], [5, 6, 4])):
        size = [5, 6, 4][axis]
        feeds = {
            "x": random([5, 6, 4]),
            "i": generator.integers(-size, size, shape),
            "u": random(shape),
        }
        made = node("ScatterElements", ["x", "i", "u"], ["y"], axis=axis, reduction=reduction)
        agree(made, feeds, types={"i": TensorProto.INT64}, tolerance=1e-6)
    for depth in (1, 2, 3):
        feeds = {
            "x": random([5, 6, 4]),
            "i": generator.integers(-4, 4, [3, 7, depth]),
            "u": random([3, 7, *[5, 6, 4][depth:]]),
        }
        made = node("ScatterND", ["x", "i", "u"], ["y"], reduction=reduction)
        agree(made, feeds, types={"i": TensorProto.INT64}, tolerance=1e-6)


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
def test_a_place_that_is_none_is_told(op: str) -> None:
    proto = model(
        [node(op, ["x", "i", "u"], ["y"])],
        inputs={"x": [4], "i": [2, 1] if op == "ScatterND" else [2], "u": [2]},
        types={"i": TensorProto.INT64},
    )
    places = np.int64([1, 4]).reshape(-1, 1) if op == "ScatterND" else np.int64([1, 4])
    feeds = {"x": random([4]), "i": places, "u": random([2])}
    with pytest.raises(fqfuse.FqfuseError, match="an index lies outside of 4 elements"):
        fqfuse.InferenceSession(proto, "numpy").run(None, feeds)


def test_quantizers_and_norms_in_bodies_that_stay_with_the_evaluator() -> None:
    """Bodies that are not compiled hold operators, too: those that the evaluator gets wrong are the op table's."""
    for seed in range(60):
        drawing, case = quantizers.draw(seed)
        names = [info.name for info in case.model.graph.output]
        with np.errstate(all="ignore"):
            values = ReferenceEvaluator(case.model, new_ops=list(IN_PLACE)).run(None, case.feeds)
        found = dict(zip(names, values, strict=True))
        codes = found["q"].astype(np.float64) if len(found) > 1 else None
        for name, array in found.items():
            assert drawing.right(case, name, array, codes).all(), f"seed {seed}: {case.what}"
    x = np.arange(1, 8, dtype=np.float32).reshape(1, 1, 7)
    window = {"kernel_shape": [3], "strides": [3], "ceil_mode": 1, "p": 1}
    proto = model([node("LpPool", ["x"], **window)], inputs={"x": x.shape}, opset=22)
    (norms,) = ReferenceEvaluator(proto, new_ops=list(IN_PLACE)).run(None, {"x": x})
    assert norms.tolist() == [[[6, 15, 7]]]
