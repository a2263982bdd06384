"""The benchmark's networks are the published architectures, valid, reproducible, and alive when
they run.
"""

import numpy as np
import onnx
import pytest
from support.judge import ort_session

from fqfuse.benchmarks.counts import count_macs, count_parameters, op_histogram
from fqfuse.benchmarks.networks import NETWORKS
from fqfuse.benchmarks.networks.chain import NODES_PER_CONVOLUTION, build_chain
from fqfuse.benchmarks.networks.layers import rounded
from fqfuse.benchmarks.networks.samples import sample_images
from fqfuse.measure.arrays import split_feeds

pytestmark = pytest.mark.slow  # builds networks of full size

# Two layers of two directions: 4 gates of 256 from inputs (256, then 512 wide), from the 256 of the
# state, and two biases each; then 64 classes. The weights count in each of 48 steps.
_GATES = 4 * 256
_LSTM_WEIGHTS = 2 * _GATES * (256 + 256) + 2 * _GATES * (512 + 256)
# A block: query, key, value and output, twice the fourfold width; three normalizations; 64 classes.
_GPT2_WEIGHTS = 12 * 768 * 768
# Parameters: of torchvision's models (of timm's for ViT), to the last one. MACs: those its model
# pages give.
PUBLISHED = {
    "resnet50": (25_557_032, 4.09e9),
    "mobilenet_v2": (3_504_872, 0.30e9),
    "densenet121": (7_978_856, 2.83e9),
    "efficientnet_b0": (5_288_548, 0.386e9),
    "regnet_y_400mf": (4_344_144, 0.402e9),
    "vit_small": (22_050_664, 4.60e9),
}
CONVOLUTIONS = {
    "resnet50": 53,
    "mobilenet_v2": 52,
    "densenet121": 120,
    "efficientnet_b0": 81,
    "regnet_y_400mf": 85,
    "unet": 19,
    "yolo": 26,
    "vit_small": 1,
    "swin": 1,
}

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

# The U-Net and the detector: (input channels, output channels, kernel, side of the output), each
# with a scale and a shift.
_CHANNELS = (16, 32, 64, 128, 256)
_DOWN = [
    conv
    for i, (a, b) in enumerate(zip((3, *_CHANNELS[:-1]), _CHANNELS, strict=True))
    for conv in ((a, b, 3, 224 >> i), (b, b, 3, 224 >> i))
]
_UP = [
    conv
    for i, b in enumerate(_CHANNELS[:-1])
    for conv in ((2 * b, b, 3, 224 >> i), (b, b, 3, 224 >> i))
]


def _split(inputs, channels, side):
    half = channels // 2
    return [
        (inputs, channels, 1, side),
        *[(half, half, 3, side)] * 2,
        (3 * half, channels, 1, side),
    ]


_DETECTOR = [
    *((3, 16, 3, 80), (16, 32, 3, 40), *_split(32, 32, 40)),
    *((32, 64, 3, 20), *_split(64, 64, 20), (64, 128, 3, 10), *_split(128, 128, 10)),
    *((128, 64, 1, 10), (256, 128, 1, 10), *_split(192, 64, 20), *[(64, 64, 3, 20)] * 2),
]


def _normalized(convolutions):
    """Parameters and MACs of convolutions, each with a scale and a shift."""
    parameters = sum(a * b * k * k + 2 * b for a, b, k, _ in convolutions)
    return parameters, sum(a * b * k * k * side * side for a, b, k, side in convolutions)


def _unet():
    parameters, macs = _normalized(_DOWN + _UP)
    ups = [(2 * c, c, 224 >> i) for i, c in enumerate(_CHANNELS[:-1])]
    parameters += sum(4 * a * b + b for a, b, _ in ups) + 17 * 21
    return parameters, macs + sum(a * b * side * side for a, b, side in ups) + 16 * 21 * 224 * 224


def _yolo():
    parameters, macs = _normalized(_DETECTOR)
    return parameters + 64 * 84, macs + 64 * 84 * 400


# Swin: patches of 4x4, two blocks for each stage (attention in windows of 49), and four neighbours
# to twice the channels between. The biases of positions are constants.
def _swin():
    parameters, macs = (48 + 1 + 2) * 96, 48 * 96 * 56 * 56
    for width, side in ((96, 56), (192, 28)):
        parameters += 2 * (12 * width * width + (3 + 1 + 4 + 1 + 4) * width)
        macs += 2 * side * side * (12 * width * width + 2 * 49 * width)
    parameters += 2 * 384 + 384 * 192 + 2 * 192 + 193 * 1000
    return parameters, macs + 28 * 28 * 384 * 192 + 192 * 1000


# of two blocks: queries and what is attended to, keys and values of 4 heads in place of 12, and the
# three of the feed forward
_LLAMA_WEIGHTS = 2 * (2 * 768 * 768 + 2 * 768 * 256 + 3 * 768 * 2048)

BY_HAND = {
    "lstm": (_LSTM_WEIGHTS + 4 * 2 * _GATES + 513 * 64, 48 * _LSTM_WEIGHTS + 512 * 64),
    "gpt2": (
        _GPT2_WEIGHTS + (3 + 1 + 4 + 1 + 3 * 2) * 768 + 769 * 64,
        64 * _GPT2_WEIGHTS + 2 * 64 * 64 * 768 + 768 * 64,
    ),
    **{
        f"gpt2_token{tokens}": (
            _GPT2_WEIGHTS + (3 + 1 + 4 + 1 + 3 * 2) * 768 + 769 * 64,
            _GPT2_WEIGHTS + 2 * tokens * 768 + 768 * 64,
        )
        for tokens in (32, 512)
    },
    "llama": (
        _LLAMA_WEIGHTS + 5 * 768 + 768 * 64,
        64 * (_LLAMA_WEIGHTS + 768 * 64) + 2 * 2 * 64 * 64 * 768,
    ),
    "llama_token64": (
        _LLAMA_WEIGHTS + 5 * 768 + 768 * 64,
        _LLAMA_WEIGHTS + 768 * 64 + 2 * 2 * 64 * 768,
    ),
    "bert": (BERT_PARAMETERS, BERT_MACS),
    "unet": _unet(),
    "yolo": _yolo(),
    "swin": _swin(),
}


@pytest.fixture(scope="module", params=list(NETWORKS))
def built(request):
    network = NETWORKS[request.param]
    return network, network.build(0, 2)


def run(model, stacked):
    """Each output, stacked over the feeds."""
    session = ort_session(model, optimized=True)
    names = [output.name for output in session.get_outputs()]
    results = [session.run(None, feed) for feed in split_feeds(stacked)]
    return {
        name: np.concatenate(values)
        for name, values in zip(names, zip(*results, strict=True), strict=True)
    }


def test_size_is_that_of_the_published_architecture(built):
    network, model = built
    if network.name in BY_HAND:
        assert (count_parameters(model), count_macs(model)) == BY_HAND[network.name]
    else:
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
    assert len(np.unique(logits.argmax(axis=1))) > 1  # of each input, or of each pixel
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
