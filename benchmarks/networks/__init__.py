"""The benchmark's networks, built with random weights from a seed: no download, no
framework.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx

from fqfuse.measure.arrays import Array

from .bert import build_bert, sample_tokens
from .densenet121 import build_densenet121
from .efficientnet_b0 import build_efficientnet_b0
from .gpt2 import build_gpt2_block, build_gpt2_token, sample_embeddings, sample_token
from .llama import build_llama_blocks, build_llama_token, sample_next, sample_prompts
from .lstm import build_lstm, sample_sequences
from .mobilenet_v2 import build_mobilenet_v2
from .regnet_y_400mf import build_regnet_y_400mf
from .resnet50 import build_resnet50
from .samples import sample_images
from .swin import build_swin
from .unet import build_unet
from .vit_small import build_vit_small
from .yolo import build_yolo, sample_scenes

__all__ = ["NETWORKS", "Network"]


@dataclass(frozen=True)
class Network:
    """One architecture: how to build it and what to feed it.

    ``build(seed, samples)`` returns the f32 model with batch 1; ``samples`` is how many random
    inputs calibrate the BatchNormalization statistics. ``feeds(rng, count)`` returns ``count``
    random inputs stacked along axis 0. ``transformer`` selects NNCF's transformer preset;
    ``logits`` names the output whose argmax is the top-1 answer; ``quantizers`` are names of
    ``quantizers.QUANTIZERS``, one file each.
    """

    name: str
    build: Callable[[int, int], onnx.ModelProto]
    feeds: Callable[[np.random.Generator, int], Mapping[str, Array]]
    logits: str
    transformer: bool = False
    quantizers: tuple[str, ...] = ("ort", "nncf")


def _images(rng: np.random.Generator, count: int) -> Mapping[str, Array]:
    return {"input": sample_images(rng, count)}


NETWORKS: Mapping[str, Network] = {
    network.name: network
    for network in (
        Network("resnet50", build_resnet50, _images, "logits"),
        Network("mobilenet_v2", build_mobilenet_v2, _images, "logits"),
        Network("densenet121", build_densenet121, _images, "logits"),
        Network("efficientnet_b0", build_efficientnet_b0, _images, "logits"),
        Network("regnet_y_400mf", build_regnet_y_400mf, _images, "logits"),
        Network("unet", build_unet, _images, "logits"),
        Network("yolo", build_yolo, sample_scenes, "boxes"),
        Network(
            "bert",
            build_bert,
            sample_tokens,
            "logits",
            transformer=True,
            quantizers=("ort", "nncf", "dynamic"),
        ),
        Network("vit_small", build_vit_small, _images, "logits", transformer=True),
        Network("swin", build_swin, _images, "logits", transformer=True),
        Network(
            "lstm", build_lstm, sample_sequences, "logits", quantizers=("f32", "dynamic", "qdq")
        ),
        Network(
            "gpt2",
            build_gpt2_block,
            sample_embeddings,
            "logits",
            transformer=True,
            quantizers=("products", "nncf", "int4", "int4-dynamic"),
        ),
        *(
            Network(
                f"gpt2_token{tokens}",
                partial(build_gpt2_token, tokens),
                partial(sample_token, tokens),
                "logits",
                transformer=True,
                quantizers=("products", "int4", "int4-dynamic"),
            )
            for tokens in (32, 512)
        ),
        Network(
            "llama",
            build_llama_blocks,
            sample_prompts,
            "logits",
            transformer=True,
            quantizers=("f32", "products", "dynamic", "int4-dynamic"),
        ),
        Network(
            "llama_token64",
            partial(build_llama_token, 64),
            partial(sample_next, 64),
            "logits",
            transformer=True,
            quantizers=("f32", "products", "dynamic", "int4-dynamic"),
        ),
    )
}
