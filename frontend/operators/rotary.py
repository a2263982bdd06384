"""RotaryEmbedding: pairs of channels are turned by an angle for each position, ONNX's and com.microsoft's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...errors import UnsupportedOp
from ..importer import Handler
from ..nodes import DEFAULT_DOMAIN
from .derived import Derived
from .forms import Form, handlers
from .heads import known_size, positions, size, unsqueezed

MICROSOFT: Final = "com.microsoft"


def rotated(
    at: Derived,
    value: str,
    angles: tuple[str, str],
    width: int,
    interleaved: bool,
    role: str,
    output: str = "",
) -> str:
    """The first `width` channels of each head turned, the others as they are.

    Args:
        at: the node.
        value: [..., H].
        angles: cosines and sines, broadcast to [..., width / 2].
        width: of what is turned, 0 for H.
        interleaved: pairs are neighbours; otherwise channel i and i + width / 2.
        role: tells several rotations of one node apart.
        output: name of the result.
    """
    whole = known_size(at, value, -1, "size of a head")
    width = width or whole
    if width % 2 or not 0 < width <= whole:
        raise at.node.invalid(f"{width} of {whole} channels of a head cannot be turned in pairs")
    rest = []
    if width < whole:
        value, other = at.pieces(value, -1, sizes=(width, whole - width))
        rest = [other]
    first, second = _apart(at, value, width, interleaved, role)
    parts = _turned(at, first, second, angles, role)
    if interleaved:
        parts = (_together(at, parts, width, role),)
    if len(parts) + len(rest) == 1:
        return at.real("Identity", parts, role=f"{role} turned", output=output)
    return at.real("Concat", [*parts, *rest], {"axis": -1}, role=f"{role} turned", output=output)


def _apart(at: Derived, value: str, width: int, interleaved: bool, role: str) -> tuple[str, str]:
    if not interleaved:
        first, second = at.pieces(value, -1, count=2)
        return first, second
    ends = {
        name: at.integers(f"{role} {name}", [n])
        for name, n in (("end", width), ("axis", -1), ("step", 2))
    }
    starts = (at.integers(f"{role} even", [0]), at.integers(f"{role} odd", [1]))
    even, odd = (
        at.real(
            "Slice", [value, start, ends["end"], ends["axis"], ends["step"]], role=f"{role} half"
        )
        for start in starts
    )
    return even, odd


def _turned(
    at: Derived, first: str, second: str, angles: tuple[str, str], role: str
) -> tuple[str, ...]:
    cosine, sine = angles
    terms = [
        at.real("Mul", [part, angle], role=f"{role} {name}")
        for part, angle, name in (
            (first, cosine, "cos 1"),
            (second, sine, "sin 2"),
            (second, cosine, "cos 2"),
            (first, sine, "sin 1"),
        )
    ]
    return (
        at.real("Sub", terms[:2], role=f"{role} first"),
        at.real("Add", terms[2:], role=f"{role} second"),
    )


def _together(at: Derived, parts: tuple[str, ...], width: int, role: str) -> str:
    """Pairs as neighbours again."""
    pairs = [unsqueezed(at, part, [-1], f"{role} pair") for part in parts]
    joined = at.real("Concat", pairs, {"axis": -1}, role=f"{role} pairs")
    rank = at.ctx.rank(at.node, parts[0])
    target = at.integers(f"{role} shape", [*[0] * (rank - 1), width])
    return at.real("Reshape", [joined, target], role=f"{role} joined")


def _microsoft(at: Derived) -> None:
    """RotaryEmbedding(input, position_ids, cos_cache, sin_cache){interleaved, num_heads, rotary_embedding_dim}: input [B, S, D] or
    [B, N, S, H], positions of each or the first one.
    """
    ids = at.input(1)
    if at.ctx.rank(at.node, ids) < 2:
        steps = positions(at, size(at, at.input(0), -2, "positions"), "steps")
        ids = at.real("Add", [steps, ids], role="places")
    tables = at.input(2), at.input(3)
    angles = tuple(at.real("Gather", [table, ids], {"axis": 0}, role="angles") for table in tables)
    _embedded(at, (angles[0], angles[1]))


def _standard(at: Derived) -> None:
    """RotaryEmbedding(X, cos_cache, sin_cache, position_ids?){interleaved, num_heads, rotary_embedding_dim}: X [B, S, D] or [B, N, S, H],
    angles of each position, or tables of them for position_ids.
    """
    angles = at.input(1), at.input(2)
    ids = at.input(3)
    if ids:
        cosine, sine = (
            at.real("Gather", [table, ids], {"axis": 0}, role="angles") for table in angles
        )
        angles = cosine, sine
    _embedded(at, angles)


def _embedded(at: Derived, angles: tuple[str, str]) -> None:
    """`angles`: cosines and sines [B, S, width / 2] or [S, width / 2]."""
    value, attrs = at.input(0), at.node.attrs
    width, interleaved = attrs["rotary_embedding_dim"], bool(attrs["interleaved"])
    rank = at.ctx.rank(at.node, value)
    if rank not in (3, 4):
        raise at.node.invalid(f"the input of {at.node.op} has {rank} dimensions, and needs 3 or 4")
    each = at.ctx.rank(at.node, angles[0]) > 2  # of a batch
    axis = [-2] if rank == 3 else [1] if each else []
    cosine, sine = (
        unsqueezed(at, angle, axis, "angles of heads") if axis else angle for angle in angles
    )
    if rank == 4:
        value = _of_known_heads(at, value, angles[0], width)
        rotated(at, value, (cosine, sine), width, interleaved, "heads", at.node.output(0))
        return
    hidden = known_size(at, value, -1, "hidden size")
    heads = attrs["num_heads"]
    if not heads:
        half = known_size(at, angles[0], -1, "number of angles")
        heads = hidden // (2 * half)
    if heads < 1 or hidden % heads:
        raise UnsupportedOp(
            f"the attribute num_heads of {at.node.op} is {heads} for {hidden} channels",
            where=at.node.where,
            hint="give a number of heads that divides the channels",
        )
    shape = at.integers("heads", (0, 0, heads, hidden // heads))
    apart = at.real("Reshape", [value, shape], role="apart")
    turned = rotated(at, apart, (cosine, sine), width, interleaved, "heads")
    back = at.integers("joined", (0, 0, hidden))
    at.real("Reshape", [turned, back], output=at.node.output(0))


def _of_known_heads(at: Derived, value: str, angles: str, width: int) -> str:
    """[B, N, S, H] with a type that tells H; what the import has not followed, the angles tell where all
    channels turn: there is one for each pair of them.
    """
    shape, size = at.ctx.type(value).shape, at.ctx.size(value, -1)
    if shape is not None and isinstance(shape[-1], int):
        return value
    if size is None and not width:
        size = 2 * known_size(at, angles, -1, "number of angles")
    if size is None:
        return value
    heads = at.integers("size of heads", (0, 0, 0, size))
    return at.real("Reshape", [value, heads], role="of heads")


_ATTRS: Final = {"interleaved": 0, "num_heads": 0, "rotary_embedding_dim": 0}

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    **handlers(
        MICROSOFT,
        {
            "RotaryEmbedding": Form(
                "input position_ids cos_cache sin_cache",
                "output",
                _microsoft,
                # of packed batches: there may be more positions than the tables have
                {**_ATTRS, "is_packed_batching": 0},
                {"scale": 1.0},
            ),
        },
    ),
    **handlers(
        DEFAULT_DOMAIN,
        {"RotaryEmbedding": Form("X cos_cache sin_cache position_ids?", "Y", _standard, _ATTRS)},
    ),
}
