"""What the committed digits files promise: form, placement and ranges of the quantizers, the same
numbers in all three forms.
"""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from fqfuse.benchmarks.digits.layers import LAYERS, QUANTIZED
from fqfuse.benchmarks.digits.onnx_models import fold_batch_norm
from fqfuse.models import digits
from fqfuse.models.digits import (
    DATA_FOLDER,
    FORMS,
    TEST_SET_PATH,
    digits_model_path,
    digits_test_set,
)

KILOBYTES_300 = 300 * 1000
WEIGHTED = [layer.name for layer in LAYERS if layer.has_weights]


@pytest.fixture(scope="module")
def models():
    return {form: onnx.load(digits_model_path(form)) for form in FORMS}


@pytest.fixture(scope="module")
def constants(models):
    return {
        form: {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        for form, model in models.items()
    }


def nodes_of(model, op):
    return {node.name: node for node in model.graph.node if node.op_type == op}


def attribute(node, name):
    return next(
        onnx.helper.get_attribute_value(each) for each in node.attribute if each.name == name
    )


def test_only_the_expected_files_and_each_below_300_kb():
    sizes = {path.name: path.stat().st_size for path in DATA_FOLDER.iterdir()}
    assert set(sizes) == {
        *(f"digits_{form}.onnx" for form in FORMS),
        TEST_SET_PATH.name,
        "digits_LICENSE.txt",
    }
    assert max(sizes.values()) < KILOBYTES_300, sizes


@pytest.mark.parametrize("form", FORMS)
def test_form_is_valid_onnx_with_symbolic_batch_and_readable_names(models, form):
    model = models[form]
    onnx.checker.check_model(model)
    for value, shape in ((model.graph.input, ("N", 1, 8, 8)), (model.graph.output, ("N", 10))):
        (only,) = value
        assert only.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        assert (
            tuple(dim.dim_param or dim.dim_value for dim in only.type.tensor_type.shape.dim)
            == shape
        )
    names = [node.name for node in model.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)
    assert {layer.name for layer in LAYERS} <= set(names)
    read = {name for node in model.graph.node for name in node.input}
    assert {tensor.name for tensor in model.graph.initializer} <= read, (
        "an initializer is never read"
    )


def test_operators_of_each_form(models):
    ops = {
        form: {(node.domain, node.op_type) for node in model.graph.node}
        for form, model in models.items()
    }
    common = {
        ("", op)
        for op in ("Conv", "Relu", "Add", "AveragePool", "GlobalAveragePool", "Flatten", "Gemm")
    }
    assert ops["f32"] == common | {("", "BatchNormalization")}
    assert ops["fakequantize"] == common | {("org.openvinotoolkit", "FakeQuantize")}
    assert ops["qdq"] == common | {("", "QuantizeLinear"), ("", "DequantizeLinear")}
    assert len(nodes_of(models["f32"], "BatchNormalization")) == 6


def test_every_weight_is_fake_quantized_per_channel_with_255_levels(models, constants):
    model, arrays = models["fakequantize"], constants["fakequantize"]
    producer = {node.output[0]: node for node in model.graph.node}
    weighted = nodes_of(model, "Conv") | nodes_of(model, "Gemm")
    assert sorted(weighted) == sorted(WEIGHTED)
    for name, node in weighted.items():
        quantizer = producer[node.input[1]]
        assert (quantizer.op_type, attribute(quantizer, "levels")) == ("FakeQuantize", 255)
        weight, low, high, out_low, out_high = (arrays[each] for each in quantizer.input)
        assert low.shape == (weight.shape[0], *[1] * (weight.ndim - 1)), name
        np.testing.assert_array_equal(low, -high)
        np.testing.assert_array_equal((low, high), (out_low, out_high))
        largest = np.abs(weight).reshape(len(weight), -1).max(axis=1)
        # The scale is rounded up to 16 bits: the range covers the largest weight by less than one
        # part in 2**15.
        assert np.all(high.reshape(-1) >= largest)
        assert np.all(high.reshape(-1) <= largest * (1 + 2.0**-15))


def test_activation_quantizers_stand_where_they_should_with_256_levels_and_integer_zero_points(
    models, constants
):
    model, arrays = models["fakequantize"], constants["fakequantize"]
    quantizers = {
        node.input[0]: node
        for node in model.graph.node
        if node.op_type == "FakeQuantize" and node.input[0] not in arrays
    }
    expected = {
        "image" if name == "image" else f"{name}.out": signed for name, signed in QUANTIZED.items()
    }
    assert set(quantizers) == set(expected)
    for value, node in quantizers.items():
        assert attribute(node, "levels") == 256
        low, high, out_low, out_high = (arrays[each].astype(np.float64) for each in node.input[1:])
        assert low.shape == high.shape == ()
        assert (low, high) == (out_low, out_high)
        zero_point = -low / ((high - low) / 255)
        assert zero_point == np.rint(zero_point), f"{node.name}: zero point {zero_point}"
        assert (0 < zero_point < 255) if expected[value] else zero_point == 0
        readers = [each for each in model.graph.node if value in each.input]
        assert readers == [node], f"{value} is read past its quantizer"


def test_conv_to_add_has_no_quantizer_and_the_skip_shares_one(models):
    model = models["fakequantize"]
    add1, add2 = nodes_of(model, "Add")["block1.add"], nodes_of(model, "Add")["block2.add"]
    assert list(add1.input) == ["block1.conv2.out", "stem.relu.fq.out"]
    assert list(add2.input) == ["widen.conv.fq.out", "block2.pwconv.out"]
    for value, readers in (
        ("stem.relu.fq.out", {"block1.conv1", "block1.add"}),
        ("widen.conv.fq.out", {"block2.dwconv", "block2.add"}),
    ):
        assert {node.name for node in model.graph.node if value in node.input} == readers


def test_qdq_form_holds_the_same_quantizers(models, constants):
    fq, qdq = constants["fakequantize"], constants["qdq"]
    for value, signed in QUANTIZED.items():
        low, high = (
            fq[f"{value}.fq.{side}"].astype(np.float64) for side in ("input_low", "input_high")
        )
        scale, zero_point = qdq[f"{value}.scale"], qdq[f"{value}.zero_point"]
        assert (scale.dtype, zero_point.dtype) == (np.float32, np.uint8)
        assert np.float64(scale) == (high - low) / 255, (
            f"{value}: exact by construction of the scale"
        )
        assert zero_point == -low / np.float64(scale)
        assert bool(zero_point) == signed
    assert len(nodes_of(models["qdq"], "QuantizeLinear")) == len(QUANTIZED)
    assert len(nodes_of(models["qdq"], "DequantizeLinear")) == len(QUANTIZED) + 2 * len(WEIGHTED)


@pytest.mark.parametrize("name", WEIGHTED)
def test_qdq_weights_and_biases_are_those_of_the_fakequantize_form(constants, name):
    fq, qdq = constants["fakequantize"], constants["qdq"]
    weight, low, high = (
        fq[f"{name}.weight{suffix}"].astype(np.float64)
        for suffix in ("", ".fq.input_low", ".fq.input_high")
    )
    steps = np.rint((np.clip(weight, low, high) - low) / (high - low) * 254) - 127
    integers = qdq[f"{name}.weight"]
    assert integers.dtype == np.int8
    np.testing.assert_array_equal(integers, steps)
    np.testing.assert_array_equal(qdq[f"{name}.weight.scale"], high.reshape(-1) / 127)
    assert np.abs(integers).max(axis=tuple(range(1, integers.ndim))).min() == 127, (
        "a channel does not use its range"
    )
    bias, scale = qdq[f"{name}.bias"], qdq[f"{name}.bias.scale"]
    assert bias.dtype == np.int32
    np.testing.assert_array_equal(bias.astype(np.float32) * scale, fq[f"{name}.bias"])


def test_bias_scale_is_source_scale_times_weight_scale(models, constants):
    arrays = constants["qdq"]
    producer = {node.output[0]: node for node in models["qdq"].graph.node}
    for name, node in (nodes_of(models["qdq"], "Conv") | nodes_of(models["qdq"], "Gemm")).items():
        source = producer[node.input[0]]
        while source.op_type == "Flatten":
            source = producer[source.input[0]]
        assert source.op_type == "DequantizeLinear"
        np.testing.assert_array_equal(
            arrays[f"{name}.bias.scale"], arrays[source.input[1]] * arrays[f"{name}.weight.scale"]
        )


def test_f32_form_has_the_weights_of_the_fakequantize_form_before_folding(models, constants):
    f32, fq = constants["f32"], constants["fakequantize"]
    epsilon = attribute(nodes_of(models["f32"], "BatchNormalization")["stem.conv.bn"], "epsilon")
    folded = fold_batch_norm(f32, epsilon)
    for name in WEIGHTED:
        # 1 ulp: the file keeps epsilon in f32, the builder used it in f64.
        np.testing.assert_allclose(
            folded[f"{name}.weight"], fq[f"{name}.weight"], rtol=2.0**-23, atol=0
        )
        half_a_step = 0.5 * constants["qdq"][f"{name}.bias.scale"].astype(np.float64)
        difference = np.abs(folded[f"{name}.bias"] - fq[f"{name}.bias"].astype(np.float64))
        assert np.all(difference <= half_a_step * 1.01), (
            f"{name}: the bias is more than rounded to the accumulator's unit"
        )


def test_test_set_is_360_balanced_digits_in_steps_of_a_sixteenth():
    images, labels = digits_test_set()
    assert (images.shape, images.dtype, labels.shape, labels.dtype) == (
        (360, 1, 8, 8),
        np.float32,
        (360,),
        np.int64,
    )
    np.testing.assert_array_equal(images * 16, np.rint(images * 16))
    assert (images.min(), images.max()) == (0.0, 1.0)
    counts = np.bincount(labels, minlength=10)
    assert len(counts) == 10
    assert counts.min() >= 35
    assert counts.max() <= 37


def test_test_set_is_the_builders_split_of_scikit_learn_and_disjoint_from_the_training_part():
    pytest.importorskip(
        "sklearn",
        reason="scikit-learn is not installed: the origin of the digits cannot be compared",
    )
    from fqfuse.benchmarks.digits.data import SPLIT_SEED, TEST_DIGITS, load_scaled_digits, split

    all_images, all_labels = load_scaled_digits()
    train_rows, test_rows = split(all_labels, TEST_DIGITS, SPLIT_SEED)
    images, labels = digits_test_set()
    np.testing.assert_array_equal(all_images[test_rows], images)
    np.testing.assert_array_equal(all_labels[test_rows], labels)
    with np.load(TEST_SET_PATH) as archive:
        np.testing.assert_array_equal(archive["rows"], test_rows)
    assert len(train_rows) == 1437
    assert not set(train_rows) & set(test_rows)
    trained_on = {image.tobytes() for image in all_images[train_rows]}
    assert not [
        row for row, image in zip(test_rows, images, strict=True) if image.tobytes() in trained_on
    ], "a test digit is a copy"


def test_unknown_form_is_refused():
    with pytest.raises(ValueError, match="no form 'int4'; choose one of f32, fakequantize, qdq"):
        digits_model_path("int4")


def test_missing_file_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(digits, "DATA_FOLDER", tmp_path)
    monkeypatch.setattr(digits, "TEST_SET_PATH", tmp_path / "digits_test.npz")
    with pytest.raises(FileNotFoundError, match=r"digits_qdq\.onnx is missing.*reinstall"):
        digits_model_path("qdq")
    with pytest.raises(FileNotFoundError, match=r"digits_test\.npz is missing"):
        digits_test_set()


def test_access_needs_numpy_only():
    unwanted = ("torch", "sklearn", "onnx")
    code = f"import sys, fqfuse.models.digits as d; d.digits_test_set(); print([name for name in {unwanted} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
