"""Attention as the operations that the passes know: heads, scores, what hides them, and what is read by them.

Letters in shapes: B batch, N heads, S positions of the query, P those of the past, T those of the
keys with the past, H the size of a head, D of all heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Final

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedOp
from ...ir.types import DType
from .derived import Derived

_HALVES: Final = (DType.F16, DType.BF16)

LOWEST: Final = float(np.finfo(np.float32).min)
"""What ONNX Runtime adds to scores of later positions."""

Parts = tuple[str, str, str]
"""Query, key and value."""


@dataclass(frozen=True)
class Scores:
    """What a query's products with the keys become, in this order.

    Attributes:
        scale: factor; 0 for 1 / sqrt(H).
        softcap: x -> softcap * tanh(x / softcap); 0 for none.
        added: values that are added, broadcast to [B, N, S, T].
        precision: type that the softmax is computed in; None for that of the query.
        sink: a further score for each head [N], which takes its part and reads nothing; '' for none.
    """

    scale: float
    softcap: float = 0.0
    added: tuple[str, ...] = ()
    precision: DType | None = None
    sink: str = ""


@dataclass(frozen=True)
class Stages:
    """Values [B, N, S, T] on the way from products to probabilities, and the result [B, N, S, H]."""

    scaled: str
    capped: str
    masked: str
    probabilities: str
    result: str


def known_size(at: Derived, value: str, axis: int, what: str) -> int:
    """The size of a dimension, which must be a number.

    Raises:
        InvalidModel: there is no such dimension.
        UnsupportedOp: it is known at run time only.
    """
    shape = at.ctx.type(value).shape
    if shape is not None and not -len(shape) <= axis < len(shape):
        raise at.node.invalid(
            f"{value!r} of {len(shape)} dimensions has no dimension {axis}, the {what}"
        )
    size = at.ctx.size(value, axis)
    if size is None:
        raise UnsupportedOp(
            f"the {what} of {at.node.op}, dimension {axis} of {value!r}, is known at run time only",
            where=at.node.where,
            hint="declare the input's shape, and run shape inference (onnx.shape_inference)",
        )
    return size


def constant_like(at: Derived, role: str, number: npt.ArrayLike, value: str) -> str:
    """A new constant of the type of a value."""
    return at.ctx.add_constant(at.node, role, number, at.ctx.type(value).dtype)


def in_f32(
    run: Callable[[Derived], None], *, like: Sequence[int] = (0,) * 4
) -> Callable[[Derived], None]:
    """The same with half floats as f32, in which attention is computed; outputs are of the types of the inputs `like`,
    or where there is none of that of the first one.
    """

    @wraps(run)
    def wide(at: Derived) -> None:
        def widened(name: str) -> str:
            return at.once(["f32", name], lambda: at.ctx.cast(at.node, name, DType.F32, "f32"))

        halves = {name for name in at.node.inputs if name and at.ctx.type(name).dtype in _HALVES}
        if not halves:
            run(at)
            return
        inputs = [widened(name) if name in halves else name for name in at.node.inputs]
        made = [name and at.ctx.fresh(f"{at.node.name}.f32") for name in at.node.outputs]
        run(replace(at, node=at.node.rewritten(inputs=inputs, outputs=made)))
        for output, (value, index) in enumerate(zip(made, like, strict=False)):
            if value:
                given = at.input(index) or at.input(0)
                kind, name = at.ctx.type(given).dtype, at.node.output(output)
                at.ctx.cast(at.node, value, kind, f"given {output}", output=name)

    return wide


def split_parts(at: Derived, parts: Sequence[str], counts: Sequence[int]) -> Parts:
    """Query, key and value [B, ., D] with so many heads: [B, N, ., H]."""
    query, key, value = (
        split_heads(at, part, count, role)
        for part, count, role in zip(parts, counts, ("query", "key", "value"), strict=True)
    )
    return query, key, value


def shared_by(at: Derived, many: int, few: int) -> int:
    """How many heads of the query share one of the keys."""
    if few < 1 or many < 1 or many % few:
        raise at.node.invalid(f"{many} heads of the query cannot share {few} of the keys")
    return many // few


def past_of(at: Derived, index: int) -> tuple[str, str]:
    """Keys and values of the past at input `index` and behind it, both '' where there are none."""
    past = at.input(index), at.input(index + 1)
    if bool(past[0]) != bool(past[1]):
        raise at.node.invalid(f"{at.node.op} needs both past_key and past_value, or none of them")
    return past


def present(at: Derived, front: str, state: str, output: int) -> str:
    """Keys or values [B, N, ., H] behind those of the past, which are an output, too."""
    name, role = at.node.output(output), f"state {output}"
    if front:
        return at.real("Concat", [front, state], {"axis": 2}, role=role, output=name)
    shown(at, state, output)
    return state


def shown(at: Derived, value: str, output: int) -> None:
    """The value as an output, where the node has it."""
    if at.node.output(output):
        at.real("Identity", [value], role=f"output {output}", output=at.node.output(output))


def split_heads(at: Derived, value: str, count: int, role: str) -> str:
    """[B, S, D] -> [B, N, S, H]."""
    width = known_size(at, value, -1, "hidden size")
    if count < 1 or width % count:
        raise at.node.invalid(f"{width} channels of {value!r} cannot be split into {count} heads")
    shape = at.integers(f"{role} heads", (0, 0, count, width // count))
    parts = at.real("Reshape", [value, shape], role=f"{role} split")
    return at.real("Transpose", [parts], {"perm": (0, 2, 1, 3)}, role=f"{role} turned")


def join_heads(at: Derived, value: str, output: str = "") -> str:
    """[B, N, S, H] -> [B, S, D]."""
    turned = at.real("Transpose", [value], {"perm": (0, 2, 1, 3)}, role="joined turned")
    shape = at.ctx.type(turned).shape or ()
    known = [size for size in shape[2:] if isinstance(size, int)]
    width = math.prod(known) if len(known) == 2 else -1
    target = at.integers("joined shape", (0, 0, width))
    return at.real("Reshape", [turned, target], role="joined", output=output)


def repeated_heads(at: Derived, value: str, times: int, role: str) -> str:
    """[B, N, T, H] -> [B, N * times, T, H], each head `times` times in a row."""
    if times == 1:
        return value
    heads = known_size(at, value, 1, "number of heads")
    wide = at.real("Unsqueeze", [value, at.integers(f"{role} axis", [2])], role=f"{role} apart")
    target = at.integers(f"{role} times", (1, 1, times, 1, 1))
    wide = at.real("Expand", [wide, target], role=f"{role} repeated")
    head = known_size(at, value, -1, "size of a head")
    shape = at.integers(f"{role} shape", (0, heads * times, -1, head))
    return at.real("Reshape", [wide, shape], role=f"{role} joined")


def attend(at: Derived, query: str, key: str, value: str, scores: Scores) -> Stages:
    """softmax(cap(query @ key^T * scale) + added) @ value; query [B, N, S, H], key and value [B, N, T, H]."""
    scaled = _scaled(at, query, key, scores.scale)
    capped = scaled
    if scores.softcap:
        cap = constant_like(at, "softcap", scores.softcap, scaled)
        inner = at.real("Div", [scaled, cap], role="in cap")
        inner = at.real("Tanh", [inner], role="bent")
        capped = at.real("Mul", [inner, cap], role="capped")
    masked = capped
    for index, bias in enumerate(scores.added):
        masked = at.real("Add", [masked, bias], role=f"masked {index}")
    kind = at.ctx.type(query).dtype
    wide = at.ctx.cast(at.node, masked, scores.precision or kind, "in precision")
    if scores.sink:
        wide = _with_sink(at, wide, scores.sink)
    chosen = at.real("Softmax", [wide], {"axis": -1}, role="probabilities")
    if scores.sink:
        ends = [
            at.integers(f"read {name}", [n]) for name, n in (("from", 0), ("to", -1), ("by", 3))
        ]
        chosen = at.real("Slice", [chosen, *ends], role="read")
    chosen = at.ctx.cast(at.node, chosen, kind, "out of precision")
    return Stages(
        scaled, capped, masked, chosen, at.real("MatMul", [chosen, value], role="context")
    )


def _with_sink(at: Derived, scores: str, sink: str) -> str:
    """Scores [B, N, S, T + 1], the last one of each query that of its head."""
    front = at.real("Shape", [scores], {"start": 0, "end": 3}, role="all queries")
    shape = at.real("Concat", [front, at.integers("one sink", [1])], {"axis": 0}, role="sinks")
    each = at.real("Expand", [unsqueezed(at, sink, [0, 2, 3], "sink"), shape], role="sink of each")
    return at.real("Concat", [scores, each], {"axis": 3}, role="with sink")


def _scaled(at: Derived, query: str, key: str, scale: float) -> str:
    """query @ key^T * scale."""
    turned = at.real("Transpose", [key], {"perm": (0, 1, 3, 2)}, role="keys")
    product = at.real("MatMul", [query, turned], role="scores")
    factor = scale or 1 / math.sqrt(known_size(at, query, -1, "size of a head"))
    if factor == 1:
        return product
    return at.real("Mul", [product, constant_like(at, "scale", factor, product)], role="scaled")


# -- positions, and what hides them ----------------------------------------------------------------


def size(at: Derived, value: str, axis: int, role: str) -> str:
    """The size of a dimension as a tensor s64[1]."""
    return at.real("Shape", [value], {"start": axis, "end": axis + 1}, role=role)


def positions(at: Derived, count: str, role: str) -> str:
    """0 .. count - 1, count s64[1]."""
    none = at.integers(f"{role} none", [0])
    end = at.real("Squeeze", [count, none], role=f"{role} end")
    ends = [at.integers(f"{role} {number}", number) for number in (0, 1)]
    return at.real("Range", [ends[0], end, ends[1]], role=role)


def unsqueezed(at: Derived, value: str, axes: Sequence[int], role: str) -> str:
    """The value with further dimensions of 1."""
    return at.real("Unsqueeze", [value, at.integers(f"{role} axes", axes)], role=role)


def distances(at: Derived, rows: str, columns: str, offset: str = "") -> str:
    """column - (row + offset): [S, T], with an offset for each of a batch [B, 1, S, T]; `rows`,
    `columns`: how many, s64[1]; `offset`: s64[1] or [B, 1, 1, 1], '' for 0.
    """
    own = unsqueezed(at, positions(at, rows, "rows"), [1], "row")
    if offset:
        own = at.real("Add", [own, offset], role="place")
    return at.real("Sub", [positions(at, columns, "columns"), own], role="distance")


def hidden(at: Derived, seen: str, number: float, kind: DType, role: str) -> str:
    """0 where `seen` is true, else the number: what is added to scores."""
    zero = at.ctx.add_constant(at.node, f"{role} none", 0, kind)
    other = at.ctx.add_constant(at.node, f"{role} hidden", number, kind)
    return at.real("Where", [seen, zero, other], role=role)


def up_to(at: Derived, distance: str, most: int = 0) -> str:
    """Truth of distance <= most: no later position is seen, but `most` of them."""
    return at.real("LessOrEqual", [distance, at.integers("last", most)], role="earlier")


def down_to(at: Derived, distance: str, least: int) -> str:
    """Truth of distance >= least: only so many earlier positions are seen."""
    return at.real("GreaterOrEqual", [distance, at.integers("first", least)], role="near")


def later_hidden(at: Derived, query: str, key: str, past: str, number: float) -> str:
    """What hides keys of later positions than the query's: [S, T]. `past`: keys [B, N, P, H] that were in front, '' for none."""

    def make() -> str:
        rows, columns = size(at, query, 2, "queries"), size(at, key, 2, "length")
        offset = size(at, past, 2, "past length") if past else ""
        seen = up_to(at, distances(at, rows, columns, offset))
        return hidden(at, seen, number, at.ctx.type(query).dtype, "causal")

    lengths = [*at.sizes(query, 2), *at.sizes(key, 2), *at.sizes(past, 2)]
    return at.once(["later hidden", *lengths, at.ctx.type(query).dtype.value, number], make)
