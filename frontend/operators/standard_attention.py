"""ONNX's own Attention, of opset 23 and newer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ...errors import UnsupportedOp
from ...ir.types import DType
from ..element_types import dtype_of
from ..importer import Handler
from ..nodes import DEFAULT_DOMAIN
from .derived import Derived
from .forms import Form, handlers
from .heads import (
    Parts,
    Scores,
    Stages,
    attend,
    distances,
    down_to,
    hidden,
    in_f32,
    join_heads,
    known_size,
    past_of,
    positions,
    present,
    repeated_heads,
    shared_by,
    shown,
    size,
    split_parts,
    unsqueezed,
    up_to,
)

_NOTHING: Final = -np.inf


def _attention(at: Derived) -> None:
    """Attention(Q, K, V, attn_mask?, past_key?, past_value?, nonpad_kv_seqlen?){is_causal, q_num_heads, kv_num_heads, scale, softcap,
    softmax_precision, qk_matmul_output_mode, left_window_size, right_window_size}: heads of keys and values are shared by groups of
    query heads; a query that sees no key gives zeros.
    """
    flat = at.ctx.rank(at.node, at.input(0)) == 3
    query, key, value = _heads(at, flat)
    past, past_value = past_of(at, 4)
    if past and at.input(6):
        raise at.node.invalid("Attention needs past keys or nonpad_kv_seqlen, and has both")
    key = present(at, past, key, 1)
    value = present(at, past_value, value, 2)
    heads = (known_size(at, each, 1, "number of heads") for each in (query, key))
    times = shared_by(at, *heads)
    kinds = {at.ctx.type(each).dtype for each in (query, key, value)}
    if not kinds <= {DType.F32, DType.F64} or len(kinds) > 1:
        found = ", ".join(str(at.ctx.type(at.input(index))) for index in range(3))
        raise at.node.invalid(f"Attention needs floats of one type, and has {found}")
    bias, may_be_empty = _shared_bias(at, query, key, past)
    stages = attend(
        at,
        query,
        repeated_heads(at, key, times, "key"),
        repeated_heads(at, value, times, "value"),
        _scores(at, bias),
    )
    _results(at, stages, bias if may_be_empty else "", flat)


def _heads(at: Derived, flat: bool) -> Parts:
    """Query, key and value as [B, N, ., H]."""
    names = at.input(0), at.input(1), at.input(2)
    if not flat:
        return names
    counts = [at.node.attrs[name] for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    if not all(counts):
        raise at.node.invalid("Attention of three dimensions needs q_num_heads and kv_num_heads")
    return split_parts(at, names, counts)


def _scores(at: Derived, bias: str) -> Scores:
    attrs = at.node.attrs
    wide = attrs["softmax_precision"]
    precision = dtype_of(wide, at.node.where) if wide else None
    added = (bias,) if bias else ()
    return Scores(float(attrs["scale"] or 0), float(attrs["softcap"] or 0), added, precision)


def _results(at: Derived, stages: Stages, bias: str, flat: bool) -> None:
    """The outputs. `bias`: what may hide all keys of a query, which gives zeros then; '' where nothing does."""
    mode, result = at.node.attrs["qk_matmul_output_mode"], stages.result
    stage = (stages.scaled, stages.capped, stages.masked, stages.probabilities)
    if mode not in range(len(stage)):
        raise at.node.invalid(f"the attribute qk_matmul_output_mode of Attention is {mode}")
    scores = stage[mode]
    if bias:
        empty = at.once(["sees nothing", bias], lambda: _sees_nothing(at, bias))
        result = _zeros_where(at, empty, result)
        if at.node.output(3) and mode == 3:
            scores = _zeros_where(at, empty, scores)
    shown(at, scores, 3)
    if flat:
        join_heads(at, result, at.node.output(0))
    else:
        shown(at, result, 0)


def _sees_nothing(at: Derived, bias: str) -> str:
    """Truth of a query seeing no key [.., S, 1]. Keys are counted: the largest number of those added would not
    tell, since oneDNN's maximum of infinities is the lowest f32.
    """
    nothing = at.ctx.add_constant(at.node, "nothing", _NOTHING, at.ctx.type(bias).dtype)
    some = at.real("Not", [at.real("Equal", [bias, nothing], role="unseen key")], role="seen key")
    numbers = at.ctx.cast(at.node, some, DType.F32, "seen keys")
    count = at.real("ReduceSum", [numbers, at.integers("last axis", [-1])], role="keys seen")
    return at.real("Equal", [count, at.constant("no keys", 0)], role="sees nothing")


def _zeros_where(at: Derived, empty: str, value: str) -> str:
    zero = at.ctx.add_constant(at.node, "zero", 0, at.ctx.type(value).dtype)
    return at.real("Where", [empty, zero, value], role="or zeros")


# -- what hides keys -------------------------------------------------------------------------------


def _shared_bias(at: Derived, query: str, key: str, past: str) -> tuple[str, bool]:
    """What is added to the scores, '' for nothing, and whether it may hide all keys of a query."""
    attrs = at.node.attrs
    windows = attrs["left_window_size"], attrs["right_window_size"]
    lengths = [*at.sizes(query, 2), *at.sizes(key, 2), *at.sizes(past, 2)]
    given = [at.input(3), at.input(6), attrs["is_causal"], *windows]
    kind = at.ctx.type(query).dtype.value
    bias = at.once(["bias", *given, *lengths, kind], lambda: _bias(at, query, key, past))
    may_be = bool(at.input(3) or at.input(6) or max(windows) >= 0)
    return bias, may_be and _may_be_empty(at, bias)


def _bias(at: Derived, query: str, key: str, past: str) -> str:
    """What is added to the scores, '' for nothing."""
    mask = at.input(3)
    kind = at.ctx.type(query).dtype
    seen = _by_place(at, query, key, past)
    added = ""
    if mask:
        mask = _as_long(at, mask, key)
        if at.ctx.type(mask).dtype is DType.BOOL:
            seen.append(mask)
        else:
            added = mask
    if seen:
        whole = seen[0]
        for other in seen[1:]:
            whole = at.real("And", [whole, other], role="all seen")
        bias = hidden(at, whole, _NOTHING, kind, "unseen")
        added = at.real("Add", [added, bias], role="mask") if added else bias
    return added


def _may_be_empty(at: Derived, bias: str) -> bool:
    data = at.ctx.constant(bias)
    if data is None:
        return True
    return bool(np.isneginf(np.asarray(data, np.float64).max(axis=-1, initial=_NOTHING)).any())


def _by_place(at: Derived, query: str, key: str, past: str) -> list[str]:
    """Truths of which keys are seen by their place: behind the query's, too far from it, or filled up."""
    attrs, lengths = at.node.attrs, at.input(6)
    left, right = attrs["left_window_size"], attrs["right_window_size"]
    last = [0] if attrs["is_causal"] else []
    last += [right] if right >= 0 else []
    rows, columns = size(at, query, 2, "queries"), size(at, key, 2, "length")
    seen = []
    wide = unsqueezed(at, lengths, [1, 2, 3], "filled") if lengths else ""
    if last or left >= 0:
        offset = size(at, past, 2, "past length") if past else ""
        if lengths:
            offset = at.real("Sub", [wide, rows], role="in front")
        distance = distances(at, rows, columns, offset)
        seen += [up_to(at, distance, min(last))] if last else []
        seen += [down_to(at, distance, -left)] if left >= 0 else []
    if lengths:
        seen.append(at.real("Less", [positions(at, columns, "places"), wide], role="filled up to"))
    return seen


def _as_long(at: Derived, mask: str, key: str) -> str:
    """The mask filled up to the number of keys, with what hides them."""
    shape, total = at.ctx.type(mask).shape, (at.ctx.type(key).shape or ("?",) * 4)[2]
    if shape is None or not shape or shape[-1] == total:
        return mask
    width = shape[-1]
    if isinstance(width, int) and isinstance(total, int) and width < total:
        pads = at.integers("mask pads", [*[0] * (2 * len(shape) - 1), total - width])
        kind = at.ctx.type(mask).dtype
        value = False if kind is DType.BOOL else _NOTHING
        filler = at.ctx.add_constant(at.node, "filler", value, kind)
        return at.real("Pad", [mask, pads, filler], role="mask filled")
    if at.input(6):
        raise UnsupportedOp(
            f"Attention with nonpad_kv_seqlen and a mask of {width} for {total} keys",
            where=at.node.where,
            hint="declare the sizes of the mask and of the keys",
        )
    return mask


_ATTRS: Final = {
    "is_causal": 0,
    "q_num_heads": 0,
    "kv_num_heads": 0,
    "scale": None,
    "softcap": 0.0,
    "softmax_precision": None,
    "qk_matmul_output_mode": 0,
    "left_window_size": -1,
    "right_window_size": -1,
}

_FORM: Final = Form(
    "Q K V attn_mask? past_key? past_value? nonpad_kv_seqlen?",
    "Y present_key? present_value? qk_matmul_output?",
    in_f32(_attention, like=(0, 1, 2, 0)),
    _ATTRS,
)

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = handlers(DEFAULT_DOMAIN, {"Attention": _FORM})
