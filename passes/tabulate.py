"""Functions from 8-bit codes to 8-bit codes that no primitive computes become tables of 256
entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..ir.algorithms import ELTWISE, Cost
from ..ir.cleanup import erase_unread
from ..ir.constants import as_held
from ..ir.decision import DequantizeFate, QuantizeFate
from ..ir.graph import Graph
from ..ir.node import Node, origin_of, subject
from ..ir.ops import dims
from ..ir.ops.spec import Array, Trait
from ..ir.rule import Refusal
from ..ir.types import DType
from .base import Contract, Pass, decide, settle, swap

_CONSTANT = ""
"""What a value depends on when it is one constant number."""


def tabulate(graph: Graph) -> None:
    """Replaces elementwise arithmetic between two 8-bit values by a lookup in a table.

    Before -> after::

        Quantize(f(Dequantize(q), Quantize(g(Dequantize(q))) ...))  ->  Lookup(q, @table),  table[c] = Quantize(f(c ...))

    where q is the only value that f depends on besides constants. A quantizer behind every step of
    a decomposed activation, as ONNX Runtime's writes them, leaves functions that no primitive has,
    Erf for one.

    Legal because: the function has 256 arguments; the table holds what the op table's own
    arithmetic gives for each.
    Refuses when: the operations are one chain of post-ops, which a primitive computes itself, or a
    value in between is read elsewhere.
    A chain is looked up all the same where it would be a step of its own with a costly function in
    it, a sigmoid for one: its codes were moved since they were made, or others read them too.
    """
    # What a table gives are codes that others may depend on alone, hence sweeps until none finds
    # anything.
    while _sweep(graph):
        pass


TABULATE = Pass("tabulate", Contract("identity", "bitwise"), tabulate)


def _sweep(graph: Graph) -> bool:
    """Finds what each value depends on, then replaces from the outermost quantizer inwards."""
    depends = _dependence(graph)
    chains = _chains(graph, depends)
    # a lookup takes the name, and so the place, of the quantizer that it replaces
    place = graph.places()
    found = False
    for node in reversed(graph.nodes()):
        if node.op == "Quantize" and node.name in graph and depends.get(node.output):
            chain = chains.get(node.output)
            if chain is None or (
                chain.costly and _is_alone(graph, chain, depends[node.output] or "")
            ):
                current = graph.node(node.name)
                verdict = _tabulated(graph, current, depends[node.output] or "", place)
                decide(graph, TABULATE.name, current, verdict)
                found |= isinstance(verdict, str)
    return found


def _tabulated(graph: Graph, node: Node, codes: str, place: Mapping[str, int]) -> str | Refusal:
    """Replaces what lies between `codes` and `node`, or says why it stays."""
    region = _region(graph, node, codes, place)
    escaping = _escaping(graph, region, codes)
    if escaping is not None:
        reason = f"{escaping} is read elsewhere too"
        return Refusal(
            reason,
            "values that nothing else reads",
            "another reader",
            "nothing to change: what others read is computed anyway",
        )
    kind = graph.type(node.output)
    table = graph.add_constant(f"{node.output}/table", _evaluate(graph, region, codes))
    name = graph.fresh(f"{node.output}/looked_up")
    looked_up = graph.add(
        "Lookup",
        [codes, table],
        {"quant": kind.quant},
        name=node.name,
        outputs=[name],
        origin=origin_of(*region),
    )
    _settle(graph, region)
    swap(graph, node, looked_up.output)
    erase_unread(graph, region)
    return f"{len(region)} operations on {codes} are a table of 256 codes"


def to_be_tabulated(graph: Graph) -> frozenset[str]:
    """Names of the nodes that `tabulate` makes tables of in the graph as it stands."""
    found: set[str] = set()
    depends = _dependence(graph)
    chains = _chains(graph, depends)
    for node in graph.nodes():
        codes = depends.get(node.output) if node.op == "Quantize" else None
        if codes and node.name not in found and node.output not in chains:
            region = _region(graph, node, codes, graph.places())
            if _escaping(graph, region, codes) is None:
                found |= {inner.name for inner in region}
    return frozenset(found)


def _dependence(graph: Graph) -> dict[str, str | None]:
    """For each value the codes that it is a function of, _CONSTANT, or None when it depends on
    more, or on something else.
    """
    found: dict[str, str | None] = {
        value: _CONSTANT if data.size == 1 else None
        for value, data in as_held(graph.constants).items()
    }
    for node in graph.nodes():
        if node.has(Trait.ELEMENTWISE) and len(node.outputs) == 1:
            found[node.output] = _source(graph, node, found)
    return found


def _source(graph: Graph, node: Node, found: Mapping[str, str | None]) -> str | None:
    """What the result of an elementwise operation depends on."""
    if node.op in ("Quantize", "Dequantize"):
        codes = node.output if node.op == "Quantize" else node.input
        if not node.quant.per_tensor or not graph.type(codes).dtype.is_code:
            return None
    if node.op == "Dequantize":
        return None if graph.constant(codes) is not None else found.get(codes) or codes
    sources = {found.get(value) for value in node.inputs if value} - {_CONSTANT}
    only = next(iter(sources)) if len(sources) == 1 else None
    # A constant of one element may have more dimensions than the codes, and give them to the
    # result.
    constants = [data for value in node.inputs if (data := graph.constant(value)) is not None]
    alike = only and all(dims.fits(data.shape, graph.type(only).shape) for data in constants)
    return only if alike else None


def _region(graph: Graph, last: Node, codes: str, place: Mapping[str, int]) -> list[Node]:
    """The nodes between `codes` and `last`, in topological order; `place` is from before the sweep:
    an edit would sort the graph anew.
    """
    region: dict[str, Node] = {}
    stack = [last]
    while stack:
        node = stack.pop()
        if node.name not in region:
            region[node.name] = node
            producers = [graph.producer(value) for value in node.inputs if value and value != codes]
            stack += [producer for producer in producers if producer is not None]
    return sorted(region.values(), key=lambda node: place[node.name])


def _escaping(graph: Graph, region: list[Node], codes: str) -> str | None:
    """A value inside the region that something outside reads (what only decodes the codes does not
    count), or None.
    """
    reads = Counter(value for node in region for value in node.inputs)
    for node in region[:-1]:
        if node.op == "Dequantize" and node.input == codes:
            continue
        if graph.is_output(node.output) or graph.read_count(node.output) > reads[node.output]:
            return node.output
    return None


@dataclass(frozen=True)
class _Chain:
    """Operations from codes to a value of which each feeds just the next one, and all are post-ops.

    Attributes:
        first: name of the operation that reads the codes.
        costly: a step would compute a function among them that takes a polynomial or a root for
            each element.
    """

    first: str
    costly: bool


def _chains(graph: Graph, depends: Mapping[str, str | None]) -> dict[str, _Chain]:
    """The chain that makes a value of the codes that it depends on, where it is one. Who else
    decodes the codes does not matter: all read them."""
    found: dict[str, _Chain] = {}
    for node in graph.nodes():
        codes = (
            depends.get(node.outputs[0])
            if node.has(Trait.ELEMENTWISE) and len(node.outputs) == 1
            else None
        )
        computed = set(graph.computed(node.inputs))
        if not codes or len(computed) != 1 or not _is_post_op(graph, node):
            continue
        (source,) = computed
        before = _Chain(node.name, costly=False) if source == codes else found.get(source)
        maker = graph.producer(source, "Dequantize")
        decoded = maker is not None and maker.input == codes
        sole = graph.read_count(source) == node.inputs.count(source) and not graph.is_output(source)
        if before is not None and (source == codes or decoded or sole):
            found[node.output] = _Chain(before.first, before.costly or _is_costly(node))
    return found


def _is_post_op(graph: Graph, node: Node) -> bool:
    """True for what a chain of post-ops has a form for: `x + x` and `x * x` too, and a comparison
    with the cast of its truth values.
    """
    if node.op == "Cast":
        return (
            graph.type(node.input).dtype is DType.BOOL
            and graph.type(node.output).dtype is DType.F32
        )
    if len(node.inputs) == 2 and node.input == node.inputs[1]:
        return node.op in ("Add", "Mul")
    return node.spec.is_post_op


def _is_costly(node: Node) -> bool:
    """True where a step would compute a function that takes a polynomial or a root for each
    element.
    """
    return node.spec.eltwise is not None and ELTWISE[node.spec.eltwise].cost is Cost.MANY


def _is_alone(graph: Graph, chain: _Chain, codes: str) -> bool:
    """True when no primitive in front of the codes could compute the chain: they were moved, or
    others read them too.
    """
    producer = graph.producer(codes)
    if producer is None or producer.op == "Lookup" or producer.has(Trait.LAYOUT_ONLY):
        return True
    return (
        graph.is_output(codes)
        or chain.first not in graph
        or graph.read_count(codes) > graph.node(chain.first).inputs.count(codes)
    )


def _evaluate(graph: Graph, region: list[Node], codes: str) -> Array:
    dtype = graph.type(codes).dtype
    arrays: dict[str, Array] = {codes: np.arange(256, dtype=np.uint8).view(dtype.numpy)}
    for node in region:
        inputs: list[Array | None] = []
        for value in node.inputs:
            constant = graph.constant(value)
            inputs.append(arrays.get(value) if constant is None else constant.reshape(()))
        evaluate = node.spec.evaluate
        assert evaluate is not None  # elementwise rows evaluate
        arrays[node.output] = evaluate(inputs, node.attrs)[0]
    return np.ascontiguousarray(arrays[region[-1].output])


def _settle(graph: Graph, region: list[Node]) -> None:
    reason = "tabulated: the function from codes to codes is stored"
    for node in region:
        if node.op == "Quantize":
            settle(graph, node.quantizer, QuantizeFate.CONSTANT, reason)
        elif node.op == "Dequantize":
            readers = [subject(reader) for reader in region if node.output in reader.inputs]
            settle(graph, node.quantizer, DequantizeFate.CONSTANT, reason, readers)
