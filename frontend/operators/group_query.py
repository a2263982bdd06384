"""GroupQueryAttention of com.microsoft: decoding with keys and values of the past in a buffer.

The buffer [B, Nk, P, H] holds as many positions of each sequence as `seqlens_k` says, and anything behind
them. Scores do not depend on the order of keys, so that new keys stand behind the whole buffer there, and
what hides the rest of it is added; the outputs have them in their places.

A buffer of a sliding window (sliding_window_cache) holds the newest positions only: of T ones all but the first
G * ceil((T - P) / G), with G = P - local_window_size + 1. A buffer of codes (k_scale, v_scale) is decoded for the
products, and new keys and values with it: what is read of them is what the buffer keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...errors import UnsupportedOp
from ...ir.types import DType
from ..importer import Handler
from .derived import Derived
from .forms import Form, handlers
from .fused import MICROSOFT
from .heads import (
    Parts,
    Scores,
    attend,
    constant_like,
    hidden,
    in_f32,
    join_heads,
    known_size,
    past_of,
    positions,
    repeated_heads,
    shared_by,
    shown,
    size,
    split_parts,
    unsqueezed,
)
from .past_codes import coding_of
from .rotary import rotated


@dataclass(frozen=True)
class _Places:
    """Where new positions stand.

    Attributes:
        new: how many there are, s64[1].
        buffer: how many the buffer holds, s64[1].
        before: how many each sequence has had so far, s64[B].
        key: all that they depend on.
        gone: how many of these the buffer no longer holds, s64[B], '' for none.
        going: how many the output does not hold.
    """

    new: str
    buffer: str
    before: str
    key: tuple[object, ...]
    gone: str = ""
    going: str = ""


def _attention(at: Derived) -> None:
    """GroupQueryAttention(query, key?, value?, past_key?, past_value?, seqlens_k, total_sequence_length, cos_cache?, sin_cache?,
    position_ids?, attention_bias?, head_sink?, k_scale?, v_scale?){num_heads, kv_num_heads, scale, softcap, smooth_softmax,
    local_window_size, do_rotary, rotary_interleaved, causal, sliding_window_cache, k_quant_type, v_quant_type, kv_cache_bit_width}:
    heads of keys and values are shared by groups of query heads, and no later position is seen where it is causal. The past may be
    codes of 8 bits (s8, float8e4m3fn) or of 4 (two in a byte, the first one lowest, 8 above what they stand for).
    """
    attrs = at.node.attrs
    many, few = attrs["num_heads"], attrs["kv_num_heads"]
    times = shared_by(at, many, few)
    query, key, value = _heads(at)
    past, past_value = past_of(at, 3)
    window = attrs["local_window_size"]
    if window == 0 or (window > 0 and not attrs["causal"]):
        raise UnsupportedOp(
            f"the attribute local_window_size of {at.node.op} is {window}, with causal {attrs['causal']}",
            where=at.node.where,
            hint="windows have at least one key, and end at the query: write -1 for none",
        )
    places = _places(at, query, past)
    if attrs["do_rotary"]:
        query, key = _turned(at, query, key, places)
    if past:
        both = []
        for index, (front, state) in enumerate(((past, key), (past_value, value))):
            coding = coding_of(at, index)
            parts = [front, coding.encoded(state) if coding else state]
            kept = at.real("Concat", parts, {"axis": 2}, role="state")
            _in_place(at, kept, places, index + 1)
            both.append(coding.decoded(kept) if coding else kept)
        key, value = both
    else:
        shown(at, key, 1)
        shown(at, value, 2)
    given = ["unseen", *places.key, window, attrs["causal"]]
    added = [at.once(given, lambda: _unseen(at, places, bool(past)))]
    bias = at.input(10)
    if bias:
        given = ["bias", bias, *places.key]
        added.append(at.once(given, lambda: _in_order(at, bias, places)) if past else bias)
    key, value = (repeated_heads(at, each, times, "shared") for each in (key, value))
    sink = at.input(11)
    if attrs["smooth_softmax"] == 1 and not sink:
        sink = at.constant("smooth", np.zeros(many))
    scores = Scores(attrs["scale"], attrs["softcap"], tuple(added), None, sink)
    join_heads(at, attend(at, query, key, value, scores).result, at.node.output(0))


def _heads(at: Derived) -> Parts:
    """Query, key and value as [B, N, S, H]; without a key all three are in the query."""
    counts = at.node.attrs["num_heads"], *[at.node.attrs["kv_num_heads"]] * 2
    parts = at.input(0), at.input(1), at.input(2)
    if not (parts[1] or parts[2]):
        width = known_size(at, parts[0], -1, "hidden size")
        head = width // sum(counts)
        query, key, value = at.pieces(parts[0], -1, sizes=[head * count for count in counts])
        parts = query, key, value
    elif not (parts[1] and parts[2]):
        raise at.node.invalid(f"{at.node.op} needs both key and value, or none of them")
    return split_parts(at, parts, counts)


def _places(at: Derived, query: str, past: str) -> _Places:
    key = (*at.node.inputs[5:7], *at.sizes(query, 2), *at.sizes(past, 2))
    new = size(at, query, 2, "new")
    slides, window = at.node.attrs["sliding_window_cache"], at.node.attrs["local_window_size"]
    if not past:
        if slides:
            raise at.node.invalid(f"{at.node.op} with sliding_window_cache needs past_key")
        return _Places(new, "", "", key)
    slots = at.ctx.size(past, 2)
    if slides and (window < 1 or (slots is not None and slots < window)):
        raise at.node.invalid(f"a sliding buffer has {slots} positions, and its window {window}")
    before = at.once(["before", *key], lambda: _before(at, new))
    buffer = size(at, past, 2, "buffer")
    if not slides:
        return _Places(new, buffer, before, key)
    key = (*key, "sliding", window)
    gone = at.once(["gone", *key], lambda: _evicted(at, before, buffer, "gone"))
    going = at.once(["going", *key], lambda: _evicted(at, _totals(at), buffer, "going"))
    return _Places(new, buffer, before, key, gone, going)


def _evicted(at: Derived, count: str, buffer: str, role: str) -> str:
    """How many of the first `count` positions of each sequence a sliding buffer has let go: 0, or as many times the room
    beyond the window as make the rest fit.
    """
    window = at.integers("window", at.node.attrs["local_window_size"])
    less = at.integers("one less", at.node.attrs["local_window_size"] - 1)
    room = at.real("Sub", [buffer, less], role=f"{role} room")
    fits = at.real("LessOrEqual", [window, buffer], role=f"{role} fits")
    fits = at.real("Squeeze", [fits], role=f"{role} window fits")
    room = at.real("Squeeze", [room], role=f"{role} room of all")
    room = _checked(at, room, fits, f"{role} room for the window")
    over = at.real("Sub", [count, buffer], role=f"{role} over")
    over = at.real("Max", [over, at.integers("none over", 0)], role=f"{role} beyond")
    last = at.real("Sub", [room, at.integers("one of room", 1)], role=f"{role} last")
    times = at.real(
        "Div", [at.real("Add", [over, last], role=f"{role} up"), room], role=f"{role} times"
    )
    return at.real("Mul", [times, room], role=role)


def _checked(at: Derived, value: str, holds: str, role: str) -> str:
    """The value where `holds`, a bool, is true; the run ends where it is not."""
    places = [at.integers("it is there", 0), at.integers("it is not there", 1)]
    place = at.real("Where", [holds, *places], role=f"place of {role}")
    return at.real(
        "Gather", [unsqueezed(at, value, [0], f"{role}, if any"), place], {"axis": 0}, role=role
    )


def _before(at: Derived, new: str) -> str:
    """How many positions of each sequence are in the buffer, s64[B]."""
    before = at.real("Sub", [_totals(at), new], role="before")
    # a first prompt is known by its total length, and leaves the buffer out
    first = at.real("Equal", [_total(at), new], role="first")
    return at.real("Where", [first, at.integers("none", 0), before], role="before or none")


def _totals(at: Derived) -> str:
    """How many positions each sequence has with the new ones, s64[B]."""
    lengths = at.real("Reshape", [at.input(5), at.integers("flat", [-1])], role="lengths")
    lengths = at.ctx.cast(at.node, lengths, DType.S64, "wide lengths")
    return at.real("Add", [lengths, at.integers("one", 1)], role="totals")


def _total(at: Derived) -> str:
    """The longest sequence, s64[1]."""
    flat = at.real("Reshape", [at.input(6), at.integers("single", [1])], role="total")
    return at.ctx.cast(at.node, flat, DType.S64, "wide total")


def _turned(at: Derived, query: str, key: str, places: _Places) -> tuple[str, str]:
    """Query and key with their positions in them."""
    if not (at.input(7) and at.input(8)):
        raise at.node.invalid(f"{at.node.op} with do_rotary needs cos_cache and sin_cache")
    ids = at.input(9)
    if not ids:
        ids = positions(at, places.new, "steps")
        if places.before:
            start = unsqueezed(at, places.before, [1], "start")
            ids = at.real("Add", [ids, start], role="places")
    wide = [1] if at.ctx.rank(at.node, ids) == 2 else []
    angles = []
    for table in (at.input(7), at.input(8)):
        angle = at.real("Gather", [table, ids], {"axis": 0}, role="angles")
        angles.append(unsqueezed(at, angle, wide, "angles of heads") if wide else angle)
    width = 2 * known_size(at, at.input(7), -1, "number of angles")
    interleaved = bool(at.node.attrs["rotary_interleaved"])
    turned = [
        rotated(at, each, (angles[0], angles[1]), width, interleaved, role)
        for each, role in ((query, "query"), (key, "key"))
    ]
    return turned[0], turned[1]


def _unseen(at: Derived, places: _Places, buffered: bool) -> str:
    """What hides keys: later ones, those too far away, and what the buffer holds behind its end; [S, S], with a buffer
    [B, 1, S, P + S].
    """
    window = at.node.attrs["local_window_size"]
    own = positions(at, places.new, "own")
    row = unsqueezed(at, own, [1], "row")
    if at.node.attrs["causal"]:
        seen = at.real("LessOrEqual", [own, row], role="earlier")
        seen = _near(at, seen, row, own, window)
    else:
        count = _totals(at)
        if buffered:
            count = at.real("Sub", [count, places.before], role="new of each")
        seen = at.real("Less", [own, unsqueezed(at, count, [1, 2, 3], "each new")], role="is new")
    if buffered:
        before = unsqueezed(at, places.before, [1, 2, 3], "each before")
        old = positions(at, places.buffer, "old")
        if places.gone:
            gone = unsqueezed(at, places.gone, [1, 2, 3], "each gone")
            old = at.real("Add", [old, gone], role="old place")
        kept = at.real("Less", [old, before], role="kept")
        kept = _near(at, kept, at.real("Add", [row, before], role="place"), old, window)
        seen = _side_by_side(at, kept, seen, places)
    return hidden(at, seen, -np.inf, DType.F32, "unseen")


def _in_order(at: Derived, bias: str, places: _Places) -> str:
    """A bias of positions [B or 1, N or 1, S, T] in the order that the keys have: [B, N or 1, S, P + S]."""
    before, batch = places.before, at.real("Shape", [places.before], role="batch of bias")
    one = at.integers("one column", [1])
    both = at.real("Concat", [batch, places.buffer], {"axis": 0}, role="of the buffer")
    old = at.real("Expand", [positions(at, places.buffer, "biased old"), both], role="old columns")
    if places.gone:
        gone = unsqueezed(at, places.gone, [1], "first old")
        old = at.real("Add", [old, gone], role="old columns left")
    starts = unsqueezed(at, before, [1], "first new")
    new = at.real("Add", [positions(at, places.new, "biased new"), starts], role="new columns")
    columns = at.real("Concat", [old, new], {"axis": 1}, role="columns")
    # behind the end of a sequence the buffer may have more
    last = at.real("Sub", [size(at, bias, 3, "biased"), one], role="last column")
    columns = at.real("Min", [columns, last], role="columns there")
    rows = at.real("Shape", [bias], {"start": 1, "end": 3}, role="rows of bias")
    shape = at.real("Concat", [batch, rows, one], {"axis": 0}, role="bias of each")
    wide = at.real("Expand", [bias, shape], role="wide bias")
    index = at.real("Expand", [unsqueezed(at, columns, [1, 2], "wide"), shape], role="wide columns")
    return at.real("GatherElements", [wide, index], {"axis": 3}, role="bias in order")


def _near(at: Derived, seen: str, row: str, column: str, window: int) -> str:
    if window < 0:
        return seen
    first = at.real("Sub", [row, at.integers("window", window)], role="first")
    near = at.real("Greater", [column, first], role="near")
    return at.real("And", [seen, near], role="seen and near")


def _side_by_side(at: Derived, kept: str, seen: str, places: _Places) -> str:
    """Truths of the buffer [B, 1, 1 or S, P] and of new keys [S, S] as one [B, 1, S, P + S]."""
    batch = at.real("Shape", [places.before], role="batch")
    one = at.integers("single", [1])
    parts = []
    for part, width, role in ((kept, places.buffer, "old"), (seen, places.new, "new")):
        shape = at.real(
            "Concat", [batch, one, places.new, width], {"axis": 0}, role=f"{role} shape"
        )
        parts.append(at.real("Expand", [part, shape], role=f"{role} truths"))
    return at.real("Concat", parts, {"axis": 3}, role="truths")


def _in_place(at: Derived, state: str, places: _Places, output: int) -> None:
    """The output of buffer and new positions [B, Nk, P + S, H]: new ones behind the old ones of their sequence, zeros behind them, in
    the length of the buffer or of the longest sequence.
    """
    if not at.node.output(output):
        return
    heads, head = at.node.attrs["kv_num_heads"], known_size(at, state, -1, "size of a head")
    source = at.once(["source", *places.key], lambda: _sources(at, places))
    whole = at.real("Add", [places.buffer, places.new], role="all")
    inside = at.once(
        ["inside", *places.key], lambda: at.real("Less", [source, whole], role="is there")
    )

    def of_heads() -> str:
        index = at.real("Where", [inside, source, at.integers("any", 0)], role="row")
        starts = _starts(at, places, whole, heads)
        return at.real("Add", [unsqueezed(at, index, [1], "of head"), starts], role="rows of heads")

    index = at.once(["rows", heads, *places.key], of_heads)
    rows = at.real("Reshape", [state, at.integers("rows", (-1, head))], role="rows")
    found = at.real("Gather", [rows, index], {"axis": 0}, role="placed")
    shown = unsqueezed(at, inside, [1, 3], "shown")
    zero = constant_like(at, "zero", 0, found)
    at.real("Where", [shown, found, zero], role="present", output=at.node.output(output))


def _sources(at: Derived, places: _Places) -> str:
    """Where each position of the result is in the buffer with the new ones behind it, [B, length]; behind their end where there is none."""
    total = places.buffer
    if not places.gone:
        total = at.real("Max", [total, _total(at)], role="present length")
    place = positions(at, total, "present")
    before = unsqueezed(at, places.before, [1], "before each")
    shift = at.real("Sub", [places.buffer, before], role="shift")
    source = place
    if places.gone:
        gone, going = (unsqueezed(at, each, [1], "of each") for each in (places.gone, places.going))
        place = at.real("Add", [place, going], role="place left")
        source = at.real("Sub", [place, gone], role="place in the buffer")
    moved = at.real("Add", [place, shift], role="moved")
    old = at.real("Less", [place, before], role="is old")
    return at.real("Where", [old, source, moved], role="source")


def _starts(at: Derived, places: _Places, whole: str, heads: int) -> str:
    """The first row of each head of each sequence, [B, Nk, 1]."""
    batch = at.real("Shape", [places.before], role="sequences")
    each = unsqueezed(at, positions(at, batch, "sequence"), [1, 2], "sequence of")
    each = at.real("Mul", [each, at.integers("heads", heads)], role="heads in front")
    own = at.integers("own heads", np.arange(heads).reshape(1, heads, 1))
    number = at.real("Add", [each, own], role="head")
    return at.real("Mul", [number, whole], role="first rows")


_FORM: Final = Form(
    "query key? value? past_key? past_value? seqlens_k total_sequence_length cos_cache? sin_cache? position_ids? attention_bias? "
    "head_sink? k_scale? v_scale? q_norm_weight- k_norm_weight- query_seqlens-",
    "output present_key? present_value? output_qk-",
    in_f32(_attention, like=(0, 3, 4)),
    {
        "num_heads": int,
        "kv_num_heads": int,
        "scale": 0.0,
        "softcap": 0.0,
        "local_window_size": -1,
        "do_rotary": 0,
        "rotary_interleaved": 0,
        "smooth_softmax": -1,
        "causal": 1,
        "q_norm_epsilon": None,
        "k_norm_epsilon": None,
        "qk_norm_epsilon": None,
        "k_quant_type": "NONE",
        "v_quant_type": "NONE",
        "kv_cache_bit_width": 0,
        "sliding_window_cache": 0,
    },
    {"qk_output": 0},
)

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = handlers(
    MICROSOFT, {"GroupQueryAttention": _FORM}
)
