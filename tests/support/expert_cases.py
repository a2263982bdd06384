"""Random mixtures of experts, as ONNX Runtime's model builder writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator
from support.contrib_cases import Case, Draw, chosen, floats, given, maybe, number, sizes


def _attrs(rng: Generator, experts: int) -> dict[str, Any]:
    attrs: dict[str, Any] = {"k": int(rng.integers(1, experts + 1))}
    attrs |= given(rng, {"normalize_routing_weights": int(rng.integers(2))})
    attrs["activation_type"] = chosen(rng, "relu", "gelu", "silu", "identity", "swiglu", "swiglu")
    if attrs["activation_type"] == "swiglu":
        attrs |= given(rng, {"activation_alpha": 1.702, "activation_beta": 1.0})
        attrs |= given(rng, {"swiglu_limit": number(rng, 0.5, 2)})
        attrs["swiglu_fusion"] = 1
    return attrs


def _tokens(rng: Generator, width: int) -> tuple[Any, int]:
    shape = sizes(rng, int(rng.integers(1, 3)))
    return floats(rng, *shape, width), int(np.prod(shape))


def _moe(rng: Generator) -> Case:
    experts, h, f = sizes(rng, 3, 8)
    attrs = _attrs(rng, experts)
    wide = 2 * f if "swiglu_fusion" in attrs else f
    x, count = _tokens(rng, h)
    inputs = {
        "x": x,
        "router": floats(rng, count, experts) * 3,
        "w1": floats(rng, experts, wide, h),
        "b1": maybe(rng, floats(rng, experts, wide)),
        "w2": floats(rng, experts, h, f),
        "b2": maybe(rng, floats(rng, experts, h)),
    }
    constant = frozenset({"w1", "b1", "w2", "b2"})
    return Case("MoE", inputs, attrs, constant, scale=10)


def _quantized(rng: Generator) -> Case:
    experts = int(rng.integers(1, 6))
    h, f = (32 * int(size) for size in rng.integers(1, 3, 2))
    attrs = _attrs(rng, experts)
    wide = 2 * f if "swiglu_fusion" in attrs else f
    block = chosen(rng, 0, 16, 32)
    bits = 4 if block else chosen(rng, 4, 8)  # blocks of 8 bits: ONNX Runtime rounds the tokens
    attrs |= {"expert_weight_bits": bits} if bits == 8 or rng.random() < 0.5 else {}
    attrs |= {"block_size": block} if block else {}
    attrs |= given(rng, {"weights_prepacked": 0})
    x, count = _tokens(rng, h)
    inputs: dict[str, Any] = {"x": x, "router": floats(rng, count, experts) * 3}
    zeros = rng.random() < 0.5
    points: dict[str, Any] = {}
    for name, rows, width in (("1", wide, h), ("2", h, f)):
        blocks = [width // block] if block else []
        stored = [rows, -(-blocks[0] * bits // 8)] if block else [-(-rows * bits // 8)]
        scales = np.abs(floats(rng, experts, rows, *blocks)) / (width**0.5 * 2 ** (bits - 2))
        inputs |= {
            f"w{name}": _bytes(rng, experts, rows, width * bits // 8),
            f"s{name}": scales.astype(np.float32),
            f"b{name}": maybe(rng, floats(rng, experts, rows)),
        }
        points[f"z{name}"] = _bytes(rng, experts, *stored) if zeros else None
    inputs |= dict.fromkeys(("w3", "s3", "b3")) | points | {"z3": None}
    inputs["weights"] = maybe(rng, np.abs(floats(rng, count, experts)) + np.float32(0.1))
    constant = frozenset(inputs) - {"x", "router", "weights"}
    return Case("QMoE", inputs, attrs, constant, scale=10)


def _bytes(rng: Generator, *shape: int) -> Any:
    return rng.integers(0, 256, shape).astype(np.uint8)


MIXTURES: Mapping[str, Draw] = {"MoE": _moe, "QMoE": _quantized}
"""Op -> draws a case of it that ONNX Runtime runs on a CPU."""
