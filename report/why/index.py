"""Every name by which a plan, and the model that it was made of, can be asked."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...errors import InvalidInput
from ...ir.decision import Decision, Fate, Half
from ...ir.model_node import ModelNode
from ...plan.types import Plan

_STEP = re.compile(r"#?(\d{1,9})")
_GLOB = re.compile(r"[*?\[]")
_NEAREST = 3
_COMPARED = 20_000  # names; difflib takes about 20 µs for each
_DECODES = re.compile(r"Dequantize\w*")


class NoSuchName(InvalidInput):
    """A plan or model has nothing of a name."""


class Index:
    """Where each name occurs.

    Args:
        plan: any plan.
        nodes: the nodes of the model that it was made of; empty where only the plan is known.
        around: the step in a body of which the plan lies; '' for that of a whole model.

    Attributes:
        plan: the plan.
        around: as given.
        bodies: of the plans in bodies of its steps, those in bodies of bodies as well.
        steps: node of the model -> indices of the steps that do its work, in order.
        decisions: node of the model -> what rules decided there, in order.
        fates: quantizer -> fates of its halves; `read`: node -> fates of what it reads.
        nodes: name -> the nodes of the model of that name.
        maker, readers: value of the model -> the node that writes it, the nodes that read it.
        producer, readers_in_plan: value of the plan -> the step that writes it, those that read it.
    """

    def __init__(self, plan: Plan, nodes: Iterable[ModelNode] = (), *, around: str = "") -> None:
        self.plan, self.around = plan, around
        within = () if around else plan.within
        self.bodies = tuple(Index(body, around=step or "?") for step, body in within)
        self.steps: dict[str, list[int]] = defaultdict(list)
        self.producer: dict[str, int] = {}
        self.readers_in_plan: dict[str, list[int]] = defaultdict(list)
        for number, step in enumerate(plan.steps):
            for name in step.origin:
                self.steps[name].append(number)
            self.producer.update(dict.fromkeys(filter(None, step.outputs), number))
            for value in dict.fromkeys(step.inputs):
                self.readers_in_plan[value].append(number)
        self.decisions: dict[str, list[Decision]] = defaultdict(list)
        for decision in plan.decision_records:
            self.decisions[decision.subject].append(decision)
        self.fates: dict[str, list[Fate]] = defaultdict(list)
        self.read: dict[str, list[Fate]] = defaultdict(list)
        for fate in plan.fate_records:
            self.fates[fate.quantizer].append(fate)
            if fate.half is Half.DEQUANTIZE and fate.consumer:
                self.read[fate.consumer].append(fate)
        self.nodes: dict[str, list[ModelNode]] = defaultdict(list)
        self.maker: dict[str, ModelNode] = {}
        self.readers: dict[str, list[ModelNode]] = defaultdict(list)
        for node in nodes:
            self.nodes[node.name].append(node)
            self.maker.update(dict.fromkeys(node.outputs, node))
            for value in node.inputs:
                self.readers[value].append(node)
        self._computed: frozenset[str] | None = None
        self._needed: frozenset[str] | None = None

    # -- names -------------------------------------------------------------------------------------

    def home(self, name: str) -> Index:
        """The index that knows a name that `matching` gave: this one, or that of a body."""
        every = (self, *self.bodies)
        return next((index for index in every if index._knows(name)), self)  # noqa: SLF001

    def _knows(self, name: str) -> bool:
        number = _STEP.fullmatch(name) and bool(self.around)  # steps are counted outside of bodies
        step = None if number else self.step_called(name)
        return self.is_node(name) or self.is_value(name) or step is not None

    def is_node(self, name: str) -> bool:
        """True of a node of the model, a quantizer among them."""
        return (
            name in self.nodes
            or name in self.plan.quantizers
            or name in self.steps
            or name in self.decisions
            or name in self.read
        )

    def is_value(self, name: str) -> bool:
        """True of a value of the model or plan."""
        return (
            name in self.maker
            or name in self.readers
            or name in self.plan.values
            or name in self.plan.constants
            or any(quantizer.value == name for quantizer in self.plan.quantizers.values())
        )

    def step_called(self, name: str) -> int | None:
        """The step of a name, or `#3`, or `3`; None where there is none."""
        numbered = _STEP.fullmatch(name)
        if numbered and int(numbered[1]) < len(self.plan.steps):
            return int(numbered[1])
        return next((n for n, step in enumerate(self.plan.steps) if step.name == name), None)

    def node_names(self) -> list[str]:
        """All nodes and quantizers, in the order of the model where it is known, else of the plan."""
        outputs = {f"output {value}" for value in self.plan.outputs} | {"codes"}
        found = [*self.nodes, *self.steps, *self.plan.quantizers, *self.decisions, *self.read]
        return [name for name in dict.fromkeys(found) if name and name not in outputs]

    def matching(self, name: str) -> list[str]:
        """The nodes that a name stands for: itself, all of a pattern (`*`, `?`, `[...]`), those that
        begin with it, where there are several, or those whose path ends with it, in front of them those of
        an operator of this name where none of them is a layer; values and steps where no node is meant.

        Raises:
            NoSuchName: nothing is called so; the hint has what comes nearest.
        """
        if any(index._knows(name) for index in (self, *self.bodies)):  # noqa: SLF001
            return [name]
        names = [item for index in (self, *self.bodies) for item in index.node_names()]
        names = list(dict.fromkeys(names))
        if _GLOB.search(name):
            found = [item for item in names if fnmatch.fnmatchcase(item, name)]
        else:
            found = [item for item in names if name and item.startswith(name)]
            found = found if len(found) > 1 else []  # another node's story would be no answer
            if all(map(self._is_no_layer, found)):
                found = list(dict.fromkeys([*self._of_operator(name, names), *found]))
            found = found or [
                item for item in names if name and item.endswith((f"/{name}", f".{name}"))
            ]
        if not found:
            raise self._unknown(name, names)
        return found

    def _unknown(self, name: str, names: Sequence[str]) -> NoSuchName:
        number = _STEP.fullmatch(name)
        if number and self.plan.steps:
            return NoSuchName(
                f"there is no step {int(number[1])}, and no node or value {name!r}",
                where=self.plan.name,
                hint=f"steps are counted from 0 to {len(self.plan.steps) - 1}: `fqfuse inspect --steps` lists them",
            )
        near = self._nearest(name, names)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        whole = (
            "the model has"
            if self.nodes
            else "the plan does not name what was folded away: ask the model itself; it knows"
        )
        count = f"{len(names):,} {'node' if len(names) == 1 else 'nodes'}"
        return NoSuchName(
            f"there is no node, quantizer, value or step {name!r}",
            where=self.plan.name,
            hint=f"{hint}{whole} {count}: a pattern such as '*conv1*' lists those that match",
        )

    def _nearest(self, name: str, names: Sequence[str]) -> list[str]:
        """What may be meant: nodes with that word at their end, what is written almost so, and what has it
        anywhere; layers before constants and quantizers.
        """
        text = name.lower()
        if not text:
            return []
        if self.nodes:  # what `compile(dynamic=...)` adds has a name of ours
            names = [item for item in names if self._is_in_file(item)]
        known = list(
            dict.fromkeys([*names, *self.maker, *(() if self.nodes else self.plan.values)])
        )
        ends = [item for item in names if text in re.split(r"[/.:]", item.lower())[-1]]
        meant = ends or self._written_alike(text, known)
        meant = meant or [item for item in known if text in item.lower()]
        return sorted(meant, key=self._is_no_layer)[:_NEAREST]

    def _is_in_file(self, name: str) -> bool:
        return name in self.nodes or name in self.maker or name in self.readers

    def _of_operator(self, name: str, names: Sequence[str]) -> list[str]:
        return [item for item in names if name and self.op(item).lower() == name.lower()]

    def _is_no_layer(self, name: str) -> bool:
        return self.op(name) == "Constant" or bool(self.quantizer_of(name))

    def _written_alike(self, text: str, known: list[str]) -> list[str]:
        if len(known) > _COMPARED:  # those that share a word with it
            words = set(re.findall(r"\w{2,}", text))
            known = [item for item in known if words & set(re.findall(r"\w{2,}", item.lower()))]
        lowered = {item.lower(): item for item in reversed(known[:_COMPARED])}
        return [lowered[item] for item in difflib.get_close_matches(text, lowered, _NEAREST, 0.6)]

    # -- the model ---------------------------------------------------------------------------------

    def op(self, name: str) -> str:
        """The ONNX operator of a node, or the form of a quantizer; '' where nobody tells."""
        if name in self.nodes:
            return self.nodes[name][0].op
        quantizer = self.plan.quantizers.get(name)
        if quantizer is not None:
            return quantizer.form
        homes = (d.rule for d in self.decisions.get(name, ()) if d.rule.startswith("home of "))
        return next((rule[8:] for rule in homes if rule[8:].isidentifier()), "")

    def quantizer_of(self, name: str) -> str:
        """The quantizer that a node is, or whose dequantize half it is; '' for other nodes."""
        if name in self.plan.quantizers:
            return name
        for node in self.nodes.get(name, ()):
            if _DECODES.fullmatch(node.op) and node.inputs:
                maker = self.maker.get(node.inputs[0])
                if maker is not None and maker.name in self.plan.quantizers:
                    return maker.name
        return ""

    def is_computed_early(self, node: ModelNode) -> bool:
        """True of a node that reads nothing but constants."""
        if self._computed is None:
            inputs = set(self.plan.inputs)
            late: set[str] = set()
            for item in self._in_order():
                if any(value in inputs or value in late for value in item.inputs):
                    late.update(item.outputs)
            self._computed = frozenset(self.maker) - late
        return all(value in self._computed for value in node.outputs)

    def is_needed(self, node: ModelNode) -> bool:
        """True of a node on which something depends that the model returns."""
        if self._needed is None:
            pending, found = list(self.plan.outputs), set[str]()
            while pending:
                value = pending.pop()
                if value not in found:
                    found.add(value)
                    pending += self.maker[value].inputs if value in self.maker else ()
            self._needed = frozenset(found)
        return any(value in self._needed for value in node.outputs)

    def behind(self, node: ModelNode) -> list[int]:
        """The steps of the next nodes behind one that have steps, in order."""
        return self._around(
            node, lambda item: (r for v in item.outputs for r in self.readers.get(v, ()))
        )

    def in_front(self, node: ModelNode) -> list[int]:
        """The steps of the next nodes in front of one that have steps, in order."""
        return self._around(
            node, lambda item: (self.maker[v] for v in item.inputs if v in self.maker)
        )

    def _around(
        self, node: ModelNode, next_to: Callable[[ModelNode], Iterable[ModelNode]]
    ) -> list[int]:
        pending, seen, found = [node], {id(node)}, set[int]()
        while pending:
            for other in next_to(pending.pop()):
                if id(other) in seen:
                    continue
                seen.add(id(other))
                if other.name in self.steps:
                    found.update(self.steps[other.name])
                else:
                    pending.append(other)
        return sorted(found)

    def _in_order(self) -> Iterator[ModelNode]:
        """The nodes, each behind those that it reads."""
        seen: set[int] = set()
        for node in (node for same in self.nodes.values() for node in same):
            pending = [(node, False)]
            while pending:
                item, done = pending.pop()
                if done:
                    yield item
                elif id(item) not in seen:
                    seen.add(id(item))
                    pending.append((item, True))
                    pending += [(self.maker[v], False) for v in item.inputs if v in self.maker]
