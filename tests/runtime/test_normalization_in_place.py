"""Instance normalization of maps that lie channels last or in blocks of channels: no copy of them, and
as exact as the rows' sums allow.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support.onnx_cases import model, node, random

import fqfuse

MAPS = {
    "channels last": (1, 32, 12, 10),
    "blocks, the last not full": (1, 20, 9, 7),
    "one dimension": (1, 32, 40),
    "three dimensions": (1, 16, 3, 5, 4),
    "longest": (1, 8, 64, 64),
}
ROW_BY_ROW = {"two images": (2, 16, 6, 6), "one element": (1, 16, 1, 1), "too long": (1, 8, 64, 65)}


def network(shape: tuple[int, ...]) -> onnx.ModelProto:
    """Two convolutions, whose results lie as the library prefers, with a normalization behind each."""
    channels, spatial = shape[1], shape[2:]
    constants, nodes, x = {}, [], "x"
    for index in range(2):
        constants |= {
            f"w{index}": random((channels, channels, *(3 for _ in spatial)), index, scale=0.1),
            f"s{index}": random((channels,), 3 + index),
            f"b{index}": random((channels,), 5 + index),
        }
        pads = [1] * (2 * len(spatial))
        nodes.append(node("Conv", [x, f"w{index}"], [f"c{index}"], pads=pads))
        names = [f"c{index}", f"s{index}", f"b{index}"]
        nodes.append(node("InstanceNormalization", names, [f"n{index}"], epsilon=1e-3))
        x = f"n{index}"
    inputs = {"x": list(shape)}
    return model(nodes, inputs=inputs, outputs=("n1",), constants=constants, opset=17)


def normalized(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """In f64, by the operator's definition."""
    axes = tuple(range(2, x.ndim))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axes, keepdims=True)
    along = (-1, *(1 for _ in axes))
    factor = scale.reshape(along) / np.sqrt(wide.var(axes, keepdims=True) + 1e-3)
    return centred * factor + bias.reshape(along)


@pytest.mark.parametrize("shape", (MAPS | ROW_BY_ROW).values(), ids=MAPS | ROW_BY_ROW)
def test_normalization_of_what_a_convolution_leaves(shape: tuple[int, ...]) -> None:
    proto = network(shape)
    seen = onnx.ModelProto.FromString(proto.SerializeToString())
    seen.graph.output.append(onnx.helper.make_tensor_value_info("c1", 1, list(shape)))
    x = random(shape, 9, scale=3)
    session = fqfuse.InferenceSession(proto, backend="onednn")
    found, convolved = fqfuse.InferenceSession(seen, backend="onednn").run(None, {"x": x})
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    expected = normalized(convolved, weights["s1"], weights["b1"])
    # 32 units in the last place of the largest term: sums of up to 4,160 f32, one after the other
    bound = 32 * np.finfo(np.float32).eps * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=0, atol=bound)


@pytest.mark.parametrize("shape", MAPS.values(), ids=MAPS)
def test_it_copies_no_map(shape: tuple[int, ...]) -> None:
    session = fqfuse.InferenceSession(network(shape), backend="onednn")
    placed = {entry.step.name: entry.implementation for entry in session.placement()}
    normal = [implementation for name, implementation in placed.items() if name.endswith("normal")]
    assert len(normal) == 2
    for implementation in normal:
        assert "bnorm" in implementation
        assert "+" not in implementation, placed


@pytest.mark.parametrize("shape", ROW_BY_ROW.values(), ids=ROW_BY_ROW)
def test_others_are_normalized_row_by_row(shape: tuple[int, ...]) -> None:
    session = fqfuse.InferenceSession(network(shape), backend="onednn")
    for entry in session.placement():
        assert "bnorm" not in entry.implementation
        assert not entry.step.name.endswith("normal") or entry.runtime == "onednn"
