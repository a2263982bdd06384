"""A product of joined codes with different scales becomes a sum of products, one for each scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node, origin_of
from ..ir.types import DType, Quantization
from .base import Contract, fired, refused, swap
from .retyping import carries_codes

__all__ = ["SplitJoinedSource"]

_AXES = {"Conv": (1, 0, 1), "ConvTranspose": (1, 1, 0), "MatMul": (-1, 1, 0)}
"""The axis that is summed over in the source; the output channels' and the summed one in the
weights.
"""


@dataclass(frozen=True)
class _Part:
    """Codes that were joined, and the numbers of the channels that they became."""

    codes: str
    quant: Quantization
    channels: range
    decode: Node


@dataclass(frozen=True)
class SplitJoinedSource:
    """Multiplies what was joined by scale: the sum of the products is the product of what was
    joined.

    Before -> after::

        Conv(Concat(Dequantize(a){s}, Dequantize(b){t}), w)
        ->  Add(Conv(Dequantize(b){t}, w of b's channels), Conv(Dequantize(a){s}, w of a's channels))
        Conv(Dequantize(Concat(a, b)){s for a's channels, t for b's}, w)       likewise
        ConvTranspose, MatMul                                                  likewise

    because no int8 product takes several scales in one source: decoded, it is an f32 product, which
    takes 1.5 to 4 times as long as two in int8, and the addition is a post-op. Parts with equal
    scales stay joined. Up to 8 products were measured to pay on oneDNN 3.2.

    Legal because: a sum over channels is the sum over the parts; padding is the real 0 in each. In
    f32 the partial sums are rounded.
    Refuses when: there are more than `most` different scales, a zero point is no integer where
    padding is read, the product is not one of 8-bit codes, or a size beside the joined ones is
    known of some pieces only.
    """

    most: int = 8

    name: ClassVar[str] = "split_joined_source"
    contract: ClassVar[Contract] = Contract("identity", "ties")

    def run(self, graph: Graph) -> None:
        """Rewrites every product whose source was joined of codes with several scales or zero
        points.
        """
        for node in graph.each(*_AXES):
            rank = graph.type(node.inputs[0]).shape
            if rank is None or node.attrs.get("group", 1) != 1:
                continue
            axis = _AXES[node.op][0] % len(rank)
            parts = _parts(graph, node.inputs[0], axis)
            if any(
                _beside(graph, part.codes, axis) != _beside(graph, node.inputs[0], axis)
                for part in parts or []
            ):
                # a size is known of some pieces only: a sum of products would have a wider type
                # than the one product
                continue
            groups: dict[tuple[Quantization, DType], list[_Part]] = {}
            for part in parts or []:
                groups.setdefault((part.quant, graph.type(part.codes).dtype), []).append(part)
            weights = _weights(graph, node)
            if len(groups) < 2 or weights is None:
                continue
            if len(groups) > self.most:
                found = f"{len(groups)} of them"
                refused(
                    graph,
                    self.name,
                    node,
                    "too many scales in one source",
                    expected=f"at most {self.most} scales",
                    found=found,
                )
            elif not all(quant.integral for quant, _ in groups) and _reads_zeros(node):
                what = "a zero point of the source is no integer"
                refused(
                    graph,
                    self.name,
                    node,
                    what,
                    expected="integer zero points, or no padding",
                    found="a fraction",
                )
            else:
                self._split(graph, node, weights, list(groups.values()))

    def _split(
        self, graph: Graph, node: Node, weights: Node, groups: Sequence[Sequence[_Part]]
    ) -> None:
        total = ""
        for number, parts in enumerate(groups):
            source = _joined(graph, node, parts)
            inputs = [source, _share(graph, node, weights, parts)]
            if number == len(groups) - 1:
                inputs += node.inputs[2:]
            product = graph.add(
                node.op, inputs, node.attrs, name=node.name, origin=node.origin
            ).output
            total = (
                graph.add(
                    "Add", [product, total], name=f"{node.name}/sum", origin=node.origin
                ).output
                if total
                else product
            )
        fired(graph, self.name, node, f"{len(groups)} products, one for each scale in its source")
        before = [graph.producer(value) for value in node.inputs[:2]]
        swap(graph, node, total)
        _erase_upwards(graph, [maker for maker in before if maker is not None])


def _beside(graph: Graph, value: str, axis: int) -> list[int | str]:
    """The sizes of a value but for the one along `axis`."""
    return [size for number, size in enumerate(graph.type(value).shape or ()) if number != axis]


def _parts(graph: Graph, value: str, axis: int) -> list[_Part] | None:
    """What was joined along `axis` into the decoded `value`, each with one scale; None when
    anything else makes it.
    """
    node = graph.producer(value)
    if node is None:
        return None
    if node.op == "Dequantize":
        return _decoded(graph, node, axis)
    if not _joins(graph, node, axis):
        return None
    found: list[_Part] = []
    for joined in node.inputs:
        inner = _parts(graph, joined, axis)
        if inner is None:
            return None
        start = found[-1].channels.stop if found else 0
        found += [_moved(part, start) for part in inner]
    return found


def _joins(graph: Graph, node: Node, axis: int) -> bool:
    return node.op == "Concat" and node.attr("axis", int) % graph.type(node.output).rank == axis


def _moved(part: _Part, by: int) -> _Part:
    return _Part(
        part.codes,
        part.quant,
        range(part.channels.start + by, part.channels.stop + by),
        part.decode,
    )


def _decoded(graph: Graph, decode: Node, axis: int) -> list[_Part] | None:
    """The parts of decoded codes: a scale for each channel where each part has one."""
    quant = decode.attr("quant", Quantization)
    found: list[_Part] = []
    for codes, channels in _segments(graph, decode.inputs[0], axis, whole=quant.per_tensor):
        own = quant
        if not quant.per_tensor:
            scales, zeros = (
                set(quant.scale[channels.start : channels.stop]),
                set(quant.zero_point[channels.start : channels.stop]),
            )
            if quant.axis != axis or len(scales) != 1 or len(zeros) != 1:
                return None
            own = Quantization((scales.pop(),), (zeros.pop(),), None)
        if (
            graph.type(codes).dtype not in (DType.U8, DType.S8)
            or graph.constant(codes) is not None
            or not channels
        ):
            return None
        found.append(_Part(codes, own, channels, decode))
    return found or None


def _segments(
    graph: Graph, codes: str, axis: int, *, whole: bool, start: int = 0
) -> list[tuple[str, range]]:
    """The codes that were joined along `axis`, with the channels that they became; `whole`: as they
    are. Empty for symbolic sizes.
    """
    node = graph.producer(codes)
    if whole or node is None or not _joins(graph, node, axis):
        shape = graph.type(codes).shape
        size = shape[axis] if shape is not None else "?"
        return [(codes, range(start, start + size))] if isinstance(size, int) else []
    found: list[tuple[str, range]] = []
    for value in node.inputs:
        inner = _segments(
            graph, value, axis, whole=False, start=found[-1][1].stop if found else start
        )
        if not inner:
            return []
        found += inner
    return found


def _reads_zeros(node: Node) -> bool:
    """True when some results read padding, or not all weights: a fraction of the zero point is then
    not the same shift for all.
    """
    pads = node.attrs.get("pads")
    padded = (isinstance(pads, tuple) and any(pads)) or node.attrs.get(
        "auto_pad", "NOTSET"
    ) not in ("NOTSET", "VALID")
    return padded or node.op == "ConvTranspose"


def _weights(graph: Graph, node: Node) -> Node | None:
    """The Dequantize of constant 8-bit weights, one scale for each output channel at most, that an
    int8 product takes; else None.
    """
    decode = graph.producer(node.inputs[1])
    if decode is None or decode.op != "Dequantize" or graph.constant(decode.inputs[0]) is None:
        return None
    quant, kind = decode.attr("quant", Quantization), graph.type(decode.inputs[0])
    zeros = {zero - (128 if kind.dtype is DType.U8 else 0) for zero in quant.zero_point}
    plain = zeros == {0} or (node.op == "MatMul" and len(zeros) == 1 and quant.integral)
    flat = node.op != "MatMul" or kind.rank == 2
    along = quant.axis in (None, _AXES[node.op][1])
    return (
        decode
        if plain and flat and along and kind.dtype in (DType.U8, DType.S8, DType.U4, DType.S4)
        else None
    )


def _joined(graph: Graph, node: Node, parts: Sequence[_Part]) -> str:
    """The decoded codes of one scale."""
    axis = _AXES[node.op][0] % graph.type(node.inputs[0]).rank
    codes = parts[0].codes
    if len(parts) > 1:
        name = f"{node.name}/joined"
        codes = graph.add(
            "Concat", [part.codes for part in parts], {"axis": axis}, name=name, origin=node.origin
        ).output
    names = tuple(dict.fromkeys(name for part in parts for name in _quantizers(graph, part)))
    origin = origin_of(*{part.decode.name: part.decode for part in parts}.values())
    first = parts[0].decode.name
    return graph.add(
        "Dequantize", [codes], {"quant": parts[0].quant}, name=first, origin=origin, quantizer=names
    ).output


def _quantizers(graph: Graph, part: _Part) -> tuple[str, ...]:
    """The quantizers that made the codes: those of what decodes them, unless that decodes others as
    well.
    """
    maker = graph.producer(part.codes)
    while maker is not None and carries_codes(maker):
        maker = graph.producer(maker.inputs[0])
    made = maker.quantizer if maker is not None and maker.op == "Quantize" else ()
    return made if made and set(made) <= set(part.decode.quantizer) else part.decode.quantizer


def _share(graph: Graph, node: Node, weights: Node, parts: Sequence[_Part]) -> str:
    """The decoded weights of the parts' channels."""
    codes = weights.inputs[0]
    data = graph.constant(codes)
    assert data is not None
    chosen = [channel for part in parts for channel in part.channels]
    taken = np.ascontiguousarray(np.take(data, chosen, _AXES[node.op][2]))
    constant = graph.add_constant(graph.fresh(f"{codes}/part"), taken, graph.type(codes).dtype)
    given = {"name": weights.name, "origin": weights.origin, "quantizer": weights.quantizer}
    return graph.add("Dequantize", [constant], weights.attrs, **given).output  # type: ignore[arg-type]


def _erase_upwards(graph: Graph, nodes: Sequence[Node]) -> None:
    """Erases the nodes that nothing reads any more, and then those that they alone read."""
    for node in nodes:
        makers = [
            maker for value in node.inputs if value and (maker := graph.producer(value)) is not None
        ]
        if node.op in ("Dequantize", "Concat"):
            erase_unread(graph, [node])
            if node.name not in graph:
                _erase_upwards(graph, makers)
