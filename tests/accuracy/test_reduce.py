"""The part of a model that `compare --reduce` cuts out shows the difference by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import fqfuse
from fqfuse.accuracy import reduce
from fqfuse.accuracy.compare import compared, drawn_for, read_models
from fqfuse.accuracy.reduce import cut_against, cut_layer
from fqfuse.frontend import graph_from_onnx
from fqfuse.models.digits import digits_model_path


@pytest.fixture(scope="module")
def models() -> Any:
    return read_models(digits_model_path("f32"), digits_model_path("qdq"))


@pytest.mark.parametrize("form", ["qdq", "fakequantize"])
def test_the_cut_layer_has_the_noise_of_the_whole(form: str) -> None:
    models = read_models(digits_model_path("f32"), digits_model_path(form))
    found = compared(models, drawn_for(models))
    part = cut_layer(found)
    assert part is not None
    assert part.f32 is not None
    again = fqfuse.compare(part.f32, part.model, data=part.inputs)
    # a session may round otherwise than the run without fusing: one code of some thousand
    assert again["outputs"][part.output]["sqnr"] == pytest.approx(part.sqnr, abs=0.5)
    assert part.nodes < 10


def test_nothing_is_cut_where_no_layer_adds_so_much(models: Any) -> None:
    assert cut_layer(compared(models, drawn_for(models)), bound=3.0) is None


class WrongAdd:
    """Another program, as fqfuse's NumPy runtime would be with a wrong Add at one place."""

    def __init__(self, model: bytes, error: float) -> None:
        self._session = fqfuse.InferenceSession(model, "numpy")
        nodes = onnx.ModelProto.FromString(model).graph.node
        self._error = error if any(node.name == "block2.add" for node in nodes) else 0.0

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        outputs = self._session.run(None, feeds)
        names = [output.name for output in self._session.get_outputs()]
        return {
            name: array + np.float32(self._error)
            for name, array in zip(names, outputs, strict=True)
        }


@pytest.mark.parametrize("wrong", [True, False])
def test_the_node_that_differs_is_found(
    models: Any, monkeypatch: pytest.MonkeyPatch, wrong: bool
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(reduce, "peer", lambda _, model: WrongAdd(model, 0.1 * wrong))
    part = cut_against(compared(models, drawn_for(models), "onnxruntime"))
    if not wrong:
        assert part is None
        return
    assert part is not None
    nodes = [node.name for node in onnx.ModelProto.FromString(part.model).graph.node]
    assert "block2.add" in nodes
    assert len(nodes) < 12
    assert set(part.inputs) == set(graph_from_onnx(part.model).inputs)
