"""For each kind of finding a small model that provokes it, and the same with its remedy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto
from onnxruntime.quantization import QuantFormat
from onnxruntime.tools.onnx_model_utils import make_dim_param_fixed
from onnxruntime.transformers.float16 import convert_float_to_float16
from support.finding_networks import U8, Net, codes
from support.onnx_cases import random
from support.ort_quantizer import quantized_by_ort

S8 = np.int8
SEQUENCES = {"inputs": {"x": [4, 2, 16]}}
INDICES = {"inputs": {"x": [1, 128]}, "types": {"x": TensorProto.INT64}}

# Each function: the model as a quantizer may write it (False), or with the remedy applied (True); where
# there is none, with what one might try.
Case = Callable[[bool], onnx.ModelProto]


def unquantized(cured: bool) -> onnx.ModelProto:
    net = Net()
    source = net.quantized("x") if cured else "x"
    weights = net.weights(codes((8, 8, 3, 3))) if cured else net.constant(random([8, 8, 3, 3]))
    net.conv(source, "conv", out="y", weights=weights)
    return net.proto()


def absurd_scale(cured: bool) -> onnx.ModelProto:
    net = Net()
    net.conv(net.quantized("x", 0.1 if cured else 1.33e36), "conv", out="y")
    return net.proto()


def coarse_softmax(cured: bool) -> onnx.ModelProto:
    """Over the 1,024 places of 8 maps."""
    net = Net()
    shape = net.constant(np.int64([1, 8, 1024]))
    maps = net.op("Reshape", net.conv(net.quantized("x"), "conv"), shape)
    shares = net.op("Softmax", maps, name="shares", axis=-1)
    shares = shares if cured else net.quantized(shares, 1 / 256)
    net.op("ReduceMax", shares, name="most", out="y", axes=[2], keepdims=0)
    return net.proto(inputs={"x": [1, 8, 32, 32]}, opset=17)


def few_codes(cured: bool) -> onnx.ModelProto:
    """Boxes and class scores, joined with one quantizer."""
    net = Net()
    hidden = net.quantized("x")
    boxes = net.op("Mul", net.conv(hidden, "boxes"), net.constant(np.float32(40)))
    scores = net.op("Sigmoid", net.conv(hidden, "scores"), name="sigmoid")
    joined = net.op("Concat", boxes, scores, name="join", axis=1)
    net.op("Relu", joined if cured else net.quantized(joined, 2.5), name="last", out="y")
    return net.proto()


def quantized_outside(cured: bool) -> onnx.ModelProto:
    """Products in the branches of an If, their input quantized in front of it, or in each branch."""
    net = Net()
    source = "x" if cured else net.quantized("x")
    branches = {}
    for name in ("then", "else"):
        own = Net()
        own.constants = net.constants
        own.matmul(own.quantized(source) if cured else source, f"{name}/product", out=name)
        result = onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 16])
        branches[f"{name}_branch"] = onnx.helper.make_graph(own.nodes, name, [], [result])
    net.op("If", "going", name="choice", out="y", **branches)
    return net.proto(inputs={"x": [4, 16], "going": []}, types={"going": TensorProto.BOOL})


def weights_of(provoking: np.ndarray, scale: float | np.float32 = 0.01) -> Case:
    def make(cured: bool) -> onnx.ModelProto:
        net = Net()
        data = codes((8, 8, 3, 3)) if cured else provoking
        weights = net.weights(data, 0.01 if cured else scale)
        net.conv(net.quantized("x"), "conv", out="y", weights=weights)
        return net.proto()

    return make


SATURATED = np.where(codes((8, 8, 3, 3)) > 0, 127, -127).astype(S8)


def normalized(cured: bool) -> onnx.ModelProto:
    """A quantizer between convolution and normalization, or behind both."""
    net = Net()
    hidden = net.conv(net.quantized("x"), "conv1")
    hidden = hidden if cured else net.quantized(hidden)
    parameters = [net.constant(np.linspace(0.5, 2.0, 8, dtype=np.float32)) for _ in range(4)]
    hidden = net.op("BatchNormalization", hidden, *parameters, name="norm")
    net.conv(net.quantized(hidden), "conv2", out="y")
    return net.proto()


SMALL = codes((8, 8, 3, 3), 5)
SMALL[0] = 127
DEAD = codes((8, 8, 3, 3))
DEAD[2:5] = 0


def seven_bits(cured: bool) -> onnx.ModelProto:
    net = Net()
    weights = net.weights(codes((8, 8, 3, 3), 63 if cured else 127))
    net.conv(net.quantized("x"), "conv", out="y", weights=weights)
    return net.proto()


def unused_sign(cured: bool) -> onnx.ModelProto:
    net = Net()
    hidden = net.op("Relu", net.conv(net.quantized("x"), "conv1"))
    net.conv(net.quantized(hidden, zero=U8(0) if cured else S8(0)), "conv2", out="y")
    return net.proto()


def recurrence(cured: bool) -> onnx.ModelProto:
    """The remedy: what quantize_dynamic makes of an LSTM."""
    net = Net()
    steps = coded_lstm(net, "x") if cured else f32_recurrence(net, "LSTM", 4)
    net.matmul(net.quantized(in_rows(net, steps)), "fc", out="y")
    return net.proto(**SEQUENCES)


def gru(cured: bool) -> onnx.ModelProto:
    """The remedy is an option of fqfuse, and the model the same: see `OPTIONS`."""
    del cured
    net = Net()
    net.matmul(net.quantized(in_rows(net, f32_recurrence(net, "GRU", 3))), "fc", out="y")
    return net.proto(**SEQUENCES)


def rnn(cured: bool) -> onnx.ModelProto:
    """Tried: quantizers on its input and weights."""
    net = Net()
    given = coded_operands(net, 1) if cured else f32_operands(net, 1)
    steps = net.op("RNN", *given, name="cell", hidden_size=16)
    net.matmul(net.quantized(in_rows(net, steps)), "fc", out="y")
    return net.proto(**SEQUENCES)


def pytorch_gru(cured: bool) -> onnx.ModelProto:
    """The same of a GRU that multiplies in front of its reset."""
    net = Net()
    given = coded_operands(net, 3) if cured else f32_operands(net, 3)
    steps = net.op("GRU", *given, name="cell", hidden_size=16, linear_before_reset=1)
    net.matmul(net.quantized(in_rows(net, steps)), "fc", out="y")
    return net.proto(**SEQUENCES)


def coded_operands(net: Net, gates: int) -> list[str]:
    weights = [net.weights(codes((1, gates * 16, 16)), np.float32(0.01)) for _ in range(2)]
    return [net.quantized("x"), *weights]


def f32_operands(net: Net, gates: int) -> list[str]:
    return ["x", *(net.constant(random([1, gates * 16, 16], seed)) for seed in range(2))]


def coded_recurrence(cured: bool) -> onnx.ModelProto:
    """quantize_dynamic of an LSTM and a product; or of the LSTM, and quantize_static of the product."""
    net = Net()
    hidden = in_rows(net, coded_lstm(net, net.op("Tanh", "x")))
    net.matmul(net.quantized(hidden) if cured else at_run_time(net, hidden), "fc", out="y")
    return net.proto(**SEQUENCES)


def f32_recurrence(net: Net, op: str, gates: int) -> str:
    return net.op(op, *f32_operands(net, gates), name="cell", hidden_size=16)


def coded_lstm(net: Net, source: str) -> str:
    """With weights [directions, inputs, gates] of one scale for each direction."""
    weights = [net.constant(codes((1, 16, 64))) for _ in range(2)]
    scale, zero = net.constant(np.float32([0.01])), net.constant(np.int8([0]))
    given = (source, *weights, "", "", "", "", "", scale, zero, scale, zero)
    return net.op(
        "DynamicQuantizeLSTM", *given, name="cell_quant", hidden_size=16, domain="com.microsoft"
    )


def in_rows(net: Net, steps: str) -> str:
    """The outputs of a recurrence as a batch of rows for each step."""
    return net.op("Reshape", steps, net.constant(np.array([4, 2, 16])))


def at_run_time(net: Net, value: str) -> str:
    """The value in codes of a range that is taken in each run."""
    outputs = ["codes", "scale", "zero"]
    net.nodes.append(onnx.helper.make_node("DynamicQuantizeLinear", [value], outputs, name="range"))
    return net.op("DequantizeLinear", *outputs)


def control_flow(cured: bool) -> onnx.ModelProto:
    """Three products, in a Loop or unrolled."""
    net = Net()
    hidden = net.matmul(net.quantized("x"), "fc")
    if cured:
        for trip in range(3):
            hidden = net.matmul(net.quantized(hidden), f"fc{trip}", out="y" if trip == 2 else "")
    else:
        net.loop(hidden, net.constant(random([16, 16])), 3, "steps", [4, 16], out="y")
    return net.proto(inputs={"x": [4, 16]})


def double_precision(cured: bool) -> onnx.ModelProto:
    net = Net()
    value = "x"
    if cured:
        value = net.op("Add", value, net.constant(np.float32(1)))
    else:
        value = net.op("Cast", value, to=TensorProto.DOUBLE)
        value = net.op("Add", value, net.constant(np.float64(1)))
        value = net.op("Cast", value, to=TensorProto.FLOAT)
    net.conv(net.quantized(value), "conv", out="y")
    return net.proto()


def half_floats(cured: bool) -> onnx.ModelProto:
    """A model converted to half floats, by the tool and option that the remedy names."""
    net = Net()
    hidden = net.op("Relu", net.conv(net.quantized("x"), "conv"))
    net.op("Add", hidden, net.constant(np.float32(1)), name="add", out="y")
    return convert_float_to_float16(net.proto(), keep_io_types=cured)


def wide_codes(cured: bool) -> onnx.ModelProto:
    net = Net()
    zero = U8(128) if cured else np.uint16(32768)
    hidden = net.conv(net.quantized("x", zero=zero), "conv1")
    net.conv(net.quantized(hidden, zero=zero), "conv2", out="y")
    return net.proto()


def float_codes(cured: bool) -> onnx.ModelProto:
    """Quantizers to float8 in front of a convolution, or to int8."""
    net = Net()
    if cured:
        source = net.quantized("x")
    else:
        scale = net.constant(np.float32(0.1))
        codes = net.op("QuantizeLinear", "x", scale, output_dtype=TensorProto.FLOAT8E4M3FN)
        source = net.op("DequantizeLinear", codes, scale)
    net.conv(source, "conv", out="y")
    return net.proto()


def per_channel(cured: bool) -> onnx.ModelProto:
    net = Net()
    scales = np.linspace(0.1, 0.2, 8).astype(np.float32)
    source = (
        net.quantized("x") if cured else net.quantized("x", scales, np.full(8, 128, U8), axis=1)
    )
    net.conv(source, "conv", out="y")
    return net.proto()


PADDED = {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}


def fractional_zero(cured: bool) -> onnx.ModelProto:
    """Average pooling that counts its padding: the code of 0 has to be there."""
    net = Net()
    source = net.fake_quantized("x", -1.0, 127 / 128 if cured else 1.0)
    pooled = net.op("AveragePool", source, name="pool", **PADDED)
    net.conv(net.quantized(pooled), "conv", out="y")
    return net.proto()


def dynamic(cured: bool) -> onnx.ModelProto:
    net = Net()
    net.matmul(net.quantized("x") if cured else at_run_time(net, "x"), "fc", out="y")
    return net.proto(inputs={"x": [4, 16]})


def embedding(cured: bool) -> onnx.ModelProto:
    net = Net()
    table = random([300, 16])
    if cured:
        rows = net.op("Gather", net.weights(codes((300, 16)), np.float32(0.1)), "x", name="words")
    else:
        rows = net.op("Gather", net.constant(table), "x", name="words")
    net.matmul(net.quantized(net.op("Add", rows, net.constant(table[0]))), "fc", out="y")
    return net.proto(**INDICES)


def f32_product(cured: bool) -> onnx.ModelProto:
    net = Net()
    hidden = net.conv(net.quantized("x"), "conv1")
    net.conv(net.quantized(hidden) if cured else hidden, "conv2", out="y")
    return net.proto()


def attention(cured: bool) -> onnx.ModelProto:
    """A product of two activations, of which one has no quantizer."""
    net = Net()
    scores = net.matmul(net.quantized("x"), "fc")
    left = net.quantized(net.op("Softmax", scores), 1 / 255, U8(0))
    right = net.quantized("x", zero=S8(0)) if cured else "x"
    net.op("MatMul", left, right, name="attended", out="y")
    return net.proto(inputs={"x": [16, 16]})


def f32_weights(cured: bool) -> onnx.ModelProto:
    net = Net()
    weights = "" if cured else net.constant(random([8, 8, 3, 3]))
    net.conv(net.quantized("x"), "conv", out="y", weights=weights)
    return net.proto()


def deconvolution(cured: bool) -> onnx.ModelProto:
    """By ONNX Runtime's quantizer, in the one format and the other."""
    net = Net()
    filters = {name: net.constant(random([8, 8, 3, 3], seed)) for seed, name in enumerate("abc")}
    hidden = net.op("Relu", net.op("Conv", "x", filters["a"], name="conv1"), name="relu")
    hidden = net.op("ConvTranspose", hidden, filters["b"], name="up", strides=[2, 2])
    net.op("Conv", hidden, filters["c"], name="conv2", out="y")
    form = QuantFormat.QDQ if cured else QuantFormat.QOperator
    return quantized_by_ort(net.proto(), quant_format=form)


def weights_only(cured: bool) -> onnx.ModelProto:
    """What MatMulNBits writes: one block of 16 weights in 4 bits for each of 16 outputs."""
    net = Net()
    if cured:
        net.matmul(net.quantized("x"), "fc", out="y")
        return net.proto(inputs={"x": [4, 16]})
    packed = np.random.default_rng(1).integers(0, 256, (16, 1, 8)).astype(np.uint8)
    given = (net.constant(packed), net.constant(np.full(16, 0.1, np.float32)))
    sizes = {"K": 16, "N": 16, "bits": 4, "block_size": 16}
    net.op("MatMulNBits", "x", *given, name="fc", out="y", domain="com.microsoft", **sizes)
    return net.proto(inputs={"x": [4, 16]}, domains={"com.microsoft": 1})


def asymmetric_weights(cured: bool) -> onnx.ModelProto:
    net = Net()
    zero = np.int8(0 if cured else 3)
    parameters = (net.constant(np.float32(0.01)), net.constant(zero))
    data = net.constant(codes((8, 8, 3, 3)))
    net.conv(net.quantized("x"), "conv", "y", net.op("DequantizeLinear", data, *parameters))
    return net.proto()


def weights_along_inputs(cured: bool) -> onnx.ModelProto:
    net = Net()
    scales = np.linspace(0.01, 0.02, 8).astype(np.float32)
    weights = net.weights(codes((8, 8, 3, 3)), scales, axis=0 if cured else 1)
    net.conv(net.quantized("x"), "conv", out="y", weights=weights)
    return net.proto()


def concatenation(cured: bool) -> onnx.ModelProto:
    net = Net()
    source = net.quantized("x")
    left = net.quantized(net.op("Relu", net.conv(source, "left")), zero=U8(0))
    zero, scale = (U8(0), 0.1) if cured else (S8(0), 0.2)
    right = net.quantized(net.op("Relu", net.conv(source, "right")), scale, zero)
    joined = net.op("Concat", left, right, axis=1, name="joined")
    net.conv(joined, "conv", out="y", channels=16)
    return net.proto()


def table(cured: bool) -> onnx.ModelProto:
    """Tried: the arithmetic, on f32."""
    net = Net()
    hidden = net.conv(net.quantized("x"), "conv1")
    hidden = hidden if cured else net.quantized(hidden)
    net.conv(net.quantized(net.op("Erf", hidden)), "conv2", out="y")
    return net.proto()


def fallback(cured: bool) -> onnx.ModelProto:
    net = Net()
    hidden = net.op("Tanh" if cured else "Tan", net.conv(net.quantized("x"), "conv1"), name="odd")
    net.conv(net.quantized(hidden), "conv2", out="y")
    return net.proto()


def residual(cured: bool) -> onnx.ModelProto:
    net = Net()
    skip = net.conv(net.quantized("x"), "conv1")
    hidden = net.conv(net.quantized(skip), "conv2")
    added = net.op("Add", hidden, net.quantized(skip) if cured else skip, name="add")
    net.conv(net.quantized(added), "conv3", out="y")
    return net.proto()


def f32_pooling(cured: bool) -> onnx.ModelProto:
    """The quantizer stands behind the pooling alone, since the tool does not know Tanh; or around it."""
    net = Net()
    hidden = net.op("Tanh", net.conv(net.quantized("x"), "conv1"))
    hidden = net.quantized(hidden, 1 / 127) if cured else hidden
    pooled = net.op("AveragePool", hidden, name="pool", kernel_shape=[2, 2])
    net.conv(net.quantized(pooled, 1 / 127), "conv2", out="y")
    return net.proto()


def float_operation(cured: bool) -> onnx.ModelProto:
    """Tried: a quantizer in front of the softmax, too."""
    net = Net()
    scores = net.matmul(net.quantized("x"), "scores")
    hidden = net.op("Softmax", net.quantized(scores) if cured else scores, name="softmax")
    net.matmul(net.quantized(hidden), "fc", out="y")
    return net.proto(inputs={"x": [4, 16]})


def decoded_operand(cured: bool) -> onnx.ModelProto:
    """Squeeze and excitation: what is scaled has a zero point. Tried: it has none."""
    net = Net()
    zero = S8(0) if cured else U8(128)
    hidden = net.quantized(net.conv(net.quantized("x"), "conv1"), zero=zero)
    gate = net.quantized(net.op("Sigmoid", net.op("GlobalAveragePool", hidden)), 1 / 255, U8(0))
    scaled = net.quantized(net.op("Mul", gate, hidden, name="mul"), zero=zero)
    net.conv(scaled, "conv2", out="y")
    return net.proto()


def squeeze_excitation(cured: bool) -> onnx.ModelProto:
    """As NNCF writes it: no quantizer from the pooling to the gate. Tried: ONNX Runtime's, there, too."""
    net = Net()
    hidden = net.quantized(net.conv(net.quantized("x"), "conv1"), zero=S8(0))
    pooled = net.op("GlobalAveragePool", hidden, name="pool")
    weights = net.weights(codes((8, 8, 1, 1))) if cured else net.constant(random([8, 8, 1, 1]))
    product = net.op("Conv", net.quantized(pooled) if cured else pooled, weights, name="fc")
    product = net.quantized(product) if cured else product
    gate = net.quantized(net.op("HardSigmoid", product), 1 / 255, U8(0))
    scaled = net.quantized(net.op("Mul", gate, hidden, name="mul"))
    net.conv(scaled, "conv2", out="y")
    return net.proto()


def sizes_of(net: Net, value: str, *last: int) -> str:
    """Batch and sequence of a value in front of fixed sizes, as a traced `x.view(b, s, ...)` has them."""
    parts = [size_at(net, value, place) for place in range(2)]
    return net.op("Concat", *parts, net.constant(np.int64(last)), axis=0)


def size_at(net: Net, value: str, place: int) -> str:
    size = net.op("Gather", net.op("Shape", value), net.constant(np.int64(place)))
    return net.op("Unsqueeze", size, net.constant(np.int64([0])))


def open_sizes(cured: bool) -> onnx.ModelProto:
    """As a traced transformer: as many positions as the sequence has, out of 64, which begin at 2 as in
    RoBERTa; heads that are taken apart and joined by sizes of a run, and a skip around them. The remedy: ONNX Runtime's
    make_dynamic_shape_fixed.
    """
    net = Net()
    first, axis = net.constant(np.int64([2])), net.constant(np.int64([1]))
    table, end = net.constant(random([1, 66, 16])), net.op("Add", size_at(net, "x", 1), first)
    source = net.op("Add", "x", net.op("Slice", table, first, end, axis))
    hidden = net.matmul(net.quantized(source), "fc1")
    heads = net.op("Reshape", hidden, sizes_of(net, hidden, 4, 4))
    joined = net.op("Reshape", net.op("Relu", heads), sizes_of(net, hidden, 16))
    added = net.op("Add", net.matmul(net.quantized(joined), "fc2"), source, name="add")
    net.matmul(net.quantized(added), "fc3", out="y")
    proto = net.proto(inputs={"x": ["batch", "sequence", 16]})
    for name, size in (("batch", 2), ("sequence", 8)) if cured else ():
        make_dim_param_fixed(proto.graph, name, size)
    return proto


def decoded_for_shape(cured: bool) -> onnx.ModelProto:
    """The codes of a layer, of which another node asks for the size."""
    net = Net()
    hidden = net.quantized(net.matmul(net.quantized("x"), "fc1"))
    sizes = net.op("Shape", hidden, name="shape")
    net.matmul(hidden, "fc2", out="y")
    net.op("Expand", net.constant(np.ones([1, 1, 16], np.float32)), sizes, name="mask", out="z")
    return net.proto(inputs={"x": [2 if cured else "n", 3, 16]}, outputs=["y", "z"])


def apart(cured: bool) -> onnx.ModelProto:
    """Softmax reads f32, so that what stands in front cannot write the codes that others read."""
    net = Net()
    hidden = net.matmul(net.quantized("x"), "fc1")
    codes_of = net.quantized(hidden)
    net.op("Softmax", codes_of if cured else hidden, name="softmax", out="y")
    net.matmul(codes_of, "fc2", out="z")
    return net.proto(inputs={"x": [4, 16]}, outputs=["y", "z"])


def between(cured: bool) -> onnx.ModelProto:
    """Tried: no quantizer there."""
    net = Net()
    source = net.quantized("x")
    hidden = net.conv(source, "conv1")
    added = net.op("Add", hidden if cured else net.quantized(hidden), source, name="add")
    net.conv(net.quantized(added), "conv2", out="y")
    return net.proto()


def model_output(cured: bool) -> onnx.ModelProto:
    """Tried: the model gives codes."""
    net = Net()
    hidden = net.conv(net.quantized("x"), "conv", out="" if cured else "y")
    if cured:
        parameters = (net.constant(np.float32(0.1)), net.constant(U8(128)))
        net.op("QuantizeLinear", hidden, *parameters, name="codes", out="y")
    return net.proto()


def requantized(cured: bool) -> onnx.ModelProto:
    net = Net()
    source = net.quantized("x")
    other = source if cured else net.quantized(source, 0.2)
    net.conv(source, "conv1", out="y")
    net.conv(other, "conv2", out="z")
    return net.proto(outputs=["y", "z"])


def moved(cured: bool) -> onnx.ModelProto:
    """Tried: no quantizer in front."""
    net = Net()
    hidden = net.conv(net.quantized("x"), "conv1")
    hidden = hidden if cured else net.quantized(hidden)
    net.conv(net.op("Transpose", hidden, perm=[0, 1, 3, 2]), "conv2", out="y")
    return net.proto()


def own_step(cured: bool) -> onnx.ModelProto:
    """Tried: no quantizers around it."""
    net = Net()
    left = net.conv(net.quantized("x"), "conv1")
    left = left if cured else net.quantized(left)
    right = net.op("Relu", left)
    right = right if cured else net.quantized(right, 0.2, U8(0))
    net.conv(left, "conv2", out="y")
    net.conv(right, "conv3", out="z")
    return net.proto(outputs=["y", "z"])


def whole(cured: bool) -> onnx.ModelProto:
    net = Net()
    low, high = (-12.8, 12.7) if cured else (100_000.0, 100_001.0)
    net.conv(net.fake_quantized("x", low, high), "conv", out="y")
    return net.proto()


def indices(cured: bool) -> onnx.ModelProto:
    """Tried: the table in f32."""
    net = Net()
    moved_by = net.op("Mod", "x", net.constant(np.int64(7)), name="mod")
    rows = net.constant(random([300, 16])) if cured else ""
    rows = rows or net.weights(codes((300, 16)), np.float32(0.1))
    rows = net.op("Gather", rows, moved_by)
    net.matmul(rows, "fc", out="y")
    return net.proto(**INDICES)


CASES: dict[str, Case] = {
    "not-quantized": unquantized,
    "absurd-scale": absurd_scale,
    "few-codes": few_codes,
    "coarse-softmax": coarse_softmax,
    "saturated-weights": weights_of(SATURATED),
    "unused-weight-range": weights_of(SMALL, np.float32(0.01)),
    "norm-behind-quantizer": normalized,
    "dead-channels": weights_of(DEAD),
    "unused-sign": unused_sign,
    "saturation-without-vnni": seven_bits,
    "unquantized-recurrence": recurrence,
    "f32-gru": gru,
    "f32-rnn": rnn,
    "dynamic-recurrence": coded_recurrence,
    "dynamic-beside-lstm": coded_recurrence,
    "control-flow": control_flow,
    "double-precision": double_precision,
    "half-floats": half_floats,
    "float-codes": float_codes,
    "wide-codes": wide_codes,
    "per-channel-activation": per_channel,
    "fractional-zero-point": fractional_zero,
    "dynamic-quantizer": dynamic,
    "f32-embedding": embedding,
    "f32-weights": f32_weights,
    "left-by-qoperator": deconvolution,
    "quantized-outside": quantized_outside,
    "weights-only": weights_only,
    "asymmetric-weights": asymmetric_weights,
    "weights-along-inputs": weights_along_inputs,
    "squeeze-excitation": squeeze_excitation,
    "f32-attention": attention,
    "f32-product": f32_product,
    "concat-parameters": concatenation,
    "code-table": table,
    "fallback": fallback,
    "model-output": model_output,
    "f32-residual": residual,
    "f32-pooling": f32_pooling,
    "float-operation": float_operation,
    "decoded-operand": decoded_operand,
    "quantizer-apart": apart,
    "quantizer-between": between,
    "requantized": requantized,
    "layout-copy": moved,
    "own-step": own_step,
    "index-arithmetic": indices,
    "whole-quantizer": whole,
    "open-sizes": open_sizes,
    "decoded-for-shape": decoded_for_shape,
}

OPTIONS = {"f32-gru": {"approximate": ["int8-recurrence"]}}
"""Remedies that are options of `compile`."""
