"""Random nodes of linear attention and of what stands in front of it, as ONNX Runtime's model builder writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator
from support.contrib_cases import Case, Draw, chosen, floats, given, maybe, number, sizes, some


def _causal(rng: Generator) -> Case:
    b, c, length, kernel, other = sizes(rng, 5)
    dilation = chosen(rng, 1, 1, 2)
    attrs = given(rng, {"activation": chosen(rng, "none", "silu", "swish"), "ndim": 1})
    if dilation > 1:
        attrs["dilation"] = dilation
    past, shape = (kernel - 1) * dilation, (b, c, length)
    state: tuple[int, ...] = (b, c, past)
    if rng.random() < 0.4:
        attrs["channels_last"] = 1
        rest = chosen(rng, (c,), (c, other))
        shape, state = (b, length, *rest), (b, past, *rest)
        c = int(np.prod(rest))
    inputs = {
        "x": floats(rng, *shape),
        "w": floats(rng, c, 1, kernel),
        "bias": maybe(rng, floats(rng, c)),
        "past": maybe(rng, floats(rng, *state)),
    }
    return Case("CausalConvWithState", inputs, attrs, some(rng, "w", "bias"), ("y", "present"))


def _attention(rng: Generator) -> Case:
    b, t, few, k, v = sizes(rng, 5)
    many = few * int(rng.integers(1, 4))
    queries, heads = chosen(rng, (many, few), (few, few), (few, many))
    rule = chosen(rng, "linear", "gated", "delta", "gated_delta")
    attrs: dict[str, Any] = {"q_num_heads": queries, "kv_num_heads": heads, "update_rule": rule}
    attrs |= given(rng, {"scale": number(rng, 0.2, 1), "chunk_size": 16})
    key = floats(rng, b, t, heads, k)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    decay = -np.abs(floats(rng, b, t, heads * chosen(rng, 1, k)))
    rate = 1 / (1 + np.exp(floats(rng, b, t, chosen(rng, 1, heads))))
    inputs = {
        "query": floats(rng, b, t, queries * k),
        "key": key.reshape(b, t, heads * k),
        "value": floats(rng, b, t, heads * v),
        "past": maybe(rng, floats(rng, b, heads, k, v)),
        "decay": decay if rule in ("gated", "gated_delta") else None,
        "beta": rate if rule in ("delta", "gated_delta") else None,
    }
    return Case("LinearAttention", inputs, attrs, frozenset(), ("y", "state"), scale=10)


def _gate(rng: Generator) -> Case:
    b, t, h = sizes(rng, 3)
    rate = maybe(rng, floats(rng, b, t, h))
    inputs = {
        "a": floats(rng, b, t, h),
        "bias": floats(rng, h),
        "factor": -np.exp(floats(rng, h)),
        "b": rate,
    }
    outputs = ("y",) if rate is None else ("y", "beta")
    return Case("LinearAttentionGate", inputs, {}, some(rng, "bias", "factor"), outputs)


STATES: Mapping[str, Draw] = {
    "CausalConvWithState": _causal,
    "LinearAttention": _attention,
    "LinearAttentionGate": _gate,
}
"""Op -> draws a case of it that ONNX Runtime runs on a CPU."""

OF_ONNX = ("ai.onnx.CausalConvWithState", "ai.onnx.LinearAttention")
"""Rows that the tested ONNX Runtime does not know yet, held by the cases of ONNX's own suite."""
