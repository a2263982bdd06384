"""Elementwise arithmetic that no anchor took: binary and eltwise primitives with what follows as
post-ops.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ir.decision import DequantizeFate
from ...ir.graph import Graph
from ...ir.node import Node
from ...ir.ops import OPS
from ...ir.ops.spec import Attr, Trait
from ...ir.paths import keeps_shape
from ...ir.rule import Refusal
from ...ir.types import DType, Quantization
from ...plan.attributes import Binary, Eltwise, PrimitiveAttr, Scale, Sum
from ...plan.types import Step
from ..formula.exact_zeros import is_told, zero_shows
from ..formula.formula import Shift, vec
from ..mapping.post_ops_composer import Front, PostOpsComposer
from .chain import Chain, Found, grow, operations_of
from .drafts import Drafts
from .operands import Source, source_of
from .prelu import prelu_as_maximum
from .step_parts import attributes_of, codes_behind, simple_step, size_along
from .steps import plain
from .two_operands import comparable

__all__ = ["elementwise", "is_arithmetic", "one_source_step"]

_ROW_OF = {row.binary: row.name for row in reversed(tuple(OPS.values())) if row.binary is not None}
"""The row that a binary algorithm computes, of several the first: `Add`, not `Sum`."""


def is_arithmetic(graph: Graph, node: Node) -> bool:
    """True for an elementwise operation that gives f32, or compares f32 for a Cast to f32: what
    post-ops and `binary` compute.
    """
    if not node.has(Trait.ELEMENTWISE):
        return False
    result = graph.type(node.output).dtype
    if (
        result is not DType.BOOL
        or node.spec.binary is None
        or any(graph.type(value).dtype is not DType.F32 for value in node.inputs)
    ):
        return result is DType.F32
    cast = graph.sole_consumer(node.output)
    return cast is not None and cast.op == "Cast" and graph.type(cast.output).dtype is DType.F32


def elementwise(drafts: Drafts, node: Node) -> None:
    """What no anchor took: a binary primitive of two tensors, or one tensor with a chain of
    post-ops; as itself where neither fits.
    """
    computed = [value for value in node.inputs if value and drafts.graph.constant(value) is None]
    if not all(drafts.graph.type(value).shape for value in (*computed, node.output)):
        plain(drafts, node)  # a scalar, or of unknown rank
        return
    if node.spec.binary is not None and len(computed) == 2 and computed[0] != computed[1]:
        chain = _chain_operand(drafts, node, computed)
        built = (bool(chain) and _unary(drafts, node, chain)) or _binary(drafts, node)
    else:
        built = bool(computed) and len(set(computed)) == 1 and _unary(drafts, node, computed[0])
    if not built:
        plain(drafts, node)


def _chain_operand(drafts: Drafts, node: Node, computed: list[str]) -> str:
    """The operand whose codes a chain of post-ops decodes better than the scales of `binary`, or
    ''.

    Codes with a scale for each channel; or with a zero point that stays in the way: of a sum or
    difference it is one shift at the end, which misses 0 by a little; a product or comparison wants
    it taken off before. The other operand must be of the same size: post-ops read a smaller one
    slowly.
    """
    graph = drafts.graph
    if not all(keeps_shape(graph, node, value) for value in computed):
        return ""
    decodes = {
        value: decode for value in computed if (decode := codes_behind(drafts, value)) is not None
    }
    quants = {value: decode.attr("quant", Quantization) for value, decode in decodes.items()}
    along = [value for value, quant in quants.items() if not quant.per_tensor]
    if node.spec.binary in ("add", "sub") and not zero_shows(graph, node):
        return next(iter(along), "")
    shifted = [value for value, quant in quants.items() if not quant.symmetric]
    return next(iter(along or shifted), "")


def _binary(drafts: Drafts, node: Node) -> bool:
    graph, target = drafts.graph, drafts.target
    algorithm = node.spec.binary
    assert algorithm is not None
    if any(graph.type(value).dtype is not DType.F32 for value in node.inputs) or not is_arithmetic(
        graph, node
    ):
        return False
    shifts = algorithm in ("add", "sub") and not zero_shows(
        graph, node
    )  # behind the sum, where zeros would not add up to 0
    capability = replace(target.capability("binary"), src_zero_point=shifts)
    found = [source_of(graph, value, capability) for value in node.inputs]
    sources = [
        s if isinstance(s, Source) else Source(v, DType.F32)
        for s, v in zip(found, node.inputs, strict=True)
    ]
    shift = (
        -sources[0].zero_point * sources[0].scale
        - (1 if algorithm == "add" else -1) * sources[1].zero_point * sources[1].scale
    )
    integer = all(source.decode is not None for source in sources)
    rank = graph.type(node.output).rank
    axis = min(1, rank - 1) if rank else 0
    src = next((source.dtype for source in sources if source.decode is not None), DType.F32)
    foldable = integer and algorithm in ("add", "sub", "max", "min")
    front = Front(
        "binary",
        node.name,
        src,
        rank,
        axis,
        size_along(drafts, node.output, axis),
        vec(1.0) if foldable else None,
        None,
        per_channel=False,
        positive=algorithm in ("max", "min"),
        zero_shows=zero_shows(graph, node, rounded=True),
    )
    composer = PostOpsComposer(target, front)
    if shift and composer.append([Shift(vec(shift))]) is not None:
        return False
    chain = grow(graph, composer, node.output, node, drafts.is_claimed)
    if isinstance(chain, Refusal):
        drafts.refuse("binary", node, chain)
        return False
    factor = 1.0 if chain.composed.scale is None else float(chain.composed.scale[0])
    scales = {
        f"src_{i}": Scale((float(np.float32(s.scale * factor)),))
        for i, s in enumerate(sources)
        if s.decode is not None
    }
    attr = attributes_of(chain.composed, scales)
    args = [(f"src_{i}", source.value) for i, source in enumerate(sources)]
    step = replace(simple_step(node, "binary", args, chain, attr), params={"algorithm": algorithm})
    drafts.add_chain(step, node, chain)
    for source in sources:
        if source.decode is not None:
            drafts.decoded(
                source.decode,
                DequantizeFate.SOURCE_SCALE,
                "scale of a source of binary",
                node,
                step.name,
            )
    return True


def _unary(drafts: Drafts, node: Node, value: str) -> bool:
    """One tensor with post-ops. Codes, or an 8-bit destination, go through `binary` with a constant
    second source: see the target.
    """
    graph = drafts.graph
    if graph.type(value).dtype is not DType.F32:
        return False
    capability = replace(drafts.target.capability("binary"), src_zero_point=True)
    source = source_of(graph, value, capability)
    along = codes_behind(drafts, value) if isinstance(source, Refusal) else None
    codes = source if isinstance(source, Source) else Source(value, DType.F32)
    if (
        is_told(node) or zero_shows(graph, node)
    ) and codes.decode is not None:  # (q - z)*s rounds once, q*s - z*s twice
        along = codes.decode
    if along is not None:
        codes = Source(along.inputs[0], graph.type(along.inputs[0]).dtype, decode=along)
    if _from_source(drafts, node, value, codes, along):
        return True
    # A prelu of codes with several scales has a form on what they decode to.
    return (
        node.op == "PRelu"
        and codes.decode is not None
        and _from_source(drafts, node, value, Source(value, DType.F32), None)
    )


def _from_source(drafts: Drafts, node: Node, value: str, codes: Source, along: Node | None) -> bool:
    """The step that reads `codes`; `along`: what decodes them among the post-ops."""
    graph = drafts.graph
    axis = _vector_axis(drafts, node, along)
    front = Front(
        "binary",
        node.name,
        codes.dtype,
        graph.type(node.output).rank,
        axis,
        size_along(drafts, node.output, axis),
        zero_shows=zero_shows(graph, node, rounded=True),
    )
    composer = PostOpsComposer(drafts.target, front)
    decoding: Found | Refusal | None = (
        ([], None)
        if along is None
        else operations_of(graph, along, along.inputs[0], composer, node)
    )
    if not isinstance(decoding, tuple) or composer.append(decoding[0]) is not None:
        return False
    found = operations_of(graph, node, value, composer, node)
    doubled = not isinstance(found, tuple) or composer.append(found[0]) is not None
    if doubled and not _append_prelu(drafts, node, codes, composer):
        return False
    chain = grow(graph, composer, node.output, node, drafts.is_claimed)
    if isinstance(chain, Refusal) or (doubled and codes.decode is None and not chain.links):
        return False  # the primitive prelu itself reads the tensor once
    step = one_source_step(drafts, node, codes, chain)
    drafts.add_chain(step, node, chain)
    if codes.decode is not None:
        drafts.decoded(
            codes.decode,
            DequantizeFate.SOURCE_SCALE,
            "scale of a source of binary, zero point as its second source",
            node,
            step.name,
        )
    return True


def _append_prelu(drafts: Drafts, node: Node, source: Source, composer: PostOpsComposer) -> bool:
    """Takes a PRelu in as a maximum of the source and its multiple; False for other operations, and
    where that is not legal.
    """
    if node.op != "PRelu":
        return False
    ops = prelu_as_maximum(drafts.graph, node, source, composer.front)
    refusal = (
        ops
        if isinstance(ops, Refusal)
        else composer.append(comparable(drafts.graph, ops, composer))
    )
    if refusal is not None:
        drafts.refuse("prelu as maximum", node, refusal)
    return refusal is None


def one_source_step(drafts: Drafts, node: Node, source: Source, chain: Chain) -> Step:
    """A step of one source with post-ops: `eltwise` from f32 to f32 where its first operation is
    one, else `binary` with a constant.
    """
    post_ops = chain.composed.post_ops
    first = post_ops[0] if post_ops else None
    pure = source.decode is None and chain.composed.dst is DType.F32
    if (
        pure
        and isinstance(first, Eltwise)
        and first.scale == 1
        and not any(isinstance(op, Sum) for op in post_ops)
    ):
        params: dict[str, Attr] = {
            "algorithm": first.algorithm,
            "alpha": first.alpha,
            "beta": first.beta,
        }
        step = simple_step(
            node, "eltwise", [("src", source.value)], chain, PrimitiveAttr(post_ops=post_ops[1:])
        )
        return replace(step, op="Identity", params=params)
    scales = (
        {"src_0": Scale((source.scale,))} if source.decode is not None and source.scale != 1 else {}
    )
    if (
        source.decode is not None
        and source.scale == 1
        and not source.zero_point
        and isinstance(first, Eltwise)
        and _is_half(first)
    ):
        scales = {"src_0": Scale((first.alpha,))} if first.alpha != 1 else {}
        source, post_ops = replace(source, zero_point=-first.beta), post_ops[1:]
        first = post_ops[0] if post_ops else None
        chain = replace(chain, composed=replace(chain.composed, post_ops=post_ops))
    if (
        isinstance(first, Binary) and not source.zero_point
    ):  # the first post-op is the operation itself
        attr = replace(attributes_of(chain.composed, scales), post_ops=post_ops[1:])
        step = simple_step(
            node, "binary", [("src_0", source.value), ("src_1", first.operand)], chain, attr
        )
        return replace(step, op=_ROW_OF[first.algorithm], params={"algorithm": first.algorithm})
    shift = np.full(
        [1] * drafts.graph.type(node.output).rank, -source.zero_point * source.scale, np.float32
    )
    args = [("src_0", source.value), ("src_1", drafts.file_constant(f"{node.name}/shift", shift))]
    step = simple_step(node, "binary", args, chain, attributes_of(chain.composed, scales))
    return replace(step, op="Add", params={"algorithm": "add"})


def _is_half(op: Eltwise) -> bool:
    """True for a factor or a shift alone, which the scale of a source is, or the second source."""
    return op.algorithm == "linear" and op.scale == 1 and (op.alpha == 1 or op.beta == 0)


def _vector_axis(drafts: Drafts, node: Node, decode: Node | None) -> int:
    """The axis along which the node's codes or constant vary; the channels without one."""
    rank = drafts.graph.type(node.output).rank
    if decode is not None:
        quant = decode.attr("quant", Quantization)
        if quant.axis is not None:
            return quant.axis
    for value in node.inputs:
        data = drafts.graph.constant(value) if value else None
        if data is not None and data.size > 1:
            long = [i for i, size in enumerate(data.shape) if size != 1]
            return rank - data.ndim + long[-1]
    return min(1, rank - 1) if rank else 0
