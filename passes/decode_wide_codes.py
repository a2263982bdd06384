"""16-bit codes are decoded where they are made."""

from __future__ import annotations

from ..ir.cleanup import erase_unread
from ..ir.decision import DequantizeFate
from ..ir.graph import Graph
from ..ir.node import Node, origin_of, subject
from ..ir.rule import Refusal
from ..ir.types import DType, Quantization
from .base import Contract, NodePass, Verdict, settle, swap
from .retyping import carries_codes


def decode_wide_codes(graph: Graph, node: Node) -> Verdict:
    """Moves Dequantize of 16-bit codes in front of what moves them, next to their Quantize.

    Before -> after::

        Dequantize(Op(Quantize(x){p})){p}   ->   Op(Dequantize(Quantize(x){p}){p})      Op moves data, or selects by order (max pool)

    likewise where several operations are in between, or several Dequantize read. No primitive
    stores or reads u16 and s16; the two halves side by side are post-ops of what computes x (scale,
    round, clip, scale), and Op is one of f32, which has primitives.

    Legal because: Dequantize works element by element, and is increasing for a scale > 0.
    Refuses when: something else reads the codes, or the graph returns them; the parameters of the
    Dequantize differ from the quantizer's; they run along an axis; or a scale is negative (order
    would turn).
    """
    moves, decodes, other = _readers(graph, node)
    if not node.attr("dtype", DType).is_wide_code or not moves:
        return None
    found = other or _mismatch(node.quant, decodes)
    if found:
        expected = "Dequantize with the quantizer's parameters, per tensor, scale > 0"
        return Refusal(
            "16-bit codes stay codes behind what moves them",
            expected,
            found,
            "quantize to 8 bits, or read the 16-bit codes by DequantizeLinear alone",
        )
    own = [name for name in node.quantizer if any(name in decode.quantizer for decode in decodes)]
    made = graph.add(
        "Dequantize",
        [node.output],
        {"quant": node.quant},
        name=decodes[0].name,
        outputs=[graph.fresh(f"{node.output}/values")],
        origin=origin_of(*decodes),
        quantizer=own,
    )
    real = {node.output: made.name}  # names of nodes: a value that the graph returns is renamed
    for move in moves:
        inputs = [graph.node(real[move.input]).output, *move.inputs[1:]]
        real[move.output] = graph.again(move, inputs, value=f"{move.output}/values").name
    for decode in decodes:
        # Quantizers between the two that had repeated these codes: one Dequantize serves all.
        readers = [subject(reader) for reader in graph.consumers(decode.output)]
        readers += [f"output {decode.output}"] if graph.is_output(decode.output) else []
        reason = "it repeated codes that are decoded where they are made"
        others = [name for name in decode.quantizer if name not in own]
        settle(graph, others, DequantizeFate.REDUNDANT, reason, readers)
        swap(graph, decode, graph.node(real[decode.input]).output)
    erase_unread(graph, moves)
    return f"decoded in front of {', '.join(move.name for move in moves)}"


DECODE_WIDE_CODES = NodePass(
    "decode_wide_codes", Contract("identity", "bitwise"), decode_wide_codes, ("Quantize",)
)


def _readers(graph: Graph, node: Node) -> tuple[list[Node], list[Node], str]:
    """What moves the codes of a Quantize, in execution order; what decodes them; and what else
    becomes of them, or ''.
    """
    moves: dict[str, Node] = {}
    decodes: dict[str, Node] = {}
    other = ""
    pending = [node.output]
    while pending:
        value = pending.pop()
        other = other or (f"the graph returns {value}" if graph.is_output(value) else "")
        for reader in graph.consumers(value):
            if reader.op == "Dequantize":
                decodes[reader.name] = reader
            elif carries_codes(reader):
                moves[reader.name] = reader
                pending.append(reader.output)
            else:
                other = other or f"{subject(reader)} reads codes"
    return graph.in_order(moves.values()), graph.in_order(decodes.values()), other


def _mismatch(quant: Quantization, decodes: list[Node]) -> str:
    """Why the codes cannot be decoded at once, or ''."""
    if not decodes:
        return "no Dequantize"
    if any(decode.quant != quant for decode in decodes):
        return "a Dequantize with other parameters"
    if not quant.per_tensor:
        return f"axis {quant.axis}"
    return f"scale {quant.scale[0]:g}" if quant.scale[0] <= 0 else ""
