"""Dequantize moves forward, so that data stays in 8 bits as long as possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..ir.cleanup import erase_unread
from ..ir.decision import DequantizeFate, Fate, Half, QuantizeFate
from ..ir.graph import Graph
from ..ir.node import Node, origin_of, subject
from ..ir.ops.spec import Trait
from ..ir.paths import keeps_shape
from ..ir.types import DType, Quantization
from .base import Contract, fired, fits_f32, refused, swap
from .group import Group, Rewrite, Visitor
from .retyping import moves_codes
from .tabulate import to_be_tabulated
from .unify_concat_types import Joins

__all__ = ["MoveDequantize"]


_MERGED = frozenset({"Mul", "Div", "Add", "Sub"})
"""What joins a scale or a zero point, where the other operand is constant."""


@dataclass(frozen=True)
class MoveDequantize:
    """Moves Dequantize behind operations that commute with it.

    Before -> after::

        Op(Dequantize(q){s, z})            ->  Dequantize(Op(q)){s, z}        Op moves data; per tensor
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

    Legal because: Dequantize works element by element, and is increasing for s > 0; (q - z) * s * c
    = (q - z) * (s * c). The last
    one is exact in f32: |code - z| < 2^16, so the quotient is off by less than 2^-6 from the
    integer that it is rounded to; it is what becomes of 16-bit codes too, which nothing else here
    moves.
    Refuses when: a scale is negative (order would turn), parameters run along an axis, the
    operands' codes differ in type,
    what reads a relu knows no negative numbers (roots, logarithms): rounding could make some; or
    the arithmetic becomes a table. A table costs the same whatever it holds, and what a quantizer
    writes around a decomposed gelu, erf(q) + 1, is a tie at every code: there another order of the
    same f32 operations gives other codes than the model.
    """

    name: ClassVar[str] = "move_dequantize"
    contract: ClassVar[Contract] = Contract("identity", "ties")

    def run(self, graph: Graph) -> None:
        """One walk in topological order; the readers of a Dequantize that moved are met again."""
        Group((self,)).run(graph)

    def visitor(self, graph: Graph) -> Visitor:
        """What moves Dequantize behind a node. It ends: each operation is crossed once, and works
        on codes then, or is gone.
        """
        return _Mover(self, graph)

    def rewrite(
        self, graph: Graph, node: Node, tables: frozenset[str], trail: _Trail
    ) -> Rewrite | None:
        """Applies the rule that matches; what a Dequantize stands in front of then is looked at
        next.
        """
        if node.op == "Quantize":
            return Rewrite() if self._cancel(graph, node, trail) else None
        moved = self._crossed(graph, node, tables, trail)
        return (
            None if moved is None else Rewrite([reader.name for reader in graph.consumers(moved)])
        )

    def _crossed(
        self, graph: Graph, node: Node, tables: frozenset[str], trail: _Trail
    ) -> str | None:
        """The value that a Dequantize makes now which stood in front of the node; None where it
        stays.
        """
        decode = graph.producer(node.inputs[0]) if node.inputs and node.inputs[0] else None
        if node.op == "Concat":
            return self._concat(graph, node, trail)
        if (
            (decode is None or decode.op != "Dequantize")
            and node.op in _MERGED
            and node.has(Trait.COMMUTATIVE)
        ):
            decode = graph.producer(node.inputs[1])
        if (
            decode is None
            or decode.op != "Dequantize"
            or graph.constant(decode.inputs[0]) is not None
        ):
            return None
        if node.op in _MERGED:
            if node.name in tables:
                refused(
                    graph,
                    self.name,
                    node,
                    "it becomes part of a table, which holds the model's own arithmetic",
                )
                return None
            return self._merge(graph, node, decode, trail)
        return self._move(graph, node, decode, trail)

    # -- one input ---------------------------------------------------------------------------------

    def _move(self, graph: Graph, node: Node, decode: Node, trail: _Trail) -> str | None:
        quant = _quant(decode)
        codes = decode.inputs[0]
        if graph.type(codes).dtype not in (DType.U8, DType.S8):
            return None
        if node.op == "Relu":
            return self._relu(graph, node, decode, quant, trail)
        # Pad brings values that x has not: their code is looked up below.
        layout = node.has(Trait.LAYOUT_ONLY) or node.op == "Pad" or _repeats_for_codes(graph, node)
        if (
            not (layout or node.has(Trait.SELECTS))
            or len([v for v in node.outputs if v]) != 1
            or decode.output in node.inputs[1:]
        ):
            return None
        if not quant.per_tensor:
            refused(
                graph,
                self.name,
                node,
                "the quantization runs along an axis",
                expected="per-tensor quantization",
                found=f"axis {quant.axis}",
            )
            return None
        if not layout and quant.scale[0] < 0:
            refused(
                graph,
                self.name,
                node,
                "a negative scale turns the order of the codes",
                expected="scale > 0",
                found=f"scale {quant.scale[0]:g}",
            )
            return None
        inputs = list(node.inputs[1:])
        if node.op == "Pad":
            filled = _pad_code(graph, node, decode, quant)
            if filled is None:
                refused(
                    graph,
                    self.name,
                    node,
                    "the padding value has no code",
                    expected="padding with a value on the quantizer's grid",
                    found="another",
                )
                return None
            inputs = filled
        moved = graph.add(
            node.op,
            [codes, *inputs],
            node.attrs,
            name=node.name,
            outputs=[graph.fresh(f"{node.output}/codes")],
            origin=node.origin,
        )
        return self._decode_again(graph, node, decode, moved.output, quant, "works on codes", trail)

    def _relu(
        self, graph: Graph, node: Node, decode: Node, quant: Quantization, trail: _Trail
    ) -> str | None:
        codes, zeros = decode.inputs[0], set(quant.zero_point)
        zero = zeros.pop()
        if zeros or not zero.is_integer() or min(quant.scale) <= 0:
            refused(
                graph,
                self.name,
                node,
                "relu keeps its place: no code stands for 0, or codes fall where values rise",
                expected="one integer zero point, scale > 0",
                found=f"zero point {quant.zero_point[0]:g}, scale {min(quant.scale):g}",
            )
            return None
        if zero and any(
            reader.has(Trait.NAN_BELOW_ZERO) for reader in graph.consumers(node.output)
        ):
            # (q - z)*s may be computed as q*s - z*s, which rounds to either side of 0 at q = z.
            refused(
                graph,
                self.name,
                node,
                "relu keeps its place: what stands behind it knows no negative numbers, not even rounding errors",
                expected="zero point 0, or an operation that takes negative numbers",
                found=f"zero point {zero:g}",
            )
            return None
        if zero <= graph.type(codes).dtype.range[0]:
            return self._decode_again(
                graph, node, decode, codes, quant, "never negative: relu goes", trail
            )
        encode = _maker(graph, node, decode)
        if encode is not None and zero <= encode.attr("hi", int):
            narrowed = _from(graph, encode, int(zero))
            value = self._decode_again(
                graph,
                node,
                decode,
                narrowed,
                quant,
                f"the quantizer in front gives no code below {zero:g}",
                trail,
            )
            erase_unread(graph, [encode])
            return value
        if zero or not _are_read(graph, node.output):
            refused(
                graph,
                self.name,
                node,
                "relu keeps its place: no code below that of 0 could be kept from coming",
                expected="codes made by a Quantize that only this relu reads, or s8 codes with zero point 0 for a convolution",
                found=f"zero point {zero:g}",
            )
            return None
        codes = graph.add(
            "Relu",
            [codes],
            name=node.name,
            outputs=[graph.fresh(f"{node.output}/codes")],
            origin=node.origin,
        ).output
        return self._decode_again(graph, node, decode, codes, quant, "works on codes", trail)

    def _merge(self, graph: Graph, node: Node, decode: Node, trail: _Trail) -> str | None:
        left = node.inputs[0] == decode.output
        constant = graph.constant(node.inputs[1 if left else 0])
        if (
            constant is None
            or node.inputs[0] == node.inputs[1]
            or (not left and not node.has(Trait.COMMUTATIVE))
        ):
            return None
        shape = graph.type(decode.output).shape
        merged = (
            None
            if shape is None
            else _merged(node.op, _quant(decode), np.asarray(constant, np.float64), len(shape))
        )
        if merged is None or not keeps_shape(graph, node, decode.output):
            refused(
                graph,
                self.name,
                node,
                "the constant does not fit the quantization",
                expected="finite, not 0, one value or along the same axis",
                found=f"shape {list(constant.shape)}"
                if shape is not None
                else "a tensor of unknown rank",
            )
            return None
        return self._decode_again(
            graph, node, decode, decode.inputs[0], merged, "joined the scale and zero point", trail
        )

    def _decode_again(
        self,
        graph: Graph,
        node: Node,
        decode: Node,
        codes: str,
        quant: Quantization,
        reason: str,
        trail: _Trail,
    ) -> str:
        again = graph.add(
            "Dequantize",
            [codes],
            {"quant": quant},
            name=decode.name,
            outputs=[graph.fresh(f"{node.output}/values")],
            origin=decode.origin[:1],
            quantizer=decode.quantizer,
        )
        trail.passed(again, [decode], node)
        value = self._settle(graph, node, again)
        erase_unread(graph, [decode])
        fired(graph, self.name, node, reason)
        return value

    def _settle(self, graph: Graph, node: Node, again: Node) -> str:
        swap(graph, node, again.output)
        return graph.node(again.name).output

    # -- several inputs, and none ------------------------------------------------------------------

    def _concat(self, graph: Graph, node: Node, trail: _Trail) -> str | None:
        decodes = [graph.producer(value) for value in node.inputs]
        if any(
            d is None or d.op != "Dequantize" or graph.constant(d.inputs[0]) is not None
            for d in decodes
        ):
            return None
        found = [d for d in decodes if d is not None]
        quant = _joined(graph, node, found)
        if isinstance(quant, str):
            refused(
                graph,
                self.name,
                node,
                "the inputs of the concatenation cannot be joined as codes",
                expected="8-bit codes of one type, per tensor",
                found=quant,
                hint="calibrate the inputs of a concatenation together",
            )
            return None
        moved = graph.add(
            "Concat",
            [d.inputs[0] for d in found],
            node.attrs,
            name=node.name,
            outputs=[graph.fresh(f"{node.output}/codes")],
            origin=node.origin,
        )
        apart = list({d.name: d for d in found}.values())
        again = graph.add(
            "Dequantize",
            [moved.output],
            {"quant": quant},
            name=found[0].name,
            outputs=[graph.fresh(f"{node.output}/values")],
            origin=origin_of(*apart, node)[:1],
            quantizer=found[0].quantizer,
        )
        trail.passed(again, apart, node)
        value = self._settle(graph, node, again)
        erase_unread(graph, apart)
        fired(
            graph,
            self.name,
            node,
            "works on codes"
            + ("" if quant.per_tensor else ", each input with its own scale and zero point"),
        )
        return value

    def _cancel(self, graph: Graph, node: Node, trail: _Trail) -> bool:
        """Removes a Quantize of what was just decoded from the same codes."""
        decode = graph.producer(node.inputs[0])
        if (
            decode is None
            or decode.op != "Dequantize"
            or graph.constant(decode.inputs[0]) is not None
        ):
            return False
        codes = decode.inputs[0]
        kind = graph.type(codes)
        low, high = kind.dtype.range
        narrow = kind.dtype in (DType.U8, DType.S8)
        same = node.attrs["quant"] == _quant(decode) and node.attrs["dtype"] is kind.dtype
        covers = node.attrs["lo"] == low and node.attrs["hi"] == high
        encode = graph.producer(codes)
        if same and not covers and encode is not None and encode.op == "Quantize":
            covers = (
                encode.attrs["lo"] == node.attrs["lo"] and encode.attrs["hi"] == node.attrs["hi"]
            )
        if (
            not same
            or not covers
            or not (narrow or kind.dtype.is_wide_code)
            or kind != graph.type(node.output)
        ):
            return False
        for quantizer in node.quantizer:
            graph.fates.append(
                Fate(
                    quantizer,
                    Half.QUANTIZE,
                    QuantizeFate.REDUNDANT,
                    f"its input has these codes already ({subject(decode)})",
                )
            )
        for quantizer in trail.quantizers(decode):
            reason = "its reader encodes with the same scale and zero point"
            graph.fates.append(
                Fate(quantizer, Half.DEQUANTIZE, DequantizeFate.REDUNDANT, reason, subject(node))
            )
        fired(graph, self.name, node, "encodes what was just decoded, with the same parameters")
        swap(graph, node, codes)
        erase_unread(graph, [decode])
        return True


class _Mover(Visitor):
    """The pass at work on a graph."""

    def __init__(self, step: MoveDequantize, graph: Graph) -> None:
        self._step, self._graph = step, graph
        self._tables, self._trail, self._joins = to_be_tabulated(graph), _Trail(), Joins(graph)

    def visit(self, node: Node) -> Rewrite | None:
        return (
            None
            if self._joins.waits(node)
            else self._step.rewrite(self._graph, node, self._tables, self._trail)
        )

    def follow(self, anew: Mapping[str, str]) -> None:
        self._trail.follow(anew)

    def done(self) -> None:
        self._trail.write(self._graph)


_Parts = tuple["str | _Parts", ...]


class _Trail:
    """Where each Dequantize that moved comes from, and whose halves it is: merged once, when all of
    them stand, since one may pass thousands of operations and stand for what as many concatenations
    have joined."""

    def __init__(self) -> None:
        self._origins: dict[str, _Parts] = {}
        self._quantizers: dict[str, _Parts] = {}

    def passed(self, made: Node, decodes: list[Node], node: Node) -> None:
        """`made` decodes behind `node` what `decodes` had decoded in front of it."""
        self._origins[made.name] = (
            *(self._origins.get(decode.name, decode.origin) for decode in decodes),
            *node.origin,
        )
        self._quantizers[made.name] = tuple(
            self._quantizers.get(decode.name, decode.quantizer) for decode in decodes
        )

    def quantizers(self, decode: Node) -> tuple[str, ...]:
        """The quantizers whose halves a Dequantize is."""
        return _names(self._quantizers.get(decode.name, decode.quantizer))

    def follow(self, anew: Mapping[str, str]) -> None:
        """What was known of an old Dequantize holds for the one that was made in its place, under a
        name that may have been another's.
        """
        for known in (self._origins, self._quantizers):
            held = {new: known.pop(old) for old, new in anew.items() if old in known}
            for new in anew.values():
                known.pop(new, None)
            known.update(held)

    def write(self, graph: Graph) -> None:
        """Gives those that are left their whole origin, and the names of all their quantizers."""
        for name, parts in self._origins.items():
            if name in graph and graph.node(name).op == "Dequantize":
                node = graph.node(name)
                graph.relabel(replace(node, origin=_names(parts), quantizer=self.quantizers(node)))


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
    encode = graph.producer(decode.inputs[0])
    if (
        encode is None
        or encode.op != "Quantize"
        or graph.sole_consumer(encode.output) is not decode
    ):
        return None
    return encode if graph.sole_consumer(decode.output) is node else None


def _from(graph: Graph, encode: Node, lowest: int) -> str:
    """The codes of a Quantize from `lowest` on: max(clip(c, lo, hi), z) = clip(c, max(lo, z), hi)
    for z <= hi.
    """
    attrs = {**encode.attrs, "lo": max(encode.attr("lo", int), lowest)}
    name = graph.fresh(f"{encode.output}/from_{lowest}")
    return graph.add(
        "Quantize",
        encode.inputs,
        attrs,
        name=encode.name,
        outputs=[name],
        origin=encode.origin,
        quantizer=encode.quantizer,
    ).output


def _repeats_for_codes(graph: Graph, node: Node) -> bool:
    """True for a Resize that copies elements, and whose result something reads that takes codes:
    others take it with what follows.
    """
    nearest = node.op == "Resize" and node.attrs["mode"] == "nearest"
    extrapolates = node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return nearest and not extrapolates and _are_read(graph, node.output)


def _quant(decode: Node) -> Quantization:
    return decode.attr("quant", Quantization)


def _merged(
    op: str,
    quant: Quantization,
    constant: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    rank: int,
) -> Quantization | None:
    if constant.size == 0:
        return None
    if constant.size == 1:
        axis, values = quant.axis, constant.reshape(1)
    else:
        long = [i for i, size in enumerate(constant.shape) if size != 1]
        axis = rank - constant.ndim + long[0]
        if len(long) != 1 or (quant.axis is not None and quant.axis != axis):
            return None
        values = constant.reshape(-1)
    scale, zero = quant.scales.astype(np.float64), quant.zero_points.astype(np.float64)
    if op in ("Mul", "Div"):
        if not np.all(np.isfinite(values)) or not np.all(values):
            return None
        scale = scale * values if op == "Mul" else scale / values
        zero = np.broadcast_to(zero, scale.shape)
    else:
        if not np.all(np.isfinite(values)):
            return None
        moved = zero - values / scale if op == "Add" else zero + values / scale
        nearest = np.rint(moved)
        close = (
            np.abs(moved - nearest) <= np.maximum(np.abs(nearest), 1) * 2.0**-22
        )  # c and s are f32: see split
        zero = np.where(
            close & (nearest != zero), nearest, moved
        )  # what is added to keep a divisor from 0 must not vanish
        scale = np.broadcast_to(scale, zero.shape)
    if not fits_f32(scale):
        return None
    return Quantization.of(scale, zero, axis)


def _joined(graph: Graph, node: Node, decodes: list[Node]) -> Quantization | str:
    """How the concatenated codes decode: as each input does, along the concatenated axis; or why
    they cannot be joined.
    """
    dtypes = {graph.type(d.inputs[0]).dtype for d in decodes}
    if len(dtypes) != 1 or not dtypes <= {DType.U8, DType.S8}:
        return "codes of " + " and ".join(sorted(dtype.value for dtype in dtypes))
    quants = [_quant(d) for d in decodes]
    if len(set(quants)) == 1 and quants[0].per_tensor:
        return quants[0]
    joined = graph.type(node.output).shape
    if joined is None:
        return "tensors of unknown rank"
    axis = node.attr("axis", int) % len(joined)
    scales: list[float] = []
    zeros: list[float] = []
    for decode, quant in zip(decodes, quants, strict=True):
        size = graph.type(decode.inputs[0]).shape
        length = size[axis] if size is not None else "?"
        if not isinstance(length, int) or quant.axis not in (None, axis):
            return f"a length of {length}, quantized along axis {quant.axis}"
        repeat = length if quant.per_tensor else 1
        scales += list(quant.scale) * repeat
        zeros += list(quant.zero_point) * repeat
    return Quantization(tuple(scales), tuple(zeros), axis)


def _pad_code(graph: Graph, node: Node, decode: Node, quant: Quantization) -> list[str] | None:
    """Inputs of the Pad on codes (without the data): pads, the code to fill with, axes; None when
    the value has no code.
    """
    dtype = graph.type(decode.inputs[0]).dtype
    inputs = [*node.inputs[1:], *[""] * (4 - len(node.inputs))]
    if node.attrs["mode"] != "constant":
        return inputs
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
