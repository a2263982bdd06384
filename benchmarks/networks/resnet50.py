"""ResNet-50 v1.5: He et al. 2015 (arXiv:1512.03385), table 1, with the stride on the 3x3
convolution.
"""

from __future__ import annotations

import numpy as np
import onnx

from .layers import batch_norm, classifier, conv2d, global_pool, max_pool, relu
from .samples import sample_images
from .writer import NetworkWriter, Tensor

_BLOCKS = (3, 4, 6, 3)
_EXPANSION = 4


def build_resnet50(seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return ResNet-50: ``input`` f32 [1, 3, 224, 224] to ``logits`` [1, 1000]; 25,557,032
    parameters.
    """
    writer = NetworkWriter("resnet50", seed)
    x = writer.input("input", sample_images(np.random.default_rng([seed, 1]), samples))
    x = relu(writer, batch_norm(writer, conv2d(writer, x, "/conv1", 64, 7, 2), "/bn1"), "/relu")
    x = max_pool(writer, x, "/maxpool")
    for stage, blocks in enumerate(_BLOCKS, start=1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            x = _bottleneck(
                writer,
                x,
                f"/layer{stage}/layer{stage}.{block}",
                32 << stage,
                stride,
                project=block == 0,
            )
    return writer.model(
        {"logits": classifier(writer, global_pool(writer, x, "/avgpool"), "/fc", 1000)}
    )


def _bottleneck(
    writer: NetworkWriter, x: Tensor, scope: str, width: int, stride: int, project: bool
) -> Tensor:
    """1x1, 3x3, 1x1 convolutions beside an identity or projected shortcut.

    The branch's last normalization has a small gain, as in trained networks: with 1 the sum's
    variance would double in every block, and the rounding noise of all blocks would be amplified by
    all later ones.
    """
    y = relu(
        writer,
        batch_norm(writer, conv2d(writer, x, f"{scope}/conv1", width, 1), f"{scope}/bn1"),
        f"{scope}/relu",
    )
    y = relu(
        writer,
        batch_norm(writer, conv2d(writer, y, f"{scope}/conv2", width, 3, stride), f"{scope}/bn2"),
        f"{scope}/relu",
    )
    y = batch_norm(
        writer,
        conv2d(writer, y, f"{scope}/conv3", width * _EXPANSION, 1),
        f"{scope}/bn3",
        gain=0.2,
        shift=0.0,
    )
    shortcut = x
    if project:
        down = f"{scope}/downsample"
        shortcut = conv2d(writer, x, f"{down}/downsample.0", width * _EXPANSION, 1, stride)
        shortcut = batch_norm(writer, shortcut, f"{down}/downsample.1")
    return relu(writer, writer.op("Add", [y, shortcut], scope), f"{scope}/relu")
