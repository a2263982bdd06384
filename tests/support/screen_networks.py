"""The networks that people bring first, at their depth and a fraction of their width, written as the
quantizers write them: what the golden first screens are of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from support.dialect_writer import Dynamic, Nncf, Ort, QOperator, Tool

IMAGE = [1, 3, 224, 224]


def resnet50(tool: Tool) -> onnx.ModelProto:
    """ResNet-50 at a quarter of its width."""
    x = tool.conv("input", "/conv1/Conv", 3, 16, 7, 2, act="Relu")
    x = tool.moved("MaxPool", x, name="/maxpool/MaxPool", **_window(3, 2))
    channels = 16
    for stage, blocks in enumerate((3, 4, 6, 3), 1):
        for block in range(blocks):
            scope, width = f"/layer{stage}/layer{stage}.{block}", 8 << stage
            stride = 2 if stage > 1 and block == 0 else 1
            y = tool.conv(x, f"{scope}/conv1/Conv", channels, width, act="Relu")
            y = tool.conv(y, f"{scope}/conv2/Conv", width, width, 3, stride, act="Relu")
            y = tool.conv(y, f"{scope}/conv3/Conv", width, 4 * width)
            if block == 0:
                x = tool.conv(x, f"{scope}/downsample/Conv", channels, 4 * width, 1, stride)
            x, channels = tool.add(y, x, f"{scope}/Add", "Relu"), 4 * width
    return tool.proto(_classified(tool, x, channels), input=IMAGE)


def _window(kernel: int, stride: int) -> dict[str, list[int]]:
    return {
        "kernel_shape": [kernel] * 2,
        "strides": [stride] * 2,
        "pads": [kernel // 2] * 4 if kernel % 2 else [0] * 4,
    }


def _classified(tool: Tool, x: str, channels: int) -> str:
    x = tool.moved("GlobalAveragePool", x, name="/avgpool/GlobalAveragePool")
    x = tool.moved_as_is("Flatten", x, name="/Flatten")
    return tool.dense(x, "/fc/Gemm", channels, 100)


def densenet121(tool: Tool) -> onnx.ModelProto:
    """DenseNet-121 with a growth of 8 instead of 32 channels: a norm and a relu in front of each
    convolution.
    """
    x = tool.conv("input", "/features/conv0/Conv", 3, 16, 7, 2, act="Relu")
    x = tool.moved("MaxPool", x, name="/features/pool0/MaxPool", **_window(3, 2))
    channels = 16
    for number, layers in enumerate((6, 12, 24, 16), 1):
        parts = [x]
        for layer in range(1, layers + 1):
            scope = f"/features/denseblock{number}/denselayer{layer}"
            wide = channels + 8 * (layer - 1)
            y = _joined(tool, parts, f"{scope}/Concat")
            y = _norm_relu(tool, y, f"{scope}/norm1", wide)
            y = tool.conv(y, f"{scope}/conv1/Conv", wide, 32, act="Relu")
            parts.append(tool.conv(y, f"{scope}/conv2/Conv", 32, 8, 3))
        channels += 8 * layers
        x = _joined(tool, parts, f"/features/denseblock{number}/Concat")
        if number < 4:
            scope = f"/features/transition{number}"
            x = _norm_relu(tool, x, f"{scope}/norm", channels)
            x = tool.conv(x, f"{scope}/conv/Conv", channels, channels // 2)
            channels //= 2
            x = tool.moved("AveragePool", x, name=f"{scope}/pool/AveragePool", **_window(2, 2))
    x = _norm_relu(tool, x, "/features/norm5", channels)
    return tool.proto(_classified(tool, x, channels), input=IMAGE)


def _joined(tool: Tool, parts: list[str], name: str) -> str:
    return tool.moved("Concat", *parts, name=name, axis=1, unified=False)


def _norm_relu(tool: Tool, x: str, scope: str, channels: int) -> str:
    parameters = [
        tool.constant(f"{scope[1:]}.{name}", np.linspace(0.5, 1.5, channels, dtype=np.float32))
        for name in ("weight", "bias", "running_mean", "running_var")
    ]
    x = tool.op("BatchNormalization", x, *parameters, name=f"{scope}/BatchNormalization")
    return tool.activated(x, f"{scope}/BatchNormalization", "Relu")


def mobilenet_v3(tool: Tool) -> onnx.ModelProto:
    """MobileNetV3 Small: depthwise convolutions, hard swish, squeeze and excitation."""
    x = tool.conv("input", "/features/0/Conv", 3, 16, 3, 2, act="HardSwish")
    channels = 16
    rows = (  # kernel, expanded, out, excited, activation, stride
        (3, 16, 16, True, "Relu", 2),
        (3, 72, 24, False, "Relu", 2),
        (3, 88, 24, False, "Relu", 1),
        (5, 96, 40, True, "HardSwish", 2),
        (5, 240, 40, True, "HardSwish", 1),
        (5, 240, 40, True, "HardSwish", 1),
        (5, 120, 48, True, "HardSwish", 1),
        (5, 144, 48, True, "HardSwish", 1),
        (5, 288, 96, True, "HardSwish", 2),
        (5, 576, 96, True, "HardSwish", 1),
        (5, 576, 96, True, "HardSwish", 1),
    )
    for number, (kernel, wide, out, excited, act, stride) in enumerate(rows, 1):
        scope = f"/features/{number}"
        y = tool.conv(x, f"{scope}/expand/Conv", channels, wide, act=act)
        y = tool.conv(y, f"{scope}/depthwise/Conv", wide, wide, kernel, stride, group=wide, act=act)
        y = _excited(tool, y, f"{scope}/se", wide) if excited else y
        y = tool.conv(y, f"{scope}/project/Conv", wide, out)
        x = tool.add(y, x, f"{scope}/Add") if stride == 1 and channels == out else y
        channels = out
    x = tool.conv(x, "/features/12/Conv", channels, 576, act="HardSwish")
    return tool.proto(_classified(tool, x, 576), input=IMAGE)


def _excited(tool: Tool, x: str, scope: str, channels: int) -> str:
    y = tool.squeezed(x, scope, channels)
    y = tool.op("HardSigmoid", y, name=f"{scope}/HardSigmoid", alpha=1 / 6)
    tool.positive.add(y)
    return tool.made(tool.op("Mul", tool.read(y), tool.read(x), name=f"{scope}/Mul"))


def yolo(tool: Tool) -> onnx.ModelProto:
    """A detector in the manner of YOLOv8: SiLU, parts that are split and joined, a pyramid with
    upsampling, and boxes that are decoded in f32.
    """
    x = tool.conv("images", "/model.0/conv/Conv", 3, 16, 3, 2, act="SiLU")
    x = tool.conv(x, "/model.1/conv/Conv", 16, 32, 3, 2, act="SiLU")
    low = _split_and_joined(tool, x, "/model.2", 32)
    x = tool.conv(low, "/model.3/conv/Conv", 32, 64, 3, 2, act="SiLU")
    x = _split_and_joined(tool, x, "/model.4", 64)
    pools = [x]
    for number in range(3):
        name = f"/model.5/m/MaxPool_{number}"
        pools.append(tool.moved("MaxPool", pools[-1], name=name, **_window(5, 1)))
    x = tool.moved("Concat", *pools, name="/model.5/Concat", axis=1)
    x = tool.conv(x, "/model.5/cv2/Conv", 256, 64, act="SiLU")
    sizes = tool.constant("sizes", np.array([1, 1, 2, 2], np.float32))
    x = tool.moved("Resize", x, rest=("", sizes), name="/model.6/Resize", mode="nearest")
    x = tool.moved("Concat", x, low, name="/model.7/Concat", axis=1)
    x = tool.conv(x, "/model.8/cv1/Conv", 96, 64, act="SiLU")
    boxes = tool.conv(x, "/model.9/cv2/Conv", 64, 4)
    scores = tool.conv(x, "/model.9/cv3/Conv", 64, 80)
    stride = tool.constant("stride", np.float32(8))
    boxes = tool.op("Mul", boxes, stride, name="/model.9/Mul")
    scores = tool.op("Sigmoid", scores, name="/model.9/Sigmoid")
    x = tool.op("Concat", boxes, scores, name="/model.9/Concat", axis=1)
    return tool.proto(x, images=[1, 3, 320, 320])


def _split_and_joined(tool: Tool, x: str, scope: str, channels: int) -> str:
    x = tool.conv(x, f"{scope}/cv1/Conv", channels, channels, act="SiLU")
    half = channels // 2
    ends = [
        tool.constant(f"{scope}.{name}", np.array([value]))
        for name, value in (("zero", 0), ("half", half), ("all", channels), ("axis", 1))
    ]
    zero, middle, last, axis = ends
    a = tool.moved("Slice", x, rest=(zero, middle, axis), name=f"{scope}/Slice")
    b = tool.moved("Slice", x, rest=(middle, last, axis), name=f"{scope}/Slice_1")
    y = tool.conv(b, f"{scope}/m.0/cv1/Conv", half, half, 3, act="SiLU")
    y = tool.conv(y, f"{scope}/m.1/cv2/Conv", half, half, 3, act="SiLU")
    y = tool.add(b, y, f"{scope}/m.0/Add")
    x = tool.moved("Concat", a, b, y, name=f"{scope}/Concat", axis=1)
    return tool.conv(x, f"{scope}/cv2/Conv", channels + half, channels, act="SiLU")


TOKENS, WIDTH, HEADS, LAYERS = 128, 128, 4, 3


def bert(tool: Tool, *, quantized_mask: bool = False) -> onnx.ModelProto:
    """A BERT encoder of three layers; with `quantized_mask`, a scale that stands for -3.4e38."""
    rows = tool.gather_weights("/embeddings/word_embeddings/Gather", 1000, WIDTH, "input_ids")
    two = tool.constant("tokens", np.array([TOKENS, WIDTH]))
    x = tool.op("Reshape", rows, two, name="/embeddings/Reshape")
    x = _norm(tool, x, "/embeddings/LayerNorm")
    mask = tool.op("Cast", "attention_mask", name="/Cast", to=onnx.TensorProto.FLOAT)
    one = tool.constant("one", np.float32(1))
    mask = tool.op("Sub", one, mask, name="/Sub")
    lowest = tool.constant("lowest", np.float32(np.finfo(np.float32).min))
    mask = tool.op("Mul", mask, lowest, name="/Mul")
    if quantized_mask:
        mask = _absurd(tool, mask)
    for number in range(LAYERS):
        x = _layer(tool, x, mask, f"/encoder/layer.{number}")
    return tool.proto(
        tool.dense(x, "/classifier/Gemm", WIDTH, 8),
        input_ids=[1, TOKENS],
        attention_mask=[1, TOKENS],
    )


def _absurd(tool: Tool, value: str) -> str:
    scale = tool.constant(f"{value}_scale", np.float32(1.334e36))
    zero = tool.constant(f"{value}_zero_point", np.uint8(255))
    codes = tool.op("QuantizeLinear", value, scale, zero, name=f"{value}_QuantizeLinear")
    return tool.op("DequantizeLinear", codes, scale, zero, name=f"{value}_DequantizeLinear")


def _norm(tool: Tool, x: str, scope: str) -> str:
    weight, bias = (
        tool.constant(f"{scope[1:]}.{name}", np.linspace(0.5, 1.5, WIDTH, dtype=np.float32))
        for name in ("weight", "bias")
    )
    return tool.op("LayerNormalization", x, weight, bias, name=f"{scope}/LayerNormalization")


def _layer(tool: Tool, x: str, mask: str, scope: str) -> str:
    own = f"{scope}/attention/self"
    query, key, value = (
        _heads(tool, tool.dense(x, f"{own}/{name}/Gemm", WIDTH, WIDTH), f"{own}/{name}", name)
        for name in ("query", "key", "value")
    )
    scores = tool.product(query, key, f"{own}/MatMul")
    root = tool.constant("root", np.float32((WIDTH / HEADS) ** -0.5))
    scores = tool.op("Mul", scores, root, name=f"{own}/Mul")
    scores = tool.op("Add", scores, mask, name=f"{own}/Add")
    shares = tool.op("Softmax", scores, name=f"{own}/Softmax", axis=-1)
    tool.positive.add(shares)
    tool.known_scales[shares] = np.float32(1 / 256)  # ONNX Runtime's, whatever the data
    y = tool.attended(shares, value, f"{own}/MatMul_1")
    y = tool.op("Transpose", y, name=f"{own}/Transpose", perm=[1, 0, 2])
    two = tool.constant("tokens", np.array([TOKENS, WIDTH]))
    y = tool.op("Reshape", y, two, name=f"{own}/Reshape")
    y = tool.dense(y, f"{scope}/attention/output/dense/Gemm", WIDTH, WIDTH)
    x = _norm(tool, tool.residual(y, x, f"{scope}/attention/output/Add"), f"{scope}/norm1")
    y = tool.dense(x, f"{scope}/intermediate/dense/Gemm", WIDTH, 4 * WIDTH)
    y = tool.op("Gelu", y, name=f"{scope}/intermediate/Gelu")
    y = tool.dense(y, f"{scope}/output/dense/Gemm", 4 * WIDTH, WIDTH)
    return _norm(tool, tool.residual(y, x, f"{scope}/output/Add"), f"{scope}/norm2")


def _heads(tool: Tool, x: str, scope: str, name: str) -> str:
    three = tool.constant("heads", np.array([TOKENS, HEADS, WIDTH // HEADS]))
    x = tool.op("Reshape", x, three, name=f"{scope}/Reshape")
    perm = [1, 2, 0] if name == "key" else [1, 0, 2]
    return tool.op("Transpose", x, name=f"{scope}/Transpose", perm=perm)


def lstm(tool: Tool) -> onnx.ModelProto:
    """Two LSTM layers between quantizers, and a classifier."""
    x = "input"
    for layer in range(2):
        name = f"/lstm/layer.{layer}/LSTM"
        w, r = (
            tool.constant(f"lstm.{layer}.{kind}", tool.codes((1, 512, 128)) * np.float32(0.01))
            for kind in ("W", "R")
        )
        x = tool.op("LSTM", tool.read(x), w, r, name=name, hidden_size=128)
        axes = tool.constant("axes", np.array([1]))
        x = tool.op("Squeeze", tool.made(x), axes, name=f"/lstm/layer.{layer}/Squeeze")
    last = tool.constant("last", np.array(-1))
    x = tool.op("Gather", x, last, name="/Gather", axis=0)
    return tool.proto(tool.dense(x, "/fc/Gemm", 128, 16), input=[40, 1, 128])


NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "resnet50-ort": lambda: resnet50(Ort()),
    "resnet50-nncf": lambda: resnet50(Nncf()),
    "resnet50-qoperator": lambda: resnet50(QOperator()),
    "densenet121-ort": lambda: densenet121(Ort()),
    "densenet121-nncf": lambda: densenet121(Nncf()),
    "mobilenet_v3-ort": lambda: mobilenet_v3(Ort()),
    "mobilenet_v3-nncf": lambda: mobilenet_v3(Nncf()),
    "yolo-nncf": lambda: yolo(Nncf()),
    "bert-ort": lambda: bert(Ort()),
    "bert-nncf": lambda: bert(Nncf()),
    "bert-dynamic": lambda: bert(Dynamic()),
    "bert-absurd-mask": lambda: bert(Ort(), quantized_mask=True),
    "lstm-ort": lambda: lstm(Ort()),
}
"""What was quantized, and by whom."""
