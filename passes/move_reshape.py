"""A reshape moves behind what may join the primitive in front of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node, subject
from ..ir.ops import dims
from ..ir.ops.spec import Trait
from ..ir.paths import chain_anchor
from ..ir.types import DType, Quantization, Shape
from .base import Contract, fired, refused, swap
from .reshape_runs import Blocked, Run, joins, rebuilt, runs, view, views_for
from .reshaping import is_reshape, source_of, target_of, viewed

__all__ = ["MoveReshape"]


@dataclass(frozen=True)
class MoveReshape:
    """Moves Reshape, Flatten, Squeeze and Unsqueeze (below: R) behind elementwise operations and
    products of rows.

    Before -> after::

        Op(R(x), c)             ->  R(Op(x, c'))             Op elementwise, Quantize or Dequantize; c constant
        Add(R(x), y)            ->  R(Add(x, R'(y)))         x from a convolution or product, y from none; Mul, Max ... likewise
        Add(R(x), R(y))         ->  R(Add(x, y))             likewise
        R(..MatMul(R(x), W))    ->  R(..MatMul(x, W))        the inner R keeps the last axis, W is a constant matrix
        R(R(x))                 ->  R(x), or x               x where the shape is the same again

    so that the primitive which makes x takes in what follows, and that flattening in front of a
    product undoes what splits again behind
    it: a matrix product has the shape of its residual. At run time R' is the same bytes under
    another shape.

    Legal because: the elements keep their order, and Op works on each alone; what it reads beside
    them broadcasts along whole groups of axes that the reshape merges or splits. A product with one
    matrix works on each row alone.
    Refuses when: others read the values in front of R, or between it and Op; R is computed at run
    time; a constant or a quantizer varies along a part of what R merges or splits; y comes from a
    convolution or product, too, which takes the Add itself; nothing in front takes Op.
    """

    name: ClassVar[str] = "move_reshape"
    contract: ClassVar[Contract] = Contract("identity", "ties")

    def run(self, graph: Graph) -> None:
        """Again and again in topological order: where one has moved, another may meet it. Each time
        one goes, or stands further behind.
        """
        while sum(self._move(graph, node.name) for node in graph.each() if is_reshape(graph, node)):
            pass

    def _move(self, graph: Graph, name: str) -> int:
        """Moves a reshape for one reader after the other, and as far as it goes; returns how
        often.
        """
        times = 0
        while name in graph and self._rewrite(graph, graph.node(name)):
            times += 1
        return times

    def _rewrite(self, graph: Graph, node: Node) -> bool:
        if self._merge(graph, node):
            return True
        for run in runs(graph, node):
            meets = run.end is not None and is_reshape(graph, run.end)
            if self._meet(graph, node, run) if meets else self._join(graph, node, run):
                return True
        return False

    def _merge(self, graph: Graph, node: Node) -> bool:
        """R(R(x)) -> R(x) or x; R(x) -> x where x has that shape already."""
        shape = _shape(graph, node.output)
        source = source_of(graph, node.inputs[0], shape)
        if source is None or (
            source == node.inputs[0] and not dims.same_shape(_shape(graph, source), shape)
        ):
            return False
        front = graph.producer(node.inputs[0])
        attempt = _Attempt(graph)
        merged = viewed(graph, source, shape, node)
        if not attempt.replaces(node, merged):
            return False
        fired(
            graph,
            self.name,
            node,
            "its input has the shape already"
            if merged == source
            else "one reshape does the work of several",
        )
        swap(graph, node, merged)
        erase_unread(graph, [] if front is None else [front])
        return True

    def _meet(self, graph: Graph, node: Node, run: Run) -> bool:
        """Moves the reshape up to the one behind the run, and makes one of the two, or none."""
        end = run.end
        assert end is not None
        shape = _shape(graph, end.output)
        gone = dims.same_shape(run.view.before, shape)
        if (
            not run.nodes
            or (run.shared and not gone)
            or (not gone and target_of(run.view.before, shape) is None)
        ):
            return False
        attempt = _Attempt(graph)
        merged = viewed(graph, rebuilt(graph, node, run.nodes), shape, end)
        if not attempt.replaces(end, merged):
            return False
        fired(
            graph,
            self.name,
            node,
            f"behind {_named(run)}, where {subject(end)} {'undoes it' if gone else 'does its work, too'}",
        )
        swap(graph, end, merged)
        erase_unread(graph, [node, *run.nodes])
        return True

    def _join(self, graph: Graph, node: Node, run: Run) -> bool:
        """Moves the reshape behind what the step in front takes in."""
        product = next(
            (place for place, found in enumerate(run.nodes) if found.op == "MatMul"), None
        )
        whole = product is not None or run.end is None or not joins(graph, run.end)
        nodes = run.nodes[:product]
        while nodes and nodes[-1].op == "Dequantize":
            nodes = nodes[:-1]
        maker = _maker(graph, node.inputs[0])
        if maker is None or run.shared or not _takes(graph, maker, whole=whole):
            return False
        if not nodes or graph.sole_consumer(node.inputs[0]) is None:
            self._refuse(graph, node, run)
            return False
        why_not = _not_taken(graph, node, maker, nodes) or _leaves_a_step(
            graph, node, run, nodes, whole=whole
        )
        if why_not is not None:
            refused(graph, self.name, node, why_not[0], expected=why_not[1], found=why_not[2])
            return False
        last = nodes[-1]
        attempt = _Attempt(graph)
        moved = rebuilt(graph, node, nodes)
        outputs = [graph.fresh(f"{last.output}/reshaped")]
        again = graph.add(
            node.op,
            [moved, *node.inputs[1:]],
            node.attrs,
            name=node.name,
            origin=node.origin,
            outputs=outputs,
        )
        if not attempt.replaces(last, again.output):
            return False
        fired(
            graph,
            self.name,
            node,
            f"behind {', '.join(map(subject, nodes))}, for what is in front of it to take in",
        )
        swap(graph, last, again.output)
        erase_unread(graph, [node, *nodes])
        return True

    def _refuse(self, graph: Graph, node: Node, run: Run) -> None:
        source = node.inputs[0]
        if run.nodes and graph.sole_consumer(source) is None:
            found = f"{graph.read_count(source) + graph.is_output(source)} consumers"
            refused(
                graph,
                self.name,
                node,
                "others read the values in front of the reshape, too",
                expected="one consumer",
                found=found,
            )
        elif run.blocked is not None:
            reason, expected, found = run.blocked
            refused(graph, self.name, node, reason, expected=expected, found=found)


class _Attempt:
    """What the graph held before a rewrite was tried."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._newest = graph, graph.newest()

    def replaces(self, old: Node, value: str) -> bool:
        """True when `value` has the type of what `old` makes; else nothing is left of the
        attempt.
        """
        graph = self._graph
        if graph.type(value) == graph.type(old.output):
            return True
        nodes, constants = graph.added_since(*self._newest)
        erase_unread(graph, nodes)
        for name in constants:
            graph.forget_constant(name)
        return False


def _computes(node: Node) -> bool:
    """True for what computes on codes as well as on f32, and takes in what follows: products,
    averages, interpolation.
    """
    return node.has(Trait.READS_CODES) and not node.has(Trait.JOINS)


def _maker(graph: Graph, value: str) -> Node | None:
    """What the step that makes a value begins with: a convolution, product or pool with arithmetic
    behind it, or the arithmetic itself.
    """
    node = graph.producer(value)
    while node is not None and not _computes(node):
        computed = [found for found in node.inputs if found and graph.constant(found) is None]
        front = (
            graph.producer(computed[0])
            if len(computed) == 1 and graph.sole_consumer(computed[0]) is not None
            else None
        )
        if front is None or not (_computes(front) or joins(graph, front)):
            return chain_anchor(graph, value) or node
        node = front
    return node


def _takes(graph: Graph, node: Node, *, whole: bool) -> bool:
    """True when the step that begins with a node takes in what stands behind it: the `whole` chain,
    or a part.

    Of a part, the rest would be a step that all had been before. Only convolutions and products are
    sure to leave none.
    """
    if node.op in ("Quantize", "Dequantize"):
        return False
    return node.has(Trait.PRODUCT) or (whole and (_computes(node) or joins(graph, node)))


def _not_taken(graph: Graph, node: Node, maker: Node, nodes: tuple[Node, ...]) -> Blocked | None:
    """Why the step that begins with `maker` does not take in all of `nodes`: from f32, products,
    convolutions and pools store no codes, and quantizers along an axis are post-ops along the
    channels only. There would be one step more than before in the end."""
    quants = [
        found.attr("quant", Quantization)
        for found in nodes
        if found.op in ("Quantize", "Dequantize")
    ]
    axes = {view(graph, node).axis_back(quant.axis) for quant in quants if quant.axis is not None}
    channels = {"MatMul": graph.type(maker.output).rank - 1, "Conv": 1, "ConvTranspose": 1}.get(
        maker.op
    )
    if not axes <= {channels}:
        return (
            "the quantization runs along another axis than the channels",
            "per tensor, or along the channels",
            f"axes {axes}",
        )
    if nodes[-1].op != "Quantize":
        return None
    if maker.has(Trait.PRODUCT):
        source, weights = maker.inputs[:2]
        stores = (
            _codes(graph, source) is not None and _codes(graph, weights, anyhow=True) is not None
        )
    else:
        stores = not _computes(maker) or _codes(graph, maker.inputs[0]) is nodes[-1].attrs["dtype"]
    found = f"{maker.op} of {graph.type(maker.inputs[0])}"
    return (
        None
        if stores
        else ("the step in front cannot store the codes", "codes that it reads", found)
    )


def _leaves_a_step(
    graph: Graph, node: Node, run: Run, nodes: tuple[Node, ...], *, whole: bool
) -> Blocked | None:
    """Why views of other operands would be more steps than what the chain behind the reshape has
    been: one.
    """
    views = views_for(graph, node, nodes)
    if not views:
        return None
    if len(views) > 1:
        return (
            "several operands would have to be reshaped",
            "one, for the step that is saved",
            ", ".join(sorted(views)),
        )
    if not whole:
        return (
            "an operand would have to be reshaped, and a part of the chain stays a step",
            "the whole chain",
            f"{len(nodes)} operations",
        )
    behind = run.nodes[len(nodes) : len(nodes) + 1]
    readers = graph.consumers(behind[0].output) if behind and behind[0].op == "Dequantize" else []
    if not behind or (
        readers
        and not graph.is_output(behind[0].output)
        and all(reader.has(Trait.PRODUCT) for reader in readers)
    ):
        return None
    found = ", ".join(map(subject, readers)) or "the caller"
    return (
        "an operand would have to be reshaped, and decoding the result stays a step",
        "a convolution or product that reads codes",
        found,
    )


def _codes(graph: Graph, value: str, *, anyhow: bool = False) -> DType | None:
    """The type of the 8-bit codes that are decoded to `value`, per tensor and with an integer zero
    point, or `anyhow`; else None.
    """
    decode = graph.producer(value)
    if decode is None or decode.op != "Dequantize":
        return None
    quant, kind = decode.attr("quant", Quantization), graph.type(decode.inputs[0]).dtype
    return (
        kind
        if kind in (DType.U8, DType.S8) and (anyhow or (quant.per_tensor and quant.integral))
        else None
    )


def _shape(graph: Graph, value: str) -> Shape:
    shape = graph.type(value).shape
    assert shape is not None
    return shape


def _named(run: Run) -> str:
    return ", ".join(dict.fromkeys(map(subject, run.nodes)))
