"""Random data of the right kind, and samples of the caller's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from support.onnx_cases import model, node

from fqfuse.accuracy.data import check_alike, drawn, given
from fqfuse.errors import InvalidInput
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.graph import Graph


def tokens() -> Graph:
    nodes = [
        node("Gather", ["table", "input_ids"], ["embedded"]),
        node("Unsqueeze", ["attention_mask", "last"], ["wide"]),
        node("Cast", ["wide"], ["float"], to=TensorProto.FLOAT),
        node("Mul", ["embedded", "float"], ["y"]),
    ]
    constants = {"table": np.zeros((7, 3), np.float32), "last": np.array([2])}
    kinds = {"input_ids": TensorProto.INT64, "attention_mask": TensorProto.INT64}
    shapes = {"input_ids": ["batch", "length"], "attention_mask": ["batch", "length"]}
    return graph_from_onnx(model(nodes, inputs=shapes, constants=constants, types=kinds))


def test_token_ids_lie_within_their_embedding_and_masks_are_ones() -> None:
    samples = drawn(tokens(), 1, {"length": 500})
    feeds = samples.feeds[0]
    assert feeds["input_ids"].shape == feeds["attention_mask"].shape == (1, 500)
    assert set(feeds["input_ids"].ravel().tolist()) == set(range(7))
    assert (feeds["attention_mask"] == 1).all()
    assert "length=500" in samples.told
    again = drawn(tokens(), 1, {"length": 500}).feeds[0]["input_ids"]
    assert (again == feeds["input_ids"]).all()


def test_images_fill_the_range_of_their_quantizer() -> None:
    graph = graph_from_onnx(model([node("Relu", ["x"])], inputs={"x": ["N", 3, "H", "W"]}))
    image = drawn(graph, 1, {}, {"x": (0.0, 1.0)}).feeds[0]["x"]
    assert image.shape == (1, 3, 224, 224)
    assert np.mean((image < 0) | (image > 1)) < 0.01
    assert image.std() > 0.1


def test_data_within_a_quantizers_own_range_are_told_as_such() -> None:
    graph = graph_from_onnx(model([node("Relu", ["x"])], inputs={"x": [1, 4]}))
    assert drawn(graph, 1, {}, {"x": (-0.1, 0.1)}).within
    assert not drawn(graph, 1, {}, {"x": (-3.5, 3.5)}).within  # of normal numbers, whatever it is
    assert not drawn(graph, 1, {}).within


def test_sizes_are_checked() -> None:
    with pytest.raises(InvalidInput, match="no size 'n'"):
        drawn(tokens(), 1, {"n": 3})
    with pytest.raises(InvalidInput, match=r"2\^28"):
        drawn(tokens(), 1, {"length": 1 << 30})


def test_an_array_of_several_batches_gives_several_samples() -> None:
    graph = graph_from_onnx(model([node("Relu", ["x"])], inputs={"x": [2, 3]}))
    x = np.arange(18, dtype=np.float32).reshape(6, 3)
    samples = given(graph, [{"x": x}], "x.npz")
    assert [feeds["x"].tolist() for feeds in samples.feeds] == [
        x[i : i + 2].tolist() for i in (0, 2, 4)
    ]
    assert samples.told == "3 samples of x.npz"
    with pytest.raises(InvalidInput, match="no sample"):
        given(graph, [], "an empty list")


def test_models_with_other_inputs_are_refused() -> None:
    other = graph_from_onnx(model([node("Relu", ["z"])], inputs={"z": [2, 3]}))
    with pytest.raises(InvalidInput, match="different inputs"):
        check_alike(tokens(), other)
