"""Printing graphs: one line a node, deterministic, and readable as it stands. docs/contributing/text-form.md has
the grammar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from .decision import Decision, Fate, Quantizer
from .graph import Graph
from .node import GraphError, Node
from .ops import OPS
from .ops.spec import REQUIRED, Attr, Required
from .text_write import Writer, name_text, string_text

DataForm = Literal["full", "digest"]
"""`full`: reads back, with the data of large constants behind the graph. `digest`: for people: data
by digest, long lists shortened.
"""


@dataclass
class Rendered:
    """The lines of a text, and where things stand in it.

    Attributes:
        lines: without line ends.
        nodes: node (or step) -> index of its line.
        values: value -> index of the line that defines it.
    """

    lines: list[str] = field(default_factory=list)
    nodes: dict[str, int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)

    def add(self, line: str, *, node: str | None = None, values: Iterable[str] = ()) -> None:
        """Appends a line that defines a node and values."""
        if node is not None:
            self.nodes[node] = len(self.lines)
        for value in values:
            self.values.setdefault(value, len(self.lines))
        self.lines.append(line)

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


def print_graph(graph: Graph, *, data: DataForm = "full", explain: bool = True) -> str:
    """The text form of a graph.

    Args:
        graph: any graph, also one that breaks the rules.
        data: `full`: `parse_graph` gives an equal graph; `digest`: for people and golden tests.
        explain: with the decisions and fates that passes left.
    """
    return str(render_graph(graph, data=data, explain=explain))


def render_graph(graph: Graph, *, data: DataForm = "full", explain: bool = True) -> Rendered:
    """The text form as lines, with the places of nodes and values."""
    writer = Writer(display=data == "digest")
    out = Rendered()
    nodes = known_nodes(graph)
    totals = (
        f"nodes={len(nodes)} constants={len(graph.constants)} quantizers={len(graph.quantizers)}"
    )
    out.add(f"graph {name_text(graph.name)}  {totals}")
    for value in graph.inputs:
        out.add(f"  in {_bound(writer, graph, value)}", values=[value])
    for value in _constants(graph, nodes):
        array = graph.constants[value]
        out.add(
            f"  const @{name_text(value)} : {writer.type(graph.type(value))} = {writer.constant(array)}",
            values=[value],
        )
    for node in nodes:
        out.add(_node_line(writer, graph, node), node=node.name, values=filter(None, node.outputs))
    out.add(
        ("  out " + ", ".join(writer.value(v, graph.constants) for v in graph.outputs)).rstrip()
    )
    for line in explanation_lines(
        writer, graph.quantizers, graph.decisions if explain else (), graph.fates if explain else ()
    ):
        out.add(line)
    for line in writer.data_lines():
        out.add(line)
    return out


def known_nodes(graph: Graph) -> list[Node]:
    """All nodes in order; as far as they can be found when the graph has a cycle (the printer
    serves error reports, too).
    """
    try:
        return graph.nodes()
    except (GraphError, KeyError):
        found = (graph.producer(value) for value in graph.values)
        return list({node.name: node for node in found if node is not None}.values())


def _constants(graph: Graph, nodes: Iterable[Node]) -> list[str]:
    """Constants in the order in which nodes read them, then by name: the text does not tell in
    which order passes made them.
    """
    read = [value for node in nodes for value in node.inputs if value in graph.constants]
    read += [value for value in graph.outputs if value in graph.constants]
    return list(dict.fromkeys([*read, *sorted(graph.constants)]))


def _bound(writer: Writer, graph: Graph, value: str) -> str:
    """A value where it is defined: name and type."""
    if not value:
        return "_"
    type_ = graph.values.get(value)
    return f"%{name_text(value)} : {'?' if type_ is None else writer.type(type_)}"


def _node_line(writer: Writer, graph: Graph, node: Node) -> str:
    outputs = ", ".join(_bound(writer, graph, v) for v in node.outputs)
    inputs = ", ".join(writer.value(v, graph.constants) for v in node.inputs)
    attrs = writer.attrs(_told(writer, node))
    return f"  {outputs} = {name_text(node.op)}({inputs}){attrs} ; {tail_text(node.name, node.origin, node.quantizer)}"


def _told(writer: Writer, node: Node) -> Mapping[str, Attr]:
    """The attributes that differ from the defaults of the row (`1`, `1.0` and `true` do differ)."""
    row = OPS.get(node.op)
    if row is None:
        return node.attrs
    return {
        name: value
        for name, value in node.attrs.items()
        if not _is_default(writer, value, row.attrs.get(name, REQUIRED))
    }


def _is_default(writer: Writer, value: Attr, default: Attr | Required) -> bool:
    return not isinstance(default, Required) and writer.attr(value) == writer.attr(default)


def tail_text(name: str, origin: tuple[str, ...], quantizer: tuple[str, ...] = ()) -> str:
    """What stands behind `;`: the name, the origin where it is not just that name, and the
    quantizers.
    """
    text = name_text(name)
    if origin != (name,):
        text += " from " + (", ".join(map(name_text, origin)) if origin else "[]")
    if quantizer:
        text += " quantizer " + ", ".join(map(name_text, quantizer))
    return text


def explanation_lines(
    writer: Writer,
    quantizers: Mapping[str, Quantizer],
    decisions: Iterable[Decision],
    fates: Iterable[Fate],
) -> list[str]:
    """The lines that say what the model held, where each half went, and what every rule did."""
    lines = [_quantizer_line(writer, key, quantizer) for key, quantizer in quantizers.items()]
    lines += [_fate_line(fate) for fate in fates]
    lines += [decision_line(decision) for decision in decisions]
    return lines


def _quantizer_line(writer: Writer, key: str, quantizer: Quantizer) -> str:
    named = "" if quantizer.name == key else f" named {name_text(quantizer.name)}"
    by = "" if quantizer.quant is None else f" by {writer.quant(quantizer.quant)}"
    return f"  quantizer {name_text(key)} : {name_text(quantizer.form)} of {name_text(quantizer.value)}{named}{by}"


def _fate_line(fate: Fate) -> str:
    consumer = f" of {name_text(fate.consumer)}" if fate.consumer else ""
    step = "" if fate.step is None else f" at #{fate.step}"
    return f"  fate {name_text(fate.quantizer)} {fate.half.value}{consumer} -> {fate.fate.value}{step} : {string_text(fate.reason)}"


def decision_line(decision: Decision) -> str:
    """`decision refused fold_scale at conv1 : "reason" expected "one consumer" found "3 consumers"
    hint "..." weighed HOME COST ... step #3 post-op 0 ...`.
    """
    line = f"  decision {decision.outcome.value} {name_text(decision.rule)} at {name_text(decision.subject)}"
    line += f" : {string_text(decision.reason)}"
    for label, text in (
        ("expected", decision.expected),
        ("found", decision.found),
        ("hint", decision.hint),
    ):
        if text:
            line += f" {label} {string_text(text)}"
    for weighed in decision.alternatives:
        line += f" weighed {name_text(weighed.home)} {Writer().numbers([weighed.cost])}"
        line += f" {string_text(weighed.why_not)}" if weighed.why_not else ""
    line += "" if decision.step is None else f" step #{decision.step}"
    return line + "".join(f" post-op {number}" for number in decision.post_ops)
