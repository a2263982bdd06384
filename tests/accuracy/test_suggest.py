"""What `compare --suggest` proposes, given to the real quantizer."""

from __future__ import annotations

import io
from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
import pytest
from rich.console import Console
from support.masked_attention import cosine, feed, quantized
from support.small_networks import NETWORKS, Writer, feeds_of

import fqfuse
from fqfuse.accuracy.compare import compared, read_models
from fqfuse.accuracy.data import given
from fqfuse.accuracy.screen import comparison_report
from fqfuse.accuracy.suggest import NOTABLE, _Mixed, suggestion_of
from fqfuse.report.layout import Layout
from fqfuse.report.verdict.remedies import Tool


@pytest.mark.each_case
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("lowest", [-3.4028235e38, -1e4])
def test_leaving_out_what_is_suggested_mends_a_quantized_mask(
    tmp_path: Path, lowest: float, form: str
) -> None:
    broken = quantized(tmp_path, [], lowest, form=form)
    before = cosine(broken)
    found = fqfuse.compare(tmp_path / "f32.onnx", broken, data=feed(9), suggest=True)
    suggestion = found["suggestion"]
    assert suggestion["nodes"][0] in ("/attn/bias", "/attn/biased")
    assert suggestion["trials"][0]["why"] == "absurd-scale"
    assert before < 0.98
    first = next(layer for layer in found["layers"] if layer["rank"] == 1)
    assert first["findings"] == ["absurd-scale"], (
        "what `inspect` says of the file stands at its layer"
    )
    mended = quantized(tmp_path, suggestion["nodes"], lowest, form=form)
    assert cosine(mended) >= 0.95
    assert suggestion["chosen"]["cosine"] >= 0.95, "and it said so"


@pytest.mark.parametrize("network", ["cnn", "attention", "gpt2"])
def test_the_gain_is_what_the_quantizer_brings(network: str, tmp_path: Path) -> None:
    proto = NETWORKS[network](Writer(1))
    source = tmp_path / "f32.onnx"
    onnx.save(proto, source)
    data = feeds_of(proto, 2, 9)
    broken = by_onnxruntime(proto, source, [])
    suggestion = fqfuse.compare(source, broken, data=data, suggest=True)["suggestion"]
    assert suggestion["nodes"]
    mended = fqfuse.compare(source, by_onnxruntime(proto, source, suggestion["nodes"]), data=data)
    (output,) = mended["outputs"].values()
    # a session may round a tie otherwise than the run without fusing
    assert output["sqnr"] == pytest.approx(suggestion["chosen"]["sqnr"], abs=0.3)
    assert output["sqnr"] > suggestion["before"]["sqnr"] + 0.4


def by_onnxruntime(proto: onnx.ModelProto, source: Path, exclude: list[str]) -> Path:
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter([feeds_of(proto, 2, seed) for seed in range(4)])

        def get_next(self):
            return next(self.feeds, None)

    target = source.with_name(f"int8-{len(exclude)}.onnx")
    quantization.quantize_static(
        str(source),
        str(target),
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType.QUInt8,
        per_channel=True,
        nodes_to_exclude=exclude,
    )
    return target


def test_the_node_is_named_that_asked_for_a_quantizer(tmp_path: Path) -> None:
    """As NNCF writes it: the quantizer of a product's input stands in front of the Transpose that it
    moved over, and goes only with the product, which is the one to be named in ignored_scope.
    """
    source = tmp_path / "f32.onnx"
    onnx.save(transposed(), source)
    suggestion = fqfuse.compare(
        source, coarse(transposed()), data={"x": feed_of([4, 8])}, suggest=True
    )["suggestion"]
    assert suggestion["nodes"] == ["/fc2/MatMul"]
    assert suggestion["chosen"]["sqnr"] > suggestion["before"]["sqnr"] + 10
    assert suggestion["change"] == "ignored_scope=nncf.IgnoredScope(names=['/fc2/MatMul'])"


def test_what_computes_a_condition_is_not_named(tmp_path: Path) -> None:
    """A mask chosen by ids, as transformers make it: ignored_scope needs the Where alone."""
    model = transposed()
    where = onnx.helper.make_node("Where", ["hidden", "h", "w2"], ["t"], "/Where")
    equal = onnx.helper.make_node("Equal", ["ids", "one"], ["hidden"], "/Equal")
    model.graph.node[1].CopyFrom(where)
    model.graph.node.insert(1, equal)
    info = onnx.helper.make_tensor_value_info
    model.graph.input.append(info("ids", onnx.TensorProto.INT64, [1, 8]))
    model.graph.output[0].CopyFrom(info("y", onnx.TensorProto.FLOAT, [4, 8]))
    del model.graph.initializer[:]
    weights = {"w1": feed_of([8, 8], 1), "w2": feed_of([4, 8], 2), "w3": feed_of([8, 8], 3)}
    weights["one"] = np.array(1)
    model.graph.node[3].input[1] = "w3"
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(data, name) for name, data in weights.items()
    )
    source = tmp_path / "f32.onnx"
    onnx.save(model, source)
    models = read_models(source, coarse(model, "t"))
    mixed = _Mixed(models, Tool.NNCF)
    assert mixed.nodes(["/Where"]) == ("/Where",)


def test_gains_below_their_error_are_not_promised(tmp_path: Path) -> None:
    """One row for what gains, one line for all that does not."""
    source = tmp_path / "f32.onnx"
    proto = NETWORKS["cnn"](Writer(1))
    onnx.save(proto, source)
    models = read_models(source, by_onnxruntime(proto, source, []))
    found = compared(models, given(models.f32, [feeds_of(proto, 2, 9)], "the test's data"))
    suggestion = suggestion_of(found)
    before = suggestion.before.sqnr
    small = [trial for trial in suggestion.trials if trial.sqnr < before + NOTABLE]
    shown = io.StringIO()
    Console(file=shown, width=80).print(
        comparison_report(found, suggestion, Layout(None), title="cnn")
    )
    lines = shown.getvalue().splitlines()
    assert small, "the network has layers that gain next to nothing"
    assert any(f"{len(small)} other trial" in line for line in lines)
    gains = [float(line.split("+")[1].split(" dB")[0]) for line in lines if " dB  +" in line]
    assert gains
    assert min(gains) >= NOTABLE


def feed_of(shape: list[int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def transposed() -> onnx.ModelProto:
    """Two products with a Transpose between."""
    make = onnx.helper.make_node
    nodes = [
        make("MatMul", ["x", "w1"], ["h"], "/fc1/MatMul"),
        make("Transpose", ["h"], ["t"], "/Transpose", perm=[1, 0]),
        make("MatMul", ["t", "w2"], ["y"], "/fc2/MatMul"),
    ]
    data = {"w1": feed_of([8, 8], 1), "w2": feed_of([4, 8], 2)}
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "transposed",
        [info("x", onnx.TensorProto.FLOAT, [4, 8])],
        [info("y", onnx.TensorProto.FLOAT, [8, 8])],
        [onnx.numpy_helper.from_array(array, name) for name, array in data.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def coarse(model: onnx.ModelProto, value: str = "h") -> onnx.ModelProto:
    """A value, the first product's result, in codes that lie far apart, by NNCF's names."""
    model = deepcopy(model)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    made = 1 + next(place for place, node in enumerate(nodes) if value in node.output)
    nodes[made].input[0] = f"dq_output_{value}_1"
    pair = [
        onnx.helper.make_node(
            f"{kind}Linear",
            [source, "scale", "zero"],
            [f"{short}_output_{value}_1"],
            f"{kind}Linear_{value}_1",
        )
        for kind, short, source in (
            ("Quantize", "q", value),
            ("Dequantize", "dq", f"q_output_{value}_1"),
        )
    ]
    model.graph.node.extend([*nodes[:made], *pair, *nodes[made:]])
    parameters = {"scale": np.float32(2), "zero": np.int8(0)}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array(value), name) for name, value in parameters.items()
    )
    return model
