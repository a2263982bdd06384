"""Graph -> Plan: groups operations into steps, each one primitive with its attributes.

Anchors with weights choose first, in the order of execution; then the other primitives; then what
is left of elementwise arithmetic; quantizers that found no home become reorders, where something
still reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from ..ir.approximations import check_approximate
from ..ir.block_weights import decodes_blocks
from ..ir.constants import Constants
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Attr
from ..ir.types import DType
from ..plan.targets import check_target
from ..plan.types import Plan
from .steps.anchors import PRIMITIVES, anchor
from .steps.builder import StepBuilder
from .steps.depthwise import fuse_depthwise
from .steps.elementwise import elementwise, is_arithmetic
from .steps.integer_products import INTEGER_PRODUCTS, integer_product
from .steps.primitives import concat, plain, pooling
from .steps.recurrent import LAYERS, recurrent
from .steps.run_time_decoding import decode_at_run_time
from .steps.standalone_quantizers import dequantize_alone, quantize_alone

_DECODING = frozenset({"Dequantize", "RunTimeDequantize"})
_POOLING = frozenset({"AveragePool", "GlobalAveragePool", "Resize"})


def plan_from_graph(
    graph: Graph,
    target: str = "onednn-v3",
    options: Mapping[str, Attr] | None = None,
    inside: Mapping[str, AbstractSet[int]] | None = None,
) -> Plan:
    """The plan of an optimized graph.

    Args:
        graph: after `passes.optimize`; constants may be added to it, nothing else changes.
        target: name of a target.
        options: how the plan was made, kept in it; those under `approximate` may be made.
        inside: node -> the places of inputs that its bodies hold themselves: its step reads none of them.

    Raises:
        InvalidInput: no such target or approximation.
    """
    approximate = (options or {}).get("approximate", ())
    names = check_approximate(approximate)
    builder = StepBuilder(graph, check_target(target), frozenset(names), inside, _anchor)
    nodes = graph.nodes()
    _anchors(builder, nodes)
    _primitives(builder, nodes)
    _leftovers(builder, nodes)
    fuse_depthwise(builder)
    return _frozen(graph, builder, target, options or {})


def _anchors(builder: StepBuilder, nodes: list[Node]) -> None:
    for node in nodes:
        if node.op in INTEGER_PRODUCTS:
            integer_product(builder, node)
        else:
            _anchor(builder, node)


def _anchor(builder: StepBuilder, node: Node) -> None:
    """Adds the step of an operation with weights; of another nothing."""
    if node.op in PRIMITIVES and _is_float32(builder, node):
        anchor(builder, node)


def _is_float32(builder: StepBuilder, node: Node) -> bool:
    """True when the node computes f32 of f32, with a known rank: what primitives and their chains
    can do.
    """
    types = [builder.graph.type(value) for value in (*node.inputs, node.output) if value]
    return all(type_.dtype is DType.F32 and type_.shape is not None for type_ in types)


def _primitives(builder: StepBuilder, nodes: list[Node]) -> None:
    for node in nodes:
        if builder.is_claimed(node) or node.op in _DECODING or node.op == "Quantize":
            continue
        if _is_of_blocks(builder, node):
            continue
        if node.op in _POOLING and _is_float32(builder, node):
            pooling(builder, node)
        elif node.op == "Concat":
            concat(builder, node)
        elif node.op in LAYERS:
            recurrent(builder, node)
        elif not is_arithmetic(builder.graph, node):
            plain(builder, node)


def _leftovers(builder: StepBuilder, nodes: list[Node]) -> None:
    for node in nodes:
        if _is_of_blocks(builder, node):
            continue
        if not builder.is_claimed(node) and node.op not in _DECODING:
            (quantize_alone if node.op == "Quantize" else elementwise)(builder, node)
    # what decodes may read what another one decodes, as its scale: who reads is asked first
    for node in reversed(nodes):
        if not builder.is_needed(node.output):
            continue
        if _is_of_blocks(builder, node):
            plain(builder, node)
        elif node.op in _DECODING and not builder.is_claimed(node):
            (dequantize_alone if node.op == "Dequantize" else decode_at_run_time)(builder, node)


def _is_of_blocks(builder: StepBuilder, node: Node) -> bool:
    """True of what decodes codes in blocks, or makes them: products take it in, and only what others
    read of it is a step of its own.
    """
    return node.op == "DynamicBlocks" or decodes_blocks(builder.graph, node)


def _frozen(graph: Graph, builder: StepBuilder, target: str, options: Mapping[str, Attr]) -> Plan:
    place = graph.places()
    ordered = sorted(builder.pending, key=lambda pending: place[pending.last.name])
    made = [builder.whole(pending.step) for pending in ordered]
    casts = map(builder.cast_of, sorted({v for s in made for v in s.inputs} | {*graph.outputs}))
    steps = (*filter(None, casts), *made)
    index = {step.name: number for number, step in enumerate(steps)}
    index |= {name: index[into] for name, into in builder.merged.items()}
    known = {*graph.inputs, *(value for step in steps for value in step.outputs if value)}
    read = {value for step in steps for value in step.inputs} | set(graph.outputs)
    constants = {value: builder.constant(value) for value in sorted(read) if value not in known}
    values = {value: graph.type(value) for value in graph.inputs}
    values |= {value: builder.type(value) for step in steps for value in step.outputs if value}
    return Plan(
        name=graph.name,
        target=target,
        inputs=graph.inputs,
        outputs=graph.outputs,
        values=MappingProxyType(values),
        constants=Constants(constants),
        steps=steps,
        quantizers=MappingProxyType(dict(graph.quantizers)),
        fate_records=builder.settled_fates(index),
        decision_records=builder.settled_decisions(index),
        options=MappingProxyType(dict(options)),
    )
