"""Which kind a step is: what looks alike, and has another cause or remedy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support.finding_cases import CASES, at_run_time, coded_lstm, in_rows
from support.finding_networks import U8, Net, codes
from support.onnx_cases import random
from support.screen_networks import Nncf, Ort, Tool, bert

import fqfuse
from fqfuse.report.verdict.findings import Verdict, verdict_of
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.screen import answer_text

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=4, clock=3.0)
SIZES = np.r_[127, np.full(7, 20)].reshape(8, 1, 1, 1)


def verdict(net: Net, **told: object) -> Verdict:
    return verdict_of(fqfuse.compile(net.proto(**told)), MACHINE)


def found(net: Net, **told: object) -> dict[str, tuple[str, ...]]:
    """Code -> layers."""
    return {item.kind.code: item.layers for item in verdict(net, **told).findings}


def even(largest: int) -> np.ndarray:
    """Weights of which each channel reaches the same code."""
    data = codes((8, 8, 3, 3), largest)
    data[:, 0, 0, 0] = largest
    return data


@pytest.mark.parametrize("largest", [127, 63])
def test_channels_that_reach_equally_far_have_scales_of_their_own(largest: int) -> None:
    """`reduce_range` takes a bit from all of them."""
    net = Net()
    net.conv(net.quantized("x"), "conv", out="y", weights=net.weights(even(largest)))
    assert "unused-weight-range" not in found(net)


def test_one_scale_is_seen_through_the_factors_of_a_normalization() -> None:
    """Folded in, they make a scale for each channel; the codes were rounded to one."""
    net = Net()
    data = (even(127).astype(np.int32) * SIZES // 127).astype(np.int8)
    hidden = net.conv(net.quantized("x"), "conv", weights=net.weights(data, np.float32(0.01)))
    parameters = [net.constant(np.linspace(0.5, 2.0, 8, dtype=np.float32)) for _ in range(4)]
    net.op("BatchNormalization", hidden, *parameters, name="norm", out="y")
    assert found(net)["unused-weight-range"] == ("conv",)


def test_dead_channels_do_not_count_as_small_ones() -> None:
    net = Net()
    data = even(127)
    data[:5] = 0
    net.conv(net.quantized("x"), "conv", out="y", weights=net.weights(data))
    assert set(found(net)) == {"dead-channels", "model-output"}


@pytest.mark.parametrize("uneven", [True, False])
def test_gates_of_an_lstm_with_one_scale(uneven: bool) -> None:
    net = Net()
    steps = in_rows(net, coded_lstm(net, "x"))
    net.matmul(at_run_time(net, steps), "fc", out="y")
    if uneven:
        name = next(name for name, data in net.constants.items() if data.shape == (1, 16, 64))
        net.constants[name] = net.constants[name] // np.where(np.arange(64) < 8, 1, 8).astype(
            np.int8
        )
    layers = found(net, inputs={"x": [4, 2, 16]}).get("unused-weight-range", ())
    assert ("cell_quant" in layers) == uneven


def test_a_quantizer_behind_a_concatenation_of_other_scales_changes_scales() -> None:
    """As in a U-Net, where others read the parts; it goes where all have one scale."""
    for scale in (0.1, 0.2):
        net = Net()
        left = net.quantized(net.conv(net.quantized("x"), "left"))
        right = net.quantized(net.conv(left, "right"), scale)
        joined = net.quantized(net.op("Concat", left, right, axis=1, name="joined"))
        net.conv(joined, "conv", out="y", channels=16)
        net.conv(right, "other", out="z")
        assert ("requantized" in found(net, outputs=["y", "z"])) == (scale != 0.1)


def test_arithmetic_of_the_network_is_no_change_of_scales() -> None:
    kinds = verdict_of(fqfuse.compile(CASES["own-step"](False)), MACHINE).findings
    assert "own-step" in {item.kind.code for item in kinds}


@pytest.mark.parametrize("relu", [True, False])
def test_a_normalization_behind_a_concatenation_is_no_change_of_scales(relu: bool) -> None:
    """As in a DenseNet, where ONNX Runtime's quantizer takes the relu out: a factor and a shift for each
    channel are in what decodes the codes.
    """
    net = Net()
    parts = [net.conv(net.quantized("x"), name) for name in ("left", "right")]
    joined = net.quantized(net.op("Concat", *parts, axis=1, name="joined"))
    parameters = [net.constant(np.linspace(0.5, 2.0, 16, dtype=np.float32)) for _ in range(4)]
    normal = net.op("BatchNormalization", joined, *parameters, name="norm")
    hidden = net.op("Relu", normal, name="relu") if relu else normal
    net.conv(net.quantized(hidden, zero=U8(0)), "conv", out="y", channels=16)
    net.conv(joined, "other", out="z", channels=16)
    layers = found(net, outputs=["y", "z"])
    assert layers["own-step"] == ("relu" if relu else "norm",)
    assert "requantized" not in layers


def test_the_rest_of_a_normalization_is_no_quantizer_apart() -> None:
    """No option of a quantizer brings the factors behind an instance normalization into it."""
    net = Net()
    hidden = net.quantized(net.conv(net.quantized("x"), "conv1"))
    ends = [net.constant(np.linspace(0.5, 2.0, 8, dtype=np.float32)) for _ in range(2)]
    normal = net.op("InstanceNormalization", hidden, *ends, name="norm")
    net.conv(net.quantized(net.op("Relu", normal), zero=U8(0)), "conv2", out="y")
    kinds = found(net)
    assert "quantizer-apart" not in kinds
    assert kinds["float-operation"] == ("norm",)


def test_what_a_pooling_reads_for_an_f32_product_belongs_to_that() -> None:
    """Quantizing the product lets the convolution in front of the pooling write codes."""
    net = Net()
    hidden = net.op("Relu", net.conv(net.quantized("x"), "conv"))
    rows = net.op("Flatten", net.op("GlobalAveragePool", hidden, name="pool"))
    net.op("Gemm", rows, net.constant(random([8, 4])), name="fc", out="y")
    kinds = found(net)
    assert kinds["f32-product"] == ("fc",)
    assert "float-operation" not in kinds


def test_a_function_between_16_bit_quantizers_is_theirs() -> None:
    """Of 8 bits it would be a table of codes; decoding its codes is no arithmetic on indices."""
    net = Net()
    wide = np.uint16(32768)
    hidden = net.quantized(net.conv(net.quantized("x", zero=wide), "conv1"), zero=wide)
    bent = net.quantized(net.op("Erf", hidden, name="erf"), zero=wide)
    net.conv(net.op("Mul", bent, hidden, name="mul"), "conv2", out="y")
    kinds = found(net)
    assert "erf" in kinds["wide-codes"]
    assert not {"fallback", "index-arithmetic"} & set(kinds)


def test_no_cnn_is_told_of_presets_for_transformers() -> None:
    for code in ("f32-product", "f32-weights", "f32-residual"):
        for item in verdict_of(fqfuse.compile(CASES[code](False)), MACHINE).findings:
            assert "TRANSFORMER" not in item.change()


def test_what_a_change_mends_comes_first() -> None:
    """Accuracy that a change brings stands in front of time that none does."""
    net = Net()
    data = (even(127).astype(np.int32) * SIZES // 127).astype(np.int8)
    weights = net.weights(data, np.float32(0.01))
    hidden = net.quantized(net.conv(net.quantized("x"), "conv1", weights=weights))
    net.conv(net.op("Transpose", hidden, perm=[0, 1, 3, 2]), "conv2", out="y")
    kinds = list(found(net))
    assert kinds.index("unused-weight-range") < kinds.index("layout-copy")


@pytest.mark.parametrize(("tool", "in_front"), [(Ort(), {"/Mul"}), (Nncf(), set())])
def test_what_reads_a_quantized_mask_is_named_and_for_some_tools_what_makes_it(
    tool: Tool, in_front: set[str]
) -> None:
    """NNCF quantizes in front of what it is asked to quantize; the products of attention, whose step the
    addition is in, need not go to f32.
    """
    masked = verdict_of(fqfuse.compile(bert(tool, quantized_mask=True)), MACHINE).findings[0]
    assert masked.kind.code == "absurd-scale"
    additions = {f"/encoder/layer.{number}/attention/self/Add" for number in range(3)}
    assert set(masked.layers) == additions | in_front


def test_outputs_that_are_far_off_have_no_word_about_some_accuracy() -> None:
    net = Net()
    data = (even(127).astype(np.int32) * SIZES // 127).astype(np.int8)
    weights = net.weights(data, np.float32(0.01))
    net.conv(net.quantized("x", 1.33e36), "conv", out="y", weights=weights)
    text = answer_text(verdict(net))
    assert text.startswith("The outputs may be far off")
    assert "Some accuracy" not in text


def test_a_product_of_activations_is_no_layer_without_weights() -> None:
    """The right operand is an activation, whatever the primitive calls it."""
    model = CASES["f32-attention"](False)
    assert isinstance(model, onnx.ModelProto)
    kinds = {item.kind.code for item in verdict_of(fqfuse.compile(model), MACHINE).findings}
    assert "f32-weights" not in kinds
    assert "f32-attention" in kinds


def test_what_a_pooling_in_front_of_a_run_time_range_reads_is_f32_for_that_range() -> None:
    """As quantize_dynamic leaves the first layers of a ResNet: no norm, no softmax is near."""
    net = Net()
    first = net.op("Relu", net.conv(net.quantized("x"), "conv1"), name="relu")
    pooled = net.op("MaxPool", first, name="maxpool", kernel_shape=[2, 2], strides=[2, 2])
    net.conv(at_run_time(net, pooled), "conv2", out="y")
    plan = fqfuse.compile(net.proto())
    findings = {item.kind.code: item for item in verdict_of(plan, MACHINE).findings}
    assert "float-operation" not in findings
    names = {
        name for step in findings["dynamic-quantizer"].steps for name in plan.steps[step].origin
    }
    assert {"conv1", "maxpool"} <= names
