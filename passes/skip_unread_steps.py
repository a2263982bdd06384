"""A recurrent layer runs no steps behind the last one that is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.recurrent import DYNAMIC, directions_of
from ..ir.ops.spec import Attr
from ..ir.rule import Refusal
from ..ir.types import Dim
from .base import Contract, NodePass, Verdict, swap
from .cuts import Cut, cut_of

_LAYERS = ("GRU", "LSTM", "RNN", DYNAMIC)
_BY_DIRECTION = {"w", "r", "b", "initial_h", "initial_c", "p"}


def skip_unread_steps(graph: Graph, node: Node) -> Verdict:
    """Gives each direction of a layer the steps that lead to those that are read.

    Before -> after::

        Gather(LSTM(x){bidirectional}, last)  ->  Concat(Gather(LSTM(x), last), LSTM(Gather(x, last)){reverse})
        Gather(LSTM(x), 0)                    ->  LSTM(Gather(x, 0))
        Slice(GRU(x){reverse}, 6, 8)          ->  Slice(GRU(Slice(x, 6, T)){reverse}, 0, 2)

    so that what reads the last step of a layer in both directions does not wait for all steps
    backwards, of which it reads the first.

    Legal because: a step depends on those in front of it in its own direction, and on no other.
    The products of fewer steps may be added up in another order.
    Refuses when: the last states are read, which all steps lead to; sequences have lengths of their
    own; the range of all steps quantizes the input (DynamicQuantizeLSTM); activations have
    parameters, which are dealt to both directions; or less than half of the steps of each direction
    would go.
    """
    cut = _read(graph, node)
    if cut is None or not may_skip(graph, node, cut):
        return None
    refusal = _refusal(node)
    if refusal is not None:
        return refusal
    layer = _Layer(graph, node, cut)
    parts = [layer.direction(number) for number in range(len(layer.runs))]
    value = parts[0]
    if len(parts) > 1:
        value = graph.part(node, "Concat", parts, "both", {"axis": 1})
    maker = graph.producer(value)
    assert maker is not None
    for reader in graph.consumers(node.outputs[0]):
        # it may have become an output of the graph, by another name
        _hand_over(graph, reader, graph.node(maker.name).outputs[0])
    graph.erase(node)
    spared = sum(run is not None for run in layer.runs)
    return f"{spared} of {len(parts)} directions up to what is read"


SKIP_UNREAD_STEPS = NodePass(
    "skip_unread_steps", Contract("identity", "ulp", 8), skip_unread_steps, _LAYERS
)


def may_skip(graph: Graph, node: Node, cut: Cut) -> bool:
    """True of a layer of which some direction need not run half of its steps, where `cut` is all that
    is read of it.
    """
    if node.op not in _LAYERS or cut.axis != 0:
        return False
    shape = graph.type(node.outputs[0]).shape if node.outputs[0] else None
    if shape is None or any(value and graph.is_read(value) for value in node.outputs[1:]):
        return False
    runs = [_run(shape[0], cut, backwards) for backwards in directions_of(node.attrs)]
    return any(run is not None for run in runs)


def is_skipped(graph: Graph, node: Node, cut: Cut) -> bool:
    """True where the pass would fire, once `cut` is all that is read of the node."""
    return may_skip(graph, node, cut) and _refusal(node) is None


def _run(dim: Dim, cut: Cut, backwards: bool) -> Cut | None:
    """The steps that a direction has to run for a cut; None: too many to spare the others."""
    if not isinstance(dim, int):
        if not cut.spares(dim) or cut.start != (-1 if backwards else 0):
            return None
        return cut
    read = range(*cut.positions.indices(dim))
    if not read:
        return None
    run = Cut(0, read[0], dim) if backwards else Cut(0, 0, read[-1] + 1)
    return run if run.spares(dim) else None


def _read(graph: Graph, node: Node) -> Cut | None:
    """What all readers cut alike from the states of all steps."""
    value = node.outputs[0]
    if not value or graph.is_output(value):
        return None
    readers = graph.consumers(value)
    if not all(each.op in ("Slice", "Gather") and each.input == value for each in readers):
        return None
    if any(value in each.inputs[1:] for each in readers):
        return None
    cuts = {cut_of(graph, each) for each in readers}
    dim = (graph.type(value).shape or ("?",))[0]
    # a Gather of a step that is not there is an error, and has to stay one
    known = isinstance(dim, int) or all(each.op == "Gather" for each in readers)
    return cuts.pop() if len(cuts) == 1 and known else None


def _refusal(node: Node) -> Refusal | None:
    given = dict(zip((param.name for param in node.spec.inputs), node.inputs, strict=False))
    if node.op == DYNAMIC:
        return Refusal(
            "the range of all steps quantizes the input",
            "an LSTM",
            DYNAMIC,
            "quantize the layer statically, or leave it in f32, where the last step alone is read",
        )
    lens = given.get("sequence_lens", "")
    if lens:
        return Refusal(
            "each sequence ends at a length of its own",
            "no sequence_lens",
            lens,
            "leave sequence_lens out where all sequences have all steps",
        )
    dealt = node.attrs["activation_alpha"] or node.attrs["activation_beta"]
    if dealt and len(directions_of(node.attrs)) > 1:
        return Refusal(
            "the parameters of activations are dealt to both directions",
            "activations without alpha and beta",
            repr(dealt),
            "nothing to change in the quantizer: such a layer runs all its steps",
        )
    return None


@dataclass
class _Layer:
    """A layer whose directions become layers of their own.

    Attributes:
        graph, node: the layer.
        cut: what is read of it.
        runs: the steps that each direction runs; None: all.
    """

    graph: Graph
    node: Node
    cut: Cut

    def __post_init__(self) -> None:
        self._shape = self.graph.type(self.node.outputs[0]).shape or ("?",)
        self.runs = [
            _run(self._shape[0], self.cut, backwards)
            for backwards in directions_of(self.node.attrs)
        ]

    def direction(self, number: int) -> str:
        """What is read of a direction."""
        graph, node, run = self.graph, self.node, self.runs[number]
        way = ("forward", "reverse")[directions_of(node.attrs)[number]]
        names = [param.name for param in node.spec.inputs]
        inputs = [
            self._of(value, number) if value and name in _BY_DIRECTION else value
            for name, value in zip(names, node.inputs, strict=False)
        ]
        if run is not None:
            inputs[0] = self._part(inputs[0], run, f"{way}/steps")
        made = graph.add(
            node.op,
            inputs,
            {**node.attrs, **self._activations(number), "direction": way},
            name=f"{node.name}/{way}",
            outputs=[graph.fresh(f"{node.outputs[0]}/{way}"), *[""] * (len(node.outputs) - 1)],
            origin=node.origin,
        )
        left = self._left(run)
        return made.outputs[0] if left is None else self._part(made.outputs[0], left, f"{way}/read")

    def _left(self, run: Cut | None) -> Cut | None:
        """Where what is read lies in what a direction has run; None: it is all of it."""
        dim, cut = self._shape[0], self.cut
        if not isinstance(dim, int):
            return cut if run is None else None
        read = range(*cut.positions.indices(dim))
        start = 0 if run is None else run.start
        steps = dim if run is None else run.end - run.start
        if len(read) == steps:
            return None
        return Cut(0, read[0] - start, read[-1] + 1 - start, cut.step)

    def _part(self, value: str, cut: Cut, what: str) -> str:
        """Steps of a value; of an unknown number a Gather gives one, or an error as the model does."""
        graph, node = self.graph, self.node
        if not isinstance(self._shape[0], int):
            index = graph.add_constant(f"{node.name}/{what}/index", np.array([cut.start]))
            return graph.part(node, "Gather", [value, index], what, {"axis": 0})
        return self._slice(value, what, (cut.start, cut.end, 0, cut.step))

    def _slice(self, value: str, what: str, numbers: Sequence[int]) -> str:
        graph, node = self.graph, self.node
        given = [
            graph.add_constant(f"{node.name}/{what}/{name}", np.array([number]))
            for name, number in zip(("start", "end", "axis", "step"), numbers, strict=True)
        ]
        return graph.part(node, "Slice", [value, *given], what)

    def _of(self, value: str, number: int) -> str:
        """The part of an input that belongs to a direction."""
        if len(self.runs) == 1:
            return value
        data = self.graph.constant(value)
        if data is not None:
            part = data[number : number + 1]
            return self.graph.add_constant(f"{value}/{number}", part, self.graph.type(value).dtype)
        return self._slice(value, f"of{number}", (number, number + 1, 0, 1))

    def _activations(self, number: int) -> Mapping[str, Attr]:
        names = self.node.attrs["activations"]
        assert isinstance(names, tuple)
        each = len(names) // len(self.runs)
        return {"activations": names[number * each : (number + 1) * each]}


def _hand_over(graph: Graph, reader: Node, value: str) -> None:
    """Makes what reads a reader of the layer read `value`, the steps that the reader picks."""
    if reader.op == "Gather" and graph.type(reader.inputs[1]).shape == ():
        axes = graph.add_constant(f"{reader.name}/axes", np.array([0]))
        value = graph.part(reader, "Squeeze", [value, axes], "step")
    swap(graph, reader, value)
