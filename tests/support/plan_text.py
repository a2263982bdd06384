"""Reading plans from their text form. docs/contributing/text-form.md has the grammar.

The parser builds what the text says; whether the plan is sound is the plan verifier's question
(`plan/verify.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from support.graph_text import (
    Tail,
    body_and_data,
    check_totals,
    decision_from,
    fate_from,
    header_from,
    quantizer_from,
    tail_from,
)
from support.text_reader import TextLimits, TextReader

from fqfuse.errors import InvalidModel
from fqfuse.ir.decision import Decision, Fate, Quantizer
from fqfuse.ir.ops import OPS
from fqfuse.ir.ops.spec import Array, Attr, Required
from fqfuse.ir.text_write import type_text
from fqfuse.ir.types import TensorType
from fqfuse.plan.attributes import SCALES, PrimitiveAttr, Scale, ZeroPoint
from fqfuse.plan.types import MOST_DEPTH, Bodies, Plan, Step
from fqfuse.plan.words import factors_from, post_op_from

_T = TypeVar("_T")


def parse_plan(text: str, *, limits: TextLimits | None = None, source: str = "") -> Plan:
    """The plan of a text form printed with `data="full"`, or written by hand.

    Args:
        text: the text form.
        limits: budgets; the defaults serve texts of up to 1 Gi characters and 2 GiB of constants.
        source: what is being read (a path), for errors.

    Raises:
        InvalidModel: the text breaks the grammar; with line, place and what was expected.
    """
    return _PlanParser().parse(body_and_data(text, limits or TextLimits(), source))


@dataclass
class _PlanParser:
    inputs: list[str] = field(default_factory=list)
    outputs: tuple[str, ...] | None = None
    values: dict[str, TensorType] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    quantizers: dict[str, Quantizer] = field(default_factory=dict)
    fates: list[Fate] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    options: dict[str, Attr] = field(default_factory=dict)
    depth: int = 0

    def parse(self, readers: Iterator[TextReader]) -> Plan:
        """The plan of the lines up to the last one, or up to `end` where it is that of a body."""
        header = next(readers, None)
        if header is None:
            raise InvalidModel(
                "the text form is empty", hint="the grammar is in docs/contributing/text-form.md"
            )
        name, stated = header_from(header, "plan")
        if "target" not in stated:
            header.fail("`target=` and the plan's target")
        last = header
        for last in readers:
            if self.depth and last.take("end"):
                break
            if last.take("body"):
                self._body(last, readers)
            else:
                self._line(last)
        if self.outputs is None:
            last.at = len(last.text)
            last.fail_with("the text ends without a line `out`")
        found = {
            "steps": len(self.steps),
            "constants": len(self.constants),
            "quantizers": len(self.quantizers),
        }
        check_totals(header, stated, found)
        return Plan(
            name,
            stated["target"],
            tuple(self.inputs),
            self.outputs,
            self.values,
            self.constants,
            tuple(self.steps),
            self.quantizers,
            tuple(self.fates),
            tuple(self.decisions),
            self.options,
        )

    def _line(self, reader: TextReader) -> None:
        lines: Mapping[str, Callable[[TextReader], object]] = {
            "in": lambda r: self.inputs.append(self._bound(r)),
            "const": self._constant,
            "value": self._bound,
            "#": self._step,
            "out": self._outputs,
            "option": self._option,
            "quantizer": self._quantizer,
            "fate": lambda r: self.fates.append(fate_from(r)),
            "decision": lambda r: self.decisions.append(decision_from(r)),
        }
        for word, read in lines.items():
            if reader.take(word):
                read(reader)
                if not reader.peek(";"):  # a comment
                    reader.end()
                return
        reader.fail(
            "`in`, `const`, a step (`#0 %y : f32[1,8] = ...`), `out`, `option`, `quantizer`, `fate`, `decision` or `body`"
        )

    def _body(self, reader: TextReader, readers: Iterator[TextReader]) -> None:
        """`body #3 states scanned`, and the lines of the body's plan up to `end`."""
        reader.expect("#")
        index = reader.integer("the index of the step")
        if not 0 <= index < len(self.steps):
            reader.fail_with(f"there is no step #{index} above")
        if self.depth >= MOST_DEPTH:
            reader.fail_with(f"more than {MOST_DEPTH} bodies lie in each other")
        counts = reader.integer("how many states"), reader.integer("how many scanned values")
        step = self.steps[index]
        before = () if step.bodies is None else step.bodies.plans
        plan = _PlanParser(depth=self.depth + 1).parse(readers)
        self.steps[index] = replace(step, bodies=Bodies((*before, plan), *counts))

    def _bound(self, reader: TextReader) -> str:
        """`%name : type`, `_` for an absent output, `?` for a type that is not known (which the
        verifier refuses).
        """
        start = reader.at
        sigil, name = reader.reference()
        if sigil == "@" or name in self.values or name in self.constants:
            reader.at = start
            reader.fail_with(
                f"{name} is defined a second time"
                if sigil != "@"
                else "a constant cannot be written"
            )
        if name:
            reader.expect(":")
            if not reader.take("?"):
                self.values[name] = reader.type()
        return name

    def _constant(self, reader: TextReader) -> None:
        start = reader.at
        sigil, name = reader.reference()
        if sigil != "@" or name in self.constants or name in self.values:
            reader.at = start
            reader.fail_with(
                f"{name} is defined a second time"
                if sigil == "@"
                else "a constant's name begins with `@`"
            )
        reader.expect(":")
        type_ = reader.type()
        if type_.quant is not None or type_.dtype.is_carried:
            reader.fail_with(
                f"a plan's constant is a plain array, and {type_text(type_)} is not the type of one"
            )
        reader.expect("=")
        self.constants[name] = reader.constant(type_)

    def _use(self, reader: TextReader) -> str:
        start = reader.at
        sigil, name = reader.reference()
        if (sigil == "@") != (name in self.constants):
            reader.at = start
            reader.fail_with(
                f"{name} is a constant: write @{name}"
                if name in self.constants
                else f"no constant @{name} is defined above"
            )
        return name

    def _step(self, reader: TextReader) -> None:
        index = reader.integer("the index of the step")
        if index != len(self.steps):
            reader.fail_with(f"expected step #{len(self.steps)}, found #{index}")
        outputs = reader.separated(lambda: self._bound(reader))
        reader.expect("=")
        primitive = reader.name("the name of a primitive")
        op = primitive.removeprefix("onnx.")
        if reader.take("<"):
            op = reader.name("the name of an op")
            reader.expect(">")
        args = _by_role(reader, lambda: self._use(reader))
        params = _params(reader, op)
        attr = self._attr(reader)
        tail = tail_from(reader) or Tail(f"{primitive}_{index}", (f"{primitive}_{index}",))
        if tail.quantizer:
            reader.fail_with("a step has no quantizers of its own")
        self.steps.append(
            Step(tail.name, primitive, op, tuple(args), tuple(outputs), params, attr, tail.origin)
        )

    def _attr(self, reader: TextReader) -> PrimitiveAttr:
        scales: list[tuple[str, Scale]] = []
        points: list[tuple[str, ZeroPoint]] = []
        if reader.take("scales"):
            scales = _by_role(reader, lambda: factors_from(reader, Scale))
        if reader.take("zero_points"):
            points = _by_role(reader, lambda: factors_from(reader, ZeroPoint))
        alone = [self._scale(reader, word) for word in SCALES]
        post_ops = []
        while reader.take("|"):
            post_ops.append(post_op_from(reader, lambda: self._use(reader)))
        return PrimitiveAttr(
            _once(reader, scales),
            _once(reader, points),
            tuple(post_ops),
            *alone,
        )

    def _scale(self, reader: TextReader, word: str) -> Scale | None:
        """`word(scale)`, where it stands here."""
        if not reader.take(word):
            return None
        reader.expect("(")
        found = factors_from(reader, Scale)
        reader.expect(")")
        return found

    def _outputs(self, reader: TextReader) -> None:
        if self.outputs is not None:
            reader.fail_with("a second line `out`")
        self.outputs = () if reader.done else tuple(reader.separated(lambda: self._use(reader)))

    def _option(self, reader: TextReader) -> None:
        key = reader.name("the name of an option")
        if key in self.options:
            reader.fail_with(f"the option {key} stands here twice")
        reader.expect("=")
        self.options[key] = reader.attr()

    def _quantizer(self, reader: TextReader) -> None:
        key, quantizer = quantizer_from(reader)
        if key in self.quantizers:
            reader.fail_with(f"the quantizer {key} stands here twice")
        self.quantizers[key] = quantizer


def _params(reader: TextReader, op: str) -> dict[str, Attr]:
    """`{alpha=0.5,!axis}`: what differs from the row's defaults; `!axis`: the step does not have
    that parameter.
    """
    row = OPS.get(op)
    told: dict[str, Attr] = {}
    absent: set[str] = set()

    def item() -> None:
        dropped = reader.take("!")
        name = reader.name("the name of a parameter")
        if name in told or name in absent:
            reader.fail_with(f"the parameter {name} stands here twice")
        if dropped:
            absent.add(name)
            return
        reader.expect("=")
        told[name] = reader.attr()

    if reader.peek("{"):
        reader.listed("{", "}", item)
    plain: dict[str, Attr] = {}
    for name, value in () if row is None else row.attrs.items():
        if name in absent:
            continue
        if not isinstance(value, Required):
            plain[name] = value
        elif name not in told:
            reader.fail_with(f"{op} needs the parameter {name}")
    return plain | told


def _by_role(reader: TextReader, item: Callable[[], _T]) -> list[tuple[str, _T]]:
    """`(role=item, ...)`."""

    def pair() -> tuple[str, _T]:
        role = reader.name("the role of an argument")
        reader.expect("=")
        return role, item()

    return reader.listed("(", ")", pair)


def _once(reader: TextReader, pairs: list[tuple[str, _T]]) -> dict[str, _T]:
    if len(dict(pairs)) != len(pairs):
        reader.fail_with("a role stands here twice")
    return dict(pairs)
