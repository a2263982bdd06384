"""A reshape moves behind what may join the primitive in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node, subject
from ..ir.ops import dims
from ..ir.ops.spec import Trait
from ..ir.paths import chain_anchor
from ..ir.rule import Refusal
from ..ir.types import DType
from .base import Contract, Pass, Verdict, decide, swap
from .reshape_runs import Run, joins, rebuilt, runs, view, views_for
from .reshaping import is_reshape, known_shape, source_of, target_of, viewed


def move_reshape(graph: Graph) -> None:
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
    # Again and again in topological order: where one has moved, another may meet it. Each time
    # one goes, or stands further behind.
    while sum(_move(graph, node.name) for node in graph.each() if is_reshape(graph, node)):
        pass


MOVE_RESHAPE = Pass("move_reshape", Contract("identity", "ties"), move_reshape)


def _move(graph: Graph, name: str) -> int:
    """Moves a reshape for one reader after the other, and as far as it goes; returns how
    often.
    """
    times = 0
    while name in graph and _rewrite(graph, graph.node(name)):
        times += 1
    return times


def _rewrite(graph: Graph, node: Node) -> bool:
    """Applies what matches first; what is refused before it is said, too."""
    for verdict in _tried(graph, node):
        decide(graph, MOVE_RESHAPE.name, node, verdict)
        if isinstance(verdict, str):
            return True
    return False


def _tried(graph: Graph, node: Node) -> Iterator[Verdict]:
    yield _merged(graph, node)
    for run in runs(graph, node):
        meets = run.end is not None and is_reshape(graph, run.end)
        yield _met(graph, node, run) if meets else _joined(graph, node, run)


def _merged(graph: Graph, node: Node) -> str | None:
    """R(R(x)) -> R(x) or x; R(x) -> x where x has that shape already."""
    shape = known_shape(graph, node.output)
    source = source_of(graph, node.input, shape)
    if source is None or (
        source == node.input and not dims.same_shape(known_shape(graph, source), shape)
    ):
        return None
    front = graph.producer(node.input)
    gone = [] if front is None else [front]
    merged = _replaced(graph, node, lambda: viewed(graph, source, shape, node), gone)
    if merged == source:
        return "its input has the shape already"
    if merged is None:
        return None
    if front is not None and front.name not in graph:
        decide(graph, MOVE_RESHAPE.name, front, f"{subject(node)} does its work, too")
    return "one reshape does the work of several"


def _met(graph: Graph, node: Node, run: Run) -> str | None:
    """Moves the reshape up to the one behind the run, and makes one of the two, or none."""
    end = run.end
    assert end is not None
    shape = known_shape(graph, end.output)
    gone = dims.same_shape(run.view.before, shape)
    if (
        not run.nodes
        or (run.shared and not gone)
        or (not gone and target_of(run.view.before, shape) is None)
        or _replaced(
            graph,
            end,
            lambda: viewed(graph, rebuilt(graph, node, run.nodes), shape, end),
            [node, *run.nodes],
        )
        is None
    ):
        return None
    passed = ", ".join(dict.fromkeys(map(subject, run.nodes)))
    if gone:
        decide(graph, MOVE_RESHAPE.name, end, f"it undoes {subject(node)}, and the two cancel")
    return f"behind {passed}, where {subject(end)} {'undoes it' if gone else 'does its work, too'}"


def _joined(graph: Graph, node: Node, run: Run) -> Verdict:
    """Moves the reshape behind what the step in front takes in."""
    product = next((place for place, found in enumerate(run.nodes) if found.op == "MatMul"), None)
    whole = product is not None or run.end is None or not joins(graph, run.end)
    nodes = run.nodes[:product]
    while nodes and nodes[-1].op == "Dequantize":
        nodes = nodes[:-1]
    source = node.input
    maker = _maker(graph, source)
    if maker is None or run.shared or not _takes(graph, maker, whole=whole):
        return None
    shared = graph.sole_consumer(source) is None
    if run.nodes and shared:
        found = f"{graph.read_count(source) + graph.is_output(source)} consumers"
        reason = "others read the values in front of the reshape, too"
        return Refusal(
            reason,
            "one consumer",
            found,
            "nothing to change in the quantizer: in the network, let the other readers use the reshaped values, too",
        )
    if not nodes or shared:
        return run.blocked
    refusal = _not_taken(graph, node, maker, nodes) or _leaves_a_step(
        graph, node, run, nodes, whole=whole
    )
    if refusal is not None:
        return refusal
    last = nodes[-1]

    def moved() -> str:
        inputs = [rebuilt(graph, node, nodes), *node.inputs[1:]]
        return graph.again(node, inputs, value=f"{last.output}/reshaped").output

    if _replaced(graph, last, moved, [node, *nodes]) is None:
        return None
    passed = ", ".join(map(subject, nodes))
    return f"behind {passed}, for what is in front of it to take in"


def _replaced(graph: Graph, old: Node, make: Callable[[], str], gone: Sequence[Node]) -> str | None:
    """Puts the value that `make` adds in the place of what `old` makes, and erases what is gone by
    that; None where the value has another type: then nothing is left of the attempt.
    """
    newest = graph.newest()
    value = make()
    if graph.type(value) == graph.type(old.output):
        swap(graph, old, value)
        erase_unread(graph, gone)
        return value
    nodes, constants = graph.added_since(*newest)
    erase_unread(graph, nodes)
    for name in constants:
        graph.forget_constant(name)
    return None


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
        computed = graph.computed(node.inputs)
        alone = len(computed) == 1 and graph.sole_consumer(computed[0]) is not None
        front = graph.producer(computed[0]) if alone else None
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


def _not_taken(graph: Graph, node: Node, maker: Node, nodes: tuple[Node, ...]) -> Refusal | None:
    """Why the step that begins with `maker` does not take in all of `nodes`: from f32, products,
    convolutions and pools store no codes, and quantizers along an axis are post-ops along the
    channels only. There would be one step more than before in the end."""
    quants = [found.quant for found in nodes if "quant" in found.attrs]
    axes = {view(graph, node).axis_back(quant.axis) for quant in quants if quant.axis is not None}
    channels = {"MatMul": graph.type(maker.output).rank - 1, "Conv": 1, "ConvTranspose": 1}.get(
        maker.op
    )
    if not axes <= {channels}:
        reason = "the quantization runs along another axis than the channels"
        return Refusal(
            reason, "per tensor, or along the channels", f"axes {axes}", "quantize per tensor"
        )
    if nodes[-1].op != "Quantize":
        return None
    if maker.has(Trait.PRODUCT):
        source, weights = maker.inputs[:2]
        stores = (
            _codes(graph, source) is not None and _codes(graph, weights, anyhow=True) is not None
        )
    else:
        stores = not _computes(maker) or _codes(graph, maker.input) is nodes[-1].attrs["dtype"]
    if stores:
        return None
    found = f"{maker.op} of {graph.type(maker.input)}"
    return Refusal(
        "the step in front cannot store the codes",
        "codes that it reads",
        found,
        "quantize the input of the layer in front, too",
    )


def _leaves_a_step(
    graph: Graph, node: Node, run: Run, nodes: tuple[Node, ...], *, whole: bool
) -> Refusal | None:
    """Why views of other operands would be more steps than what the chain behind the reshape has
    been: one.
    """
    views = views_for(graph, node, nodes)
    if not views:
        return None
    if len(views) > 1:
        reason = "several operands would have to be reshaped"
        return Refusal(
            reason,
            "one, for the step that is saved",
            ", ".join(sorted(views)),
            "nothing to change: there would be as many steps as before",
        )
    if not whole:
        reason = "an operand would have to be reshaped, and a part of the chain stays a step"
        return Refusal(
            reason,
            "the whole chain",
            f"{len(nodes)} operations",
            "nothing to change: there would be as many steps as before",
        )
    behind = run.nodes[len(nodes) : len(nodes) + 1]
    readers = graph.consumers(behind[0].output) if behind and behind[0].op == "Dequantize" else []
    if not behind or (
        readers
        and not graph.is_output(behind[0].output)
        and all(reader.has(Trait.PRODUCT) for reader in readers)
    ):
        return None
    reason = "an operand would have to be reshaped, and decoding the result stays a step"
    found = ", ".join(map(subject, readers)) or "the caller"
    return Refusal(
        reason,
        "a convolution or product that reads codes",
        found,
        "nothing to change: there would be as many steps as before",
    )


def _codes(graph: Graph, value: str, *, anyhow: bool = False) -> DType | None:
    """The type of the 8-bit codes that are decoded to `value`, per tensor and with an integer zero
    point, or `anyhow`; else None.
    """
    decode = graph.producer(value, "Dequantize")
    if decode is None or not (anyhow or (decode.quant.per_tensor and decode.quant.integral)):
        return None
    kind = graph.type(decode.input).dtype
    return kind if kind.is_code else None
