"""What a finding says holds of the model: the layers that it names are there, and of the kind that it says."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support.finding_cases import CASES, OPTIONS
from support.finding_networks import Net, codes

import fqfuse

PRODUCTS = {
    "asymmetric-weights": {"asymmetric"},
    "f32-weights": {"f32"},
    "f32-product": {"f32"},
    "weights-along-inputs": set(),
    "weights-only": set(),
    "f32-attention": set(),
    "quantized-outside": set(),
}
"""Kind -> which of the layers that are drawn it may name."""


def layer(net: Net, value: str, kind: str, name: str) -> str:
    """A convolution of 8 channels: in f32, of codes, or of codes with a zero point of weights, by a range of each run."""
    if kind == "f32":
        weights = net.constant((codes((8, 8, 3, 3)) * 0.01).astype(np.float32))
        return net.conv(value, name, weights=weights)
    if kind == "f32 up":
        weights = net.constant((codes((8, 8, 2, 2)) * 0.01).astype(np.float32))
        up = net.op("ConvTranspose", value, weights, name=name, strides=[2, 2])
        return net.op("MaxPool", up, name=f"pool {name}", kernel_shape=[2, 2], strides=[2, 2])
    if kind == "symmetric":
        return net.conv(net.quantized(value), name)
    net.op("DynamicQuantizeLinear", value, name=f"range {name}", out=f"{name}/codes")
    net.nodes[-1].output.extend([f"{name}/scale", f"{name}/zero"])
    weights = net.constant((codes((8, 8, 3, 3)).astype(int) + 128).astype(np.uint8))
    zero = net.constant(np.uint8(127))
    sums = net.op(
        "ConvInteger", f"{name}/codes", weights, f"{name}/zero", zero, name=name, pads=[1] * 4
    )
    scale = net.op("Mul", f"{name}/scale", net.constant(np.float32(0.001)))
    return net.op("Mul", net.op("Cast", sums, to=onnx.TensorProto.FLOAT), scale)


def drawn(rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Some layers with activations between, and which kind each is."""
    net, value, kinds = Net(), "x", {}
    for place in range(int(rng.integers(2, 6))):
        if rng.random() < 0.6:
            op = str(rng.choice(["LeakyRelu", "Sigmoid", "Relu", "Softplus"]))
            value = net.op(op, value, name=f"act{place}")
        kind = str(rng.choice(["f32", "f32 up", "symmetric", "asymmetric"]))
        kinds[f"layer{place}"] = kind.split(maxsplit=1)[0]
        value = layer(net, value, kind, f"layer{place}")
    net.op("Identity", value, name="last", out="y")
    return net.proto(), kinds


@pytest.mark.parametrize("draws", [8, pytest.param(80, marks=pytest.mark.slow)])
def test_findings_name_layers_of_their_kind(draws: int) -> None:
    rng = np.random.default_rng(draws)
    said = set()
    for draw in range(draws):
        model, kinds = drawn(rng)
        names = {node.name for node in model.graph.node}
        for found in fqfuse.findings(fqfuse.compile(model)):
            assert names.issuperset(found["layers"]), (draw, found)
            if found["code"] in PRODUCTS:
                said.add(found["code"])
                of = {kinds.get(name, name) for name in found["layers"]}
                assert of <= PRODUCTS[found["code"]], (draw, found)
            assert "softmax" not in found["change"].split(";")[0], found  # there is none
            if found["code"] == "layout-copy":
                plan = fqfuse.compile(model)
                outputs = [plan.steps[step].output for step in found["steps"]]
                assert not any(plan.type(value).dtype.is_float for value in outputs)
    assert said >= {"asymmetric-weights", "f32-product"}


@pytest.mark.parametrize("code", CASES)
def test_findings_of_the_cases_name_what_is_there(code: str) -> None:
    for cured in (False, True):
        model = CASES[code](cured)
        plan = fqfuse.compile(model, **(OPTIONS.get(code, {}) if cured else {}))
        graphs = [model.graph]
        for graph in graphs:
            bodies = (
                item.g for node in graph.node for item in node.attribute if item.HasField("g")
            )
            graphs += bodies
        names = {name for g in graphs for node in g.node for name in (node.name, *node.output)}
        for found in fqfuse.findings(plan):
            assert names.issuperset(found["layers"]), found


def test_a_product_in_a_branch_is_told_where_its_input_is_quantized() -> None:
    found = fqfuse.findings(fqfuse.compile(CASES["quantized-outside"](False)))
    told = {one["code"]: one for one in found}
    assert told["quantized-outside"]["layers"] == ["then/product", "else/product"]
    assert "weights-only" not in told
