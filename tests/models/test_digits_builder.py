"""The builder's parts: choice of ranges, the ONNX writer on any weights, and the training itself
where PyTorch is installed.
"""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from fqfuse.accuracy.measures import sqnr_of
from fqfuse.benchmarks.digits.layers import LAYERS, QUANTIZED
from fqfuse.benchmarks.digits.onnx_models import f32_model, fakequantize_model, qdq_model
from fqfuse.benchmarks.digits.quantizers import (
    Range,
    activation_range,
    clear_of_ties,
    quantize_weight,
    weight_range,
)

EPSILON = 1e-5
magnitudes = st.floats(min_value=1e-3, max_value=1e3)


def assert_exact(limits: Range, first: int, last: int):
    """Both notations denote the same function: no product above was rounded."""
    scale = limits.scale.astype(np.float64)
    np.testing.assert_array_equal(limits.low.astype(np.float64), scale * first)
    np.testing.assert_array_equal(limits.high.astype(np.float64), scale * last)


@given(magnitudes)
def test_unsigned_range_starts_at_zero_and_encloses_the_maximum(maximum):
    limits = activation_range(0.0, maximum, signed=False)
    assert limits.zero_point == 0
    assert maximum <= float(limits.high) <= maximum * (1 + 2.0**-15)
    assert_exact(limits, 0, 255)


@given(magnitudes, magnitudes)
def test_signed_range_has_an_integer_zero_point_and_encloses_what_was_observed(below, above):
    limits = activation_range(-below, above, signed=True)
    z = limits.zero_point
    assert 1 <= z <= 254
    assert_exact(limits, -z, 255 - z)
    # 2**-23: the observed limits are f64, those of the range f32.
    assert float(limits.low) <= -below * (1 - 2.0**-23)
    assert float(limits.high) >= above * (1 - 2.0**-23)
    # One side is met to 16 bits: the range is no wider than the zero point forces it to be.
    assert float(limits.low) >= -below * (1 + 2.0**-14) or float(limits.high) <= above * (
        1 + 2.0**-14
    )


@pytest.mark.parametrize(
    ("minimum", "maximum", "signed"), [(0.0, 0.0, False), (0.5, 1.0, True), (-2.0, -1.0, True)]
)
def test_range_that_does_not_reach_across_zero_is_refused(minimum, maximum, signed):
    with pytest.raises(ValueError, match="both sides of zero"):
        activation_range(minimum, maximum, signed)


def test_channel_of_zeros_has_no_range():
    weight = np.ones((3, 2, 1, 1), dtype=np.float32)
    weight[1] = 0
    with pytest.raises(ValueError, match=r"output channels \[1\] are zero"):
        weight_range(weight)


@given(st.integers(0, 2**32 - 1), st.sampled_from([(4, 3, 3, 3), (6, 5)]))
def test_weights_on_ties_are_refused_and_accepted_when_moved_off(seed, shape):
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal(shape).astype(np.float32)
    limits = weight_range(weight)
    assert_exact(limits, -127, 127)
    scale = limits.scale[0].reshape(-1)[0]
    weight[0].reshape(-1)[:2] = np.float32(scale * 3.5), np.float32(scale * -6.5)
    with pytest.raises(ValueError, match="rounding tie"):
        quantize_weight(weight, limits)
    moved = clear_of_ties(weight)
    integers = quantize_weight(moved, weight_range(moved))
    assert np.abs(
        moved - integers * weight_range(moved).scale
    ).max() <= 0.5 * limits.scale.max() * (1 + 2.0**-10)
    step = np.abs(moved - weight) / limits.scale
    # no weight moves further than the clearance; 1 %: f32 results
    assert step.max() <= 2.0**-12 * 1.01
    assert np.count_nonzero(step) <= 2 + weight.size * 0.05  # and few do


@pytest.fixture(scope="module")
def random_network():
    rng = np.random.default_rng(7)
    parameters = {}
    for layer in LAYERS:
        if not layer.has_weights:
            continue
        fan_in = np.prod(layer.weight_shape[1:])
        parameters[f"{layer.name}.weight"] = (
            rng.standard_normal(layer.weight_shape) * np.sqrt(2 / fan_in)
        ).astype(np.float32)
        if layer.batch_norm:
            parameters[f"{layer.name}.variance"] = rng.uniform(0.5, 2, layer.out_channels).astype(
                np.float32
            )
        for key in ("gamma", "beta", "mean") if layer.batch_norm else ("bias",):
            parameters[f"{layer.name}.{key}"] = rng.uniform(0.05, 0.5, layer.out_channels).astype(
                np.float32
            )
    ranges = {
        value: activation_range(-3.0 * signed, 4.0 if value != "image" else 1.0, signed)
        for value, signed in QUANTIZED.items()
    }
    return parameters, ranges


def test_writer_gives_one_function_in_three_forms_for_any_weights(random_network, ort_logits):
    parameters, ranges = random_network
    images = np.random.default_rng(1).random((16, 1, 8, 8), dtype=np.float32)
    f32 = ort_logits(f32_model(parameters, EPSILON), images)
    fake = ort_logits(fakequantize_model(parameters, EPSILON, ranges), images)
    qdq = ort_logits(qdq_model(parameters, EPSILON, ranges), images)
    print(
        f"FakeQuantize against Q/DQ {sqnr_of(fake, qdq):.1f} dB, f32 against FakeQuantize {sqnr_of(f32, fake):.1f} dB"
    )
    assert sqnr_of(fake, qdq) > 50  # equal but for f32 rounding at ties
    assert 15 < sqnr_of(f32, fake) < 50  # 8 bits with ranges that nobody tuned


def test_writer_is_deterministic(random_network):
    parameters, ranges = random_network
    for write in (fakequantize_model, qdq_model):
        assert (
            write(parameters, EPSILON, ranges).SerializeToString()
            == write(parameters, EPSILON, ranges).SerializeToString()
        )


def test_bias_beyond_the_accumulators_reach_is_refused(random_network):
    parameters, ranges = random_network
    with pytest.raises(ValueError, match="bias of classifier is too large"):
        qdq_model(
            parameters | {"classifier.bias": np.full(10, 1e6, dtype=np.float32)}, EPSILON, ranges
        )


def test_training_is_reproducible_and_writes_what_it_trained(ort_logits):
    torch = pytest.importorskip(
        "torch", reason="PyTorch, which trains the sample model, is not installed (extra `bench`)"
    )
    from fqfuse.benchmarks.digits import training

    rng = np.random.default_rng(3)
    images, labels = rng.random((96, 1, 8, 8), dtype=np.float32), rng.integers(0, 10, 96)
    recipe = training.Recipe(seed=5, float_epochs=3, quantized_epochs=2)
    parameters, ranges = training.train(images, labels, recipe)
    model = fakequantize_model(parameters, training.BATCH_NORM_EPSILON, ranges)
    parameters_again, ranges_again = training.train(images, labels, recipe)
    again = fakequantize_model(parameters_again, training.BATCH_NORM_EPSILON, ranges_again)
    assert model.SerializeToString() == again.SerializeToString()
    with torch.no_grad():
        tensors = {name: torch.from_numpy(array) for name, array in _as_written(model).items()}
        trained = training._forward(tensors, torch.from_numpy(images), ranges, training=False)[
            "classifier"
        ].numpy()
    agreement = sqnr_of(trained, ort_logits(model, images))
    print(f"training's arithmetic against the file's {agreement:.1f} dB")
    assert agreement > 50  # equal but for f32 rounding at ties
    other, _ = training.train(
        images, labels, training.Recipe(seed=6, float_epochs=3, quantized_epochs=2)
    )
    assert not np.array_equal(other["stem.conv.weight"], parameters["stem.conv.weight"])


def _as_written(model):
    """The file's weights and biases as parameters of the trainer, with a BatchNorm that does
    nothing.
    """
    parameters = {
        tensor.name: numpy_helper.to_array(tensor).copy()
        for tensor in model.graph.initializer
        if tensor.name.endswith((".weight", ".bias"))
    }
    for layer in (each for each in LAYERS if each.batch_norm):
        ones, zeros = (
            np.ones(layer.out_channels, dtype=np.float32),
            np.zeros(layer.out_channels, dtype=np.float32),
        )
        bias = parameters.pop(f"{layer.name}.bias")
        keys = {"gamma": ones, "beta": bias, "mean": zeros, "variance": ones - np.float32(EPSILON)}
        parameters |= {f"{layer.name}.{key}": value for key, value in keys.items()}
    return parameters


def test_written_models_pass_the_checker(random_network):
    parameters, ranges = random_network
    for model in (
        f32_model(parameters, EPSILON),
        fakequantize_model(parameters, EPSILON, ranges),
        qdq_model(parameters, EPSILON, ranges),
    ):
        onnx.checker.check_model(model)
