"""Remedies tried with a real quantizer: what the finding names, given to ONNX Runtime, mends the model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16
from support.masked_attention import LONG, WIDE, attention, cosine, feed, quantized
from support.onnx_cases import model, node, random
from support.ort_quantizer import quantized_by_ort

import fqfuse
from fqfuse.report.verdict.catalogue import CATALOGUE
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.remedies import Tool

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=4, clock=3.0)


@pytest.mark.parametrize(
    ("lowest", "named"),
    [
        (-3.4028235e38, ["/attn/bias", "/attn/biased", "/attn/probabilities"]),
        (-1e4, ["/attn/biased", "/attn/probabilities"]),
    ],
)
def test_excluding_what_the_finding_names_mends_a_quantized_mask(
    tmp_path: Path, lowest: float, named: list[str]
) -> None:
    broken = quantized(tmp_path, [], lowest)
    before = cosine(broken)
    first = verdict_of(fqfuse.compile(broken), MACHINE).findings[0]
    assert first.kind.code == "absurd-scale"
    assert set(first.layers) == set(named)
    assert first.change().startswith(f"nodes_to_exclude=['{named[0]}'")
    mended = quantized(tmp_path, list(first.layers), lowest)
    # with the mask quantized, all positions get the same attention; SQNR 11 dB and 34 dB
    assert before < 0.98
    assert cosine(mended) > 0.999
    assert "absurd-scale" not in kinds(mended)


@pytest.mark.parametrize("kept", [None, True, False])
def test_half_floats_are_told_and_gone_as_the_remedy_says(
    tmp_path: Path, kept: bool | None
) -> None:
    """Quantized after it was converted: with inputs and outputs of half floats, or of f32; or not converted."""
    nodes = [
        node("Conv", ["x", "w0"], ["a"], name="conv"),
        node("Relu", ["a"], ["b"], name="relu"),
        node("Conv", ["b", "w1"], ["y"], name="last"),
    ]
    constants = {"w0": random([8, 3, 3, 3]), "w1": random([4, 8, 3, 3], 1)}
    proto = model(nodes, inputs={"x": [1, 3, 16, 16]}, constants=constants)
    if kept is not None:
        proto = convert_float_to_float16(proto, keep_io_types=kept)
    given = np.float16 if kept is False else np.float32
    feeds = [{"x": random([1, 3, 16, 16], seed).astype(given)} for seed in range(4)]
    onnx.save(quantized_by_ort(proto, feeds), tmp_path / "made.onnx")
    plan = fqfuse.compile(tmp_path / "made.onnx")
    found = {each["code"]: each for each in plan.findings()}
    assert "fallback" not in found
    assert ("half-floats" in found) == (kept is False)
    assert not any(step.primitive == "onnx.Cast" for step in plan.steps) or kept is False
    if kept is False:
        assert len(found["half-floats"]["steps"]) >= 2
        assert "keep_io_types=True" in found["half-floats"]["change"]


FORMS = {
    "qoperator": {"quant_format": QuantFormat.QOperator},
    "qoperator-s8": {"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QInt8},
    "16-bit": {"activation_type": QuantType.QUInt16},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("masked", [False, True])
def test_a_quantized_mask_is_found_in_every_form(tmp_path: Path, form: str, masked: bool) -> None:
    """Calibrated with padding or without it: the constant of -3.4e38 itself may have become -inf, and is no
    operator without a primitive. Of 16 bits, all that has to stay f32 is named at once.
    """
    feeds = [feed(seed) for seed in range(4)]
    for each in () if masked else feeds:
        each["mask"][:] = 1
    broken, mended = tmp_path / "broken.onnx", tmp_path / "mended.onnx"
    onnx.save(attention(), tmp_path / "f32.onnx")
    onnx.save(quantized_by_ort(attention(), feeds, **FORMS[form]), broken)
    first = verdict_of(fqfuse.compile(broken), MACHINE).findings[0]
    assert first.kind.code == "absurd-scale"
    named = re.findall(r"'([^']+)'", first.change().partition("]")[0])
    assert "/attn/bias" in named
    assert not kinds(broken) & {"fallback", "index-arithmetic"}
    left = quantized_by_ort(attention(), feeds, nodes_to_exclude=named, **FORMS[form])
    onnx.save(left, mended)
    assert "absurd-scale" not in kinds(mended)
    if masked:  # else the scores behind the mask have no codes for it, which no scale tells
        assert cosine(mended) > 0.999


@pytest.mark.parametrize("lowest", [-3.4028235e38, -1e4])
@pytest.mark.parametrize("form", [*FORMS, "qdq"])
@pytest.mark.parametrize("masked", [False, True])
def test_nothing_asks_to_quantize_what_is_to_stay_f32(
    form: str, masked: bool, lowest: float
) -> None:
    """A node that one finding wants in nodes_to_exclude is none that another wants out of there: of a mask of
    integers, as tokenizers give it.
    """
    feeds = [feed(seed) for seed in range(4)]
    for each in feeds:
        each["mask"] = each["mask"].astype(np.int64) if masked else np.ones([1, LONG], np.int64)
    proto = attention(lowest)
    for given in (each for each in proto.graph.input if each.name == "mask"):
        given.type.tensor_type.elem_type = onnx.TensorProto.INT64
    for each in proto.graph.node:
        each.input[:] = ["floats" if name == "mask" else name for name in each.input]
    proto.graph.node.insert(0, node("Cast", ["mask"], ["floats"], to=onnx.TensorProto.FLOAT))
    made = quantized_by_ort(proto, feeds, **FORMS.get(form, {}))
    found = {each["code"]: each["layers"] for each in fqfuse.compile(made).findings()}
    left = set(found.get("absurd-scale", ()))
    for code in ("quantizer-apart", "f32-residual", "f32-pooling", "f32-attention", "requantized"):
        assert left.isdisjoint(found.get(code, ())), (code, found)


def test_calibrated_as_a_dynamic_transformer_is_advised_the_mask_stays_f32(tmp_path: Path) -> None:
    advice = CATALOGUE["dynamic-quantizer"].remedies[Tool.ORT_DYNAMIC]
    assert 'op_types_to_quantize=["MatMul", "Gemm"]' in advice
    calibrated = quantized(tmp_path, [], operators=["MatMul", "Gemm"])
    assert cosine(calibrated) > 0.999  # 0.98 and less with a quantized mask, see above
    assert "absurd-scale" not in kinds(calibrated)


def test_the_remedies_of_a_transformer_lead_into_no_ring() -> None:
    """Calibrated as a dynamic one is advised: no finding asks for the additions, which quantize the mask."""
    proto = attention()
    (given,) = (each for each in proto.graph.node if each.output[0] == "y")
    given.output[0] = "attended"
    ones = numpy_helper.from_array(np.ones(WIDE, np.float32), "ones")
    proto.graph.initializer.append(ones)
    proto.graph.node.extend(
        [
            node("Add", ["attended", "x"], ["sum"], name="/residual"),
            node("LayerNormalization", ["sum", "ones"], ["y"], name="/norm"),
        ]
    )

    def codes(*more: str) -> set[str]:
        feeds = [feed(seed) for seed in range(4)]
        types = ["MatMul", "Gemm", *more]
        return kinds(quantized_by_ort(proto, feeds, op_types_to_quantize=types))

    assert "f32-residual" not in codes()
    assert "absurd-scale" not in codes()
    assert "absurd-scale" in codes("Add", "LayerNormalization")


def test_the_mask_that_is_advised_leaves_codes_for_the_scores(tmp_path: Path) -> None:
    assert "with -100 for what is masked" in CATALOGUE["absurd-scale"].remedies[Tool.ORT]
    quantized_so = quantized(tmp_path, [], -100.0)
    assert cosine(quantized_so) > 0.99
    assert "absurd-scale" not in kinds(quantized_so)


def test_the_approximation_that_a_gru_is_advised_keeps_what_the_finding_says() -> None:
    wide = 256
    weights = {f"w{kind}": random([1, 3 * wide, wide], kind, 0.1) for kind in range(2)}
    cell = node("GRU", ["x", "w0", "w1"], ["y"], name="gru", hidden_size=wide)
    proto = model([cell], inputs={"x": [20, 1, wide]}, constants=weights)
    plan = fqfuse.compile(proto)
    (finding,) = verdict_of(plan, MACHINE).findings
    assert finding.kind.code == "f32-gru"
    change = finding.change()
    assert "--approximate int8-recurrence" in change
    x = np.clip(random([20, 1, wide], 5), -1, 1)
    exact, coded = (
        fqfuse.InferenceSession(each, "numpy").run(None, {"x": x})[0].astype(np.float64)
        for each in (plan, fqfuse.compile(proto, approximate=["int8-recurrence"]))
    )
    sqnr = 10 * np.log10((exact**2).sum() / ((exact - coded) ** 2).sum())
    (told,) = re.findall(r"a GRU 256 wide kept (\d+) dB", change)
    assert sqnr == pytest.approx(int(told), abs=3)  # of other random weights


def test_what_stands_in_front_of_a_quantizer_is_named_by_the_f32_model() -> None:
    """Only convolutions are quantized: what they read is, but a SiLU that others read hands on f32."""
    filters = {"w0": random([8, 8, 1, 1]), "w1": random([4, 4, 1, 1]), "w2": random([8, 12, 1, 1])}
    nodes = [
        node("Conv", ["x", "w0"], ["a"], name="conv1"),
        node("Sigmoid", ["a"], ["s"], name="gate"),
        node("Mul", ["a", "s"], ["b"], name="silu"),
        node("Split", ["b"], ["p", "q"], name="split", axis=1, num_outputs=2),
        node("Conv", ["q", "w1"], ["c"], name="conv2"),
        node("Concat", ["p", "q", "c"], ["d"], name="join", axis=1),
        node("Conv", ["d", "w2"], ["y"], name="conv3"),
    ]
    proto = model(nodes, inputs={"x": [1, 8, 16, 16]}, constants=filters)
    broken = fqfuse.compile(quantized_by_ort(proto, op_types_to_quantize=["Conv"]))
    (found,) = (each for each in broken.findings() if each["code"] == "quantizer-apart")
    assert set(found["layers"]) <= {each.name for each in nodes}
    assert "op_types_to_quantize" in found["change"]
    assert "quantizer-apart" not in kinds(quantized_by_ort(proto))


@pytest.mark.parametrize("form", QuantFormat)
@pytest.mark.parametrize("groups", [1, 16])
def test_weights_of_u8_are_told_by_their_zero_point(form: QuantFormat, groups: int) -> None:
    """In groups they are multiplied in f32; else the sums of what they read, which are no input of the layer."""
    filters = {"w0": random([16, 16, 3, 3]), "w1": random([16, 16 // groups, 3, 3])}
    nodes = [
        node("Conv", ["x", "w0"], ["a"], name="conv0"),
        node("Relu", ["a"], ["b"], name="relu"),
        node("Conv", ["b", "w1"], ["y"], name="conv1", group=groups),
    ]
    proto = model(nodes, inputs={"x": [1, 16, 16, 16]}, constants=filters)
    unsigned = {"weight_type": QuantType.QUInt8, "quant_format": form, "per_channel": False}
    plan = fqfuse.compile(quantized_by_ort(proto, **unsigned))
    found = {each["code"]: each for each in plan.findings()}
    assert not set(found) & {"f32-product", "f32-weights"}
    layers = found["asymmetric-weights"]["layers"]
    assert {name.removesuffix("_quant") for name in layers} == {"conv0", "conv1"}
    assert "the source is not quantized" not in found["asymmetric-weights"]["reasons"]
    cured = quantized_by_ort(proto, **unsigned | _settings(found["asymmetric-weights"]["change"]))
    assert "asymmetric-weights" not in kinds(cured)


def test_symmetric_activations_behind_a_relu_are_told_by_their_option() -> None:
    """With another type alone the zero point stays in the middle, and the finding as it was."""
    filters = {f"w{each}": random([8, 8, 3, 3], each) for each in range(2)}
    nodes = [
        node("Conv", ["x", "w0"], ["a"], name="conv0"),
        node("Relu", ["a"], ["b"], name="relu"),
        node("Conv", ["b", "w1"], ["y"], name="conv1"),
    ]
    proto = model(nodes, inputs={"x": [1, 8, 16, 16]}, constants=filters)
    for type_ in (QuantType.QInt8, QuantType.QUInt8):
        made = {"activation_type": type_, "extra_options": {"ActivationSymmetric": True}}
        plan = fqfuse.compile(quantized_by_ort(proto, **made))
        (found,) = (each for each in plan.findings() if each["code"] == "unused-sign")
        cured = quantized_by_ort(proto, **made | _settings(found["change"]))
        assert "unused-sign" not in kinds(cured)


def test_a_normalization_behind_a_gemm_is_left_out_since_preprocessing_leaves_it(
    tmp_path: Path,
) -> None:
    constants = {"w": random([16, 16]), "b": random([16])}
    constants |= {each: np.linspace(0.5, 2, 16, dtype=np.float32) for each in "smgv"}
    nodes = [
        node("Gemm", ["x", "w", "b"], ["a"], name="fc"),
        node("BatchNormalization", ["a", *"smgv"], ["y"], name="norm"),
    ]
    files = [str(tmp_path / each) for each in ("f32.onnx", "prepared.onnx")]
    onnx.save(model(nodes, inputs={"x": [4, 16]}, constants=constants, opset=17), files[0])
    quant_pre_process(*files, skip_symbolic_shape=True)
    prepared = onnx.load(files[1])
    plan = fqfuse.compile(quantized_by_ort(prepared))
    (found,) = (each for each in plan.findings() if each["code"] == "norm-behind-quantizer")
    assert "behind a Gemm: that BatchNormalization into nodes_to_exclude" in found["change"]
    left = [each.name for each in prepared.graph.node if each.op_type == "BatchNormalization"]
    assert left
    cured = quantized_by_ort(prepared, nodes_to_exclude=left, **_settings(found["change"]))
    assert "norm-behind-quantizer" not in kinds(cured)


@pytest.mark.parametrize("form", QuantFormat)
def test_a_factor_behind_a_split_is_folded_into_the_weights(form: QuantFormat) -> None:
    """Queries, keys and values of one product have one scale, the scaled queries another one."""

    def proto(folded: bool) -> onnx.ModelProto:
        weights, factor = random([16, 48], 1, 0.3), np.float32(0.25)
        scale = [node("Mul", ["q", "factor"], ["scaled"], name="scale")]
        nodes = [
            node("MatMul", ["x", "w"], ["a"], name="qkv"),
            node("Split", ["a"], ["q", "k", "v"], name="parts", axis=2, num_outputs=3),
            *([] if folded else scale),
            node("Transpose", ["k"], ["kt"], name="turned", perm=[0, 2, 1]),
            node("MatMul", ["q" if folded else "scaled", "kt"], ["s"], name="scores"),
            node("Softmax", ["s"], ["p"], name="shares", axis=-1),
            node("MatMul", ["p", "v"], ["y"], name="context"),
        ]
        if folded:
            weights[:, :16] *= factor
        constants = {"w": weights, "factor": factor}
        return model(nodes, inputs={"x": [1, 8, 16]}, constants=constants)

    plan = fqfuse.compile(quantized_by_ort(proto(False), quant_format=form))
    (found,) = (each for each in plan.findings() if each["code"] == "requantized")
    assert "fold it into the weights in front" in found["change"]
    assert "requantized" not in kinds(quantized_by_ort(proto(True), quant_format=form))


@pytest.mark.parametrize("form", QuantFormat)
def test_no_addition_is_blamed_for_what_others_read_in_several_scales(form: QuantFormat) -> None:
    """As in a YOLO of which Conv alone is quantized: with Add as well, nothing became faster, and all types took
    a quarter off.
    """

    def silu(value: str) -> list[onnx.NodeProto]:
        gate = node("Sigmoid", [value], [f"{value}g"], name=f"{value}_gate")
        return [gate, node("Mul", [value, f"{value}g"], [f"{value}s"], name=f"{value}_silu")]

    shapes = {
        "w0": [32, 16, 1, 1],
        "w1": [16, 16, 3, 3],
        "w2": [16, 16, 3, 3],
        "w3": [16, 48, 1, 1],
    }
    constants = {name: random(shape, 1, 0.1) for name, shape in shapes.items()}
    nodes = [
        node("Conv", ["x", "w0"], ["a"], name="conv0"),
        *silu("a"),
        node("Split", ["as", "halves"], ["p", "q"], name="split", axis=1),
        node("Conv", ["q", "w1"], ["b"], name="conv1", pads=[1] * 4),
        *silu("b"),
        node("Conv", ["bs", "w2"], ["c"], name="conv2", pads=[1] * 4),
        *silu("c"),
        node("Add", ["q", "cs"], ["d"], name="add"),
        node("Concat", ["p", "q", "d"], ["e"], name="join", axis=1),
        node("Conv", ["e", "w3"], ["y"], name="conv3"),
    ]
    constants["halves"] = np.int64([16, 16])
    proto = model(nodes, inputs={"x": [1, 16, 32, 32]}, constants=constants)
    for types in (["Conv"], ["Conv", "Add"]):
        found = kinds(quantized_by_ort(proto, quant_format=form, op_types_to_quantize=types))
        assert "quantizer-apart" in found
        assert "f32-residual" not in found
    assert "quantizer-apart" not in kinds(quantized_by_ort(proto, quant_format=form))


@pytest.mark.parametrize("form", QuantFormat)
def test_a_softmax_over_many_places_is_left_out(form: QuantFormat) -> None:
    """The shares of 1,024 places are code 0 each, where ONNX Runtime gives them its scale of 1/256."""
    constants = {
        "w": random([4, 8, 1, 1], 1, 0.2),
        "flat": np.int64([1, 4, 1024]),
        "axis": np.int64([2]),
    }
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="conv"),
        node("Reshape", ["a", "flat"], ["b"], name="flatten"),
        node("Softmax", ["b"], ["c"], name="shares", axis=-1),
        node("Mul", ["c", "b"], ["d"], name="weighed"),
        node("ReduceSum", ["d", "axis"], ["y"], name="mean"),
    ]
    proto = model(nodes, inputs={"x": [1, 8, 32, 32]}, constants=constants)
    broken = quantized_by_ort(proto, quant_format=form)
    (found,) = (f for f in fqfuse.compile(broken).findings() if f["code"] == "coarse-softmax")
    assert "nodes_to_exclude=['shares']" in found["change"]
    left = quantized_by_ort(proto, quant_format=form, nodes_to_exclude=["shares"])
    x = {"x": random([1, 8, 32, 32], 3)}
    exact, lost, kept = (
        fqfuse.InferenceSession(each, "numpy").run(None, x)[0] for each in (proto, broken, left)
    )
    assert "coarse-softmax" not in kinds(left)
    # codes of all but the peaks are 0: most of the mean is missing
    assert np.abs(lost - exact).max() > 3 * np.abs(kept - exact).max()


def test_what_qoperator_has_no_form_for_is_told_to_be_quantized_in_qdq() -> None:
    weights = {"w0": random([16, 16, 3, 3], 1, 0.2), "w1": random([16, 16, 3, 3], 2, 0.2)}
    nodes = [
        node("Conv", ["x", "w0"], ["a"], name="conv0", pads=[1] * 4),
        node("PRelu", ["a", "slope"], ["b"], name="prelu"),
        node("BatchNormalization", ["b", *"smgv"], ["n"], name="norm"),
        node("Conv", ["n", "w1"], ["c"], name="conv1", pads=[1] * 4),
        node("Add", ["b", "c"], ["y"], name="skip"),
    ]
    constants = weights | {"slope": random([16, 1, 1], 3, 0.2)}
    constants |= {each: np.linspace(0.5, 2, 16, dtype=np.float32) for each in "smgv"}
    proto = model(nodes, inputs={"x": [1, 16, 16, 16]}, constants=constants, opset=17)
    by_form = {
        form: {
            each["code"]: each["change"]
            for each in fqfuse.compile(quantized_by_ort(proto, quant_format=form)).findings()
        }
        for form in QuantFormat
    }
    assert "quant_format=QuantFormat.QDQ" in by_form[QuantFormat.QOperator]["quantizer-apart"]
    assert "quantizer-apart" not in by_form[QuantFormat.QDQ]


def _settings(change: str) -> dict[str, Any]:
    """The arguments of quantize_static that a change writes as `name=value`."""
    written = re.findall(r"\b(\w+=(?:\{.*?\}|[\w.]+))", change)
    names = {each.__name__: each for each in (QuantType, QuantFormat, CalibrationMethod)}
    return eval(f"dict({', '.join(written)})", names)  # noqa: S307 our own text


def kinds(model: Path | onnx.ModelProto) -> set[str]:
    return {each.kind.code for each in verdict_of(fqfuse.compile(model), MACHINE).findings}
