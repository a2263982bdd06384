"""Parts of transformers, as torch exporters write them: self-attention from one joined product, the
two linear layers behind it, and what the language models share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fqfuse.measure.arrays import Array

from .layers import linear
from .writer import NetworkWriter, Tensor


def attention_of_joined(
    writer: NetworkWriter,
    x: Tensor,
    scope: str,
    heads: int,
    bias: Array | None = None,
    mask: Array | None = None,
) -> Tensor:
    """Multi-head self-attention of the tokens ``[n, t, c]`` among each other, with its last
    product.

    ``bias`` ``[1, heads, t, t]`` is added to the scores of every row of n; ``mask`` ``[w, 1, t, t]``
    to each w rows in turn.
    """
    tokens, width = (int(extent) for extent in x.value.shape[1:])
    # 1.5 gives scores a standard deviation near 2: attention neither uniform nor one-hot
    joined = linear(writer, x, f"{scope}/qkv", 3 * width, 1.5)
    joined = _reshaped(writer, joined, scope, "qkv", [-1, tokens, 3, heads, width // heads])
    joined = writer.op("Transpose", [joined], scope, perm=[2, 0, 3, 1, 4])
    query, key, value = (_part(writer, joined, scope, index) for index in range(3))
    root = writer.constant(f"{scope}/Constant_root", np.array((width // heads) ** -0.5, np.float32))
    query = writer.op("Mul", [query, root], scope)
    key = writer.op("Transpose", [key], scope, perm=[0, 1, 3, 2])
    scores = writer.op("MatMul", [query, key], scope)
    if bias is not None:
        scores = writer.op("Add", [scores, writer.constant(f"{scope}/Constant_bias", bias)], scope)
    if mask is not None:
        scores = _masked(writer, scores, scope, mask)
    weights = writer.op("Softmax", [scores], scope, axis=-1)
    context = writer.op("MatMul", [weights, value], scope)
    context = writer.op("Transpose", [context], scope, perm=[0, 2, 1, 3])
    context = _reshaped(writer, context, scope, "merge", [-1, tokens, width])
    return linear(writer, context, f"{scope}/proj", width)


def feed_forward(writer: NetworkWriter, x: Tensor, scope: str, width: int) -> Tensor:
    """Linear layer to ``width``, GELU, and a linear layer back."""
    y = gelu(writer, linear(writer, x, f"{scope}/fc1", width), f"{scope}/act")
    return linear(writer, y, f"{scope}/fc2", int(x.value.shape[-1]))


def gelu(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """x * (1 + erf(x / sqrt 2)) * 0.5: Hendrycks & Gimpel 2016 (arXiv:1606.08415), in the
    exporter's order.
    """
    root, one, half = (
        writer.constant(f"{scope}/Constant_{i}", np.array(v, np.float32))
        for i, v in enumerate((2.0**0.5, 1.0, 0.5))
    )
    y = writer.op("Erf", [writer.op("Div", [x, root], scope)], scope)
    y = writer.op("Mul", [x, writer.op("Add", [y, one], scope)], scope)
    return writer.op("Mul", [y, half], scope)


def split_heads(writer: NetworkWriter, x: Tensor, scope: str, heads: int) -> Tensor:
    """``[n, t, heads * c]`` as ``[n, heads, t, c]``."""
    width = int(x.value.shape[-1])
    y = _reshaped(writer, x, scope, "heads", [0, 0, heads, width // heads])
    return writer.op("Transpose", [y], scope, perm=[0, 2, 1, 3])


def joined_with(
    writer: NetworkWriter, past: Sequence[Tensor], new: Sequence[Tensor], scope: str
) -> list[Tensor]:
    """Keys and values behind those of the ``past``, where there is any."""
    if not past:
        return list(new)
    return [
        writer.op("Concat", [before, after], scope, axis=2)
        for before, after in zip(past, new, strict=True)
    ]


def causal_mask(tokens: int) -> Array:
    """``[1, 1, t, t]`` to add to scores: -10000 as GPT-2 writes it, of which exp is 0."""
    return np.triu(np.full((tokens, tokens), -10000.0, np.float32), 1)[None, None]


def scores_of(writer: NetworkWriter, query: Tensor, key: Tensor, scope: str, width: int) -> Tensor:
    """Queries ``[n, heads, t, width]`` times keys ``[n, heads, width, s]``, over the root of the
    width.
    """
    scores = writer.op("MatMul", [query, key], scope)
    root = writer.constant(f"{scope}/Constant_root", np.array(width**0.5, np.float32))
    return writer.op("Div", [scores, root], scope)


def attended(
    writer: NetworkWriter, scores: Tensor, value: Tensor, scope: str, width: int
) -> Tensor:
    """The values by the scores' softmax, heads side by side: ``[n, t, width]``."""
    weights = writer.op("Softmax", [scores], scope, axis=-1)
    context = writer.op("MatMul", [weights, value], scope)
    context = writer.op("Transpose", [context], scope, perm=[0, 2, 1, 3])
    return _reshaped(writer, context, scope, "merge", [0, 0, width])


def _masked(writer: NetworkWriter, scores: Tensor, scope: str, mask: Array) -> Tensor:
    rows, heads, tokens = len(mask), int(scores.value.shape[1]), int(scores.value.shape[-1])
    y = _reshaped(writer, scores, scope, "masked", [-1, rows, heads, tokens, tokens])
    y = writer.op("Add", [y, writer.constant(f"{scope}/Constant_mask", mask[None])], scope)
    return _reshaped(writer, y, scope, "scores", [-1, heads, tokens, tokens])


def _part(writer: NetworkWriter, joined: Tensor, scope: str, index: int) -> Tensor:
    """Query, key or value of ``[3, n, heads, t, c / heads]``."""
    at = writer.constant(f"{scope}/Constant_part_{index}", np.array(index, np.int64))
    return writer.op("Gather", [joined, at], scope, axis=0)


def _reshaped(writer: NetworkWriter, x: Tensor, scope: str, name: str, shape: list[int]) -> Tensor:
    target = writer.constant(f"{scope}/Constant_{name}", np.array(shape, np.int64))
    return writer.op("Reshape", [x, target], scope)
