"""Steps in the making: who claimed which node, which constants the steps name, and what became of
each quantizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from ...errors import InternalError
from ...ir.constants import Halves, as_held
from ...ir.decision import Decision, DequantizeFate, Fate, Half, QuantizeFate
from ...ir.graph import Graph
from ...ir.node import Node, subject
from ...ir.ops import OPS
from ...ir.ops.spec import Array, Trait
from ...ir.rule import Refusal
from ...ir.types import TensorType
from ...plan.arguments import with_roles
from ...plan.targets import Target
from ...plan.types import Step
from ..mapping.cost import Home

_TAKES_F32 = "its reader takes f32"


@dataclass(frozen=True)
class PendingStep:
    """A step and the last node of the graph in it, which gives it its place."""

    step: Step
    last: Node


class StepBuilder:
    """Collects steps while the graph is being cut into primitives.

    Attributes:
        graph: what is being compiled.
        target: the rules of the attributes.
        approximate: names of the approximations that may be made.
        inside: node -> the places of inputs that its bodies hold themselves: its step reads none of them.
        merged: names of steps that others have taken in -> those.
        ended: node that a step in front did not take -> why.
        branches: add in which two anchors meet -> the one that absorbs it, and what either costs.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        approximate: frozenset[str] = frozenset(),
        inside: Mapping[str, AbstractSet[int]] | None = None,
        anchor: Callable[[StepBuilder, Node], None] | None = None,
    ) -> None:
        self.graph = graph
        self.target = target
        self.approximate = approximate
        self.inside = inside or {}
        self._pending: dict[str, PendingStep] = {}  # by the step's name
        self.merged: dict[str, str] = {}
        self.branches: dict[str, tuple[Node, tuple[Home, ...]]] = {}
        self._anchor = anchor
        self._tried_for: StepBuilder | None = None  # of a dry run
        self._claimed: set[str] = set()
        self._constants: dict[str, Array] = {}
        self._types: dict[str, TensorType] = {}
        self._fates: list[tuple[Fate, str]] = []
        self._decided: list[tuple[Decision, str]] = []
        # the step that post-ops were in -> by how many places they have moved
        self._moved: dict[str, int] = {}
        self._joined: dict[str, dict[str, None]] = {}  # by the step that decodes
        self._needed: set[str] = set(graph.outputs)
        self._readers: dict[str, set[str]] = {}
        self.ended: dict[str, str] = {}
        self._apart: dict[tuple[str, str], str] = {}  # reader, value or '' for all

    @property
    def pending(self) -> list[PendingStep]:
        """The steps so far."""
        return list(self._pending.values())

    def whole(self, step: Step) -> Step:
        """The step with all nodes of the user's model that it computes: its own, and those that passes had
        joined with the scale and zero point by which it decodes (`Graph.joined`).
        """
        names = dict.fromkeys((*step.origin, *self._joined.get(step.name, ())))
        return replace(step, origin=tuple(names))

    # -- nodes -------------------------------------------------------------------------------------

    def is_claimed(self, node: Node) -> bool:
        """True when a step has taken the node in."""
        before = self._tried_for
        return node.name in self._claimed or (before is not None and before.is_claimed(node))

    def would_take(self, anchor: Node, node: Node) -> str | None:
        """The value that the step of `anchor` would store if it were built now, with `node` in it; None where
        it would not take that in, or is built already. Nothing is kept of the dry run.
        """
        if self._anchor is None or self.is_claimed(anchor):
            return None
        tried = StepBuilder(self.graph, self.target, self.approximate, self.inside)
        tried._tried_for = self
        last = self.graph.newest()
        self._anchor(tried, anchor)
        for name in self.graph.added_since(*last)[1]:
            self.graph.forget_constant(name)
        step = tried._pending.get(anchor.name)
        taken = step is not None and node.name in tried._claimed
        return step.step.output if step is not None and taken else None

    def is_needed(self, value: str) -> bool:
        """True when a step reads the value, or the graph returns it."""
        return value in self._needed

    def claim(self, node: Node) -> None:
        """Marks a node as done without a step."""
        self._claimed.add(node.name)

    def reads(self, node: Node, value: str) -> bool:
        """True when the step that took the node in reads the value (rather than the codes behind
        it).
        """
        return node.name in self._readers.get(value, ())

    def add(self, step: Step, nodes: Iterable[Node], type_: TensorType | None = None) -> None:
        """Adds a step made of `nodes` (in order); `type_` is what its output holds when that is not
        the graph's type.
        """
        taken = list(nodes)
        self._claimed.update(node.name for node in taken)
        self._pending[step.name] = PendingStep(step, taken[-1])
        for value in dict.fromkeys(step.inputs):
            self._readers.setdefault(value, set()).update(node.name for node in taken)
        self._needed.update(step.inputs)
        if type_ is not None:
            self._types[step.output] = type_

    def add_in_front(self, step: Step, node: Node, type_: TensorType) -> None:
        """Adds a step that a node's own one, which is added behind it, reads; it writes a new value,
        of that type.
        """
        self._pending[step.name] = PendingStep(step, node)
        self._needed.update(step.inputs)
        self._types[step.output] = type_

    def merge(self, first: PendingStep, second: PendingStep, step: Step) -> None:
        """Replaces two steps, of which the second alone reads the first, by one in the second's
        place.
        """
        del self._pending[first.step.name]
        self._pending[second.step.name] = PendingStep(step, second.last)
        self.merged[first.step.name] = step.name
        in_front = len(step.attr.post_ops) - len(second.step.attr.post_ops)
        self._moved[second.step.name] = self._moved.get(second.step.name, 0) + in_front
        self._joined.setdefault(step.name, {}).update(self._joined.pop(first.step.name, {}))

    def file_constant(self, name: str, array: Array) -> str:
        """Keeps the data of a constant that a step names."""
        self._constants[name] = array
        return name

    def cast_of(self, value: str) -> Step | None:
        """The step that makes a constant of bf16, a small float or fewer than 8 bits of the array that
        carries it: the constants of a plan have the types of their arrays. None for another value.
        """
        data = None if value in self._constants else as_held(self.graph.constants).get(value)
        dtype = None if data is None else self.graph.type(value).dtype
        if data is None or dtype is None or not dtype.is_carried:
            return None
        held = self.graph.add_constant(f"{value}/carried", data)
        row = OPS["Cast"]
        params = row.complete({"to": dtype, "saturate": 0})  # infinities stay
        return Step(held, "onnx.Cast", "Cast", with_roles(row, [held]), (value,), params)

    def constant(self, value: str) -> Array | Halves:
        """The data of a constant that steps read, as it lies in memory.

        Raises:
            InternalError: nothing produces the value.
        """
        found: Array | Halves | None = self._constants.get(value)
        if found is None:
            found = as_held(self.graph.constants).get(value)
        if found is None:
            raise InternalError(f"no step produces {value}")
        return found

    def type(self, value: str) -> TensorType:
        """The type of a value that a step writes."""
        return self._types.get(value) or self.graph.type(value)

    # -- decisions and fates -----------------------------------------------------------------------

    def decide(self, decision: Decision, step: str = "") -> None:
        """Records a decision, about a part of a step where that is given."""
        self._decided.append((decision, step))

    def settled_decisions(self, index: Mapping[str, int]) -> tuple[Decision, ...]:
        """All decisions, those of passes first, with the indices of steps."""
        for decision, step in self._decided:
            moved = tuple(number + self._moved.get(step, 0) for number in decision.post_ops)
            self.graph.decide(replace(decision, step=index.get(step), post_ops=moved))
        return self.graph.decisions

    def refuse(self, rule: str, node: Node, refusal: Refusal, step: str = "") -> None:
        """Records why a node did not fuse, into a step where that is given."""
        self.decide(refusal.at(rule, subject(node)), step)
        if rule.endswith(" in int8"):
            self._apart[node.name, ""] = refusal.reason

    def decode_apart(self, reader: Node, decode: Node, refusal: Refusal) -> None:
        """Records why a node reads decoded values where it could have read codes."""
        reason = f"{subject(decode)} is decoded in front of it: {refusal.reason}"
        self.refuse("operand in codes", reader, replace(refusal, reason=reason))
        self._apart[reader.name, decode.output] = refusal.reason

    def why_apart(self, reader: Node, decode: Node) -> str:
        """Why a node reads decoded values: as `decode_apart` has it, or what keeps it from int8."""
        why = self._apart.get((reader.name, decode.output))
        return why or self._apart.get((reader.name, ""), _TAKES_F32)

    def refuse_chain(self, step: Step, node: Node, refusal: Refusal) -> None:
        """Records why a chain ends in front of a node."""
        self.refuse(f"fuse into {step.primitive}", node, refusal, step.name)
        self.ended[node.name] = (
            f"{step.primitive} {step.origin[0] if step.origin else step.name} in front does not take it: {refusal.reason}"
        )

    def encoded(self, node: Node, fate: QuantizeFate, reason: str, step: str = "") -> None:
        """Settles the quantize half of a Quantize node."""
        self._fates += [(Fate(name, Half.QUANTIZE, fate, reason), step) for name in node.quantizer]

    def decoded(
        self, node: Node, fate: DequantizeFate, reason: str, consumer: Node | str, step: str = ""
    ) -> None:
        """Settles the dequantize half of a Dequantize node for one consumer."""
        reader = consumer if isinstance(consumer, str) else subject(consumer)
        self._fates += [
            (Fate(name, Half.DEQUANTIZE, fate, reason, reader), step) for name in node.quantizer
        ]
        joined = (name for name in node.origin if name in self.graph.joined)
        self._joined.setdefault(step, {}).update(dict.fromkeys(joined))

    def why_alone(self, node: Node) -> str:
        """Why a quantizer starts a step: what ended the step in front, or what it reads."""
        if node.name in self.ended:
            return self.ended[node.name]
        value = node.input
        producer = self.graph.producer(value)
        if producer is None:
            return (
                "it quantizes an input of the model"
                if self.graph.constant(value) is None
                else "it quantizes a constant"
            )
        if self.graph.read_count(value) > 1 or self.graph.is_output(value):
            return f"others read the f32 values of {subject(producer)} too"
        return f"{subject(producer)} cannot store what it makes"

    def readers_of(self, node: Node) -> list[Node | str]:
        """What reads decoded values: see `readings_of`."""
        return [reader for reader, _ in self.readings_of(node)]

    def readings_of(self, node: Node) -> list[tuple[Node | str, str]]:
        """What reads decoded values, and which value: behind what else decodes them; of 16-bit codes
        behind what moves them, since `decode_wide_codes` decodes them in front of that.
        """
        wide = node.op == "Dequantize" and self.graph.type(node.input).dtype.is_wide_code
        found: list[tuple[Node | str, str]] = []
        pending = [node.output]
        while pending:
            value = pending.pop(0)
            for reader in self.graph.consumers(value):
                moves = reader.has(Trait.LAYOUT_ONLY) or reader.has(Trait.SELECTS)
                if self.decodes_on(node, reader) or (wide and reader.input == value and moves):
                    pending.append(reader.output)
                else:
                    found.append((reader, value))
            found += [(f"output {value}", value)] if self.graph.is_output(value) else []
        return found

    def decodes_on(self, node: Node, reader: Node | None) -> bool:
        """True of what does a part of the dequantize half of a FakeQuantize behind `node`."""
        forms = {self.graph.quantizers[name].form for name in node.quantizer}
        return (
            reader is not None
            and reader.op in ("Add", "Mul", "Sub")
            and reader.origin == node.origin
            and not reader.quantizer
            and forms == {"FakeQuantize"}
        )

    def settled_fates(self, index: Mapping[str, int]) -> tuple[Fate, ...]:
        """All fates, those of passes first, with the indices of steps; a quantizer that nothing
        reads is redundant.
        """
        fates = list(self.graph.fates)
        fates += [
            Fate(f.quantizer, f.half, f.fate, f.reason, f.consumer, index[step] if step else None)
            for f, step in self._fates
        ]
        # a value that one reader needs in f32 is decoded, while the step of another reads its codes
        in_codes = {(f.quantizer, f.consumer) for f in fates if _reads_codes(f)}
        fates = [
            f for f in fates if f.reason != _TAKES_F32 or (f.quantizer, f.consumer) not in in_codes
        ]
        found: dict[str, set[Half]] = {name: set() for name in self.graph.quantizers}
        for fate in fates:
            found[fate.quantizer].add(fate.half)
        for name, quantizer in self.graph.quantizers.items():
            halves = found[name]
            if Half.QUANTIZE not in halves:
                fates.append(_missing_quantize(name, quantizer.form, bool(halves)))
            if Half.DEQUANTIZE not in halves:
                reason = "nothing decodes the codes: the model itself reads or returns them"
                fates.append(Fate(name, Half.DEQUANTIZE, DequantizeFate.REDUNDANT, reason, "codes"))
        return tuple(dict.fromkeys(fates))


def _reads_codes(fate: Fate) -> bool:
    """The codes are decoded within the step of their reader."""
    return fate.half is Half.DEQUANTIZE and fate.fate in (
        DequantizeFate.POST_OP,
        DequantizeFate.SUM,
        DequantizeFate.SOURCE_SCALE,
    )


def _missing_quantize(name: str, form: str, read: bool) -> Fate:
    stored = form.startswith("DequantizeLinear") or form.endswith((" of codes", " on a constant"))
    if stored and read:
        return Fate(name, Half.QUANTIZE, QuantizeFate.CONSTANT, "the model stores the codes")
    return Fate(name, Half.QUANTIZE, QuantizeFate.REDUNDANT, "nothing reads the codes")
