"""The committed models classify the held-out digits, judged by evaluators that share nothing with
fqfuse's runtime.
"""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from fqfuse.accuracy.measures import sqnr_of
from fqfuse.benchmarks.digits.layers import QUANTIZED
from fqfuse.models.digits import FORMS, digits_model_path, digits_test_set


class FakeQuantize(OpRun):
    """FakeQuantize-1 of the OpenVINO specification in f64, half to even, result rounded to f32.

    It multiplies by the output range before it divides by levels - 1: with the ranges of these
    files both are exact.
    """

    op_domain = "org.openvinotoolkit"

    def _run(self, x, input_low, input_high, output_low, output_high, levels):
        wide = [
            array.astype(np.float64)
            for array in (x, input_low, input_high, output_low, output_high)
        ]
        x, input_low, input_high, output_low, output_high = wide
        step = np.rint((x - input_low) / (input_high - input_low) * (levels - 1))
        y = step * (output_high - output_low) / (levels - 1) + output_low
        y = np.where(
            x <= np.minimum(input_low, input_high),
            output_low,
            np.where(x > np.maximum(input_low, input_high), output_high, y),
        )
        return (y.astype(np.float32),)


@pytest.fixture(scope="module")
def logits(ort_logits):
    images, _ = digits_test_set()
    return {form: ort_logits(onnx.load(digits_model_path(form)), images) for form in FORMS}


def accuracy(logits):
    return float(np.mean(logits.argmax(axis=1) == digits_test_set()[1]))


def test_accuracy_on_the_held_out_digits(logits):
    accuracies = {form: accuracy(logits[form]) for form in FORMS}
    print(accuracies)
    assert accuracies["f32"] >= 0.98
    for form in ("fakequantize", "qdq"):
        assert accuracies[form] >= 0.97
        assert abs(accuracies[form] - accuracies["f32"]) <= 0.005


def test_both_quantized_forms_give_the_same_labels_and_nearly_the_same_logits(logits):
    np.testing.assert_array_equal(
        logits["fakequantize"].argmax(axis=1), logits["qdq"].argmax(axis=1)
    )
    # The forms differ where f32 rounds a value at a tie to one side or the other; each flip is
    # 1/255 of a range. Measured: 62 dB. A quantizer in the wrong place or a bias off its grid costs
    # more than 20 dB.
    agreement = sqnr_of(logits["fakequantize"], logits["qdq"])
    print(f"FakeQuantize against Q/DQ {agreement:.1f} dB")
    assert agreement > 50


def test_quantization_is_visible_in_the_logits(logits):
    """The quantized forms must not be the f32 form in disguise: 8 bits leave a trace, and only a
    small one. Measured: 32 dB.
    """
    assert 25 < sqnr_of(logits["f32"], logits["fakequantize"]) < 45


def test_forms_are_the_same_function_in_exact_arithmetic():
    """Without f32 rounding in the quantizers every quantized value of the two forms is the same
    f32, so all that follows is too.
    """
    images = digits_test_set()[0][:40]
    forms = {"fakequantize": ([FakeQuantize], "{}.fq.out"), "qdq": (None, "{}.dequantize.out")}
    results = {}
    for form, (new_ops, pattern) in forms.items():
        model = onnx.load(digits_model_path(form))
        names = [pattern.format(value) for value in QUANTIZED]
        model.graph.output.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names
        )
        results[form] = ReferenceEvaluator(model, new_ops=new_ops).run(None, {"image": images})
    for name, fake, real in zip(
        ["logits", *QUANTIZED], results["fakequantize"], results["qdq"], strict=True
    ):
        np.testing.assert_array_equal(fake, real, err_msg=name)


def test_openvino_reads_the_fakequantize_form_alike(logits):
    openvino = pytest.importorskip(
        "openvino", reason="OpenVINO, the owner of FakeQuantize, is not installed (extra `bench`)"
    )
    core = openvino.Core()
    images, _ = digits_test_set()
    model = core.read_model(digits_model_path("fakequantize"))
    compiled = core.compile_model(
        model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    )
    result = compiled(images)[0]
    np.testing.assert_array_equal(result.argmax(axis=1), logits["fakequantize"].argmax(axis=1))
    assert sqnr_of(logits["fakequantize"], result) > 50  # ties again; measured: 61 dB
