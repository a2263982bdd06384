"""A slice moves backward, in front of what computes row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ..ir.block_weights import block_weights
from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops import dims
from ..ir.ops.movement import permutation
from ..ir.ops.spec import Trait
from ..ir.types import Quantization, Shape
from .base import Contract, Pass, decide, swap
from .cuts import Cut, cut_of
from .reshaping import is_reshape, known_shape, target_of, view_of
from .skip_unread_steps import is_skipped

Axes = Sequence[int | None]
"""Along which axis each input of a node is cut; None: all of it is read."""


def move_slice(graph: Graph, dynamic: str | None = None) -> None:
    """Moves a slice in front of operations that compute each row from the same row alone.

    Before -> after::

        Slice(MatMul(x, w)){rows}       ->  MatMul(Slice(x){rows}, w)
        Slice(Softmax(x)){rows}         ->  Softmax(Slice(x){rows})        likewise normalization, not along its own axes
        Slice(Add(x, y)){rows}          ->  Add(Slice(x){rows}, Slice(y){rows})        and all that goes by element
        Slice(Transpose(x)){rows}       ->  Transpose(Slice(x){rows})      likewise reshapes, joins and other slices
        Gather(MatMul(x, w), i)         ->  Gather(MatMul(Slice(x){i}, w), 0)          i one constant position
        Gather(Transpose(LSTM(x)), i)   ->  Transpose(Gather(LSTM(x), i))              see `skip_unread_steps`

    so that nothing is computed that nobody reads: the last block of a language model for its last
    position alone, that of a classifier for its first, but for the keys and values of the attention.

    Legal because: a row of the result depends on the same row of the input, and on no other. Sums
    of a product of fewer rows may be added up in another order.
    Refuses when: another reader wants other rows, or more than half of the rows are read; or a
    product is about to be quantized by the range of all rows. Where no product, softmax,
    normalization or layer that skips steps is on the way the slice stays behind what goes by element: a step in front
    computes that in its post-ops.

    Args:
        dynamic: a word of `quantize_at_run_time.DYNAMIC`: such products are quantized afterwards.
    """
    # It ends: each move leaves fewer rows to a product, softmax or normalization.
    pending = [node.name for node in graph.nodes() if node.op in ("Slice", "Gather")]
    # a value is asked about once, whoever reads it, until a slice more does
    stay: set[str] = set()
    cuts: Cuts = {}
    while pending:
        name = pending.pop()
        value = graph.node(name).input if name in graph else ""
        if value and value not in stay:
            made = _moved(graph, graph.node(name), cuts, dynamic is not None)
            if made is None:
                stay.add(value)
            else:
                pending += made
                stay.difference_update(graph.node(each).input for each in made)


MOVE_SLICE = Pass("move_slice", Contract("identity", "ulp", 8), move_slice)


def moving(dynamic: str | None) -> Pass:
    """The pass for a word of `quantize_at_run_time.DYNAMIC`."""
    return replace(MOVE_SLICE, rewrite=partial(move_slice, dynamic=dynamic))


Cuts = dict[tuple[str, str, Cut], str]
"""Value, op and positions -> the name of the Slice or Gather that was put in."""


def _moved(graph: Graph, node: Node, cuts: Cuts, ranged: bool) -> list[str] | None:
    """Moves the cut at a node, and its equals, as far as it pays; returns the names of the slices
    that stand in front then, or None where all stay. `ranged`: see `_through`; `cuts`: what was
    put in so far.
    """
    cut = cut_of(graph, node)
    if cut is None or not cut.spares(known_shape(graph, node.input)[cut.axis]):
        return None
    readers = _readers(graph, node, cut, ranged)
    ways = _rowwise(graph, node.input, cut.axis, readers, ranged) if readers else {}
    ways = _worth(graph, ways, cut)
    if not ways:
        return None
    fewer = _Fewer(graph, cut, node, cuts)
    old = graph.in_order([graph.node(name) for name in ways])
    for each in old:
        fewer.made[each.output] = fewer.again(each, ways[each.name])
    for reader in readers:
        decide(graph, MOVE_SLICE.name, reader, f"in front of {len(ways)} operations, row by row")
        swap(graph, reader, fewer.read(reader))
    erase_unread(graph, old)
    return fewer.slices


def _readers(graph: Graph, node: Node, cut: Cut, ranged: bool) -> list[Node]:
    """All that read what `node` reads, if they read the same positions in the same way, and if what
    makes it computes these from the same positions of others; otherwise none.
    """
    maker = graph.producer(node.input)
    if maker is None or _through(graph, maker, cut.axis, ranged) is None:
        return []
    readers = graph.consumers(node.input)
    same = all(
        reader.op == node.op
        and node.input not in reader.inputs[1:]
        and cut_of(graph, reader) == cut
        for reader in readers
    )
    return readers if same else []


# -- how far it moves ------------------------------------------------------------------------------


def _rowwise(
    graph: Graph, value: str, axis: int, readers: Sequence[Node], ranged: bool
) -> dict[str, Axes]:
    """The nodes that make what `readers` cut from `value` along an axis, which nothing else reads,
    and which compute it from the same positions of their inputs; and where these lie.
    """
    first = graph.producer(value)
    assert first is not None
    wanted = {value: axis}
    ways: dict[str, Axes] = {
        reader.name: (axis, *[None] * (len(reader.inputs) - 1)) for reader in readers
    }
    # each that joins asks for what it reads, so the last reader of a node finds all others there
    pending = [first]
    while pending:
        node = pending.pop()
        # of a node with several results, such as a Split, another one may be what is read
        along = wanted.get(node.output)
        if along is None or node.name in ways or not _alone(graph, node, along, ways):
            continue
        axes = _through(graph, node, along, ranged)
        if axes is None:
            continue
        ways[node.name] = axes
        for source, at in zip(node.inputs, axes, strict=True):
            maker = graph.producer(source)
            if at is not None and wanted.setdefault(source, at) == at and maker is not None:
                pending.append(maker)
    return {name: axes for name, axes in ways.items() if name not in {r.name for r in readers}}


def _alone(graph: Graph, node: Node, axis: int, ways: Mapping[str, Axes]) -> bool:
    """True when all that reads a node reads the same positions along `axis`."""
    return not graph.is_output(node.output) and all(
        use.node.name in ways and ways[use.node.name][use.index] == axis
        for use in graph.uses(node.output)
    )


def _worth(graph: Graph, ways: Mapping[str, Axes], cut: Cut) -> dict[str, Axes]:
    """Those of the nodes that fewer rows spare work: what computes rows, all behind it or behind a
    layer that skips steps, and what starts from a value that is there for others anyway. None where
    no row and no step is spared.
    """
    kept: dict[str, Axes] = {}
    spared = False
    for node in graph.in_order([graph.node(name) for name in ways]):
        axes = zip(node.inputs, ways[node.name], strict=True)
        sources = [(value, at) for value, at in axes if at is not None]
        spares = _computes_rows(node) or any(
            _skips_steps(graph, value, replace(cut, axis=at), ways) for value, at in sources
        )
        if spares or any(_begins(graph, value, ways, kept) for value, _ in sources):
            kept[node.name] = ways[node.name]
        spared = spared or spares
    return kept if spared else {}


def _begins(graph: Graph, value: str, ways: Mapping[str, Axes], kept: Mapping[str, Axes]) -> bool:
    """True when fewer rows of a value are computed, or when all are, for others."""
    maker = graph.producer(value)
    if maker is None:
        return graph.constant(value) is None
    return maker.name in kept or (maker.name not in ways and graph.read_count(value) > 1)


def _skips_steps(graph: Graph, value: str, cut: Cut, ways: Mapping[str, Axes]) -> bool:
    """True of the states of a layer whose steps need not all run where a cut is read."""
    maker = graph.producer(value)
    if maker is None or value != maker.outputs[0] or graph.is_output(value):
        return False
    alike = all(
        use.node.name in ways and ways[use.node.name][use.index] == cut.axis
        for use in graph.uses(value)
    )
    return alike and is_skipped(graph, maker, cut)


def _computes_rows(node: Node) -> bool:
    return not (node.has(Trait.ELEMENTWISE) or node.has(Trait.LAYOUT_ONLY) or node.has(Trait.JOINS))


# -- through one operation -------------------------------------------------------------------------


def _through(graph: Graph, node: Node, axis: int, ranged: bool) -> Axes | None:
    """Where the positions along `axis` of a node's result lie in its inputs; None where they
    depend on others. `ranged`: products are quantized by the range of their sources later, but for
    those by weights in blocks, where each row has ranges of its own.
    """
    if ranged and node.op in ("MatMul", "Gemm") and block_weights(graph, node.inputs[1]) is None:
        return None
    results = [value for value in node.outputs if value]
    if results != [node.output]:
        return None
    if any(graph.type(value).shape is None for value in (*node.inputs, *results) if value):
        return None
    if node.has(Trait.ELEMENTWISE):
        return _by_element(graph, node, axis)
    if node.has(Trait.JOINS):
        joined = node.attr("axis", int) % _rank(graph, node.output)
        return None if joined == axis else [axis] * len(node.inputs)
    find = _WAYS.get(node.op)
    return None if find is None else find(graph, node, axis)


def _rank(graph: Graph, value: str) -> int:
    return len(known_shape(graph, value))


def _whole(node: Node, *first: int | None) -> Axes:
    """The first inputs are cut along these axes, all others are read whole."""
    return [*first, *[None] * (len(node.inputs) - len(first))]


def _by_element(graph: Graph, node: Node, axis: int) -> Axes | None:
    """Operands broadcast from the right; parameters along an axis of their own belong to it."""
    quant = node.attrs.get("quant")
    own = quant.axis if isinstance(quant, Quantization) else node.attrs.get("axis")
    if isinstance(own, int):
        return None if own % _rank(graph, node.input) == axis else _whole(node, axis)
    return _broadcast(graph, node.inputs, known_shape(graph, node.output), axis)


def _broadcast(graph: Graph, values: Sequence[str], shape: Shape, axis: int) -> Axes | None:
    """Where an axis of `shape` lies in what broadcasts to it; None where that cannot be told."""
    found: list[int | None] = []
    for value in values:
        own = known_shape(graph, value) if value else ()
        at = axis - (len(shape) - len(own))
        if at < 0 or own[at] == 1:
            found.append(None)
        elif len(values) == 1 or dims.same(own[at], shape[axis]):
            found.append(at)
        else:
            return None
    return found if any(at is not None for at in found) else None


def _product(graph: Graph, node: Node, axis: int) -> Axes | None:
    """Rows of the first operand, or the same matrices of a stack of both."""
    first, second = node.inputs[:2]
    a, b = known_shape(graph, first), known_shape(graph, second)
    rank = _rank(graph, node.output)
    if len(a) < 2 or len(b) < 2 or any(map(node.operand, (2, 3))):
        return None
    if axis < rank - 2:
        return _broadcast(graph, (first, second), known_shape(graph, node.output), axis)
    return _whole(node, len(a) - 2) if axis == rank - 2 else None


def _packed_product(graph: Graph, node: Node, axis: int) -> Axes | None:
    return _whole(node, axis) if axis < _rank(graph, node.output) - 1 else None


def _gemm(graph: Graph, node: Node, axis: int) -> Axes | None:
    if axis:
        return None
    shape, third = known_shape(graph, node.output), node.operand(2)
    bias = _broadcast(graph, [third, node.output], shape, axis) if third else None
    if third and bias is None:
        return None
    return _whole(node, node.attr("transA", int), None, *(bias or ())[:1])


def _over_last_axes(graph: Graph, node: Node, axis: int) -> Axes | None:
    """Normalizations over all axes from one on, whose parameters have these axes only."""
    rank = _rank(graph, node.input)
    first = node.attr("axis", int) % rank
    small = all(_rank(graph, value) <= rank - first for value in node.inputs[1:] if value)
    return _whole(node, axis) if axis < first and small else None


def _reduced(graph: Graph, node: Node, axis: int) -> Axes | None:
    """Reductions that keep the rank, over other axes."""
    axes, rank = graph.constant(node.operand(1)), _rank(graph, node.input)
    if axes is None or not axes.size or not node.attr("keepdims", int):
        return None
    return None if axis in axes.reshape(-1) % rank else _whole(node, axis)


def _pooled(_graph: Graph, node: Node, axis: int) -> Axes | None:
    """Images, or channels, of which each is pooled alone."""
    return _whole(node, axis) if axis < 2 else None


def _over_one_axis(graph: Graph, node: Node, axis: int) -> Axes | None:
    over = node.attr("axis", int) % _rank(graph, node.input)
    return None if over == axis else _whole(node, axis)


def _transposed(graph: Graph, node: Node, axis: int) -> Axes | None:
    return [permutation(node.attrs, _rank(graph, node.input))[axis]]


def _reshaped(graph: Graph, node: Node, axis: int) -> Axes | None:
    if not is_reshape(graph, node):
        return None
    before, after = known_shape(graph, node.input), known_shape(graph, node.output)
    at = view_of(before, after).axis_back(axis)
    if at is None:
        return None
    fewer = [(*s[:i], dims.UNKNOWN, *s[i + 1 :]) for s, i in ((before, at), (after, axis))]
    known = _tells_axes(node) or target_of(fewer[0], fewer[1]) is not None
    return _whole(node, at) if known else None


def _tells_axes(node: Node) -> bool:
    """True when a shape-only operation says what becomes of axes, whatever their sizes."""
    return node.op == "Unsqueeze" or (node.op == "Squeeze" and bool(node.operand(1)))


def _sliced(graph: Graph, node: Node, axis: int) -> Axes | None:
    """A slice of one position or more along another axis."""
    cut = cut_of(graph, node)
    if cut is None or (cut.axis == axis and node.op == "Slice"):
        return None
    scalar = node.op == "Gather" and _rank(graph, node.output) < _rank(graph, node.input)
    return _whole(node, axis + (scalar and cut.axis <= axis))


_WAYS: Mapping[str, Callable[[Graph, Node, int], Axes | None]] = {
    "MatMul": _product,
    "MatMulInteger": _product,
    "MatMulBlocks": _packed_product,
    "Gemm": _gemm,
    "LayerNormalization": _over_last_axes,
    "ReduceMean": _reduced,
    "GlobalAveragePool": _pooled,
    "Softmax": _over_one_axis,
    "LogSoftmax": _over_one_axis,
    "Transpose": _transposed,
    "Reshape": _reshaped,
    "Flatten": _reshaped,
    "Squeeze": _reshaped,
    "Unsqueeze": _reshaped,
    "Slice": _sliced,
    "Gather": _sliced,
}


# -- the operations on fewer rows ------------------------------------------------------------------


class _Fewer:
    """Values of which the positions of a cut are left.

    Attributes:
        made: value -> the node that computes these positions of it. (Its result may become an
            output of the graph on the way, by another name.)
        slices: names of the slices that were put in.
    """

    def __init__(self, graph: Graph, cut: Cut, node: Node, cuts: Cuts) -> None:
        self._graph, self._cut, self._node, self._cuts = graph, cut, node, cuts
        self.made: dict[str, str] = {}
        self.slices: list[str] = []

    def again(self, node: Node, axes: Axes) -> str:
        """The name of a node that computes these positions of another one's result."""
        graph = self._graph
        inputs = [
            value if at is None else self._of(value, at, node)
            for value, at in zip(node.inputs, axes, strict=True)
        ]
        if node.has(Trait.RESHAPES) and not _tells_axes(node):
            return self._reshaped(node, inputs[0], axes[0])
        return graph.again(node, inputs, value=f"{node.output}/rows").name

    def read(self, reader: Node) -> str:
        """What a reader gives of the positions that are left."""
        value = self._graph.node(self.made[reader.input]).output
        if reader.op == "Slice":
            return value
        indices = self._graph.constant(reader.inputs[1])
        assert indices is not None
        first = self._graph.add_constant(f"{reader.name}/first", np.zeros_like(indices))
        return self._graph.again(reader, [value, first]).output

    def _of(self, value: str, axis: int, reader: Node) -> str:
        """These positions of what `reader` reads."""
        if value in self.made:
            return self._graph.node(self.made[value]).output
        graph, cut = self._graph, replace(self._cut, axis=axis)
        data = graph.constant(value)
        if data is not None:
            fewer = data[(slice(None),) * axis + (cut.positions,)]
            return graph.add_constant(f"{value}/rows", fewer, graph.type(value).dtype)
        # of an unknown number of positions a Gather gives one, or an error as the model does
        op = "Slice" if isinstance(known_shape(graph, value)[axis], int) else self._node.op
        known = self._cuts.get((value, op, cut), "")
        if known in graph:
            return graph.node(known).output
        made = graph.add(
            op,
            [value, *self._given(op, cut)],
            {} if op == "Slice" else {"axis": axis},
            name=f"{self._node.name}/rows",
            outputs=[graph.fresh(f"{value}/rows")],
            # the reader comes first: it is what reads the value in the model
            origin=tuple(dict.fromkeys((*reader.origin, *self._node.origin))),
        )
        self._cuts[value, op, cut] = made.name
        self.slices.append(made.name)
        return made.output

    def _given(self, op: str, cut: Cut) -> list[str]:
        """The constants that tell a Slice or Gather what it reads."""
        given = {"start": cut.start, "end": cut.end, "axis": cut.axis, "step": cut.step}
        if op == "Gather":
            given = {"index": cut.start}
        return [
            self._graph.add_constant(f"{self._node.name}/{what}", np.asarray([number], np.int64))
            for what, number in given.items()
        ]

    def _reshaped(self, node: Node, value: str, axis: int | None) -> str:
        graph = self._graph
        assert axis is not None
        before, after = known_shape(graph, value), list(known_shape(graph, node.output))
        view = view_of(known_shape(graph, node.input), tuple(after))
        after[next(at for at in range(len(after)) if view.axis_back(at) == axis)] = before[axis]
        target = target_of(before, tuple(after))
        assert target is not None
        shape = graph.add_constant(f"{node.name}/shape", np.asarray(target, np.int64))
        name = graph.fresh(f"{node.output}/rows")
        return graph.add(
            "Reshape", [value, shape], name=node.name, origin=node.origin, outputs=[name]
        ).name
