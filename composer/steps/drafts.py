"""Steps in the making: who claimed which node, which constants the steps name, and what became of
each quantizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...errors import InternalError, UnsupportedOp
from ...ir.decision import Decision, DequantizeFate, Fate, Half, Outcome, QuantizeFate
from ...ir.graph import Graph
from ...ir.node import Node, subject
from ...ir.ops.spec import Array, Trait
from ...ir.ranges import makes_codes
from ...ir.rule import Refusal
from ...ir.types import DType, TensorType
from ...plan.targets import Target
from ...plan.types import Step
from .chain import Chain
from .chooser import weighed

__all__ = ["Draft", "Drafts"]


@dataclass(frozen=True)
class Draft:
    """A step and the last node of the graph in it, which gives it its place."""

    step: Step
    last: Node


class Drafts:
    """Collects steps while the graph is being cut into primitives.

    Attributes:
        graph: what is being compiled.
        target: the rules of the attributes.
        merged: names of steps that others have taken in -> those.
    """

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph = graph
        self.target = target
        self._drafts: dict[str, Draft] = {}  # by the step's name
        self.merged: dict[str, str] = {}
        self._claimed: set[str] = set()
        self._constants: dict[str, Array] = {}
        self._types: dict[str, TensorType] = {}
        self._fates: list[tuple[Fate, str]] = []
        self._needed: set[str] = set(graph.outputs)
        self._readers: dict[str, list[frozenset[str]]] = {}
        self._ended: dict[str, str] = {}

    @property
    def drafts(self) -> list[Draft]:
        """The steps so far."""
        return list(self._drafts.values())

    # -- nodes -------------------------------------------------------------------------------------

    def is_claimed(self, node: Node) -> bool:
        """True when a step has taken the node in."""
        return node.name in self._claimed

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
        return any(node.name in names for names in self._readers.get(value, ()))

    def add(self, step: Step, nodes: Iterable[Node], type_: TensorType | None = None) -> None:
        """Adds a step made of `nodes` (in order); `type_` is what its output holds when that is not
        the graph's type.
        """
        taken = list(nodes)
        self._claimed.update(node.name for node in taken)
        self._drafts[step.name] = Draft(step, taken[-1])
        for value in dict.fromkeys(step.inputs):
            self._readers.setdefault(value, []).append(frozenset(node.name for node in taken))
        self._needed.update(step.inputs)
        if type_ is not None:
            self._types[step.output] = type_

    def merge(self, first: Draft, second: Draft, step: Step) -> None:
        """Replaces two steps, of which the second alone reads the first, by one in the second's
        place.
        """
        del self._drafts[first.step.name]
        self._drafts[second.step.name] = Draft(step, second.last)
        self.merged[first.step.name] = step.name

    def add_chain(self, step: Step, anchor: Node, chain: Chain) -> None:
        """Adds a step made of an anchor and the chain behind it, and settles what became of the
        chain's quantizers.
        """
        for name, array in chain.composed.constants.items():
            self.file_constant(name, array)
        self.add(step, [anchor, *(link.node for link in chain.links)])
        self._settle_chain(step, anchor, chain)
        for decision in weighed(self.graph, anchor, chain):
            self.graph.decide(decision)
        if chain.refusal is not None:
            node, refusal = chain.refusal
            self.refuse(f"fuse into {step.primitive}", node, refusal)
            self._ended[node.name] = (
                f"{step.primitive} {step.name} in front does not take it: {refusal.reason}"
            )

    def file_constant(self, name: str, array: Array) -> str:
        """Keeps the data of a constant that a step names."""
        self._constants[name] = array
        return name

    def constant(self, value: str) -> Array:
        """The data of a constant that steps read.

        Raises:
            InternalError: nothing produces the value.
            UnsupportedOp: an operator that runs as itself reads a constant of bf16 or 4 bits, which
                no array of a plan can be.
        """
        found = self._constants.get(value)
        if found is None:
            found = self.graph.constant(value)
            if found is not None and DType.from_numpy(found.dtype) is not (
                dtype := self.graph.type(value).dtype
            ):
                what = f"an operator that no primitive computes reads a constant of {dtype.value}"
                raise UnsupportedOp(
                    what,
                    where=f"constant {value}",
                    hint="export the model in float32, or quantize to 8 bits",
                )
        if found is None:
            raise InternalError(f"no step produces {value}")
        return found

    def type(self, value: str) -> TensorType:
        """The type of a value that a step writes."""
        return self._types.get(value) or self.graph.type(value)

    # -- decisions and fates -----------------------------------------------------------------------

    def refuse(self, rule: str, node: Node, refusal: Refusal) -> None:
        """Records why a node did not fuse."""
        decision = Decision(
            rule,
            subject(node),
            Outcome.REFUSED,
            refusal.reason,
            refusal.expected,
            refusal.found,
            refusal.hint,
        )
        self.graph.decide(decision)

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

    def _settle_chain(self, step: Step, anchor: Node, chain: Chain) -> None:
        if anchor.op == "FakeQuantize":
            self._settle_compared(
                step, anchor, chain.links[0].node if chain.links else None, alone=True
            )
        for number, link in enumerate(chain.links):
            node = link.node
            before = chain.links[number - 1].node if number else anchor
            follower = chain.links[number + 1].node if number + 1 < len(chain.links) else None
            if node.op == "FakeQuantize":
                self._settle_compared(step, node, follower, alone=False)
            elif (
                node.op == "Quantize"
                and before.op == "FakeQuantize"
                and makes_codes(self.graph, before)
            ):
                alone = before is anchor
                fate = QuantizeFate.STANDALONE if alone else QuantizeFate.POST_OP
                self.encoded(node, fate, self.why_alone(before) if alone else _COMPARED, step.name)
            elif node.op == "Quantize":
                if follower is None and (
                    chain.composed.quantize == "dst_scale" or not step.attr.post_ops
                ):
                    self.encoded(node, QuantizeFate.DST_SCALE, _how_stored(step), step.name)
                else:
                    why = (
                        "the chain goes on behind it"
                        if follower is not None
                        else "the target has no place for it at the destination"
                    )
                    self.encoded(
                        node,
                        QuantizeFate.POST_OP,
                        f"scale, round and clip among the post-ops: {why}",
                        step.name,
                    )
            elif node.op == "Dequantize":
                for reader in [follower] if follower is not None else self.readers_of(node):
                    self.decoded(
                        node,
                        DequantizeFate.POST_OP,
                        "undone inside the chain, by scale and shift",
                        reader,
                        step.name,
                    )
            if link.decoded is not None:
                self._settle_operand(step, chain, link.decoded, node)

    def _settle_compared(
        self, step: Step, node: Node, follower: Node | None, *, alone: bool
    ) -> None:
        """Both halves of a FakeQuantize that stayed whole; one that makes codes leaves them to the
        Quantize and Dequantize behind it.
        """
        encode = QuantizeFate.STANDALONE if alone else QuantizeFate.POST_OP
        self.encoded(node, encode, self.why_alone(node) if alone else _COMPARED, step.name)
        fate = DequantizeFate.STANDALONE if alone else DequantizeFate.POST_OP
        for reader in [follower] if follower is not None else self.readers_of(node):
            self.decoded(
                node, fate, "the output range is scale and shift behind the grid", reader, step.name
            )

    def why_alone(self, node: Node) -> str:
        """Why a quantizer starts a step: what ended the step in front, or what it reads."""
        if node.name in self._ended:
            return self._ended[node.name]
        value = node.inputs[0]
        producer = self.graph.producer(value)
        if producer is None:
            return (
                "it quantizes an input of the model"
                if self.graph.constant(value) is None
                else "it quantizes a constant"
            )
        if self.graph.read_count(value) > 1 or self.graph.is_output(value):
            return f"others read the f32 values of {producer.name} too"
        return f"{producer.name} cannot store what it makes"

    def _settle_operand(self, step: Step, chain: Chain, decode: Node, consumer: Node) -> None:
        codes = decode.inputs[0]
        if codes in chain.composed.sums:
            self.decoded(
                decode,
                DequantizeFate.SUM,
                "the destination's buffer holds the codes: a sum with their scale and zero point",
                consumer,
                step.name,
            )
        elif codes in step.inputs and not step.attr.post_ops:  # the operation of binary itself
            self.decoded(
                decode,
                DequantizeFate.SOURCE_SCALE,
                "a source of binary, in units of its codes",
                consumer,
                step.name,
            )
        elif codes in step.inputs:
            self.decoded(
                decode,
                DequantizeFate.POST_OP,
                f"a binary post-op reads the codes, scale and shift are applied around it{self._why_no_sum(chain, codes, consumer)}",
                consumer,
                step.name,
            )
        # otherwise the step reads the decoded f32 values, and the standalone step that decodes them
        # settles it

    def _why_no_sum(self, chain: Chain, codes: str, consumer: Node) -> str:
        if consumer.op not in ("Add", "Sub"):
            return ""
        dst, src = chain.composed.dst, self.graph.type(codes).dtype
        unlike = (
            f"{src.value} codes do not fill a destination of {dst.value}"
            if dst.numpy.itemsize != src.numpy.itemsize
            else ""
        )
        return f"; no sum: {chain.not_summed.get(codes) or unlike or 'the primitive has none, or has one for another operand'}"

    def readers_of(self, node: Node) -> list[Node | str]:
        """What reads decoded values; of 16-bit codes behind what moves them, since
        `decode_wide_codes` decodes them in front of that.
        """
        wide = node.op == "Dequantize" and self.graph.type(node.inputs[0]).dtype.is_wide_code
        found: list[Node | str] = []
        pending = [node.output]
        while pending:
            value = pending.pop(0)
            for reader in self.graph.consumers(value):
                if (
                    wide
                    and reader.inputs[0] == value
                    and (reader.has(Trait.LAYOUT_ONLY) or reader.has(Trait.SELECTS))
                ):
                    pending.append(reader.output)
                else:
                    found.append(reader)
            found += [f"output {value}"] if self.graph.is_output(value) else []
        return found

    def settled_fates(self, index: Mapping[str, int]) -> tuple[Fate, ...]:
        """All fates, those of passes first, with the indices of steps; a quantizer that nothing
        reads is redundant.
        """
        fates = list(self.graph.fates)
        fates += [
            Fate(f.quantizer, f.half, f.fate, f.reason, f.consumer, index[step] if step else None)
            for f, step in self._fates
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


_COMPARED = (
    "comparisons with its bounds among the post-ops: no scale and zero point encode such ranges"
)


def _how_stored(step: Step) -> str:
    """How a store quantizes, in the words of the step's own attributes."""
    if "dst" in step.attr.scales:
        return f"{step.primitive} divides its result by the scale and stores the codes"
    where = "output scales" if step.attr.output_scales is not None else "own factors"
    return f"the scale is part of {step.primitive}'s {where}, and the store rounds and saturates"


def _missing_quantize(name: str, form: str, read: bool) -> Fate:
    if form.startswith("DequantizeLinear") and read:
        return Fate(name, Half.QUANTIZE, QuantizeFate.CONSTANT, "the model stores the codes")
    return Fate(name, Half.QUANTIZE, QuantizeFate.REDUNDANT, "nothing reads the codes")
