"""One block of a GPT-2: Radford et al. 2019; 768 wide, 12 heads, from embedded tokens to the logits of
a small vocabulary: over 64 tokens, or for one token behind the keys and values of those before it.

Written as torch exporters do: one product for query, key and value, GELU by tanh, a causal mask
that is added to the scores.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from fqfuse.measure.arrays import Array

from .attention import attended, causal_mask, joined_with, scores_of
from .layers import classifier, layer_norm, linear
from .writer import NetworkWriter, Tensor

WIDTH, HEADS, SEQUENCE, CLASSES = 768, 12, 64, 64
EPSILON = 1e-5
_HEAD = WIDTH // HEADS


def sample_embeddings(rng: np.random.Generator, count: int) -> Mapping[str, Array]:
    """Return ``count`` random embedded sequences, f32 ``[count, 64, 768]``."""
    return {"inputs_embeds": rng.standard_normal((count, SEQUENCE, WIDTH), np.float32)}


def build_gpt2_block(seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return the block: ``inputs_embeds`` [1, 64, 768] to ``logits`` [1, 64] of the last token."""
    writer = NetworkWriter("gpt2", seed)
    samples_ = sample_embeddings(np.random.default_rng([seed, 1]), samples)
    x = writer.input("inputs_embeds", samples_["inputs_embeds"])
    x = _attention(writer, x, "/h.0/attn")
    x = _feed_forward(writer, x, "/h.0/mlp")
    last = writer.constant("/Constant_last", np.array(-1, np.int64))
    last_token = writer.op(
        "Gather", [layer_norm(writer, x, "/ln_f", epsilon=EPSILON), last], "", axis=1
    )
    return writer.model({"logits": classifier(writer, last_token, "/lm_head", CLASSES)})


def sample_token(tokens: int, rng: np.random.Generator, count: int) -> Mapping[str, Array]:
    """Return ``count`` random embedded tokens, f32 ``[count, 1, 768]``, and the keys and values of the
    ``tokens - 1`` before each, f32 ``[count, 12, tokens - 1, 64]``.
    """
    past = (count, HEADS, tokens - 1, _HEAD)
    return {
        "inputs_embeds": rng.standard_normal((count, 1, WIDTH), np.float32),
        "past_key": 1.5 * rng.standard_normal(past, np.float32),
        "past_value": 1.5 * rng.standard_normal(past, np.float32),
    }


def build_gpt2_token(tokens: int, seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return the block for the last of so many tokens: ``inputs_embeds`` [1, 1, 768], ``past_key`` and
    ``past_value`` to ``logits`` [1, 64], ``present_key`` and ``present_value`` [1, 12, tokens, 64].
    """
    writer = NetworkWriter(f"gpt2_token{tokens}", seed)
    given = sample_token(tokens, np.random.default_rng([seed, 1]), samples)
    x, *past = (writer.input(name, array) for name, array in given.items())
    scope = "/h.0/attn"
    query, key, value = _heads(writer, x, scope, [0, 2, 1, 3])
    present = joined_with(writer, past, (key, value), scope)
    turned = writer.op("Transpose", [present[0]], scope, perm=[0, 1, 3, 2])
    x = _attended(writer, x, scope, scores_of(writer, query, turned, scope, _HEAD), present[1])
    x = layer_norm(writer, _feed_forward(writer, x, "/h.0/mlp"), "/ln_f", epsilon=EPSILON)
    first = writer.constant("/Constant_last", np.array(-1, np.int64))
    logits = classifier(writer, writer.op("Gather", [x, first], "", axis=1), "/lm_head", CLASSES)
    return writer.model({"logits": logits, "present_key": present[0], "present_value": present[1]})


def _attention(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """Causal self-attention of the normalized tokens, added to them."""
    query, key, value = _heads(writer, x, scope, [0, 2, 3, 1])
    scores = scores_of(writer, query, key, scope, _HEAD)
    mask = writer.constant(f"{scope}/Constant_mask", causal_mask(SEQUENCE))
    return _attended(writer, x, scope, writer.op("Add", [scores, mask], scope), value)


def _heads(
    writer: NetworkWriter, x: Tensor, scope: str, order_of_keys: list[int]
) -> tuple[Tensor, ...]:
    """Queries, keys and values of the normalized tokens."""
    normed = layer_norm(writer, x, "/h.0/ln_1", epsilon=EPSILON)
    joined = linear(writer, normed, f"{scope}/c_attn", 3 * WIDTH, 1.5)
    return tuple(
        _head(writer, joined, part, order, scope)
        for part, order in enumerate(([0, 2, 1, 3], order_of_keys, [0, 2, 1, 3]))
    )


def _attended(
    writer: NetworkWriter, x: Tensor, scope: str, scores: Tensor, value: Tensor
) -> Tensor:
    """What the tokens attend to, added to them."""
    context = attended(writer, scores, value, scope, WIDTH)
    return writer.op("Add", [linear(writer, context, f"{scope}/c_proj", WIDTH), x], scope)


def _head(writer: NetworkWriter, joined: Tensor, part: int, order: list[int], scope: str) -> Tensor:
    """Query, key or value (``part`` 0, 1, 2) of the joined product, cut into heads and transposed
    by ``order``.
    """
    constants = {
        "starts": np.array([part * WIDTH], np.int64),
        "ends": np.array([(part + 1) * WIDTH], np.int64),
        "axes": np.array([2], np.int64),
        "heads": np.array([0, 0, HEADS, _HEAD], np.int64),
    }
    starts, ends, axes, heads = (
        writer.constant(f"{scope}/Constant_{part}_{name}", value)
        for name, value in constants.items()
    )
    y = writer.op("Slice", [joined, starts, ends, axes], scope)
    return writer.op("Transpose", [writer.op("Reshape", [y, heads], scope)], scope, perm=order)


def _feed_forward(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """Linear, GELU, linear of the normalized tokens, added to them."""
    normed = layer_norm(writer, x, "/h.0/ln_2", epsilon=EPSILON)
    y = _gelu(writer, linear(writer, normed, f"{scope}/c_fc", 4 * WIDTH), f"{scope}/act")
    return writer.op("Add", [linear(writer, y, f"{scope}/c_proj", WIDTH), x], scope)


def _gelu(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))): Hendrycks & Gimpel 2016
    (arXiv:1606.08415), in the exporter's order.
    """
    half, cube, factor, root, one = (
        writer.constant(f"{scope}/Constant_{i}", np.array(v, np.float32))
        for i, v in enumerate((0.5, 3.0, 0.044715, (2.0 / np.pi) ** 0.5, 1.0))
    )
    y = writer.op("Mul", [writer.op("Pow", [x, cube], scope), factor], scope)
    y = writer.op("Mul", [writer.op("Add", [x, y], scope), root], scope)
    y = writer.op("Add", [writer.op("Tanh", [y], scope), one], scope)
    return writer.op("Mul", [writer.op("Mul", [x, half], scope), y], scope)
