"""Values of files that real quantizers wrote are found by the f32 model's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.onnx_cases import model, node, random
from support.small_networks import NETWORKS, Writer, feeds_of

import fqfuse
from fqfuse.accuracy.layers import Cause, measure_layers
from fqfuse.accuracy.matching import node_name, pairs_of
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.graph import Graph
from fqfuse.ir.node import Node


def written(form: str, source: Path, proto: onnx.ModelProto) -> Path:
    quantization = pytest.importorskip("onnxruntime.quantization")
    target = source.with_name(f"{form}.onnx")
    if form == "dynamic":
        quantization.quantize_dynamic(str(source), str(target))
        return target

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter([feeds_of(proto, 2, seed) for seed in range(4)])

        def get_next(self) -> Any:
            return next(self.feeds, None)

    quantization.quantize_static(
        str(source),
        str(target),
        Reader(),
        quant_format=quantization.QuantFormat[form],
        per_channel=form == "QDQ",
    )
    return target


@pytest.mark.each_case
@pytest.mark.parametrize("form", ["QDQ", "QOperator", "dynamic"])
@pytest.mark.parametrize("network", ["cnn", "bert"])
def test_most_values_are_matched_and_close(network: str, form: str, tmp_path: Path) -> None:
    proto = NETWORKS[network](Writer(1))
    source = tmp_path / "f32.onnx"
    onnx.save(proto, source)
    int8 = written(form, source, proto)
    found = fqfuse.compare(source, int8, data=feeds_of(proto, 2, 9), suggest=True)
    values = found["matched"] + len(found["unmatched"])
    # four of fourteen values are those in front of a Relu that went into the convolution
    assert found["matched"] >= 0.7 * values, found["unmatched"]
    # 8 bits of well chosen ranges lose no more at one layer; a value paired with a stranger would
    worst = min(layer["added"] for layer in found["layers"])
    assert worst > 15, [layer for layer in found["layers"] if layer["added"] == worst]
    assert min(output["sqnr"] for output in found["outputs"].values()) > 15
    suggestion = found["suggestion"]
    assert suggestion["chosen"]["sqnr"] >= suggestion["before"]["sqnr"]


def test_all_layers_left_out_give_f32(tmp_path: Path) -> None:
    from fqfuse.accuracy.compare import compared, read_models
    from fqfuse.accuracy.data import given
    from fqfuse.accuracy.suggest import _Mixed

    proto = NETWORKS["cnn"](Writer(1))
    source = tmp_path / "f32.onnx"
    onnx.save(proto, source)
    models = read_models(source, written("QDQ", source, proto))
    samples = given(models.f32, [feeds_of(proto, 2, 9)], "test")
    found = compared(models, samples)
    everything = frozenset(pair.layer for pair in models.pairs)
    (measure,) = _Mixed(models, found.tool).run(everything, samples.feeds).values()
    assert measure.sqnr == np.inf


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("/fc/Gemm_MatMul_quant", "/fc/Gemm"),
        ("conv0_quant", "conv0"),
        ("/h.0/attn/c_attn/MatMul_Q4", "/h.0/attn/c_attn/MatMul"),
        ("/layer/MatMul_1", "/layer/MatMul_1"),
    ],
)
def test_nodes_are_called_as_in_the_model_that_was_quantized(written: str, meant: str) -> None:
    assert node_name(Node("n", "Relu", ("x",), ("y",), {}, origin=(written,))) == meant


def test_codes_that_are_read_as_such_are_those_of_the_relu_in_front() -> None:
    """As in QOperator form: a range from 0 on does the Relu, a pooling reads the codes, and the decoded value
    alone has the name of what the Relu gave.
    """

    def graph(*, coded: bool) -> Graph:
        first = node("Conv", ["x", "w"], ["sum"], name="conv")
        if not coded:
            nodes = [
                first,
                node("Relu", ["sum"], ["y"], name="relu"),
                node("MaxPool", ["y"], ["p"], name="pool", kernel_shape=[2, 2]),
            ]
        else:
            nodes = [
                first,
                node("QuantizeLinear", ["sum", "s", "z"], ["y_quantized"], name="q"),
                node("DequantizeLinear", ["y_quantized", "s", "z"], ["y"], name="d"),
                node("MaxPool", ["y_quantized"], ["p_quantized"], name="pool", kernel_shape=[2, 2]),
                node("DequantizeLinear", ["p_quantized", "s", "z"], ["p"], name="d2"),
            ]
        constants = {"w": random([4, 3, 1, 1], 1), "s": np.float32(0.02), "z": np.uint8(0)}
        made = model(nodes, inputs={"x": [1, 3, 8, 8]}, constants=constants, outputs=["y", "p"])
        return graph_from_onnx(made)

    f32, int8 = graph(coded=False), graph(coded=True)
    pairs, _ = pairs_of(f32, int8)
    assert [pair.name for pair in pairs] == ["x", "y", "p"]
    assert [pair.missing for pair in pairs] == ["", "", ""]
    feeds = {"x": random([1, 3, 8, 8], 2)}
    for layer in measure_layers(f32, int8, pairs, [feeds], {}).layers[1:]:
        assert layer.added.sqnr > 30  # a step of 0.02 for values up to 2.5


def test_a_product_whose_result_has_another_name_is_blamed() -> None:
    """As ONNX Runtime's quant_pre_process writes MatMul and Add of three axes: a Gemm between two Reshapes,
    whose values f32 does not have, quantized in front of the second and behind it.
    """
    weights, bias = random([8, 6], 1), random([6], 2)

    def graph(*, coded: bool) -> Graph:
        first = [node("Neg", ["x"], ["n"], name="neg")]
        last = [node("Neg", ["sum"], ["y"], name="last")]
        if not coded:
            product = [
                node("MatMul", ["n", "w"], ["m"], name="product"),
                node("Add", ["m", "b"], ["sum"], name="add"),
            ]
        else:
            first += quantized("n", "s")
            product = [
                node("Reshape", ["n_DequantizeLinear_Output", "flat"], ["token_1"], name="r1"),
                node("DequantizeLinear", ["w", "sw", "z"], ["wd"], name="dw"),
                node("Gemm", ["token_1", "wd", "b"], ["token_2"], name="product/Fusion"),
                *quantized("token_2", "s"),
                node("Reshape", ["token_2_DequantizeLinear_Output", "deep"], ["sum"], name="r2"),
                *quantized("sum", "s"),
            ]
            last = [node("Neg", ["sum_DequantizeLinear_Output"], ["y"], name="last")]
        # twice the scale that the weights have
        codes = np.clip(np.rint(weights / 0.02), -128, 127).astype(np.int8)
        constants = {"b": bias, "w": codes if coded else weights}
        if coded:
            constants |= {"s": np.float32(0.08), "sw": np.float32(0.04), "z": np.int8(0)}
            constants |= {"flat": np.int64([10, 8]), "deep": np.int64([2, 5, 6])}
        return graph_from_onnx(
            model([*first, *product, *last], inputs={"x": [2, 5, 8]}, constants=constants)
        )

    f32, int8 = graph(coded=False), graph(coded=True)
    pairs, _ = pairs_of(f32, int8)
    found = {pair.layer: pair for pair in pairs}
    assert not found["add"].again
    layers = measure_layers(f32, int8, pairs, [{"x": random([2, 5, 8], 3)}], {}).layers
    worst = min(layers, key=lambda layer: layer.added.sqnr)
    assert worst.pair.layer == "add"
    assert worst.added.sqnr < 6
    assert worst.cause is Cause.COMPUTED


def quantized(value: str, scale: str) -> list[onnx.NodeProto]:
    """A value's quantizer, as ONNX Runtime calls it."""
    codes, decoded = f"{value}_QuantizeLinear_Output", f"{value}_DequantizeLinear_Output"
    return [
        node("QuantizeLinear", [value, scale, "z"], [codes], name=f"{value}_QuantizeLinear"),
        node("DequantizeLinear", [codes, scale, "z"], [decoded], name=f"{value}_DequantizeLinear"),
    ]
