"""Dequantize moves forward, so that data stays in 8 bits as long as possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from ..ir.cleanup import erase_unread
from ..ir.decision import DequantizeFate, QuantizeFate
from ..ir.graph import Graph
from ..ir.node import Node, origin_of, subject
from ..ir.ops.movement import permutation
from ..ir.ops.spec import Attr, Trait
from ..ir.paths import keeps_shape
from ..ir.rule import Refusal
from ..ir.telling import FAR, distance_of_zero, jumps_behind, zero_is_far
from ..ir.types import DType, Quantization
from .base import Contract, decide, fits_f32, settle, swap
from .group import Local, Rewrite, Visitor
from .retyping import maker_of, moves_codes, shifted
from .tabulate import to_be_tabulated
from .unify_concat_types import Joins

_MERGED = frozenset({"Mul", "Div", "Add", "Sub"})
"""What joins a scale or a zero point, where the other operand is constant."""

_INTEGERS = Quantization((1.0,), (0.0,))
"""How codes decode to the integers that they are."""

_LARGEST_ZERO_POINT = 2.0**24  # f32 does not tell codes apart that are less a larger one


def move_dequantize(graph: Graph) -> Visitor:
    """Moves Dequantize behind operations that commute with it.

    Before -> after::

        Op(Dequantize(q){s, z})            ->  Dequantize(Op(q)){s, z}        Op moves data; per tensor
        Op(RunTimeDequantize(q, s, z))     ->  RunTimeDequantize(Op(q), s, z)     likewise; behind a Transpose along its axis, too
        MaxPool(Dequantize(q){s, z})       ->  Dequantize(MaxPool(q)){s, z}   Op selects by order; s > 0, per tensor
        Relu(Dequantize(q: u8){s, 0})      ->  Dequantize(q){s, 0}            s > 0: codes are never negative
        Relu(Dequantize(Quantize(x){lo}){s, z})  ->  Dequantize(Quantize(x){max(lo, z)}){s, z}      s > 0, read by nothing else
        Relu(Dequantize(q: s8){s, 0})      ->  Dequantize(Relu(q)){s, 0}      s > 0, for a reader that takes codes
        Resize(Dequantize(q){s, z})        ->  Dequantize(Resize(q)){s, z}    nearest, for a reader that takes codes; per tensor
        Pad(Dequantize(q){s, z}, 0)        ->  Dequantize(Pad(q, z)){s, z}    z a code of q's type
        Concat(Dequantize(a){p}, Dequantize(b){r})  ->  Dequantize(Concat(a, b)){p of a's part, r of b's part}
        Mul(Dequantize(q){s, z}, c)        ->  Dequantize(q){s*c, z}          c constant, one value or along s's axis
        Add(Dequantize(q){s, z}, c)        ->  Dequantize(q){s, z - c/s}      likewise
        Quantize(Dequantize(q){p}){p}      ->  q                              same type, q's codes within lo..hi
        Cast(Dequantize(q){1, 0})          ->  q                              to q's type
        Cast(Dequantize(Quantize(x){s, z}){1, y})  ->  Quantize(x){s, z - y}  to s8 or u8 that holds the codes less y; read by nothing else
        Cast(q)                            ->  Dequantize(q){1, 0}            to f32; q made by a Quantize, moved about or not

    Legal because: Dequantize works element by element, and is increasing for s > 0; (q - z) * s * c
    = (q - z) * (s * c). Quantize of the same codes is exact in f32: |code - z| < 2^16, so the
    quotient is off by less than 2^-6 from the integer that it is rounded to; it is what becomes of
    16-bit codes too, which nothing else here moves. A Cast of integers to a type that holds them
    changes none, and back it is the Dequantize of scale 1: OpenVINO's low precision
    transformations write both, and decode with Sub and Mul.
    Refuses when: a scale is negative (order would turn), parameters run along an axis, the
    operands' codes differ in type, a constant is added and what follows jumps (a rounding or
    comparison of the model's own), which would tell it from what (q - (z - c/s))*s rounds to at
    q = z; what reads a relu knows no negative numbers (roots, logarithms): rounding could make
    some; what is cast to codes may be no integer of their type; or the arithmetic becomes a table.
    A table costs the same whatever it holds, and what a quantizer
    writes around a decomposed gelu, erf(q) + 1, is a tie at every code: there another order of the
    same f32 operations gives other codes than the model.
    """
    # It ends: each operation is crossed once, and works on codes then, or is gone.
    trail = _Trail()
    # arithmetic around a Cast would seem to be worth a table, and without it is none
    for node in graph.each("Cast"):
        _cast(graph, trail, node)
    tables, joins = to_be_tabulated(graph), Joins(graph)

    def visit(node: Node) -> Rewrite | None:
        return None if joins.waits(node) else _visited(graph, trail, tables, node)

    return Visitor(visit, trail.follow, partial(trail.write, graph))


MOVE_DEQUANTIZE = Local("move_dequantize", Contract("identity", "ties"), move_dequantize)


@dataclass(frozen=True)
class _Crossed:
    """What stands behind an operation in its place: a Dequantize of codes, and how they came to
    be. The operation is gone where its arithmetic is in the scale, the zero point or the codes' bounds.
    """

    codes: str
    quant: Quantization
    how: str
    gone: bool = False


def _visited(graph: Graph, trail: _Trail, tables: frozenset[str], node: Node) -> Rewrite | None:
    """Applies the rule that matches; what a Dequantize stands in front of then is looked at
    next.
    """
    if node.op == "Quantize":
        return _cancelled(graph, trail, node)
    if node.op == "Cast":
        return _cast(graph, trail, node)
    decodes = _decodes(graph, node)
    if not decodes:
        return _moved_at_run_time(graph, node)
    found: _Crossed | Refusal | None
    if node.op == "Concat":
        found = _joined(graph, node, decodes)
    elif node.op not in _MERGED:
        found = _moved(graph, node, decodes[0])
    elif node.name in tables:
        found = Refusal(
            "it becomes part of a table, which holds the model's own arithmetic",
            "an operation on its own",
            "one of a table",
            "nothing to change: a table does all of it at once",
        )
    else:
        found = _merged(graph, node, decodes[0])
    if not isinstance(found, _Crossed):
        decide(graph, MOVE_DEQUANTIZE.name, node, found)
        return None
    makers = [graph.producer(decode.input, "Quantize") for decode in decodes]
    again = graph.again(
        decodes[0],
        [found.codes],
        {"quant": found.quant},
        value=f"{node.output}/values",
        origin=origin_of(decodes[0], node)[:1],
    )
    trail.passed(again, decodes, node)
    if found.gone:
        graph.joined.update(dict.fromkeys(node.origin))
    swap(graph, node, again.output)
    erase_unread(graph, [*filter(None, makers), *decodes])
    decide(graph, MOVE_DEQUANTIZE.name, node, found.how)
    value = graph.node(again.name).output
    return Rewrite([reader.name for reader in graph.consumers(value)])


def _cancelled(graph: Graph, trail: _Trail, node: Node) -> Rewrite | None:
    """Removes a Quantize of what was just decoded from the same codes."""
    decode = graph.decoder(node.input)
    if decode is None:
        return None
    codes, bounds = decode.input, (node.attrs["lo"], node.attrs["hi"])
    kind, encode = graph.type(codes), graph.producer(codes, "Quantize")
    covers = bounds == kind.dtype.range or (
        encode is not None and bounds == (encode.attrs["lo"], encode.attrs["hi"])
    )
    small = kind.dtype.is_code or kind.dtype.is_wide_code
    same = node.quant == decode.quant and kind == graph.type(node.output)
    if not (covers and small and same):
        return None
    reason = f"its input has these codes already ({subject(decode)})"
    settle(graph, node.quantizer, QuantizeFate.REDUNDANT, reason)
    reason = "its reader encodes with the same scale and zero point"
    quantizers = trail.quantizers(decode)
    settle(graph, quantizers, DequantizeFate.REDUNDANT, reason, [subject(node)])
    verdict = "encodes what was just decoded, with the same parameters"
    decide(graph, MOVE_DEQUANTIZE.name, node, verdict)
    swap(graph, node, codes)
    erase_unread(graph, [decode])
    return Rewrite()


def _cast(graph: Graph, trail: _Trail, node: Node) -> Rewrite | None:
    """A Cast between codes and the integers that they stand for: the codes themselves, or their
    Dequantize.
    """
    to = graph.type(node.output).dtype
    readers = [reader.name for reader in graph.consumers(node.output)]
    maker = maker_of(graph, node.input)
    if to is DType.F32 and maker is not None and graph.type(node.input).dtype.is_code:
        values = graph.add(
            "Dequantize",
            [node.input],
            {"quant": _INTEGERS},
            name=node.name,
            outputs=[graph.fresh(f"{node.output}/values")],
            origin=node.origin,
            quantizer=maker.quantizer,
        )
        swap(graph, node, values.output)
        decide(graph, MOVE_DEQUANTIZE.name, values, "codes in f32: they decode with scale 1")
        return Rewrite(readers)
    decode = graph.decoder(node.input)
    if decode is None or not to.is_code:
        return None
    codes = _integers(graph, node, decode)
    if isinstance(codes, Refusal):
        decide(graph, MOVE_DEQUANTIZE.name, node, codes)
        return None
    reason = f"its reader takes the codes, as integers of {to.value}"
    quantizers = trail.quantizers(decode)
    settle(graph, quantizers, DequantizeFate.REDUNDANT, reason, [subject(node)])
    decide(graph, MOVE_DEQUANTIZE.name, node, "the integers that it gives are codes")
    encode = graph.producer(decode.input, "Quantize")
    swap(graph, node, codes)
    erase_unread(graph, [encode, decode] if encode is not None else [decode])
    return Rewrite(readers)


_Parts = tuple["str | _Parts", ...]


class _Trail:
    """Where each Dequantize that moved comes from, and whose halves it is: merged once, when all of
    them stand, since one may pass thousands of operations and stand for what as many concatenations
    have joined."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Parts, _Parts]] = {}  # origins, and quantizers

    def _of(self, decode: Node) -> tuple[_Parts, _Parts]:
        return self._known.get(decode.name, (decode.origin, decode.quantizer))

    def passed(self, made: Node, decodes: list[Node], node: Node) -> None:
        """`made` decodes behind `node` what `decodes` had decoded in front of it."""
        origins, quantizers = zip(*map(self._of, decodes), strict=True)
        self._known[made.name] = ((*origins, *node.origin), quantizers)

    def quantizers(self, decode: Node) -> tuple[str, ...]:
        """The quantizers whose halves a Dequantize is."""
        return _names(self._of(decode)[1])

    def follow(self, anew: Mapping[str, str]) -> None:
        """What was known of an old Dequantize holds for the one that was made in its place, under a
        name that may have been another's.
        """
        held = {new: self._known.pop(old) for old, new in anew.items() if old in self._known}
        for new in anew.values():
            self._known.pop(new, None)
        self._known.update(held)

    def write(self, graph: Graph) -> None:
        """Gives those that are left their whole origin, and the names of all their quantizers."""
        for name, (origin, quantizer) in self._known.items():
            if name in graph and graph.node(name).op == "Dequantize":
                node, halves = graph.node(name), _names(quantizer)
                graph.relabel(replace(node, origin=_names(origin), quantizer=halves))


def _names(parts: _Parts) -> tuple[str, ...]:
    """The names in order, each once."""
    found: dict[str, None] = {}
    seen: set[int] = set()
    pending: list[str | _Parts] = [parts]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            found[part] = None
        elif id(part) not in seen:
            seen.add(id(part))
            pending += reversed(part)
    return tuple(found)


# -- one operation ---------------------------------------------------------------------------------


def _decodes(graph: Graph, node: Node) -> list[Node]:
    """The Dequantize in front of an operation that may move behind it."""
    if node.op == "Concat":
        found = [graph.decoder(value) for value in node.inputs]
        return [] if None in found else [decode for decode in found if decode is not None]
    swapped = node.op in _MERGED and node.has(Trait.COMMUTATIVE)
    second = swapped and graph.producer(node.input, "Dequantize") is None
    decode = graph.decoder(node.operand(1 if second else 0))
    return [] if decode is None else [decode]


def _moved(graph: Graph, node: Node, decode: Node) -> _Crossed | Refusal | None:
    """An operation that moves or selects elements works on their codes."""
    quant, codes = decode.quant, decode.input
    if not graph.type(codes).dtype.is_code:
        return None
    if node.op == "Relu":
        return _relu(graph, node, decode)
    # Pad brings values that x has not: their code is looked up below.
    layout = node.has(Trait.LAYOUT_ONLY) or node.op == "Pad" or _repeats_for_codes(graph, node)
    if not (layout or node.has(Trait.SELECTS)) or not _is_all_of(node, decode):
        return None
    if not quant.per_tensor:
        reason = "the quantization runs along an axis"
        return Refusal(
            reason, "per-tensor quantization", f"axis {quant.axis}", "quantize per tensor"
        )
    if not layout and quant.scale[0] < 0:
        reason = "a negative scale turns the order of the codes"
        return Refusal(
            reason, "scale > 0", f"scale {quant.scale[0]:g}", "give the quantizer a positive scale"
        )
    inputs = _pad_code(graph, node, decode, quant) if node.op == "Pad" else node.inputs[1:]
    if inputs is None:
        expected = "padding with a value on the quantizer's grid"
        return Refusal(
            "the padding value has no code",
            expected,
            "another",
            "pad with a value that has a code, such as 0",
        )
    moved = graph.again(node, [codes, *inputs], value=f"{node.output}/codes")
    return _Crossed(moved.output, quant, "works on codes")


def _moved_at_run_time(graph: Graph, node: Node) -> Rewrite | None:
    """An operation that moves elements works on codes whose scale is computed or fed; s may be any
    number then, so that nothing is known of their order.
    """
    decode = graph.producer(node.input, "RunTimeDequantize") if node.inputs else None
    if decode is None or not node.has(Trait.LAYOUT_ONLY) or not _is_all_of(node, decode):
        return None
    axis = None if decode.attrs["axis"] is None else decode.attr("axis", int)
    if axis is not None and node.op != "Transpose":
        refusal = Refusal(
            "the quantization runs along an axis",
            "per-tensor quantization",
            f"axis {axis}",
            "quantize per tensor",
        )
        decide(graph, MOVE_DEQUANTIZE.name, node, refusal)
        return None
    attrs: dict[str, Attr] = {}
    if axis is not None:
        attrs["axis"] = permutation(node.attrs, graph.type(decode.input).rank).index(axis)
    moved = graph.again(node, [decode.input, *node.inputs[1:]], value=f"{node.output}/codes")
    again = graph.again(
        decode,
        [moved.output, *decode.inputs[1:]],
        attrs,
        value=f"{node.output}/values",
        origin=origin_of(decode, node),
    )
    swap(graph, node, again.output)
    erase_unread(graph, [decode])
    decide(graph, MOVE_DEQUANTIZE.name, node, "works on codes")
    value = graph.node(again.name).output
    return Rewrite([reader.name for reader in graph.consumers(value)])


def _is_all_of(node: Node, decode: Node) -> bool:
    """True when the node's one result is made of the decoded values alone: they are its first
    operand and no other.
    """
    return len([v for v in node.outputs if v]) == 1 and decode.output not in node.inputs[1:]


def _relu(graph: Graph, node: Node, decode: Node) -> _Crossed | Refusal:
    """A relu goes where codes never fall below that of 0, or works on codes whose 0 is 0."""
    quant, codes = decode.quant, decode.input
    zeros, zero = set(quant.zero_point), quant.zero_point[0]
    if len(zeros) > 1 or not zero.is_integer() or min(quant.scale) <= 0:
        return Refusal(
            "relu keeps its place: no code stands for 0, or codes fall where values rise",
            "one integer zero point, scale > 0",
            f"zero point {zero:g}, scale {min(quant.scale):g}",
            _zero_hint(graph, node, quant),
        )
    readers = graph.consumers(node.output)
    if zero and any(reader.has(Trait.NAN_BELOW_ZERO) for reader in readers):
        # (q - z)*s may be computed as q*s - z*s, which rounds to either side of 0 at q = z.
        return Refusal(
            "relu keeps its place: what stands behind it knows no negative numbers, not even rounding errors",
            "zero point 0, or an operation that takes negative numbers",
            f"zero point {zero:g}",
            _output_hint(
                graph,
                node,
                "quantize the relu's output to unsigned codes with zero point 0 (QUInt8)",
            ),
        )
    if zero <= graph.type(codes).dtype.range[0]:
        return _Crossed(codes, quant, "never negative: relu goes", gone=True)
    encode = _maker(graph, node, decode)
    if encode is not None and zero <= encode.attr("hi", int):
        # The codes from z on: max(clip(c, lo, hi), z) = clip(c, max(lo, z), hi) for z <= hi.
        lowest = int(zero)
        attrs = {**encode.attrs, "lo": max(encode.attr("lo", int), lowest)}
        name = f"{encode.output}/from_{lowest}"
        narrowed = graph.again(encode, encode.inputs, attrs, value=name)
        how = f"the quantizer in front gives no code below {zero:g}"
        return _Crossed(narrowed.output, quant, how, gone=True)
    if zero or not _are_read(graph, node.output):
        return Refusal(
            "relu keeps its place: no code below that of 0 could be kept from coming",
            "codes made by a Quantize that only this relu reads, or s8 codes with zero point 0 for a convolution",
            f"zero point {zero:g}",
            _output_hint(graph, node, "quantize the relu's output rather than its input"),
        )
    moved = graph.again(node, [codes], value=f"{node.output}/codes")
    return _Crossed(moved.output, quant, "works on codes")


def _zero_hint(graph: Graph, node: Node, quant: Quantization) -> str:
    if not quant.per_tensor:
        return "nothing to change: a normalization in front gives each channel a zero of its own"
    if quant.scale[0] <= 0:
        return "give the quantizer a positive scale"
    calibrate = "calibrate to a range that holds 0 exactly"
    return calibrate + _output_hint(graph, node, "; or quantize the relu's output", quantized="")


def _output_hint(
    graph: Graph,
    node: Node,
    hint: str,
    quantized: str = "nothing to change: its output is quantized",
) -> str:
    """A hint to quantize the output of a node, unless all that reads it does."""
    readers = graph.consumers(node.output)
    return quantized if readers and all(r.op == "Quantize" for r in readers) else hint


def _merged(graph: Graph, node: Node, decode: Node) -> _Crossed | Refusal | None:
    """Arithmetic with a constant joins the scale and the zero point."""
    left = node.input == decode.output
    constant = graph.constant(node.inputs[1 if left else 0])
    if constant is None or not (left or node.has(Trait.COMMUTATIVE)):
        return None
    shape = graph.type(decode.output).shape
    quant = None
    if node.op in ("Add", "Sub") and jumps_behind(graph, node):
        # (q - z)*s + c is c at q = z, and (q - (z - c/s))*s rounds to either side of it
        return Refusal(
            "the constant stays behind the scale: what follows tells it from the numbers next to it",
            "nothing that jumps, or a quantizer in between",
            "a rounding or a comparison",
            "quantize the output of this operation rather than its input",
        )
    if shape is not None and keeps_shape(graph, node, decode.output):
        quant = _with_constant(node.op, decode.quant, np.asarray(constant, np.float64), len(shape))
    if quant is None:
        known = shape is not None
        return Refusal(
            "the constant does not fit the quantization",
            "finite, not 0, one value or along the same axis",
            f"shape {list(constant.shape)}" if known else "a tensor of unknown rank",
            _output_hint(
                graph, node, "quantize the output of this operation rather than its input"
            ),
        )
    farthest = max(_read_as(graph, decode), key=distance_of_zero)
    if (
        node.op in ("Add", "Sub")
        and not _in_whole_codes(decode.quant, np.asarray(constant, np.float64))
        and zero_is_far(graph, node, farthest)
    ):
        return Refusal(
            "the constant stays behind the scale: (q - (z - c/s))*s would lose it",
            f"an s*z of {FAR:g} at most, or a c/s without a fraction",
            f"{distance_of_zero(farthest):g}",
            "quantize the output of this operation rather than its input",
        )
    return _Crossed(decode.input, quant, "joined the scale and zero point", gone=True)


def _read_as(graph: Graph, decode: Node) -> list[Quantization]:
    """How the codes may be decoded in the end: s8 codes may still become u8 codes with 128 more."""
    signed = graph.type(decode.input).dtype is DType.S8
    return [decode.quant, *([shifted(decode.quant, 128)] if signed else [])]


def _in_whole_codes(quant: Quantization, constant: npt.NDArray[np.float64]) -> bool:
    """True where a constant is a number of codes, as (q - z)*s has them: f32 holds the sum with z."""
    if constant.size > 1 and quant.scales.size not in (1, constant.size):
        return False
    codes = constant.reshape(-1) / quant.scales.astype(np.float64)  # of two f32: rounded
    whole = np.abs(codes - np.rint(codes)) <= np.abs(codes) * 2.0**-23
    return bool(whole.all()) and not np.any(quant.zero_points % 1)


def _integers(graph: Graph, node: Node, decode: Node) -> str | Refusal:
    """The codes that are what a Cast gives of decoded ones, made in its type where need be."""
    quant, codes, to = decode.quant, decode.input, graph.type(node.output).dtype
    encode = maker_of(graph, codes)
    bounds = (
        graph.type(codes).dtype.range
        if encode is None
        else (encode.attr("lo", int), encode.attr("hi", int))
    )
    zero = quant.zero_point[0]
    if quant.per_tensor and quant.scale[0] == 1 and zero.is_integer():
        low, high = (bound - int(zero) for bound in bounds)
        maker = _maker(graph, node, decode)
        if to.range[0] <= low <= high <= to.range[1]:
            if graph.type(codes).dtype is to and not zero:
                return codes
            if maker is not None:
                attrs: dict[str, Attr] = {**maker.attrs, "dtype": to, "lo": low, "hi": high}
                attrs["quant"] = shifted(maker.quant, -int(zero))
                value = f"{maker.output}/{to.value}"
                return graph.again(maker, maker.inputs, attrs, value=value).output
            return Refusal(
                "the codes are of another type than the integers that are wanted",
                f"codes of {to.value}, or a quantizer that nothing else reads",
                f"codes of {graph.type(codes).dtype.value}, zero point {zero:g}",
                "quantize to the type that the cast wants",
            )
    return Refusal(
        f"what is cast to {to.value} is not surely one of its integers",
        f"output scale 1, integers within {to.range[0]}..{to.range[1]}",
        f"scale {quant.scale[0]:g}, codes {bounds[0]}..{bounds[1]} less {zero:g}",
        f"give the quantizer the output range {to.range[0]}..{to.range[1]}",
    )


def _joined(graph: Graph, node: Node, decodes: list[Node]) -> _Crossed | Refusal:
    """A concatenation joins codes."""
    quant = _joined_quant(graph, node, decodes)
    if isinstance(quant, str):
        return Refusal(
            "the inputs of the concatenation cannot be joined as codes",
            "8-bit codes of one type, per tensor",
            quant,
            "give all inputs of the concatenation one scale and zero point",
        )
    codes = [decode.input for decode in decodes]
    moved = graph.again(node, codes, value=f"{node.output}/codes")
    apart = "" if quant.per_tensor else ", each input with its own scale and zero point"
    return _Crossed(moved.output, quant, f"works on codes{apart}")


def _are_read(graph: Graph, value: str) -> bool:
    """True when a primitive would read codes of the value, at once or behind max pools, which the
    next moves pass.
    """
    pending = [value]
    while pending:
        for reader in graph.consumers(pending.pop()):
            if reader.has(Trait.READS_CODES):
                return True
            if reader.has(Trait.SELECTS) and moves_codes(reader):
                pending.append(reader.output)
    return False


def _maker(graph: Graph, node: Node, decode: Node) -> Node | None:
    """The Quantize that makes the codes behind `decode` for `node` alone, or None."""
    alone = (
        graph.sole_consumer(decode.input) is decode and graph.sole_consumer(decode.output) is node
    )
    return graph.producer(decode.input, "Quantize") if alone else None


def _repeats_for_codes(graph: Graph, node: Node) -> bool:
    """True for a Resize that copies elements, and whose result something reads that takes codes:
    others take it with what follows.
    """
    nearest = node.op == "Resize" and node.attrs["mode"] == "nearest"
    extrapolates = node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return nearest and not extrapolates and _are_read(graph, node.output)


def _with_constant(
    op: str,
    quant: Quantization,
    constant: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    rank: int,
) -> Quantization | None:
    """The parameters that decode to what the op makes of the values and a constant; None where none
    do.
    """
    long = [i for i, size in enumerate(constant.shape) if size != 1]
    axis = rank - constant.ndim + long[0] if long else quant.axis
    if len(long) > 1 or quant.axis not in (None, axis) or not np.all(np.isfinite(constant)):
        return None
    values = constant.reshape(-1)
    scale, zero = quant.scales.astype(np.float64), quant.zero_points.astype(np.float64)
    if op in ("Mul", "Div"):
        if not np.all(values):
            return None
        scale = scale * values if op == "Mul" else scale / values
    else:
        steps = values / scale if op == "Sub" else -values / scale
        moved = zero + steps
        nearest = np.rint(moved)
        # c and s are f32, each within 2^-24 of what it stands for
        close = np.abs(moved - nearest) <= np.abs(steps) * 2.0**-23
        found = np.where(close & (nearest != zero), nearest, moved)
        if np.abs(found).max(initial=0) > _LARGEST_ZERO_POINT:
            return None
        # what is added to keep a divisor from 0 must not vanish
        kept = found.astype(np.float32).astype(np.float64) - zero
        lost = np.abs(kept - steps) > 2.0**-22 * np.maximum(np.abs(zero), np.abs(steps))
        if (lost | ((kept == 0) & (steps != 0))).any():
            return None
        zero = found
    return Quantization.of(scale, zero, axis) if fits_f32(scale) and values.size else None


def _joined_quant(graph: Graph, node: Node, decodes: list[Node]) -> Quantization | str:
    """How the concatenated codes decode: as each input does, along the concatenated axis; or why
    they cannot be joined.
    """
    dtypes = {graph.type(d.input).dtype for d in decodes}
    if len(dtypes) != 1 or not all(dtype.is_code for dtype in dtypes):
        return "codes of " + " and ".join(sorted(dtype.value for dtype in dtypes))
    quants = [d.quant for d in decodes]
    if len(set(quants)) == 1 and quants[0].per_tensor:
        return quants[0]
    joined = graph.type(node.output).shape
    if joined is None:
        return "tensors of unknown rank"
    axis = node.attr("axis", int) % len(joined)
    entries: list[tuple[float, float]] = []
    for decode, quant in zip(decodes, quants, strict=True):
        shape = graph.type(decode.input).shape
        length = shape[axis] if shape is not None else "?"
        if not isinstance(length, int) or quant.axis not in (None, axis):
            return f"a length of {length}, quantized along axis {quant.axis}"
        own = list(zip(quant.scale, quant.zero_point, strict=True))
        entries += own * length if quant.per_tensor else own
    scales, zeros = tuple(scale for scale, _ in entries), tuple(zero for _, zero in entries)
    return Quantization(scales, zeros, axis)


def _pad_code(graph: Graph, node: Node, decode: Node, quant: Quantization) -> list[str] | None:
    """Inputs of the Pad on codes (without the data): pads, the code to fill with, axes; None when
    the value has no code.
    """
    dtype = graph.type(decode.input).dtype
    inputs = [node.operand(index) for index in (1, 2, 3)]
    if node.attrs["mode"] != "constant":  # nothing reads the value then
        return [inputs[0], "", inputs[2]]
    value = 0.0
    if inputs[1]:
        data = graph.constant(inputs[1])
        if data is None:
            return None
        value = float(np.asarray(data).reshape(()))
    code = value / quant.scale[0] + quant.zero_point[0]
    low, high = dtype.range
    if not float(code).is_integer() or not low <= code <= high:
        return None
    inputs[1] = graph.add_constant(f"{node.name}/code", np.asarray(int(code), dtype.numpy))
    return inputs
