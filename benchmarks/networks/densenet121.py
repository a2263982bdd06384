"""DenseNet-121: Huang et al. 2016 (arXiv:1608.06993), table 1, growth rate 32."""

from __future__ import annotations

import numpy as np
import onnx

from .layers import batch_norm, classifier, conv2d, global_pool, max_pool, relu
from .samples import sample_images
from .writer import NetworkWriter, Tensor

_BLOCKS = (6, 12, 24, 16)
_GROWTH = 32
_BOTTLENECK = 4


def build_densenet121(seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return DenseNet-121: ``input`` f32 [1, 3, 224, 224] to ``logits`` [1, 1000]; 7,978,856
    parameters.
    """
    writer = NetworkWriter("densenet121", seed)
    x = writer.input("input", sample_images(np.random.default_rng([seed, 1]), samples))
    x = conv2d(writer, x, "/features/conv0", 2 * _GROWTH, 7, 2)
    x = relu(writer, batch_norm(writer, x, "/features/norm0"), "/features/relu0")
    x = max_pool(writer, x, "/features/pool0")
    for block, layers in enumerate(_BLOCKS, start=1):
        x = _dense_block(writer, x, f"/features/denseblock{block}", layers)
        if block < len(_BLOCKS):
            x = _transition(writer, x, f"/features/transition{block}")
    x = relu(writer, batch_norm(writer, x, "/features/norm5"), "")
    return writer.model(
        {"logits": classifier(writer, global_pool(writer, x, ""), "/classifier", 1000)}
    )


def _dense_block(writer: NetworkWriter, x: Tensor, scope: str, layers: int) -> Tensor:
    """Every layer reads all features before it.

    As the reference code does, each layer concatenates them anew; its first Concat has a single
    input.
    """
    features = [x]
    for layer in range(1, layers + 1):
        inner = f"{scope}/denselayer{layer}"
        y = writer.op("Concat", features, inner, axis=1)
        y = relu(writer, batch_norm(writer, y, f"{inner}/norm1"), f"{inner}/relu1")
        y = conv2d(writer, y, f"{inner}/conv1", _BOTTLENECK * _GROWTH, 1)
        y = relu(writer, batch_norm(writer, y, f"{inner}/norm2"), f"{inner}/relu2")
        features.append(conv2d(writer, y, f"{inner}/conv2", _GROWTH, 3))
    return writer.op("Concat", features, scope, axis=1)


def _transition(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """Halve the channels by a 1x1 convolution and the resolution by an average."""
    y = relu(writer, batch_norm(writer, x, f"{scope}/norm"), f"{scope}/relu")
    y = conv2d(writer, y, f"{scope}/conv", x.value.shape[1] // 2, 1)
    return writer.op(
        "AveragePool",
        [y],
        f"{scope}/pool",
        ceil_mode=0,
        count_include_pad=1,
        kernel_shape=[2, 2],
        strides=[2, 2],
    )
