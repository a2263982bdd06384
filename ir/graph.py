"""The graph that passes rewrite: nodes with ordered inputs, typed values, and networkx as a private
index.

The ordered `inputs` and `outputs` of the nodes are the truth; the networkx graph (producer ->
consumer) and the table of uses are
derived from them and kept in step by the verbs: `add_input`, `add_constant`, `add`, `set_inputs`,
`replace_uses`, `set_outputs`, `erase`, `rename_value`. Constant data is held by reference and never
copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import takewhile
from operator import is_, ne
from typing import TYPE_CHECKING

import numpy as np

from .constants import Constants, Halves, array_of, for_types, halved
from .decision import Decision, Fate, Outcome, Quantizer
from .node import GraphError, Node, Use
from .ops import OPS
from .ops.spec import Array, Attr, OpSpec, ShapeError, same_bits
from .order import Rank, in_order
from .types import DType, Quantization, TensorType, narrower

if TYPE_CHECKING:
    from networkx import DiGraph


_NO_EDGE = {"reads": 0}

_MANY_INPUTS = 64
"""A node of more inputs keeps its place among the readers of those that an edit leaves alone; any
other node is the last of them then.
"""

_FEW_DIGITS = 10  # of a number that names are counted by


class Graph:
    """A directed acyclic graph of operations over named, typed values.

    Attributes:
        name: of the model, for people.
        fates: halves of quantizers that passes have already settled.
        quantizers: every quantizer of the user's model, recorded at import.
        halved: large f32 constants that half floats hold exactly lie in memory as these.
        joined: nodes of the user's model that are now part of a quantizer's scale and zero point: the
            step that decodes by these computes them.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._outputs: list[str] = []
        self._returned: dict[str, list[int]] = {}
        self._outputs_told: tuple[str, ...] | None = None
        self._decisions: dict[
            Decision, Decision
        ] = {}  # a decision, a refusal without what was found -> the last such one
        self.fates: list[Fate] = []
        self.quantizers: dict[str, Quantizer] = {}
        self.halved = False
        self.joined: dict[str, None] = {}
        self._inputs: list[str] = []
        self._types: dict[str, TensorType] = {}
        self._constants: dict[str, Array | Halves] = {}
        self._nodes: dict[str, Node] = {}
        self._producer: dict[str, str] = {}
        self._uses: dict[str, dict[tuple[str, int], None]] = {}
        self._rank: dict[str, Rank] = {}
        self._late: dict[
            str, int
        ] = {}  # reader -> how many nodes of a higher rank it reads; itself counts, too
        self._taken: dict[str, int] = {}  # base -> all of base.1 ... base.n are names
        self._counter = 0
        self._inferred: dict[str, tuple[Node, list[TensorType | None]]] = {}
        self._index = _new_index()
        self._order: list[str] | None = None
        self._place: dict[str, int] = {}
        self.version = 0
        self._anchors: tuple[int, dict[str, tuple[str, int]]] = (-1, {})

    # -- reading -----------------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the graph's inputs, in order."""
        return tuple(self._inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the values that the graph returns, in order."""
        if self._outputs_told is None:
            self._outputs_told = tuple(self._outputs)
        return self._outputs_told

    @outputs.setter
    def outputs(self, values: Iterable[str]) -> None:
        self._outputs, self._outputs_told, self._returned = list(values), None, {}
        for place, value in enumerate(self._outputs):
            self._returned.setdefault(value, []).append(place)

    @property
    def constants(self) -> Mapping[str, Array]:
        """Constant values by name (read-only arrays)."""
        return Constants(self._constants)

    @property
    def values(self) -> Mapping[str, TensorType]:
        """The type of every value by name."""
        return self._types

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What rules left behind, in order, each once."""
        return tuple(self._decisions.values())

    def decide(self, decision: Decision) -> None:
        """Records what a rule did; the same decision again changes nothing, so that passes stay
        idempotent.

        A rule that is refused once more at a place, for the same reason, has said by that what it
        finds now.
        """
        self._decisions[
            replace(decision, found="") if decision.outcome is Outcome.REFUSED else decision
        ] = decision

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node_name: str) -> bool:
        return node_name in self._nodes

    def node(self, name: str) -> Node:
        """The node with that name (KeyError when there is none)."""
        return self._nodes[name]

    def nodes(self) -> list[Node]:
        """All nodes in a deterministic topological order; a snapshot: `each` follows edits, this
        does not.
        """
        if self._order is None:
            found = in_order(self._rank, self._late, self._index.succ, self._index.pred)
            if len(found) < len(self._nodes):
                raise GraphError("the graph has a cycle")
            self._order = found
            self._place = {name: place for place, name in enumerate(self._order)}
        return [self._nodes[name] for name in self._order]

    def each(self, *ops: str) -> Iterator[Node]:
        """The nodes of these ops (default: all) in topological order, each as it is when its turn
        comes, without those erased by then.
        """
        for name in [node.name for node in self.nodes() if not ops or node.op in ops]:
            if name in self._nodes:
                yield self._nodes[name]

    def places(self) -> Mapping[str, int]:
        """Where each node stands in the topological order, by name."""
        self.nodes()
        return self._place

    def in_order(self, nodes: Iterable[Node]) -> list[Node]:
        """Some nodes, each behind those of them that it reads, and else by their ranks; nobody asks
        where the others stand.
        """
        found = {node.name: node for node in nodes}
        if len(found) < 2:
            return list(found.values())
        ranks = {name: self._rank[name] for name in found}
        makers = {name: found.keys() & self._index.pred[name] for name in found}
        readers: dict[str, list[str]] = {name: [] for name in found}
        for name, read in makers.items():
            for maker in read:
                readers[maker].append(name)
        late = {
            name
            for name, read in makers.items()
            if any(ranks[maker] >= ranks[name] for maker in read)
        }
        return [found[name] for name in in_order(ranks, late, readers, makers)]

    def type(self, value: str) -> TensorType:
        """The type of a value (KeyError when there is none)."""
        return self._types[value]

    def constant(self, value: str) -> Array | None:
        """The data of a constant value, or None."""
        found = self._constants.get(value)
        return None if found is None else array_of(found)

    def producer(self, value: str, *ops: str) -> Node | None:
        """The node that produces a value, if it is one of these ops (default: any); None for inputs
        and constants.
        """
        name = self._producer.get(value)
        if name is None or (ops and self._nodes[name].op not in ops):
            return None
        return self._nodes[name]

    def decoder(self, value: str) -> Node | None:
        """The Dequantize that makes a value of codes which are computed, or None."""
        found = self.producer(value, "Dequantize")
        return None if found is None or found.inputs[0] in self._constants else found

    def computed(self, inputs: Iterable[str]) -> list[str]:
        """Those inputs of a node that are there and no constants."""
        return [value for value in inputs if value and value not in self._constants]

    def uses(self, value: str) -> list[Use]:
        """Every input of a node that reads the value, in the order in which they came to be."""
        return [Use(self._nodes[name], index) for name, index in self._uses[value]]

    def consumers(self, value: str) -> list[Node]:
        """The nodes that read a value, each once."""
        return [self._nodes[name] for name in dict.fromkeys(name for name, _ in self._uses[value])]

    def latest_consumers(self, value: str) -> Iterator[Node]:
        """The nodes that read a value, the one that began last first: a search that ends soon takes no
        list of all.
        """
        return (self._nodes[name] for name, _ in reversed(self._uses[value]))

    def read_count(self, value: str) -> int:
        """By how many inputs of nodes the value is read."""
        return len(self._uses[value])

    def is_read(self, value: str) -> bool:
        """True when a node reads the value or the graph returns it."""
        return bool(self._uses[value]) or value in self._returned

    def is_output(self, value: str) -> bool:
        """True when the graph returns the value."""
        return value in self._returned

    def sole_consumer(self, value: str) -> Node | None:
        """The one node that reads the value, by one input, when the graph does not return it;
        otherwise None.
        """
        uses = self._uses[value]
        if len(uses) != 1 or value in self._returned:
            return None
        return self._nodes[next(iter(uses))[0]]

    def anchors(self) -> dict[str, tuple[str, int]]:
        """What `paths.chain_anchor` has found out about the graph as it stands; empty again after
        every edit.
        """
        if self._anchors[0] != self.version:
            self._anchors = (self.version, {})
        return self._anchors[1]

    def edges(self) -> set[tuple[str, str]]:
        """The derived index, as (producer, consumer) names: the verifier holds it against the
        nodes.
        """
        return set(self._index.edges)

    def added_since(self, node: str, constant: str) -> tuple[list[Node], list[str]]:
        """What was added behind a node and a constant that are still there ('': there was none):
        nodes in topological order, constants.
        """
        nodes = list(takewhile(lambda name: name != node, reversed(self._nodes)))
        constants = list(takewhile(lambda name: name != constant, reversed(self._constants)))
        return [self._nodes[name] for name in reversed(nodes)], constants[::-1]

    def newest(self) -> tuple[str, str]:
        """The node and the constant that were added last; '' where there is none."""
        return next(reversed(self._nodes), ""), next(reversed(self._constants), "")

    # -- building and rewriting --------------------------------------------------------------------

    def fresh(self, base: str) -> str:
        """A name, `base` or `base.1`, `base.2` ..., that no value and no node has."""
        if base and base not in self._types and base not in self._nodes:
            return base
        number = self._taken.get(base, 0) + 1
        while f"{base}.{number}" in self._types or f"{base}.{number}" in self._nodes:
            number += 1
        self._taken[base] = number - 1
        return f"{base}.{number}"

    def add_input(self, name: str, type: TensorType) -> str:
        """A new input of the graph."""
        self._bind(name, type)
        self._inputs.append(name)
        return name

    def add_constant(
        self,
        name: str,
        data: Array | Halves,
        dtype: DType | None = None,
        quant: Quantization | None = None,
    ) -> str:
        """A constant value under a fresh name derived from `name`; `dtype` where NumPy's type does
        not tell (s4, bf16).

        The array is kept by reference and made read-only.
        """
        name = self.fresh(name)
        if self.halved and not isinstance(data, Halves):
            data = halved(data)
        if not isinstance(data, Halves) and data.flags.writeable:
            data = data.view()
            data.setflags(write=False)
        self._bind(
            name, TensorType(dtype or DType.from_numpy(data.dtype), tuple(data.shape), quant)
        )
        self._constants[name] = data
        return name

    def add(
        self,
        op: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr] | None = None,
        *,
        name: str = "",
        outputs: Sequence[str] | None = None,
        origin: Iterable[str] = (),
        quantizer: Iterable[str] = (),
        types: Sequence[TensorType] | None = None,
        after_all: bool = False,
    ) -> Node:
        """A new node; its output types come from the op table.

        Args:
            op: name of a row of the op table.
            inputs: names of existing values; an absent optional one is ''.
            attrs: attributes; the row's defaults fill the rest.
            name: wanted name (made fresh when taken); default: the op's name.
            outputs: wanted names of the outputs ('' for absent ones); default: one, named after the
                node.
            origin: names of the nodes in the user's model it comes from.
            quantizer: names of quantizers, for Quantize, Dequantize, FakeQuantize.
            types: output types, only for the op `Onnx`, whose row cannot tell them.
            after_all: order it behind all nodes so far (import); otherwise it comes right behind
                its producers.

        Raises:
            GraphError: an unknown op or value, an output name that is taken, or inputs that do not
                fit the op.
        """
        spec = OPS.get(op)
        if spec is None:
            raise GraphError(f"no op {op} in the op table")
        self._check_known(name or op, inputs)
        # a value may share a node's name
        node_name = name if name and name not in self._nodes else self.fresh(name or op)
        names = (self.fresh(node_name + ".out"),) if outputs is None else tuple(outputs)
        try:
            complete = spec.complete(attrs or {})
            found = tuple(types) if types is not None else self._infer(spec, inputs, complete, {})
        except ShapeError as error:
            raise GraphError(f"{node_name} ({op}): {error}") from error
        node = Node(
            node_name,
            op,
            tuple(inputs),
            names,
            complete,
            tuple(dict.fromkeys(origin)),
            tuple(dict.fromkeys(quantizer)),
        )
        self._enter(node, found, after_all=after_all)
        return node

    def _enter(self, node: Node, types: Sequence[TensorType], *, after_all: bool) -> None:
        """Files a new node, and its outputs with their types."""
        for value, type_ in zip(node.outputs, types, strict=False):
            if value:
                self._bind(value, type_)
                self._producer[value] = node.name
        self._rank[node.name] = self._rank_for(node, after_all)
        if len(node.outputs) <= len(types):
            self._inferred[node.name] = node, self._types_at(node)
        self._nodes[node.name] = node
        self._index.add_node(node.name)
        self._connect(node)
        self._touch()

    def is_as_inferred(self, node: Node) -> bool:
        """True when what a node is, reads and gives are the very types that the op table gave of it when it was
        added: no need to ask again.
        """
        then, types = self._inferred.get(node.name, (None, []))
        if then is None or (
            then is not node and (then.inputs, then.attrs) != (node.inputs, node.attrs)
        ):
            return False
        now = self._types_at(node)
        return then.op == node.op and len(types) == len(now) and all(map(is_, types, now))

    def _types_at(self, node: Node) -> list[TensorType | None]:
        return [self._types.get(value) for value in (*node.inputs, *node.outputs)]

    def again(
        self,
        node: Node,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr] | None = None,
        *,
        value: str = "",
        origin: Iterable[str] | None = None,
    ) -> Node:
        """A further node like one that stays: the same op on other inputs, with its name, origin
        and quantizers.

        Args:
            node: the node that it is like.
            inputs: as in `add`.
            attrs: other attributes.
            value: wanted name of the output (made fresh when taken); default: named after the node.
            origin: another origin.
        """
        return self.add(
            node.op,
            inputs,
            node.attrs if attrs is None else attrs,
            name=node.name,
            outputs=[self.fresh(value)] if value else None,
            origin=node.origin if origin is None else origin,
            quantizer=node.quantizer,
        )

    def part(
        self,
        node: Node,
        op: str,
        inputs: Sequence[str],
        what: str = "",
        attrs: Mapping[str, Attr] | None = None,
    ) -> str:
        """The value of a further operation that does a part of what a node does: it has the node's
        origin, and its name, with `what` behind it.
        """
        name = f"{node.name}/{what}" if what else ""
        return self.add(op, inputs, attrs, name=name, origin=node.origin).output

    def set_inputs(self, node: Node, inputs: Sequence[str]) -> Node:
        """Makes a node read other values; what they say of the shapes of its outputs may be more
        than before, never something else.

        Raises:
            GraphError: the outputs would change their type, or a cycle would come to be.
        """
        alike = len(inputs) == len(node.inputs)
        places = (
            [i for i, differs in enumerate(map(ne, node.inputs, inputs)) if differs]
            if alike
            else list(range(len(inputs)))
        )
        return self._set(node, inputs, places)

    def _set(self, node: Node, inputs: Sequence[str], places: Sequence[int]) -> Node:
        """Makes a node read other values; `places`: where they differ, all where their number
        does.
        """
        changed, alike = replace(node, inputs=tuple(inputs)), len(inputs) == len(node.inputs)
        self._check_known(node.name, [inputs[place] for place in places])
        if node.op != "Onnx" and not (
            alike and all(self._alike(node.inputs[place], inputs[place]) for place in places)
        ):
            self._types.update(self._narrowed(node, inputs))
        before = places
        if not alike or len(inputs) <= _MANY_INPUTS:
            before, places = list(range(len(node.inputs))), list(range(len(inputs)))
        for place in before:
            self._unread(node.name, place, node.inputs[place])
        self._nodes[node.name] = changed
        for place in places:
            self._read(node.name, place, inputs[place])
        self._touch()
        return changed

    def replace_uses(self, old: str, new: str, *, only: Iterable[Node] | None = None) -> None:
        """Makes every reader of `old` (nodes and graph outputs, or just the nodes in `only`) read
        `new` instead.

        Raises:
            GraphError: the two types differ in element type, shape or quantization, so that readers
                would change their types.
        """
        chosen = None if only is None else {node.name for node in only}
        for name, places in self._places(old).items():
            if chosen is None or name in chosen:
                node = self._nodes[name]
                self._set(node, _with(node.inputs, places, new), places)
        if chosen is None and old in self._returned:
            self._check_known("the graph's outputs", [new])
            self._return(old, new)
            self._touch()

    def set_outputs(self, outputs: Sequence[str]) -> None:
        """Sets the values that the graph returns."""
        self._check_known("the graph's outputs", outputs)
        self.outputs = outputs
        self._touch()

    def erase(self, node: Node) -> None:
        """Removes a node that nothing reads.

        Raises:
            GraphError: an output of it is still used.
        """
        for value in filter(None, node.outputs):
            if self.is_read(value):
                raise GraphError(f"{node.name} cannot be erased: {value} is used")
        self._disconnect(node)
        for value in filter(None, node.outputs):
            del self._types[value], self._producer[value], self._uses[value]
            self._release(value)
        del self._nodes[node.name], self._rank[node.name]
        self._release(node.name)
        self._index.remove_node(node.name)
        self._touch()

    def forget_constant(self, value: str) -> None:
        """Removes a constant that nothing reads.

        Raises:
            GraphError: it is no constant, or it is used.
        """
        if value not in self._constants or self.is_read(value):
            raise GraphError(f"{value} is no unused constant")
        del self._types[value], self._constants[value], self._uses[value]
        self._release(value)

    def give_up_constant(self, value: str) -> Array | Halves:
        """Hands out the data of a constant, which is zeros from now on: for memory that should go as soon
        as its data has gone elsewhere. Who calls this removes the constant, or the graph.

        Raises:
            GraphError: it is no constant.
        """
        if value not in self._constants:
            raise GraphError(f"{value} is no constant")
        data = self._constants[value]
        self._constants[value] = np.broadcast_to(np.zeros((), data.dtype), data.shape)
        return data

    def rename_value(self, old: str, new: str) -> None:
        """Gives a value produced by a node another name.

        Raises:
            GraphError: the name is taken, or `old` is an input or constant.
        """
        producer = self.producer(old)
        if producer is None or new in self._types:
            raise GraphError(f"cannot rename {old} to {new}")
        self._bind(new, self._types[old])
        self._producer[new] = producer.name
        outputs = tuple(new if value == old else value for value in producer.outputs)
        self._nodes[producer.name] = replace(producer, outputs=outputs)
        self.replace_uses(old, new)
        del self._types[old], self._producer[old], self._uses[old]
        self._release(old)
        self._touch()

    def relabel(self, node: Node) -> None:
        """Gives a node other origins or quantizers; everything else of it must be what it is."""
        old = self._nodes[node.name]
        if replace(old, origin=node.origin, quantizer=node.quantizer) != node:
            raise GraphError(f"relabel changes more of {node.name} than where it came from")
        self._nodes[node.name] = node
        self.version += 1

    def copy(self) -> Graph:
        """An independent graph with the same nodes and values; constant data is shared."""
        twin = Graph()
        vars(twin).update({name: copy(held) for name, held in vars(self).items()})
        twin.outputs = self.outputs
        twin._uses = {value: dict(uses) for value, uses in self._uses.items()}
        twin._index = self._index.copy()
        return twin

    def __eq__(self, other: object) -> bool:
        """Same inputs, outputs, nodes (with names, attributes, origins), types, constants (bit by
        bit) and quantizers.
        """
        if not isinstance(other, Graph):
            return NotImplemented
        return _parts(self) == _parts(other) and all(
            same_bits(data, other.constants[name]) for name, data in self.constants.items()
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def _return(self, old: str, new: str) -> None:
        """Returns `new` wherever `old` was returned."""
        for place in (places := self._returned.pop(old, [])):
            self._outputs[place] = new
        if places:
            self._returned[new] = sorted([*self._returned.get(new, []), *places])
            self._outputs_told = None

    # -- the index ---------------------------------------------------------------------------------

    def _bind(self, value: str, type_: TensorType) -> None:
        if not value or value in self._types:
            raise GraphError(f"value name {value!r} is taken" if value else "a value needs a name")
        self._types[value] = type_
        self._uses[value] = {}

    def _check_known(self, reader: str, values: Iterable[str]) -> None:
        unknown = [value for value in values if value and value not in self._types]
        if unknown:
            raise GraphError(f"{reader} cannot read unknown values: {', '.join(unknown)}")

    def _infer(
        self,
        spec: OpSpec,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr],
        known: Mapping[str, TensorType],
    ) -> tuple[TensorType, ...]:
        """Types of the outputs of an op that reads `inputs`; `known` goes before the graph's."""
        types = [(known.get(value) or self._types[value]) if value else None for value in inputs]
        return spec.infer(types, attrs, [for_types(self.constants, value) for value in inputs])

    def _narrowed(self, node: Node, inputs: Sequence[str]) -> dict[str, TensorType]:
        """The types that change when `node` reads `inputs`: of its outputs, and of everything
        behind it (a shape that was computed and is constant now).

        Raises:
            GraphError: the inputs do not fit an op, or a value would change its type other than
                that unknown dimensions become known; the graph is what it was.
        """
        found: dict[str, TensorType] = {}
        pending = [(node, inputs)]
        while pending:
            reader, values = pending.pop()
            try:
                types = self._infer(reader.spec, values, reader.attrs, found)
            except ShapeError as error:
                raise GraphError(f"{reader.name} ({reader.op}): {error}") from error
            for value, type_ in zip(reader.outputs, types, strict=False):
                if not value or type_ == (old := found.get(value) or self._types[value]):
                    continue
                if not narrower(type_, old):
                    raise GraphError(f"{reader.name} would turn {value} from {old} into {type_}")
                found[value] = type_
                pending += [
                    (next_, next_.inputs) for next_ in self.consumers(value) if next_.op != "Onnx"
                ]
        return found

    def _places(self, value: str) -> dict[str, list[int]]:
        """By which of its inputs, in order, each node reads a value."""
        found: dict[str, list[int]] = {}
        for name, place in self._uses[value]:
            found.setdefault(name, []).append(place)
        return {name: sorted(places) for name, places in found.items()}

    def _rank_for(self, node: Node, after_all: bool) -> Rank:
        # (place, counter): a rewritten node takes the place of its latest producer, so schedules
        # stay close to the model's.
        self._counter += 1
        places = [self._rank[self._producer[v]][0] for v in node.inputs if v in self._producer]
        return (self._counter if after_all or not places else max(places), self._counter)

    def _connect(self, node: Node) -> None:
        for place, value in enumerate(node.inputs):
            self._read(node.name, place, value)

    def _disconnect(self, node: Node) -> None:
        for place, value in enumerate(node.inputs):
            self._unread(node.name, place, value)

    def _read(self, reader: str, place: int, value: str) -> None:
        """A node reads a value; an edge counts by how many inputs it reads the producer."""
        if not value:
            return
        self._uses[value][reader, place] = None
        producer = self._producer.get(value)
        if producer is not None:
            reads = self._index.get_edge_data(producer, reader, _NO_EDGE)["reads"]
            self._index.add_edge(producer, reader, reads=reads + 1)
            if not reads and self._rank[producer] >= self._rank[reader]:
                self._late[reader] = self._late.get(reader, 0) + 1

    def _unread(self, reader: str, place: int, value: str) -> None:
        if not value:
            return
        del self._uses[value][reader, place]
        producer = self._producer.get(value)
        if producer is not None:
            edge = self._index.edges[producer, reader]
            edge["reads"] -= 1
            if not edge["reads"]:
                self._index.remove_edge(producer, reader)
                if self._rank[producer] >= self._rank[reader]:
                    self._late[reader] -= 1
                    if not self._late[reader]:
                        del self._late[reader]

    def _alike(self, before: str, after: str) -> bool:
        """True of two values that tell the same of what reads them."""
        if not (before and after) or before in self._constants or after in self._constants:
            return False
        return self._types[before] == self._types[after]

    def _release(self, name: str) -> None:
        """A name that is free again is the next fresh one of its base."""
        base, _, number = name.rpartition(".")
        if base in self._taken and number.isdecimal() and len(number) < _FEW_DIGITS:
            self._taken[base] = min(self._taken[base], int(number) - 1)

    def _touch(self) -> None:
        self._order = None
        self.version += 1


def _new_index() -> DiGraph[str]:
    """An empty index. networkx takes long to import; who only runs plans makes no graph."""
    from networkx import DiGraph

    return DiGraph()


def _with(inputs: Sequence[str], places: Iterable[int], value: str) -> list[str]:
    """The inputs with a value at some places."""
    result = list(inputs)
    for place in places:
        result[place] = value
    return result


def _parts(graph: Graph) -> tuple[object, ...]:
    nodes = {node.name: node for node in graph.nodes()}
    return (
        graph.inputs,
        graph.outputs,
        graph.values,
        nodes,
        graph.quantizers,
        graph.constants.keys(),
    )
