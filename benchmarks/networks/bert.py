"""A BERT encoder: Devlin et al. 2018 (arXiv:1810.04805); 6 layers, width 384, 12 heads, the size of
a small sentence encoder.

Written as torch exporters do: GELU as Div-Erf-Add-Mul-Mul, attention as
MatMul-Div-Add-Softmax-MatMul, MatMul + Add for each linear layer, LayerNormalization as the
operator of opset 17.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto

from fqfuse.measure.arrays import Array

from .attention import gelu
from .layers import classifier, layer_norm, linear, normal
from .writer import NetworkWriter, Tensor

LAYERS, WIDTH, HEADS, INTERMEDIATE, SEQUENCE = 6, 384, 12, 1536, 128
VOCABULARY, TYPES, CLASSES = 2000, 2, 64
_HEAD = WIDTH // HEADS


def sample_tokens(rng: np.random.Generator, count: int) -> Mapping[str, Array]:
    """Return ``count`` random token sequences, int64 ``[count, 128]`` each: ids, mask and segment
    ids.

    The mask is all ones. Quantizers calibrate the masking term (0 or -10000) like any tensor: one
    padded sample stretches the scores' range to 10000 and attention dies in 8 bits, in every engine
    alike, which would measure nothing.
    """
    boundary = rng.integers(SEQUENCE // 4, SEQUENCE, (count, 1))
    return {
        "input_ids": rng.integers(0, VOCABULARY, (count, SEQUENCE), np.int64),
        "attention_mask": np.ones((count, SEQUENCE), np.int64),
        "token_type_ids": (np.arange(SEQUENCE)[None] >= boundary).astype(np.int64),
    }


def build_bert(
    seed: int = 0,
    samples: int = 4,
    layers: int = LAYERS,
    lowest: float = -10000,
    *,
    any_length: bool = False,
) -> onnx.ModelProto:
    """Return the encoder: three int64 [1, 128] inputs to ``last_hidden_state`` [1, 128, 384] and
    ``logits`` [1, 64]; ``lowest`` is added to the scores of what is masked. With ``any_length`` it takes as many
    positions as there are tokens, so that the length may be left open.
    """
    writer = NetworkWriter("bert", seed)
    tokens = sample_tokens(np.random.default_rng([seed, 1]), samples)
    ids, mask, types = (writer.input(name, value) for name, value in tokens.items())
    bias = _mask_bias(writer, mask, lowest)
    x = _embeddings(writer, ids, types, any_length=any_length)
    for layer in range(layers):
        scope = f"/encoder/layer.{layer}"
        x = _attention(writer, x, bias, f"{scope}/attention")
        x = _feed_forward(writer, x, scope)
    return writer.model({"last_hidden_state": x, "logits": _head(writer, x)})


def _mask_bias(writer: NetworkWriter, mask: Tensor, lowest: float) -> Tensor:
    """(1 - mask) * lowest as f32 [n, 1, 1, s], added to the attention scores."""
    y = writer.op("Unsqueeze", [mask, writer.constant("/Constant", np.array([1], np.int64))], "")
    y = writer.op("Unsqueeze", [y, writer.constant("/Constant_1", np.array([2], np.int64))], "")
    y = writer.op("Cast", [y], "", to=TensorProto.FLOAT)
    y = writer.op("Sub", [writer.constant("/Constant_2", np.array(1, np.float32)), y], "")
    return writer.op("Mul", [y, writer.constant("/Constant_3", np.array(lowest, np.float32))], "")


def _embeddings(writer: NetworkWriter, ids: Tensor, types: Tensor, *, any_length: bool) -> Tensor:
    """Sum of word, segment and position vectors, normalized: [n, s, w]."""
    scope = "/embeddings"
    tables = {
        name: (rows, 1.0)
        for name, rows in (("word_embeddings", VOCABULARY), ("token_type_embeddings", TYPES))
    }
    gathered = []
    for (name, (rows, std)), index in zip(tables.items(), (ids, types), strict=True):
        table = writer.parameter(f"embeddings.{name}.weight", normal(writer, (rows, WIDTH), std))
        gathered.append(writer.op("Gather", [table, index], f"{scope}/{name}", axis=0))
    positions = writer.parameter(
        "embeddings.position_embeddings.weight", normal(writer, (1, SEQUENCE, WIDTH), 0.5)
    )
    if any_length:
        start, one = (
            writer.constant(f"{scope}/Constant", np.array([at], np.int64)) for at in (0, 1)
        )
        length = writer.op("Gather", [writer.op("Shape", [ids], scope), one], scope, axis=0)
        positions = writer.op("Slice", [positions, start, length, one], scope)
    y = writer.op("Add", [writer.op("Add", gathered, scope), positions], scope)
    return layer_norm(writer, y, f"{scope}/LayerNorm", "embeddings.LayerNorm")


def _attention(writer: NetworkWriter, x: Tensor, bias: Tensor, scope: str) -> Tensor:
    """Multi-head self-attention with its residual sum and normalization."""
    inner = f"{scope}/self"
    # 1.5 gives scores a standard deviation near 2: attention neither uniform nor one-hot.
    query = _heads(writer, linear(writer, x, f"{inner}/query", WIDTH, 1.5), inner, [0, 2, 1, 3])
    key = _heads(writer, linear(writer, x, f"{inner}/key", WIDTH, 1.5), inner, [0, 2, 3, 1])
    value = _heads(writer, linear(writer, x, f"{inner}/value", WIDTH), inner, [0, 2, 1, 3])
    scores = writer.op("MatMul", [query, key], inner)
    root = writer.constant(f"{inner}/Constant_root", np.array(_HEAD**0.5, np.float32))
    scores = writer.op("Add", [writer.op("Div", [scores, root], inner), bias], inner)
    weights = writer.op("Softmax", [scores], inner, axis=-1)
    context = writer.op(
        "Transpose", [writer.op("MatMul", [weights, value], inner)], inner, perm=[0, 2, 1, 3]
    )
    shape = writer.constant(f"{inner}/Constant_merge", np.array([0, 0, WIDTH], np.int64))
    context = writer.op("Reshape", [context, shape], inner)
    y = linear(writer, context, f"{scope}/output/dense", WIDTH)
    y = writer.op("Add", [y, x], f"{scope}/output")
    return layer_norm(writer, y, f"{scope}/output/LayerNorm")


def _heads(writer: NetworkWriter, x: Tensor, scope: str, order: list[int]) -> Tensor:
    """Split [n, s, w] into [n, s, heads, w / heads] and transpose by ``order``."""
    name = x.name.rsplit("/", 2)[-2]
    shape = writer.constant(f"{scope}/Constant_{name}", np.array([0, 0, HEADS, _HEAD], np.int64))
    return writer.op("Transpose", [writer.op("Reshape", [x, shape], scope)], scope, perm=order)


def _feed_forward(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """Linear, GELU, linear, with the residual sum and normalization."""
    inner = f"{scope}/intermediate"
    y = gelu(
        writer, linear(writer, x, f"{inner}/dense", INTERMEDIATE), f"{inner}/intermediate_act_fn"
    )
    y = linear(writer, y, f"{scope}/output/dense", WIDTH)
    y = writer.op("Add", [y, x], f"{scope}/output")
    return layer_norm(writer, y, f"{scope}/output/LayerNorm")


def _head(writer: NetworkWriter, x: Tensor) -> Tensor:
    """Pooler (first token, linear, tanh) and classifier: logits [n, classes]."""
    first = writer.op(
        "Gather", [x, writer.constant("/pooler/Constant", np.array(0, np.int64))], "/pooler", axis=1
    )
    weight = writer.parameter("pooler.dense.weight", normal(writer, (WIDTH, WIDTH), WIDTH**-0.5))
    bias = writer.parameter(
        "pooler.dense.bias", (0.1 * writer.rng.standard_normal(WIDTH)).astype(np.float32)
    )
    pooled = writer.op(
        "Tanh", [writer.op("Gemm", [first, weight, bias], "/pooler/dense", transB=1)], "/pooler"
    )
    return classifier(writer, pooled, "/classifier", CLASSES)
