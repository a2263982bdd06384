"""Reading graphs from their text form. docs/contributing/text-form.md has the grammar.

Nodes are added through the graph's own verbs, so a parsed graph has the types that the op table
gives; a type that the text states and the table contradicts is an error at that line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from support.text_reader import DataSection, TextLimits, TextReader

from fqfuse.errors import InvalidModel
from fqfuse.ir.decision import (
    Alternative,
    Decision,
    DequantizeFate,
    Fate,
    Half,
    Outcome,
    QuantizeFate,
    Quantizer,
)
from fqfuse.ir.graph import Graph
from fqfuse.ir.node import GraphError
from fqfuse.ir.text_write import type_text
from fqfuse.ir.types import DType, TensorType

_FATES: Mapping[Half, Mapping[str, QuantizeFate | DequantizeFate]] = {
    Half.QUANTIZE: {fate.value: fate for fate in QuantizeFate},
    Half.DEQUANTIZE: {fate.value: fate for fate in DequantizeFate},
}
_BAD_NODE = (
    GraphError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    ArithmeticError,
)


def parse_graph(text: str, *, limits: TextLimits | None = None, source: str = "") -> Graph:
    """The graph of a text form printed with `data="full"`, or written by hand.

    Args:
        text: the text form.
        limits: budgets; the defaults serve texts of up to 1 Gi characters and 2 GiB of constants.
        source: what is being read (a path), for errors.

    Raises:
        InvalidModel: the text breaks the grammar, or the graph breaks the op table's rules; with
            line, place and what was expected.
    """
    return _GraphParser(Graph()).parse(body_and_data(text, limits or TextLimits(), source))


@dataclass(frozen=True)
class Tail:
    """What stands behind `;` of a node or step: name, origin, quantizers."""

    name: str
    origin: tuple[str, ...]
    quantizer: tuple[str, ...] = ()


def body_and_data(text: str, limits: TextLimits, source: str) -> Iterator[TextReader]:
    """A cursor for each line in front of the data section that is neither blank nor a comment.

    Raises:
        InvalidModel: the text is too long, holds nothing, or its data section is out of order.
    """
    if len(text) > limits.chars:
        what = f"the text form has {len(text)} characters, more than the limit of {limits.chars}"
        raise InvalidModel(what, where=source, hint="raise TextLimits.chars")
    lines = text.replace("\r\n", "\n").split("\n")
    cut = next((i for i, line in enumerate(lines) if line.rstrip() == "data"), len(lines))
    data = DataSection(limits)
    _read_data(lines, cut + 1, data, source)
    cursors = (
        TextReader(line.rstrip(), number, data, source)
        for number, line in enumerate(lines[:cut], 1)
    )
    return (cursor for cursor in cursors if not cursor.done and not cursor.peek(";"))


def _read_data(lines: list[str], start: int, data: DataSection, source: str) -> None:
    current: list[str] | None = None
    for number in range(start, len(lines)):
        line = lines[number].strip()
        if line.startswith("#"):
            current = data.entries.setdefault(line[1:], [])
        elif line and current is not None:
            current.append(line)
        elif line:
            TextReader(lines[number], number + 1, data, source).fail("`#` and a digest")


def header_from(cursor: TextReader, kind: str) -> tuple[str, dict[str, str]]:
    """`graph NAME key=value ...`: the name, and the pairs.

    Raises:
        InvalidModel: the line is no such header.
    """
    if not cursor.take(kind):
        cursor.fail(f"`{kind}` and its name")
    name = cursor.name(f"the name of the {kind}")
    pairs: dict[str, str] = {}
    while not cursor.done and not cursor.peek(";"):
        key = cursor.word("a total (`nodes=12`) or the end of the line")
        cursor.expect("=")
        pairs[key] = cursor.name("a value")
    return name, pairs


def check_totals(cursor: TextReader, stated: Mapping[str, str], found: Mapping[str, int]) -> None:
    """Compares the header's totals, where they are given, with what was read.

    Raises:
        InvalidModel: they differ, so that the text was cut or edited.
    """
    for key, count in found.items():
        if key in stated and stated[key] != str(count):
            what = f"the header says {key}={stated[key]}, the text has {count}"
            at = max(0, cursor.text.find(f"{key}="))
            cursor.fail_with(what, hint="mend the header, or leave the total out", at=at)


def tail_from(cursor: TextReader) -> Tail | None:
    """`; NAME from ORIGIN quantizer NAMES`, or nothing.

    Raises:
        InvalidModel: the line goes on in another way.
    """
    if not cursor.take(";"):
        cursor.end()
        return None
    name = cursor.name("the node's name")
    origin = cursor.names() if cursor.take("from") else (name,)
    quantizer = cursor.names() if cursor.take("quantizer") else ()
    cursor.end()
    return Tail(name, origin, quantizer)


def quantizer_from(cursor: TextReader) -> tuple[str, Quantizer]:
    """The rest of a line `quantizer NAME : FORM of VALUE`: its key, and the quantizer."""
    key = cursor.name()
    cursor.expect(":")
    form = cursor.name("the quantizer's form")
    cursor.expect("of")
    value = cursor.name("the name of a value")
    name = cursor.name() if cursor.take("named") else key
    quant = cursor.quant() if cursor.take("by") else None
    cursor.end()
    return key, Quantizer(name, form, value, quant)


def fate_from(cursor: TextReader) -> Fate:
    """The rest of a line `fate QUANTIZER HALF of CONSUMER -> FATE at #STEP : "reason"`."""
    quantizer = cursor.name("the name of a quantizer")
    halves = {half.value: half for half in Half}
    half = cursor.keyword(halves, "`quantize` or `dequantize`")
    consumer = cursor.name("the consumer's name") if cursor.take("of") else ""
    cursor.expect("->")
    known = _FATES[half]
    fate = known.get(cursor.word("a fate"))
    if fate is None:
        cursor.fail_with(f"a fate of a {half.value} half is one of {', '.join(known)}")
    step = None
    if cursor.take("at"):
        cursor.expect("#")
        step = cursor.integer("the index of a step")
    cursor.expect(":")
    reason = cursor.string("the reason, quoted")
    cursor.end()
    return Fate(quantizer, half, fate, reason, consumer, step)


def decision_from(cursor: TextReader) -> Decision:
    """The rest of a line `decision OUTCOME RULE at SUBJECT : "reason" expected "..." found "..."
    hint "..." weighed HOME COST ... step #3 post-op 0 ...`.
    """
    outcomes = {outcome.value: outcome for outcome in Outcome}
    outcome = cursor.keyword(outcomes, "`fired` or `refused`")
    rule = cursor.name("the name of a rule")
    cursor.expect("at")
    subject = cursor.name("the name of a node")
    cursor.expect(":")
    reason = cursor.string("the reason, quoted")
    expected, found, hint = (cursor.quoted(word) for word in ("expected", "found", "hint"))
    weighed: list[Alternative] = []
    while cursor.take("weighed"):
        weighed.append(
            Alternative(
                cursor.name("the name of a home"),
                cursor.number(),
                cursor.string() if cursor.peek('"') else "",
            )
        )
    step = None
    if cursor.take("step"):
        cursor.expect("#")
        step = cursor.integer("the index of a step")
    post_ops = []
    while cursor.take("post-op"):
        post_ops.append(cursor.integer("the index of a post-op"))
    cursor.end()
    why = (reason, expected, found, hint)
    return Decision(rule, subject, outcome, *why, tuple(weighed), step, tuple(post_ops))


@dataclass
class _GraphParser:
    graph: Graph
    returned: bool = False
    fates: list[Fate] = field(default_factory=list)

    def parse(self, cursors: Iterator[TextReader]) -> Graph:
        header = next(cursors, None)
        if header is None:
            raise InvalidModel(
                "the text form is empty", hint="the grammar is in docs/contributing/text-form.md"
            )
        self.graph.name, totals = header_from(header, "graph")
        last = header
        for last in cursors:
            self._line(last)
        if not self.returned:
            last.fail_with("the text ends without a line `out`", at=len(last.text))
        graph = self.graph
        check_totals(
            header,
            totals,
            {
                "nodes": len(graph),
                "constants": len(graph.constants),
                "quantizers": len(graph.quantizers),
            },
        )
        return graph

    def _line(self, cursor: TextReader) -> None:
        if cursor.text.startswith(("%", "_"), cursor.at):
            self._node(cursor)
            return
        readers: Mapping[str, Callable[[TextReader], None]] = {
            "in": self._input,
            "const": self._constant,
            "out": self._outputs,
            "quantizer": self._quantizer,
            "fate": lambda cursor: self.graph.fates.append(fate_from(cursor)),
            "decision": lambda cursor: self.graph.decide(decision_from(cursor)),
        }
        cursor.keyword(
            readers,
            "`in`, `const`, a node (`%y : f32[1,8] = Relu(%x) ; relu`), `out`, `quantizer`, `fate` or `decision`",
        )(cursor)

    def _input(self, cursor: TextReader) -> None:
        name = self._new(cursor, "%")
        cursor.expect(":")
        self.graph.add_input(name, cursor.type())
        _end(cursor)

    def _constant(self, cursor: TextReader) -> None:
        name = self._new(cursor, "@")
        cursor.expect(":")
        type_ = cursor.type()
        cursor.expect("=")
        self.graph.add_constant(name, cursor.constant(type_), type_.dtype, type_.quant)
        _end(cursor)

    def _new(self, cursor: TextReader, sigil: str) -> str:
        start = cursor.at
        found, name = cursor.reference()
        if found != sigil:
            cursor.fail(f"`{sigil}` and a new name", at=start)
        if name in self.graph.values:
            cursor.fail_with(f"{sigil}{name} is defined a second time", at=start)
        return name

    def _use(self, cursor: TextReader) -> str:
        start = cursor.at
        sigil, name = cursor.reference()
        if name and name not in self.graph.values:
            cursor.fail_with(f"{sigil}{name} is read before it is defined", at=start)
        if name and (name in self.graph.constants) != (sigil == "@"):
            wanted = "a constant: write @" if sigil == "%" else "no constant: write %"
            cursor.fail_with(f"{name} is {wanted}{name}", at=start)
        return name

    def _node(self, cursor: TextReader) -> None:
        start = cursor.at
        outputs = cursor.separated(lambda: self._defined(cursor))
        names = [name for name, _ in outputs]
        cursor.expect("=")
        op_at = cursor.at
        op = cursor.name("the name of an op")
        inputs = cursor.listed("(", ")", lambda: self._use(cursor))
        attrs = cursor.attrs()
        tail_at = cursor.at
        tail = tail_from(cursor)
        if tail is None:
            own = self.graph.fresh(op or "node")
            tail = Tail(own, (own,))
        types = self._foreign_types(cursor, outputs) if op == "Onnx" else None
        try:
            node = self.graph.add(
                op,
                inputs,
                attrs,
                name=tail.name,
                outputs=names,
                origin=tail.origin,
                quantizer=tail.quantizer,
                types=types,
                after_all=True,
            )
        except (
            _BAD_NODE
        ) as error:  # rows rely on attributes of the right kind, which a text need not have
            hint = "mend the node, its inputs or its attributes"
            what = f"this node does not fit the op table: {error}"
            cursor.fail_with(what, hint=hint, at=op_at)
        if node.name != tail.name:
            cursor.fail_with(f"a second node is called {tail.name}", at=tail_at)
        self._compare(cursor, start, outputs)

    def _defined(self, cursor: TextReader) -> tuple[str, TensorType | None]:
        if cursor.take("_"):
            return "", None
        name = self._new(cursor, "%")
        return name, cursor.type() if cursor.take(":") else None

    @staticmethod
    def _foreign_types(
        cursor: TextReader, outputs: list[tuple[str, TensorType | None]]
    ) -> list[TensorType]:
        for name, type_ in outputs:
            if name and type_ is None:
                cursor.fail_with(f"%{name} needs a type: no row of the op table gives it")
        return [type_ or TensorType(DType.F32, None) for _, type_ in outputs]

    def _compare(
        self, cursor: TextReader, start: int, outputs: list[tuple[str, TensorType | None]]
    ) -> None:
        for name, stated in outputs:
            if name and name not in self.graph.values:
                cursor.fail_with(f"the op has no output for %{name}", at=start)
            if name and stated is not None and self.graph.type(name) != stated:
                gives = type_text(self.graph.type(name))
                what = f"%{name} is stated as {type_text(stated)}, and the op gives {gives}"
                cursor.fail_with(what, hint="leave the type out", at=start)

    def _outputs(self, cursor: TextReader) -> None:
        if self.returned:
            cursor.fail_with("a second line `out`")
        self.returned = True
        values = [] if cursor.done else cursor.separated(lambda: self._use(cursor))
        _end(cursor)
        self.graph.set_outputs(values)

    def _quantizer(self, cursor: TextReader) -> None:
        key, quantizer = quantizer_from(cursor)
        if key in self.graph.quantizers:
            cursor.fail_with(f"the quantizer {key} stands here twice")
        self.graph.quantizers[key] = quantizer


def _end(cursor: TextReader) -> None:
    """The end of a line, or a comment."""
    if not cursor.peek(";"):
        cursor.end()
