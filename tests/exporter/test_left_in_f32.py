"""Products that ONNX Runtime computes in f32 although their input is quantized: the export names exactly
those, and writes them so that they are no slower than in f32.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import quantize_dynamic
from support.finding_cases import SEQUENCES, coded_lstm, in_rows
from support.finding_networks import U8, Net, codes
from support.onnx_cases import optimized_operators, random, run_ort
from support.small_networks import NETWORKS as F32_NETWORKS
from support.small_networks import Writer, feeds_of

import fqfuse
from fqfuse.exporter import FORMS

PRODUCTS = {"Conv", "FusedConv", "ConvTranspose", "Gemm", "MatMul", "FusedMatMul"}


def hard_swish(net: Net) -> str:
    """As NNCF writes MobileNetV3: no quantizer in front of the activation."""
    hidden = net.conv(net.quantized("x"), "between")
    return net.op("HardSwish", hidden, name="swish")


def relu(net: Net) -> str:
    return net.op("Relu", net.conv(net.quantized("x"), "conv"), name="relu")


def relu_of_signed_codes(net: Net) -> str:
    """As symmetric activations have it: the relu cuts codes off, which are quantized in front of it."""
    hidden = net.op("Relu", net.conv(net.quantized("x"), "conv"), name="relu")
    return net.quantized(hidden, 0.05, np.int8(0))


def skip(net: Net) -> str:
    """Two read the result of the convolution."""
    hidden = net.conv(net.quantized("x"), "twice")
    return net.op("Add", net.quantized(net.op("Sigmoid", hidden)), hidden)


def per_channel(net: Net) -> str:
    """Scales that no weights in front take."""
    scale, zero = np.linspace(0.05, 0.2, 8, dtype=np.float32), np.full(8, 128, np.uint8)
    return net.conv(net.quantized("x", scale, zero, axis=1), "uneven")


def matrices(net: Net) -> str:
    """Products of matrices need no quantizer behind them."""
    rows = net.op("Reshape", net.quantized("x"), net.constant(np.array([-1, 16])))
    return net.op("HardSwish", net.matmul(rows, "fc"), name="swish")


NETWORKS: dict[Callable[[Net], str], set[str]] = {
    hard_swish: {"between"},
    relu: set(),
    relu_of_signed_codes: set(),
    skip: {"twice"},
    per_channel: {"uneven"},
    matrices: set(),
}


def network(make: Callable[[Net], str]) -> onnx.ModelProto:
    net = Net()
    codes_of_y = net.quantized(make(net), 0.05, U8(0))
    net.op("Identity", codes_of_y, name="last", out="y")
    return net.proto()


def in_f32(proto: onnx.ModelProto, folder: Path) -> int:
    """How many products ONNX Runtime computes in f32."""
    return sum(count for op, count in optimized_operators(proto, folder).items() if op in PRODUCTS)


@pytest.mark.each_case
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
def test_the_products_that_stay_f32_are_named(
    make: Callable[[Net], str], form: str, tmp_path: Path
) -> None:
    source = network(make)
    exported = fqfuse.export(source, tmp_path / "out.onnx", to=form)
    assert {node for node, _ in exported.products} == NETWORKS[make]
    assert all(why for _, why in exported.products)
    assert in_f32(exported.model, tmp_path) == len(NETWORKS[make])
    feeds = {"x": random([1, 8, 16, 16], 3)}
    before, *after = (
        run_ort(source, feeds)[0],
        *(run_ort(exported.model, feeds, optimized=o)[0] for o in (False, True)),
    )
    # a code of the output, next to ties
    assert all(np.abs(before - numbers).max() <= 0.05 * 1.001 for numbers in after)


def test_weights_of_a_convolution_in_f32_are_decoded_once(tmp_path: Path) -> None:
    """ONNX Runtime folds a Cast of constants, and computes DequantizeLinear in each run; ConvInteger took
    three times as long as both.
    """
    written = fqfuse.export(network(hard_swish), tmp_path / "out.onnx", to="qoperator").model
    operators = {node.op_type for node in written.graph.node}
    assert "ConvInteger" not in operators
    (weights,) = (node.input[1] for node in written.graph.node if node.op_type == "Conv")
    maker = next(node for node in written.graph.node if weights in node.output)
    assert maker.op_type == "Mul"


def test_weights_beyond_8_bits_of_a_bias_keep_their_digits(tmp_path: Path) -> None:
    """A bias that no s32 code holds: the convolution stays f32, and ONNX Runtime, which would make codes of
    its weights per tensor, has no occasion.
    """
    net = Net()
    weights = net.weights(codes((8, 8, 3, 3)), np.geomspace(1e-6, 1e-2, 8).astype(np.float32))
    inputs = [net.quantized("x"), weights, net.constant(np.full(8, 3e4, np.float32))]
    hidden = net.op("Conv", *inputs, name="conv", pads=[1, 1, 1, 1])
    net.op("Identity", net.quantized(hidden, 300.0), name="last", out="y")
    source = net.proto()
    exported = fqfuse.export(source, tmp_path / "out.onnx", to="qoperator")
    feeds = {"x": random([1, 8, 16, 16], 3)}
    assert (
        np.abs(run_ort(source, feeds)[0] - run_ort(exported.model, feeds, optimized=True)[0]).max()
        <= 300
    )


# -- ranges taken in each run ----------------------------------------------------------------------


def dynamically(network: str, folder: Path) -> onnx.ModelProto:
    """A small network by ONNX Runtime's quantize_dynamic."""
    onnx.save(F32_NETWORKS[network](Writer(0)), folder / "f32.onnx")
    quantize_dynamic(folder / "f32.onnx", folder / "dynamic.onnx")
    return onnx.load(folder / "dynamic.onnx")


@pytest.mark.each_case
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("network", F32_NETWORKS)
def test_a_range_taken_in_each_run_is_none_in_f32(network: str, form: str, tmp_path: Path) -> None:
    """Its zero point is decoded in a run, by DynamicQuantizeLinear itself: what ONNX Runtime computes in f32
    are convolutions alone, for which it is no loss, and those are named.
    """
    source = dynamically(network, tmp_path)
    exported = fqfuse.export(source, tmp_path / "out.onnx", to=form)
    before, after = (optimized_operators(proto, tmp_path) for proto in (source, exported.model))
    assert not exported.operations
    assert len(exported.products) == before["ConvInteger"] == after["Conv"] + after["FusedConv"]
    kinds = ("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeLSTM")
    assert [before[op] for op in kinds] == [after[op] for op in kinds]
    feeds = feeds_of(source, 2)
    numbers, found = run_ort(source, feeds)[0], run_ort(exported.model, feeds, optimized=True)[0]
    # ties of ranges that differ in their last places: a code of an inner tensor moves
    assert np.abs(numbers - found).max() <= 0.02 * np.abs(numbers).max()


@pytest.mark.parametrize("form", FORMS)
def test_an_lstm_on_codes_is_none_in_f32(form: str, tmp_path: Path) -> None:
    """Whatever decodes its input, it makes codes of it by itself, as a DynamicQuantizeLinear does."""
    net = Net()
    steps = coded_lstm(net, net.quantized("x"))
    outputs = ["codes", "scale", "zero"]
    given = net.quantized(in_rows(net, steps))
    net.nodes.append(onnx.helper.make_node("DynamicQuantizeLinear", [given], outputs, name="range"))
    weights, own = net.constant(codes((16, 16))), net.constant(np.float32(0.01))
    sums = net.op("MatMulInteger", "codes", weights, "zero", net.constant(np.int8(0)))
    both = net.op("Mul", "scale", own)
    net.op("Mul", net.op("Cast", sums, to=1), both, name="last", out="y")
    exported = fqfuse.export(net.proto(**SEQUENCES), tmp_path / "out.onnx", to=form)
    after = optimized_operators(exported.model, tmp_path)
    assert (after["DynamicQuantizeLSTM"], after["DynamicQuantizeMatMul"]) == (1, 1)
    assert (exported.products, exported.operations) == ((), ())
