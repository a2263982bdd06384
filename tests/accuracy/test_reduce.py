"""The part of a model that `compare --reduce` cuts out shows the difference by itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime import quantization
from support.judge import ort_session
from support.masked_attention import attention, feed, quantized
from support.ort_quantizer import quantized_by_ort

import fqfuse
from fqfuse.accuracy import reduce
from fqfuse.accuracy.compare import compared, drawn_for, read_models
from fqfuse.accuracy.data import given
from fqfuse.accuracy.measures import Measure
from fqfuse.accuracy.reduce import cut_against, cut_layer
from fqfuse.frontend import graph_from_onnx
from fqfuse.models.digits import digits_model_path, digits_test_set


@pytest.fixture(scope="module")
def models() -> Any:
    return read_models(digits_model_path("f32"), digits_model_path("qdq"))


def int8_model(form: str) -> str | onnx.ModelProto:
    if form != "qoperator":
        return digits_model_path(form)
    f32 = onnx.load(digits_model_path("f32"))
    feeds = [{"image": digits_test_set()[0][:8]}]
    return quantized_by_ort(f32, feeds, quant_format=quantization.QuantFormat.QOperator)


@pytest.mark.parametrize("form", ["qdq", "fakequantize", "qoperator"])
def test_the_cut_layer_shows_what_is_said_of_it(form: str) -> None:
    models = read_models(digits_model_path("f32"), int8_model(form))
    found = compared(models, drawn_for(models))
    part = cut_layer(found)
    assert part is not None
    assert part.f32 is not None
    again = fqfuse.compare(part.f32, part.model, data=part.inputs)
    # the sums are the same
    assert again["outputs"][part.output]["sqnr"] == pytest.approx(part.sqnr, abs=1e-6)
    # to what the layer adds comes the rounding of what it reads, of 8 bits as its own
    assert part.sqnr == pytest.approx(found.ranking[0].added.sqnr, abs=3.1)
    assert part.nodes < 10


@pytest.mark.each_case
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_the_part_shows_what_a_quantized_mask_does(tmp_path: Path, form: str) -> None:
    """In QOperator form the file has no floats around the layer: the part makes codes of them first, and floats last."""
    models = read_models(attention(), quantized(tmp_path, [], form=form))
    part = cut_layer(compared(models, given(models.f32, [feed(9)], "the test")))
    assert part is not None
    assert part.f32 is not None
    assert part.output in ("bias", "biased")
    assert part.sqnr < 1.0
    results = [
        ort_session(onnx.ModelProto.FromString(model), optimized=True).run(
            None, {name: part.inputs[name] for name in graph_from_onnx(model).inputs}
        )[0]
        for model in (part.f32, part.model)
    ]
    measure = Measure()
    measure.add(*results)
    # one code of thousands may be another in ONNX Runtime, and the mask's entries are left out
    assert measure.sqnr == pytest.approx(part.sqnr, abs=0.1)


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
