"""Which numbers can reach a quantizer whatever the data, and quantizers with hardly a code for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .graph import Graph
from .interpret import run_node
from .node import Node, subject
from .ops.spec import Array, Trait
from .ranges import ranges_of
from .rule import Refusal
from .types import DType

FEW_CODES = "few_codes"
"""The rule under which decisions name what to leave in f32."""

OPERAND, JOIN, READER = "it gives these values", "it puts others beside them", "it reads the codes"
"""What such a node is, as its decision's `found` says it."""

_FEW = 4
_OF_MANY = 64  # codes of the quantizer: one of few codes has few for all values
_PIECES = 8  # of a value: of more, those in front are followed
_FAR = 64  # values behind a quantizer: whoever reads more of them is not named

_ANY = float(np.finfo(np.float32).max)
_ENDLESS = 1e30  # a product of it with what a network has is no bound

_MONOTONE = frozenset(
    [
        "Add",
        "Clip",
        "Div",
        "Erf",
        "HardSigmoid",
        "Max",
        "Min",
        "Mul",
        "Neg",
        "Relu",
        "Sigmoid",
        "Softsign",
        "Sub",
        "Tanh",
    ]
)
"""Operators that never turn back over one input, where the others are constant: two ends give two ends."""

_MOVES = (Trait.LAYOUT_ONLY, Trait.RESHAPES, Trait.SELECTS)
_PASSED = frozenset({"Dequantize", "FakeQuantize", "Identity", "Quantize"})


@dataclass(frozen=True)
class Piece:
    """A part of a value of which it is known where its numbers lie.

    Attributes:
        low, high: between which; of codes, the codes.
        maker: the node that gives them, as the model names it.
        joins: the nodes that put others beside them, without a quantizer between.
    """

    low: float
    high: float
    maker: str
    joins: tuple[str, ...] = ()


Pieces = tuple[Piece, ...]


def explain_few_codes(graph: Graph) -> None:
    """Leaves decisions about quantizers that make one code, or two to four, of all numbers that a part of
    their source can hold: the part's maker, what joins it with others, and what reads the codes.
    """
    known: dict[str, Pieces] = {}
    for node in graph.nodes():
        if len(node.outputs) != 1:
            continue
        given = known.get(node.inputs[0], ()) if node.inputs else ()
        found = _behind(graph, node, known)
        for piece in given if node.op in ("Quantize", "FakeQuantize") else ():
            few = _codes_of(graph, node, piece)
            if few:
                _explain(graph, node, piece, few)
                found = _all_codes(graph, node)  # what follows is not to be blamed for it
        if found:
            known[node.output] = found


def span(graph: Graph, value: str) -> tuple[float, float] | None:
    """The least and the largest number that quantizers and bounded operations let a value hold; None
    where no part of it has such ends.
    """
    known: dict[str, Pieces] = {}
    for node in graph.nodes():
        if len(node.outputs) == 1:
            known[node.output] = _behind(graph, node, known)
    ends = [_ends(piece) for piece in known.get(value, ())]
    ends = [pair for pair in ends if np.abs(pair).max() < _ENDLESS]
    return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None


def _behind(graph: Graph, node: Node, known: Mapping[str, Pieces]) -> Pieces:
    """The pieces of what a node gives."""
    given = known.get(node.inputs[0], ()) if node.inputs else ()
    if node.op == "Quantize":
        alone = len(given) == 1 and not given[0].joins
        return (_spanned(given[0], [_coded(node, given[0])]),) if alone else _all_codes(graph, node)
    if node.op == "FakeQuantize":
        return _all_codes(graph, node)
    if node.op == "Dequantize":
        quant, dtype = node.quant, graph.type(node.input).dtype
        if not given and dtype.is_code:  # from outside
            given = (Piece(*dtype.range, _name(node)),)
        with np.errstate(all="ignore"):  # of absurd scales
            return tuple(
                _spanned(piece, [(end - quant.zero_points) * quant.scales for end in _ends(piece)])
                for piece in given
            )
    if node.op == "Softmax":
        return (Piece(0.0, 1.0, subject(node)),)
    if node.has(Trait.JOINS):
        return _joined(node, known)
    if node.has(*_MOVES) or node.op == "Identity":
        return given
    return _mapped(graph, node, known) if node.op in _MONOTONE else ()


def _joined(node: Node, known: Mapping[str, Pieces]) -> Pieces:
    """Those of all operands; what is unknown of one says nothing of the others."""
    own = (subject(node),)
    pieces = (piece for value in dict.fromkeys(node.inputs) for piece in known.get(value, ()))
    return tuple(replace(piece, joins=piece.joins + own) for piece in pieces)[:_PIECES]


def _mapped(graph: Graph, node: Node, known: Mapping[str, Pieces]) -> Pieces:
    """The ends behind a monotone operator; of what is not known they are those of f32."""
    constants = {value: graph.constant(value) for value in node.inputs if value}
    computed = [value for value, data in constants.items() if data is None]
    empty = any(data is not None and not data.size for data in constants.values())
    if len(computed) != 1 or empty or graph.type(computed[0]).dtype is not DType.F32:
        return ()
    if node.op == "Div" and computed[0] != node.inputs[0]:
        return ()
    pieces = known.get(computed[0], ()) or (Piece(-_ANY, _ANY, subject(node)),)
    found = []
    for piece in pieces:
        ends = []
        for end in _ends(piece):
            arrays = [
                np.full(1, end, np.float32) if value in computed else constants.get(value)
                for value in node.inputs
            ]
            with np.errstate(all="ignore"):
                ends.append(run_node(node, arrays)[0])
        spanned = _spanned(piece, ends)
        if np.isnan(spanned.low) or np.isnan(spanned.high):
            return ()
        if np.min(np.abs(_ends(spanned))) < _ENDLESS:
            own = piece.maker if piece.joins else subject(node)
            found.append(replace(spanned, maker=own))
    return tuple(found)


def _ends(piece: Piece) -> tuple[float, float]:
    return piece.low, piece.high


def _spanned(piece: Piece, ends: Sequence[Array]) -> Piece:
    """The piece from the least to the largest of these numbers."""
    low, high = (float(pick([pick(end) for end in ends])) for pick in (np.min, np.max))
    return replace(piece, low=low, high=high)


def _coded(node: Node, piece: Piece) -> Array:
    """The codes of both ends, [2, scales]."""
    quant = node.quant
    with np.errstate(all="ignore"):
        codes = np.rint(np.array(_ends(piece))[:, None] / quant.scales + quant.zero_points)
    return np.clip(codes, node.attr("lo", int), node.attr("hi", int))


def _all_codes(graph: Graph, node: Node) -> Pieces:
    """What a quantizer can give: all its codes, or of a FakeQuantize the numbers that they stand for."""
    maker = graph.producer(node.inputs[0])
    name = _name(node) if maker is None else subject(maker)
    if node.op == "Quantize":
        return (Piece(node.attr("lo", int), node.attr("hi", int), name),)
    ranges = ranges_of(graph, node)
    if isinstance(ranges, str):
        return ()
    ends = np.concatenate([ranges.output_low, ranges.output_high])
    return (Piece(float(ends.min()), float(ends.max()), name),)


def _codes_of(graph: Graph, node: Node, piece: Piece) -> str:
    """How many of its codes a quantizer has for a piece, where they are few, and its step."""
    if node.op == "Quantize":
        steps = np.abs(node.quant.scales).astype(np.float64)
        codes, every = _coded(node, piece), node.attr("hi", int) - node.attr("lo", int) + 1
    else:
        ranges = ranges_of(graph, node)
        if isinstance(ranges, str) or not ranges.finite or not ranges.input_scale.all():
            return ""
        steps, every = np.abs(ranges.input_scale), ranges.levels
        ends = np.array(_ends(piece))[:, None]
        codes = np.clip(np.rint((ends - ranges.input_low) / ranges.input_scale), 0, every - 1)
    # one number needs but one code, and of a NaN nothing is known
    if every < _OF_MANY or not piece.low < piece.high or not np.isfinite(codes).all():
        return ""
    count = int(np.abs(codes[1] - codes[0]).max()) + 1
    if count > _FEW:
        return ""
    text = "1 code" if count == 1 else f"{count} codes"
    return f"{text} of {every:,}: its step is {steps.max():.3g}"


def _explain(graph: Graph, node: Node, piece: Piece, few: str) -> None:
    low, high = (f"{end:.3g}" for end in _ends(piece))
    reason = f"{piece.maker} gives {low} to {high}, for which {_name(node)} has {few}"
    readers = _readers(graph, node.output)
    named = {piece.maker: OPERAND, **dict.fromkeys(piece.joins, JOIN)}
    named |= {name: READER for name in readers if name not in named}
    for name, role in named.items():
        hint = f"leave {', '.join(named)} unquantized, or return {piece.maker} apart"
        why = Refusal(reason, f"more than {_FEW} codes", role, hint)
        graph.decide(why.at(FEW_CODES, name))


def _name(node: Node) -> str:
    return node.quantizer[0] if node.quantizer else subject(node)


def _readers(graph: Graph, value: str) -> Iterator[str]:
    """The nodes that put others beside a quantized value, or compute of it; what only moves it, and quantizers
    between, are looked through.
    """
    waiting, seen = [value], {value}
    while waiting and len(seen) < _FAR:
        for node in graph.consumers(waiting.pop()):
            joins = node.has(Trait.JOINS)
            passed = joins or node.op in _PASSED or node.has(*_MOVES)
            if joins or not passed:
                yield subject(node)
            if passed and node.outputs[0] not in seen:
                seen.add(node.outputs[0])
                waiting.append(node.outputs[0])
