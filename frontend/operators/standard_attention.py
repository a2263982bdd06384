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
    Scores,
    Stages,
    attend,
    distances,
    down_to,
    hidden,
    join_heads,
    known_size,
    positions,
    repeated_heads,
    size,
    split_heads,
    unsqueezed,
    up_to,
)

_NOTHING: Final = -np.inf
_HALVES: Final = (DType.F16, DType.BF16)


def _attention(at: Derived) -> None:
    """Attention(Q, K, V, attn_mask?, past_key?, past_value?, nonpad_kv_seqlen?){is_causal, q_num_heads, kv_num_heads, scale, softcap,
    softmax_precision, qk_matmul_output_mode, left_window_size, right_window_size}: heads of keys and values are shared by groups of
    query heads; a query that sees no key gives zeros.
    """
    flat = at.ctx.rank(at.node, at.input(0)) == 3
    query, key, value = _heads(at, flat)
    past = at.input(4)
    if bool(past) != bool(at.input(5)) or (past and at.input(6)):
        raise at.node.invalid(
            "Attention needs past_key and past_value together, and without nonpad_kv_seqlen"
        )
    key, value = (
        _present(at, front, state, index)
        for front, state, index in ((past, key, 1), (at.input(5), value, 2))
    )
    times = _group_size(at, query, key)
    query, key, value = (_wide(at, each) for each in (query, key, value))
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


def _heads(at: Derived, flat: bool) -> tuple[str, str, str]:
    """Query, key and value as [B, N, ., H]."""
    names = at.input(0), at.input(1), at.input(2)
    if not flat:
        return names
    counts = [at.node.attrs[name] for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    if not all(counts):
        raise at.node.invalid("Attention of three dimensions needs q_num_heads and kv_num_heads")
    query, key, value = (
        split_heads(at, each, count, role)
        for each, count, role in zip(names, counts, ("query", "key", "value"), strict=True)
    )
    return query, key, value


def _present(at: Derived, front: str, state: str, output: int) -> str:
    """Keys or values with those of the past, also as an output."""
    name = at.node.output(output)
    if front:
        return at.real("Concat", [front, state], {"axis": 2}, role=f"state {output}", output=name)
    if name:
        at.real("Identity", [state], role=f"state {output}", output=name)
    return state


def _wide(at: Derived, value: str) -> str:
    """Half floats as f32, in which attention is computed."""
    kind = at.ctx.type(value).dtype
    return at.ctx.cast(at.node, value, DType.F32, "wide") if kind in _HALVES else value


def _group_size(at: Derived, query: str, key: str) -> int:
    """How many heads of the query share one of the keys."""
    many, few = (known_size(at, value, 1, "number of heads") for value in (query, key))
    if few < 1 or many % few:
        raise at.node.invalid(f"{many} heads of the query cannot share {few} of the keys")
    return many // few


def _scores(at: Derived, bias: str) -> Scores:
    attrs = at.node.attrs
    wide = attrs["softmax_precision"]
    precision = dtype_of(wide, at.node.where) if wide else None
    added = (bias,) if bias else ()
    return Scores(float(attrs["scale"] or 0), float(attrs["softcap"] or 0), added, precision)


def _results(at: Derived, stages: Stages, bias: str, flat: bool) -> None:
    """The outputs. `bias`: what may hide all keys of a query, which gives zeros then; '' where nothing does."""
    mode, result, scores = at.node.attrs["qk_matmul_output_mode"], stages.result, at.node.output(3)
    stage = (stages.scaled, stages.capped, stages.masked, stages.probabilities)
    if mode not in range(len(stage)):
        raise at.node.invalid(f"the attribute qk_matmul_output_mode of Attention is {mode}")
    shown = stage[mode]
    if bias:
        empty = at.once(["sees nothing", bias], lambda: _sees_nothing(at, bias))
        result = _zeros_where(at, empty, result)
        if scores and mode == 3:
            shown = _zeros_where(at, empty, shown)
    if scores:
        _given(at, shown, scores)
    _given(at, join_heads(at, result) if flat else result, at.node.output(0))


def _sees_nothing(at: Derived, bias: str) -> str:
    """Truth of a query seeing no key [.., S, 1]. Keys are counted: the largest number of those added would not
    tell, since oneDNN's maximum of infinities is the lowest f32.
    """
    nothing = at.ctx.add_constant(at.node, "nothing", _NOTHING, at.ctx.type(bias).dtype)
    shown = at.real("Not", [at.real("Equal", [bias, nothing], role="unshown")], role="shown")
    numbers = at.ctx.cast(at.node, shown, DType.F32, "shown numbers")
    count = at.real("ReduceSum", [numbers, at.integers("last axis", [-1])], role="keys seen")
    return at.real("Equal", [count, at.constant("no keys", 0)], role="sees nothing")


def _given(at: Derived, value: str, output: str) -> None:
    """The value as an output, of the type of the query."""
    kind = at.ctx.type(at.input(0)).dtype
    if at.ctx.type(value).dtype is kind:
        at.real("Identity", [value], role="given", output=output)
    else:
        at.ctx.cast(at.node, value, kind, "given", output=output)


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
        mask = _as_long(at, _wide(at, mask), key)
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
    _attention,
    _ATTRS,
)

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = handlers(DEFAULT_DOMAIN, {"Attention": _FORM})
