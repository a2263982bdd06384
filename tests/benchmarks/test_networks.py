"""The benchmark's networks are the published architectures, valid, reproducible, and alive when
they run.
"""

import numpy as np
import onnx
import pytest

from fqfuse.benchmarks.counts import count_macs, count_parameters, op_histogram
from fqfuse.benchmarks.networks import NETWORKS
from fqfuse.benchmarks.networks.chain import NODES_PER_CONVOLUTION, build_chain
from fqfuse.benchmarks.networks.layers import rounded
from fqfuse.benchmarks.networks.samples import sample_images
from fqfuse.measure.arrays import split_feeds
from fqfuse.measure.engines import onnxruntime_session

pytestmark = pytest.mark.slow  # builds networks of full size

# Two layers of two directions: 4 gates of 256 from inputs (256, then 512 wide), from the 256 of the
# state, and two biases each; then 64 classes. The weights count in each of 48 steps.
_GATES = 4 * 256
_LSTM_WEIGHTS = 2 * _GATES * (256 + 256) + 2 * _GATES * (512 + 256)
# A block: query, key, value and output, twice the fourfold width; three normalizations; 64 classes.
_GPT2_WEIGHTS = 12 * 768 * 768
# Parameters: of torchvision's models, to the last one. MACs: those its model pages give (4.09, 0.30
# and 2.83 billion). The last two by hand.
PUBLISHED = {
    "resnet50": (25_557_032, 4.09e9),
    "mobilenet_v2": (3_504_872, 0.30e9),
    "densenet121": (7_978_856, 2.83e9),
    "lstm": (_LSTM_WEIGHTS + 4 * 2 * _GATES + 513 * 64, 48 * _LSTM_WEIGHTS + 512 * 64),
    "gpt2": (
        _GPT2_WEIGHTS + (3 + 1 + 4 + 1 + 3 * 2) * 768 + 769 * 64,
        64 * _GPT2_WEIGHTS + 2 * 64 * 64 * 768 + 768 * 64,
    ),
}
CONVOLUTIONS = {"resnet50": 53, "mobilenet_v2": 52, "densenet121": 120}

# BERT by hand: embeddings (2000 + 2 + 128) x 384 and a LayerNorm; a layer has 4 square matrices, 2
# of 384 x 1536, their biases and 2 LayerNorms; then the pooler and 64 classes.
_WIDTH, _INNER, _SEQUENCE, _LAYERS = 384, 1536, 128, 6
_BERT_LAYER = 4 * (_WIDTH + 1) * _WIDTH + (_WIDTH + 1) * _INNER + (_INNER + 1) * _WIDTH + 4 * _WIDTH
BERT_PARAMETERS = (
    2130 * _WIDTH + 2 * _WIDTH + _LAYERS * _BERT_LAYER + (_WIDTH + 1) * _WIDTH + (_WIDTH + 1) * 64
)
_BERT_LAYER_MACS = (
    _SEQUENCE * (4 * _WIDTH * _WIDTH + 2 * _WIDTH * _INNER) + 2 * _SEQUENCE * _SEQUENCE * _WIDTH
)
BERT_MACS = _LAYERS * _BERT_LAYER_MACS + _WIDTH * _WIDTH + _WIDTH * 64


@pytest.fixture(scope="module", params=list(NETWORKS))
def built(request):
    network = NETWORKS[request.param]
    return network, network.build(0, 2)


def run(model, stacked):
    """Each output, stacked over the feeds."""
    session = onnxruntime_session(model.SerializeToString(), 2)
    names = [output.name for output in session.get_outputs()]
    results = [session.run(None, feed) for feed in split_feeds(stacked)]
    return {
        name: np.concatenate(values)
        for name, values in zip(names, zip(*results, strict=True), strict=True)
    }


def test_size_is_that_of_the_published_architecture(built):
    network, model = built
    if network.transformer:
        assert count_parameters(model) == BERT_PARAMETERS
        assert count_macs(model) == BERT_MACS
        return
    parameters, macs = PUBLISHED[network.name]
    assert count_parameters(model) == parameters
    # the published figures have two or three digits
    assert count_macs(model) == pytest.approx(macs, rel=0.005)
    assert op_histogram(model).get("Conv", 0) == CONVOLUTIONS.get(network.name, 0)


def test_outputs_differ_between_inputs_and_activations_stay_in_range(built):
    network, model = built
    for (
        value
    ) in model.graph.node:  # every hidden activation that follows a normalization becomes an output
        if value.op_type in ("BatchNormalization", "LayerNormalization") and value.output[
            0
        ] not in {o.name for o in model.graph.output}:
            model.graph.output.append(onnx.helper.make_empty_tensor_value_info(value.output[0]))
            model.graph.output[-1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    outputs = run(model, network.feeds(np.random.default_rng(7), 3))
    logits = outputs.pop(network.logits)
    assert np.isfinite(logits).all()
    # The head is scaled to a std of 2 on the samples that the builder saw; other inputs may be off
    # by a factor, not by an order.
    assert 0.5 < (logits - logits.mean(axis=0)).std() < 10
    assert len(set(logits.argmax(axis=1))) > 1
    for name, value in outputs.items():
        # A normalization's output has a std near its scale, 0.1 to 1.5, on the calibration samples;
        # the same margin as above.
        assert 0.02 < value.std() < 10, name


def test_same_seed_same_bytes():
    build = NETWORKS["mobilenet_v2"].build
    first = build(0, 2).SerializeToString(deterministic=True)
    assert build(0, 2).SerializeToString(deterministic=True) == first
    assert build(1, 2).SerializeToString(deterministic=True) != first


def test_one_sample_cannot_calibrate_the_head():
    with pytest.raises(ValueError, match="two samples"):
        NETWORKS["mobilenet_v2"].build(0, 1)


def test_rounded_keeps_eight_significant_bits():
    values = np.array([1.0, -0.3, 3e-20, 1e9, 0.0])
    result = rounded(values)
    # half a step of 2^-8 below a mantissa of at least one half
    np.testing.assert_allclose(result, values, rtol=2.0**-8)
    mantissa, _ = np.frexp(result.astype(np.float64))
    np.testing.assert_array_equal(mantissa * 256, np.round(mantissa * 256))


def test_sample_images_have_unit_variance_and_a_colour_of_their_own():
    images = sample_images(np.random.default_rng(0), 2)
    assert images.shape == (2, 3, 224, 224)
    assert images.dtype == np.float32
    np.testing.assert_allclose(images.std(axis=(2, 3)), 1, rtol=1e-4)  # f32 sums over 50,176 pixels
    assert np.unique(images.mean(axis=(2, 3)).round(3)).size == 6
    with pytest.raises(ValueError, match="multiple of 224"):
        sample_images(np.random.default_rng(0), 1, 100)


def test_chain_has_the_promised_nodes_and_quantized_outputs():
    model = build_chain(7)
    onnx.checker.check_model(model, full_check=True)
    assert len(model.graph.node) == 7 * NODES_PER_CONVOLUTION + 2
    x = np.random.default_rng(0).uniform(0, 4, (1, 16, 8, 8)).astype(np.float32)
    steps = run(model, {"input": x})["output"] / np.float32(0.03)
    # one multiplication and one division in f32 of at most 255
    np.testing.assert_allclose(steps, steps.round(), atol=1e-3)
    assert len(np.unique(steps.round())) > 20
    with pytest.raises(ValueError, match="at least one"):
        build_chain(0)


def test_macs_of_known_nodes():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    tiny (float[1, 8, 6, 6] x, float[8, 4, 3, 3] w, float[5, 2] a, float[7, 5] b, float[3, 4, 6] c, float[6, 9] d)
        => (float[1, 8, 3, 3] y, float[2, 7] g, float[3, 4, 9] m) {
        y = Conv <group = 2, strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)
        g = Gemm <transA = 1, transB = 1> (a, b)
        m = MatMul (c, d)
    }
    """
    model = onnx.parser.parse_model(text)
    assert count_macs(model) == 8 * 3 * 3 * (4 * 3 * 3) + 2 * 7 * 5 + 3 * 4 * 9 * 6


def test_macs_need_static_shapes():
    text = '<ir_version: 8, opset_import: ["" : 17]> open (float[N, 4] x, float[4, 2] w) => (float[N, 2] y) { [dense] y = MatMul (x, w) }'
    with pytest.raises(ValueError, match="dense"):
        count_macs(onnx.parser.parse_model(text))
