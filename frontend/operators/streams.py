"""Residual streams of recent language models, of com.microsoft: several of them beside each other, mixed before and behind a
block, and gates of looked-up n-grams. Letters in shapes: C streams of H channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ..importer import Handler
from .derived import Derived
from .forms import Form, handlers
from .fused import MICROSOFT
from .heads import constant_like, in_f32, known_size, unsqueezed

_LEAST: Final = 1e-6  # of what the gate's root is taken of


def _grouped(at: Derived, value: str, role: str) -> str:
    """[..., C, H] of a value that may have both in one dimension."""
    count = at.node.attrs["num_branches"]
    if not count:
        return value
    width = known_size(at, value, -1, "size of the streams")
    if count < 0 or width % count:
        raise at.node.invalid(f"{at.node.op} of {width} channels in {count} streams")
    others = [0] * (at.ctx.rank(at.node, value) - 1)
    shape = at.integers(f"{role} shape", [*others, count, width // count])
    return at.real("Reshape", [value, shape], role=f"{role} grouped")


def _factors(at: Derived, value: str, streams: str, role: str) -> str:
    """[..., C, 1] or [..., C, H] of factors [..., C], of either of these, or [..., C * H]."""
    rank = at.ctx.rank(at.node, streams)
    if at.ctx.rank(at.node, value) == rank:
        return value
    if at.ctx.rank(at.node, value) != rank - 1:
        raise at.node.invalid(f"{value!r} of {at.node.op} does not fit its streams")
    count = known_size(at, streams, -2, "number of streams")
    if known_size(at, value, -1, "number of factors") != count:
        return _grouped(at, value, role)
    return unsqueezed(at, value, [-1], role)


def _reduced(at: Derived) -> None:
    """HyperConnectionPreMix(streams, pre_mix){num_branches, reduction_scale}: the sum of all streams [..., C, H], or [..., C * H] of
    num_branches, each times its factor, times reduction_scale.
    """
    streams = _grouped(at, at.input(0), "streams")
    mixed = at.real("Mul", [streams, _factors(at, at.input(1), streams, "factors")], role="mixed")
    scale, output = float(at.node.attrs["reduction_scale"]), at.node.output(0)
    axes = at.integers("streams", [-2])
    last = scale == 1
    result = at.real("ReduceSum", [mixed, axes], {"keepdims": 0}, role="sum", output=last * output)
    if not last:
        at.real("Mul", [result, constant_like(at, "scale", scale, result)], output=output)


def _spread(at: Derived) -> None:
    """HyperConnectionPostMix(streams, block_output, post_mix, stream_mix?){num_branches}: stream_mix^T @ streams, the streams where
    there is none, plus block_output [..., H] times a factor for each stream.
    """
    streams = _grouped(at, at.input(0), "streams")
    added = unsqueezed(at, at.input(1), [-2], "block")
    added = at.real("Mul", [added, _factors(at, at.input(2), streams, "factors")], role="spread")
    mixed = streams
    if at.input(3):
        rank = at.ctx.rank(at.node, at.input(3))
        perm = (*range(rank - 2), rank - 1, rank - 2)
        turned = at.real("Transpose", [at.input(3)], {"perm": perm}, role="mix turned")
        mixed = at.real("MatMul", [turned, streams], role="mixed")
    flat = bool(at.node.attrs["num_branches"])
    output = "" if flat else at.node.output(0)
    result = at.real("Add", [mixed, added], role="result" if flat else "", output=output)
    if flat:
        shape = at.real("Shape", [at.input(0)], role="shape")
        at.real("Reshape", [result, shape], output=at.node.output(0))


def _looked_up_gate(at: Derived) -> None:
    """EngramGate(key, query, value, key_norm_scale, query_norm_scale, conv_norm_scale?){epsilon}: value [B, S, H] of each stream times
    sigmoid(sign(d) sqrt(|d|)), d the product of the normalized key and query [B, S, C, H] over sqrt(H), |d| at least 1e-6; normalized
    it is the second output.
    """
    key, query = (_normalized(at, at.input(i), at.input(i + 3), f"part {i}") for i in (0, 1))
    product = at.real("Mul", [key, query], role="products")
    axes = at.integers("channels", [-1])
    total = at.real("ReduceSum", [product, axes], {"keepdims": 1}, role="sum")
    factor = 1 / math.sqrt(known_size(at, at.input(0), -1, "number of channels"))
    total = at.real("Mul", [total, constant_like(at, "scale", factor, total)], role="dot")
    size = at.real("Abs", [total], role="size")
    size = at.real("Max", [size, constant_like(at, "least", _LEAST, size)], role="at least")
    root = at.real("Sqrt", [size], role="root")
    signed = at.real("Mul", [at.real("Sign", [total], role="sign"), root], role="signed")
    gate = at.real("Sigmoid", [signed], role="gate")
    value = unsqueezed(at, at.input(2), [2], "value")
    at.real("Mul", [gate, value], output=at.node.output(0))
    if at.node.output(1):
        if not at.input(5):
            raise at.node.invalid(f"{at.node.op} has a normalized output, and no conv_norm_scale")
        made = at.node.output(0)
        _normalized(at, made, at.input(5), "normalized", at.node.output(1))


def _normalized(at: Derived, value: str, scale: str, role: str, output: str = "") -> str:
    """By root mean square along the last axis, times a scale [C, H]."""
    width = known_size(at, value, -1, "number of channels")
    ones = constant_like(at, f"{role} ones", [1.0] * width, value)
    attrs = {"axis": -1, "epsilon": at.node.attrs["epsilon"]}
    plain = at.real("RMSNormalization", [value, ones], attrs, role=f"{role} plain")
    return at.real("Mul", [plain, scale], role=f"{role} scaled", output=output)


HANDLERS: Final[Mapping[tuple[str, str], Handler]] = handlers(
    MICROSOFT,
    {
        "HyperConnectionPreMix": Form(
            "streams pre_mix",
            "output",
            in_f32(_reduced),
            {"num_branches": 0, "reduction_scale": 1.0},
        ),
        "HyperConnectionPostMix": Form(
            "streams block_output post_mix stream_mix?",
            "output",
            in_f32(_spread),
            {"num_branches": 0},
        ),
        "EngramGate": Form(
            "key query value key_norm_scale query_norm_scale conv_norm_scale?",
            "output gated_value_normed?",
            in_f32(_looked_up_gate),
            {"epsilon": 1e-5},
        ),
    },
)
