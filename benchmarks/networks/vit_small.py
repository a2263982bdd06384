"""ViT-S/16: Dosovitskiy et al. 2020 (arXiv:2010.11929) in the size of Touvron et al. 2020
(arXiv:2012.12877): 12 layers, 384 wide, 6 heads, on images of 224x224.
"""

from __future__ import annotations

import numpy as np
import onnx

from .attention import attention_of_joined, feed_forward
from .layers import classifier, conv2d, layer_norm, normal
from .samples import sample_images
from .writer import NetworkWriter, Tensor

LAYERS, WIDTH, HEADS, PATCH, CLASSES = 12, 384, 6, 16, 1000
EPSILON = 1e-6


def build_vit_small(seed: int = 0, samples: int = 4, layers: int = LAYERS) -> onnx.ModelProto:
    """Return the network: ``input`` f32 [1, 3, 224, 224] to ``logits`` [1, 1000]; 22,050,664
    parameters.
    """
    writer = NetworkWriter("vit_small", seed)
    images = sample_images(np.random.default_rng([seed, 1]), samples)
    x = _embeddings(writer, writer.input("input", images))
    for layer in range(layers):
        scope = f"/blocks.{layer}"
        normed = layer_norm(writer, x, f"{scope}/norm1", epsilon=EPSILON)
        y = attention_of_joined(writer, normed, f"{scope}/attn", HEADS)
        x = writer.op("Add", [x, y], scope)
        normed = layer_norm(writer, x, f"{scope}/norm2", epsilon=EPSILON)
        x = writer.op("Add", [x, feed_forward(writer, normed, f"{scope}/mlp", 4 * WIDTH)], scope)
    x = layer_norm(writer, x, "/norm", epsilon=EPSILON)
    first = writer.constant("/Constant_first", np.array(0, np.int64))
    x = writer.op("Gather", [x, first], "", axis=1)
    return writer.model({"logits": classifier(writer, x, "/head", CLASSES)})


def _embeddings(writer: NetworkWriter, image: Tensor) -> Tensor:
    """Patches of 16x16 as vectors behind a class token, plus positions: [n, 197, 384]."""
    x = conv2d(writer, image, "/patch_embed/proj", WIDTH, PATCH, PATCH, pad=0, bias=True)
    shape = writer.constant("/patch_embed/Constant", np.array([0, WIDTH, -1], np.int64))
    x = writer.op("Reshape", [x, shape], "/patch_embed")
    x = writer.op("Transpose", [x], "/patch_embed", perm=[0, 2, 1])
    token = writer.parameter("cls_token", normal(writer, (1, 1, WIDTH), 1.0))
    # the file has one image; the samples need a token each
    each = Tensor(token.name, token.value.repeat(len(image.value), axis=0))
    x = writer.op("Concat", [each, x], "", axis=1)
    tokens = int(x.value.shape[1])
    positions = writer.parameter("pos_embed", normal(writer, (1, tokens, WIDTH), 0.5))
    return writer.op("Add", [x, positions], "")
