"""Attention of com.microsoft: Attention, MultiHeadAttention, and QAttention on codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ...errors import UnsupportedOp
from ...ir.ops import dims
from ...ir.types import DType
from ..importer import Handler
from .derived import Derived
from .forms import Form, handlers
from .fused import MICROSOFT
from .heads import (
    LOWEST,
    Parts,
    Scores,
    attend,
    hidden,
    in_f32,
    join_heads,
    known_size,
    later_hidden,
    past_of,
    positions,
    present,
    shown,
    size,
    split_heads,
    split_parts,
    unsqueezed,
)


def _attention(at: Derived) -> None:
    """Attention(input, weights, bias?, mask_index?, past?, attention_bias?){num_heads, unidirectional, scale, mask_filter_value,
    qkv_hidden_sizes}: query, key and value are input @ weights + bias, and the second output keys and values with those of the past.
    """
    _self_attention(at, at.input(0), at.input(1), at.input(3), at.input(4), at.input(5))


def _attention_on_codes(at: Derived) -> None:
    """QAttention(input, weight, bias, input_scale, weight_scale, mask_index?, input_zero_point?, weight_zero_point?, past?)
    {num_heads, unidirectional, scale, mask_filter_value}: an Attention whose product is one of codes.
    """
    source = at.dequantized(at.input(0), at.input(3), at.input(6), "input")
    scales = at.ctx.constant(at.input(4))
    axis = -1 if scales is None or scales.size != 1 else None
    weights = at.dequantized(at.input(1), at.input(4), at.input(7), "weights", axis=axis)
    _self_attention(at, source, weights, at.input(5), at.input(8), "")


def _self_attention(
    at: Derived, source: str, weights: str, mask: str, past: str, bias: str
) -> None:
    """Attention of a sequence to itself.

    Args:
        at: the node.
        source: [B, S, D].
        weights: [D, width of query, key and value].
        mask: see `_padding`; '' for none.
        past: [2, B, N, P, H], or ''.
        bias: added to the scores, or ''.
    """
    heads = at.node.attrs["num_heads"]
    query, key, value = split_parts(at, _projected(at, source, weights), (heads,) * 3)
    front = ""
    if past:
        front, past_value = (
            at.real("Squeeze", [piece, at.integers("state", [0])], role="past")
            for piece in at.pieces(past, 0, count=2)
        )
        key = at.real("Concat", [front, key], {"axis": 2}, role="keys with past")
        value = at.real("Concat", [past_value, value], {"axis": 2}, role="values with past")
    if at.node.output(1):
        both = [unsqueezed(at, state, [0], "state") for state in (key, value)]
        at.real("Concat", both, {"axis": 0}, role="present", output=at.node.output(1))
    _result(at, (query, key, value), front, mask, bias)


def _projected(at: Derived, source: str, weights: str) -> Parts:
    widths = at.node.attrs.get("qkv_hidden_sizes") or ()
    if len(widths) not in (0, 3):
        raise at.node.invalid(
            f"the attribute qkv_hidden_sizes has {len(widths)} numbers, and needs 3"
        )
    if not widths:
        whole = known_size(at, weights, -1, "width of the weights")
        widths = (whole // 3,) * 3
    value = at.real("MatMul", [source, weights], role="projected")
    if at.input(2):
        value = at.real("Add", [value, at.input(2)], role="biased")
    query, key, result = at.pieces(value, -1, sizes=widths)
    return query, key, result


def _multi_head(at: Derived) -> None:
    """MultiHeadAttention(query, key, value, bias?, key_padding_mask?, attention_bias?, past_key?, past_value?){num_heads, unidirectional,
    scale, mask_filter_value}: query [B, S, D], key and value [B, S, D] or [B, N, S, H]; further outputs are keys and values with those
    of the past, and the scores.
    """
    heads = at.node.attrs["num_heads"]
    query, key, value = _with_biases(at, [at.input(0), at.input(1), at.input(2)])
    _check_direction(at, query, key)
    query = split_heads(at, query, heads, "query")
    key, value = (
        each if at.ctx.rank(at.node, each) == 4 else split_heads(at, each, heads, role)
        for each, role in ((key, "key"), (value, "value"))
    )
    front, past_value = past_of(at, 6)
    key = present(at, front, key, 1)
    value = present(at, past_value, value, 2)
    _result(at, (query, key, value), front, at.input(4), at.input(5), 3)


def _one_token(at: Derived) -> None:
    """DecoderMaskedMultiHeadAttention(query, key?, value?, mask_index?, attention_bias?, past_key?, past_value?, past_sequence_length?,
    beam_width?, bias?){num_heads, scale, mask_filter_value, past_present_share_buffer}: a MultiHeadAttention of one position.
    Where past and present share a buffer, past_sequence_length says where the new position goes.
    """
    attrs = at.node.attrs
    parts = [at.input(index) for index in range(3)]
    inputs = (*parts, *(at.input(index) for index in (10, 3, 4, 5, 6)))
    whole = replace(at, node=at.node.rewritten(inputs=inputs, unidirectional=0))
    if not attrs["past_present_share_buffer"] or not at.input(5):
        _multi_head(whole)
        return
    if not at.input(7):
        raise at.node.invalid(f"{at.node.op} with a buffer needs past_sequence_length")
    length = at.real("Reshape", [at.input(7), at.integers("one", [1])], role="length")
    length = at.ctx.cast(at.node, length, DType.S64, "s64 length")
    query, *states = _with_biases(whole, parts)
    query = split_heads(at, query, attrs["num_heads"], "query")
    key, value = (_in_buffer(at, state, length, output) for output, state in enumerate(states))
    _result(whole, (query, key, value), "", at.input(3), at.input(4))


def _in_buffer(at: Derived, state: str, length: str, output: int) -> str:
    """Keys or values of the past [B, N, T, H] with those of the new position [B, 1, D] behind them; the whole buffer is an output."""
    buffer, role = at.input(5 + output), ("key", "value")[output]
    new = split_heads(at, state, at.node.attrs["num_heads"], role)
    places = unsqueezed(at, positions(at, size(at, buffer, 2, f"{role} size"), role), [1], role)
    here = at.real("Equal", [places, length], role=f"{role} here")
    name = at.node.output(1 + output)
    filled = at.real("Where", [here, new, buffer], role=f"{role} buffer", output=name)
    end = at.real("Add", [length, at.integers(f"{role} one", [1])], role=f"{role} end")
    first, axis = at.integers(f"{role} first", [0]), at.integers(f"{role} axis", [2])
    return at.real("Slice", [filled, first, end, axis], role=f"{role} so far")


def _check_direction(at: Derived, query: str, key: str) -> None:
    """Refuses to hide later positions of another sequence, which ONNX Runtime does for all queries but the
    last one.
    """
    ranks = [at.ctx.rank(at.node, value) for value in (query, key)]
    lengths = [
        (at.ctx.type(v).shape or ())[r - 2] for v, r in zip((query, key), ranks, strict=True)
    ]
    if at.node.attrs["unidirectional"] and len({*lengths, dims.UNKNOWN}) > 2:
        raise UnsupportedOp(
            f"the attribute unidirectional of {at.node.op} is 1 for {lengths[0]} queries and {lengths[1]} keys",
            where=at.node.where,
            hint="give the mask as attention_bias",
        )


def _with_biases(at: Derived, values: list[str]) -> list[str]:
    """Query, key and value, each with its part of the bias; keys and values that are split into heads already take none."""
    for value, name, ranks in zip(
        values, ("query", "key", "value"), ((3,), (3, 4), (3, 4)), strict=True
    ):
        rank = at.ctx.rank(at.node, value) if value else 0
        if rank not in ranks:
            found = f"of {rank} dimensions" if value else "absent"
            raise UnsupportedOp(
                f"{at.node.op} whose {name} is {found}",
                where=at.node.where,
                hint="give query, key and value apart, [batch, positions, channels] each: packed forms are made for GPUs",
            )
    if not at.input(3):
        return values
    flat = [value for value in values if at.ctx.rank(at.node, value) == 3]
    widths = [known_size(at, value, -1, "hidden size") for value in flat]
    parts = at.pieces(at.input(3), 0, sizes=_of_bias(at, widths))
    biased = [
        at.real("Add", [value, part], role="biased")
        for value, part in zip(flat, parts, strict=False)
    ]
    return [*biased, *values[len(flat) :]]


def _of_bias(at: Derived, widths: list[int]) -> list[int]:
    """Sizes of the parts of the bias: what belongs to keys and values in heads is a part of its own."""
    rest = known_size(at, at.input(3), 0, "size of the bias") - sum(widths)
    return widths if len(widths) == 3 else [*widths, rest]


def _result(
    at: Derived, parts: Parts, front: str, mask: str, bias: str, scores_output: int = 0
) -> None:
    """The result of query, key and value [B, N, ., H], as the first output.

    `front`: keys of the past, with which `key` begins; `scores_output`: index of the output that the scores are, 0 for none.
    """
    query, key, value = parts
    attrs = at.node.attrs
    hiding = _padding(at, mask, query, key) if mask else []
    if attrs["unidirectional"]:
        hiding.append(later_hidden(at, query, key, front, LOWEST))
    if len(hiding) == 2:
        hiding = [at.once(["hidden", *hiding], lambda: _both_hidden(at, hiding))]
    added = [*([bias] if bias else []), *hiding]
    stages = attend(at, query, key, value, Scores(attrs["scale"], 0.0, tuple(added)))
    if scores_output:
        shown(at, stages.masked, scores_output)
    join_heads(at, stages.result, at.node.output(0))


def _both_hidden(at: Derived, hiding: list[str]) -> str:
    """What hides padding and later keys in one, which ends at the lowest number: both may be there already."""
    both = at.real("Add", hiding, role="hidden both")
    return at.real("Max", [both, at.constant("lowest", LOWEST)], role="hidden")


def _padding(at: Derived, mask: str, query: str, key: str) -> list[str]:
    """What hides keys by a mask of integers: [B, T] and [B, S, T], positive where a key is seen; [B], how many keys are
    seen; [2 * B], the ends of what is seen, and then its starts;
    [3 * B + 2], of which the first B are how many keys are seen.

    Raises:
        UnsupportedOp: a mask of another form, or of one that its shape does not tell.
    """
    rank, shape = at.ctx.rank(at.node, mask), at.ctx.type(mask).shape or ()
    fill = at.node.attrs["mask_filter_value"]
    if rank not in (1, 2, 3):
        raise _mask_refused(at, f"has {rank} dimensions")
    if rank == 2 and shape[1] == 1:  # says the same of all keys
        return []

    def make() -> str:
        seen = _within(at, mask, query, key) if rank == 1 else _positive(at, mask, rank)
        return hidden(at, seen, fill, DType.F32, "padding")

    lengths = at.sizes(key, 2) if rank == 1 else []
    return [at.once(["padding", mask, fill, *lengths], make)]


def _positive(at: Derived, mask: str, rank: int) -> str:
    """Truth of a mask [B, T] or [B, S, T] being positive, broadcast to [B, N, S, T]."""
    wide = unsqueezed(at, mask, [1, 2] if rank == 2 else [1], "mask")
    none = at.ctx.add_constant(at.node, "mask none", 0, at.ctx.type(mask).dtype)
    return at.real("Greater", [wide, none], role="seen")


def _within(at: Derived, mask: str, query: str, key: str) -> str:
    """Truth of what lies between start and end: [B, 1, 1, T]."""
    batch, entries = ((at.ctx.type(value).shape or ("?",))[0] for value in (query, mask))
    one_each = batch == entries and batch != "?"
    count = batch if isinstance(batch, int) else -1  # which no number of entries fits
    both, more = entries == 2 * count, entries == 3 * count + 2
    if not (one_each or both or more):
        raise _mask_refused(at, f"has {entries} entries for a batch of {batch}")
    places = positions(at, size(at, key, 2, "length"), "places")
    ends, *starts = at.pieces(mask, 0, count=2) if both else (mask,)
    if more:
        lengths = [at.integers(f"lengths {name}", [n]) for name, n in (("from", 0), ("to", count))]
        ends = at.real("Slice", [mask, *lengths], role="lengths")
    seen = at.real("Less", [places, _of_batch(at, ends)], role="in front")
    for start in starts:
        behind = at.real("GreaterOrEqual", [places, _of_batch(at, start)], role="behind")
        seen = at.real("And", [seen, behind], role="within")
    return seen


def _of_batch(at: Derived, numbers: str) -> str:
    wide = unsqueezed(at, numbers, [1, 2, 3], "each")
    return at.ctx.cast(at.node, wide, DType.S64, "whole")


def _mask_refused(at: Derived, what: str) -> UnsupportedOp:
    name = "key_padding_mask" if at.node.op == "MultiHeadAttention" else "mask_index"
    return UnsupportedOp(
        f"{at.node.op} whose {name} {what}",
        where=at.node.where,
        hint="give a mask [batch, positions], or declare the batch size",
    )


_ATTRS: Final = {
    "num_heads": int,
    "unidirectional": 0,
    "scale": 0.0,
    "mask_filter_value": -10000.0,
}
_APART: Final = {"past_present_share_buffer": 0, "do_rotary": 0}

_ROWS: Final[Mapping[str, Form]] = {
    "Attention": Form(
        "input weights bias? mask_index? past? attention_bias? past_sequence_length-",
        "output present?",
        in_f32(_attention),
        {**_ATTRS, "qkv_hidden_sizes": ()},
        {**_APART, "rotary_embedding_dim": 0},
    ),
    "MultiHeadAttention": Form(
        "query key? value? bias? key_padding_mask? attention_bias? past_key? past_value? past_sequence_length- cache_indirection-",
        "output present_key? present_value? qk?",
        in_f32(_multi_head),
        _ATTRS,
    ),
    "DecoderMaskedMultiHeadAttention": Form(
        "query key? value? mask_index? attention_bias? past_key? past_value? past_sequence_length? beam_width? cache_indirection- bias?",
        "output present_key? present_value? qk-",
        in_f32(_one_token),
        {
            "num_heads": int,
            "scale": 0.0,
            "mask_filter_value": -10000.0,
            "past_present_share_buffer": 0,
        },
        {"output_qk": 0},
    ),
    "QAttention": Form(
        "input weight bias input_scale weight_scale mask_index? input_zero_point? weight_zero_point? past?",
        "output present?",
        _attention_on_codes,
        _ATTRS,
        _APART,
    ),
}

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = handlers(MICROSOFT, _ROWS)
