"""Two blocks of a Llama: Touvron et al. 2023 (arXiv:2302.13971), with grouped keys and values as in
Ainslie et al. 2023 (arXiv:2305.13245); 768 wide, 12 heads on 4 of keys and values, from embedded
tokens to the logits of a small vocabulary: of all of 64 tokens, or for one token behind the keys
and values of those before it.

Written as torch exporters do: normalization by root mean squares, rotary embedding and the gated
feed forward in their parts, keys and values expanded for their heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from fqfuse.measure.arrays import Array

from .attention import attended, causal_mask, joined_with, scores_of, split_heads
from .layers import linear, rms_norm
from .writer import NetworkWriter, Tensor

WIDTH, HEADS, KEY_HEADS, HIDDEN, LAYERS, SEQUENCE, CLASSES = 768, 12, 4, 2048, 2, 64, 64
EPSILON = 1e-6
_HEAD = WIDTH // HEADS
_BASE = 10000.0  # of the rotary frequencies


def sample_prompts(rng: np.random.Generator, count: int) -> Mapping[str, Array]:
    """Return ``count`` random embedded sequences, f32 ``[count, 64, 768]``."""
    return {"inputs_embeds": rng.standard_normal((count, SEQUENCE, WIDTH), np.float32)}


def build_llama_blocks(seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return the blocks: ``inputs_embeds`` [1, 64, 768] to ``logits`` [1, 64, 64] of each token."""
    writer = NetworkWriter("llama", seed)
    given = sample_prompts(np.random.default_rng([seed, 1]), samples)
    x = writer.input("inputs_embeds", given["inputs_embeds"])
    places = _rotation(writer, range(SEQUENCE))
    mask = writer.constant("/model/Constant_mask", causal_mask(SEQUENCE))
    for layer in range(LAYERS):
        x, _ = _block(writer, x, f"/model/layers.{layer}", places, mask, ())
    return writer.model({"logits": _logits(writer, x)})


def sample_next(tokens: int, rng: np.random.Generator, count: int) -> Mapping[str, Array]:
    """Return ``count`` random embedded tokens, f32 ``[count, 1, 768]``, and for each layer the keys
    and values of the ``tokens - 1`` before each, f32 ``[count, 4, tokens - 1, 64]``.
    """
    past = (count, KEY_HEADS, tokens - 1, _HEAD)
    spread = {"key": 1.5, "value": 1.0}
    return {
        "inputs_embeds": rng.standard_normal((count, 1, WIDTH), np.float32),
        **{
            f"past.{layer}.{half}": (std * rng.standard_normal(past)).astype(np.float32)
            for layer in range(LAYERS)
            for half, std in spread.items()
        },
    }


def build_llama_token(tokens: int, seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return the blocks for the last of so many tokens: ``inputs_embeds`` [1, 1, 768] and ``past.*``
    to ``logits`` [1, 64, 1] and ``present.*`` [1, 4, tokens, 64].
    """
    writer = NetworkWriter(f"llama_token{tokens}", seed)
    given = sample_next(tokens, np.random.default_rng([seed, 1]), samples)
    x, *past = (writer.input(name, array) for name, array in given.items())
    places = _rotation(writer, [tokens - 1])
    present: list[Tensor] = []
    for layer in range(LAYERS):
        held = past[2 * layer : 2 * layer + 2]
        x, both = _block(writer, x, f"/model/layers.{layer}", places, None, held)
        present += both
    names = [name.replace("past", "present") for name in list(given)[1:]]
    outputs = {"logits": _logits(writer, x), **dict(zip(names, present, strict=True))}
    return writer.model(outputs)


def _logits(writer: NetworkWriter, x: Tensor) -> Tensor:
    """Logits ``[n, 64, t]``: classes on axis 1, as a loss reads them."""
    # normalized activations: the gain is the logits' standard deviation
    x = rms_norm(writer, x, "/model/norm", EPSILON)
    logits = linear(writer, x, "/lm_head", CLASSES, 2.0, bias=False)
    return writer.op("Transpose", [logits], "/lm_head", perm=[0, 2, 1])


def _rotation(writer: NetworkWriter, places: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position's angles, ``[positions, 64]``: Su et al. 2021
    (arXiv:2104.09864).
    """
    frequencies = _BASE ** -(np.arange(0, _HEAD, 2) / _HEAD)
    angles = np.tile(np.asarray(places)[:, None] * frequencies, 2)
    cos, sin = (
        writer.constant(f"/model/rotary_emb/Constant_{name}", value.astype(np.float32))
        for name, value in (("cos", np.cos(angles)), ("sin", np.sin(angles)))
    )
    return cos, sin


def _block(
    writer: NetworkWriter,
    x: Tensor,
    scope: str,
    places: tuple[Tensor, Tensor],
    mask: Tensor | None,
    past: Sequence[Tensor],
) -> tuple[Tensor, list[Tensor]]:
    """A block's result, and all keys and values of it, those of the ``past`` in front."""
    normed = rms_norm(writer, x, f"{scope}/input_layernorm", EPSILON)
    at = f"{scope}/self_attn"
    # 1.5 gives scores a standard deviation near 2: attention neither uniform nor one-hot
    query, key, value = (
        split_heads(
            writer,
            linear(writer, normed, f"{at}/{name}", heads * _HEAD, gain, bias=False),
            at,
            heads,
        )
        for name, heads, gain in (
            ("q_proj", HEADS, 1.5),
            ("k_proj", KEY_HEADS, 1.5),
            ("v_proj", KEY_HEADS, 1.0),
        )
    )
    query, key = (_rotated(writer, part, at, places) for part in (query, key))
    held = joined_with(writer, past, (key, value), at)
    key, value = (_repeated(writer, part, at) for part in held)
    turned = writer.op("Transpose", [key], at, perm=[0, 1, 3, 2])
    scores = scores_of(writer, query, turned, at, _HEAD)
    if mask is not None:
        scores = writer.op("Add", [scores, mask], at)
    context = attended(writer, scores, value, at, WIDTH)
    x = writer.op("Add", [x, linear(writer, context, f"{at}/o_proj", WIDTH, bias=False)], scope)
    normed = rms_norm(writer, x, f"{scope}/post_attention_layernorm", EPSILON)
    return writer.op("Add", [x, _gated(writer, normed, f"{scope}/mlp")], scope), held


def _rotated(writer: NetworkWriter, x: Tensor, scope: str, places: tuple[Tensor, Tensor]) -> Tensor:
    """x * cos + (-second half, first half) * sin."""
    halves = {
        "start": 0,
        "half": _HEAD // 2,
        "end": np.iinfo(np.int64).max,
        "axis": 3,
    }
    start, half, end, axis = (
        writer.constant(f"{scope}/Constant_{name}", np.array([number], np.int64))
        for name, number in halves.items()
    )
    first = writer.op("Slice", [x, start, half, axis], scope)
    second = writer.op("Slice", [x, half, end, axis], scope)
    turned = writer.op("Concat", [writer.op("Neg", [second], scope), first], scope, axis=-1)
    cos, sin = places
    parts = [writer.op("Mul", [x, cos], scope), writer.op("Mul", [turned, sin], scope)]
    return writer.op("Add", parts, scope)


def _repeated(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """Keys or values ``[n, 4, t, 64]``, each head for three of the queries' heads."""
    constants = {
        "group": np.array([2], np.int64),
        "repeats": np.array([1, 1, HEADS // KEY_HEADS, 1, 1], np.int64),
        "heads": np.array([0, HEADS, -1, _HEAD], np.int64),
    }
    group, repeats, heads = (
        writer.constant(f"{scope}/Constant_{name}", value) for name, value in constants.items()
    )
    x = writer.op("Expand", [writer.op("Unsqueeze", [x, group], scope), repeats], scope)
    return writer.op("Reshape", [x, heads], scope)


def _gated(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """SiLU of one linear layer times another, and a linear layer back: Shazeer 2020
    (arXiv:2002.05202).
    """
    gate = linear(writer, x, f"{scope}/gate_proj", HIDDEN, bias=False)
    gate = writer.op(
        "Mul", [gate, writer.op("Sigmoid", [gate], f"{scope}/act_fn")], f"{scope}/act_fn"
    )
    up = linear(writer, x, f"{scope}/up_proj", HIDDEN, bias=False)
    y = writer.op("Mul", [gate, up], scope)
    return linear(writer, y, f"{scope}/down_proj", WIDTH, bias=False)
