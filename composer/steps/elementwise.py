"""Elementwise arithmetic that no anchor took: binary and eltwise primitives with what follows as
post-ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...ir.decision import DequantizeFate
from ...ir.graph import Graph
from ...ir.node import Node
from ...ir.ops import OPS
from ...ir.ops.spec import Trait
from ...ir.paths import keeps_shape
from ...ir.rule import Refusal
from ...ir.telling import is_told, jumps_behind, zero_is_far, zero_sensitive
from ...ir.types import DType
from ...plan.attributes import Binary, Eltwise, PrimitiveAttr, Sum
from ..formula.formula import ScaleBy, Shift, vec
from ..mapping.composed import Front
from ..mapping.post_ops_composer import PostOpsComposer
from .build import attributes_of, build_step, codes_behind, front_of, grown, scale_of
from .builder import StepBuilder
from .chain import Chain, grow, offered
from .operands import Source, source_of
from .prelu import prelu_as_maximum
from .primitives import plain
from .two_operands import End, Found, as_the_target_compares, far_zero, no_post_op

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


def elementwise(builder: StepBuilder, node: Node) -> None:
    """What no anchor took: a binary primitive of two tensors, or one tensor with a chain of
    post-ops; as itself where neither fits, with the reason.
    """
    computed = [value for value in node.inputs if value and builder.graph.constant(value) is None]
    if not all(builder.graph.type(value).shape for value in (*computed, node.output)):
        plain(builder, node)  # a scalar, or of unknown rank
        return
    if node.spec.binary is not None and len(computed) == 2 and computed[0] != computed[1]:
        chain = _chain_operand(builder, node, computed)
        built = bool(chain) and _unary(builder, node, chain) is None
        refusal = None if built else _binary(builder, node)
    else:
        one = len(set(computed)) == 1
        refusal = _unary(builder, node, computed[0]) if one else no_post_op(builder.graph, node)
        if refusal is not None and _with_large_constant(builder, node):
            refusal = _binary(builder, node)
    if refusal is not None:
        plain(builder, node)
        if node.spec.primitive is None and node.name not in builder.ended:
            builder.refuse("elementwise primitive", node, refusal)


def _with_large_constant(builder: StepBuilder, node: Node) -> bool:
    """True of two operands, one of them a constant that may be larger than the other, whose shape is
    not known: no post-op makes its source larger, and `binary` does. (Of NaN its comparisons are not
    those of ONNX.)
    """
    if node.spec.binary is None or len(node.inputs) != 2:
        return False
    constants = [data for data in map(builder.graph.constant, node.inputs) if data is not None]
    return len(constants) == 1 and constants[0].size > 1 and bool(np.isfinite(constants[0]).all())


def _chain_operand(builder: StepBuilder, node: Node, computed: list[str]) -> str:
    """The operand whose codes a chain of post-ops decodes better than the scales of `binary`, or
    ''.

    Codes with a scale for each channel; or with a zero point that stays in the way: of a sum or
    difference it is one shift at the end, which misses 0 by a little; a product or comparison wants
    it taken off before. The other operand must be of the same size: post-ops read a smaller one
    slowly.
    """
    graph = builder.graph
    if not all(keeps_shape(graph, node, value) for value in computed):
        return ""
    decodes = {
        value: decode for value in computed if (decode := codes_behind(builder, value)) is not None
    }
    quants = {value: decode.quant for value, decode in decodes.items()}
    along = [value for value, quant in quants.items() if not quant.per_tensor]
    if _shifts_behind(graph, node):
        return next(iter(along), "")
    shifted = [value for value, quant in quants.items() if not quant.symmetric]
    return next(iter(along or shifted), "")


def _shifts_behind(graph: Graph, node: Node) -> bool:
    """True of a sum or difference that may have one shift, behind it, for the zero points of both:
    zeros need not add up to 0, and no operand is lost beside the shift.
    """
    if node.spec.binary not in ("add", "sub") or zero_sensitive(graph, node):
        return False
    decodes = [graph.producer(value, "Dequantize") for value in node.inputs]
    return not any(decode and zero_is_far(graph, node, decode.quant) for decode in decodes)


def _binary(builder: StepBuilder, node: Node) -> Refusal | None:
    """Adds the step of an operation of two tensors, or says why `binary` does not compute it."""
    graph = builder.graph
    algorithm = node.spec.binary
    assert algorithm is not None
    if any(graph.type(value).dtype is not DType.F32 for value in node.inputs) or not is_arithmetic(
        graph, node
    ):
        return no_post_op(graph, node)
    shifts = _shifts_behind(graph, node)
    capability = replace(builder.target.capability("binary"), src_zero_point=shifts)
    sources: list[Source] = []
    for value in node.inputs:
        found = source_of(graph, value, capability, fraction=shifts)
        decode = codes_behind(builder, value) if isinstance(found, Refusal) else None
        if decode is not None and isinstance(found, Refusal):
            builder.decode_apart(node, decode, far_zero(graph, node, decode.quant) or found)
        sources.append(found if isinstance(found, Source) else Source(value, DType.F32))
    first, second = ((s.zero_point + s.fraction) * s.scale for s in sources)
    shift = -first - (1 if algorithm == "add" else -1) * second
    foldable = algorithm in ("add", "sub", "max", "min") and all(s.decode for s in sources)
    # the primitive's own source is one of the result's shape: a vector of codes beside f32 is none
    named = zip(node.inputs, sources, strict=True)
    whole = [source for value, source in named if keeps_shape(graph, node, value)] or sources
    front = front_of(
        builder,
        node,
        "binary",
        next((source.dtype for source in whole if source.decode), DType.F32),
        scale=vec(1.0) if foldable else None,
        per_channel=False,
        positive=algorithm in ("max", "min"),
    )
    chain = grown(builder, node, front, [Shift(vec(shift))] if shift else ())
    if isinstance(chain, Refusal):
        return chain
    factor = 1.0 if chain.composed.scale is None else float(chain.composed.scale[0])
    roles = {f"src_{number}": source for number, source in enumerate(sources)}
    scales = {role: scale_of(s.scale * factor) for role, s in roles.items() if s.decode}
    fate, how = DequantizeFate.SOURCE_SCALE, "scale of a source of binary"
    behind = _scaled_behind(builder, node, front, sources)
    if behind is not None:
        chain, scales = behind, {}
        fate, how = DequantizeFate.POST_OP, "the product of codes is exact; one factor behind it"
    build_step(
        builder,
        node,
        "binary",
        [(role, source.value) for role, source in roles.items()],
        chain,
        attributes_of(chain.composed, scales),
        params={"algorithm": algorithm},
        decoded=[(source.decode, fate, how) for source in sources],
    )
    return None


def _scaled_behind(
    builder: StepBuilder, node: Node, front: Front, sources: Sequence[Source]
) -> Chain | None:
    """The chain of q1*q2 with the factor s1*s2 behind the product instead of a scale on each source: where
    the result is stored as codes, the factor joins the scale of that store, and costs nothing.

    None for other operations, where nothing is stored as codes, or where something behind jumps at a number
    (a comparison, a rounding): the product rounds once here, and three times with a scale on each source.
    """
    if node.spec.binary != "mul" or not all(source.decode for source in sources):
        return None
    if jumps_behind(builder.graph, node):
        return None
    scale = vec(sources[0].scale * sources[1].scale)
    chain = grown(builder, node, front, [ScaleBy(scale)])
    stored = isinstance(chain, Chain) and builder.graph.type(chain.value).dtype.is_code
    return chain if isinstance(chain, Chain) and stored else None


def _unary(builder: StepBuilder, node: Node, value: str) -> Refusal | None:
    """Adds a step of one tensor with post-ops, or says why not. Codes, or an 8-bit destination, go through
    `binary` with a constant second source: see the target.
    """
    graph = builder.graph
    if graph.type(value).dtype is not DType.F32:
        return no_post_op(graph, node)
    capability = replace(builder.target.capability("binary"), src_zero_point=True)
    source = source_of(graph, value, capability)
    along = codes_behind(builder, value) if isinstance(source, Refusal) else None
    codes = source if isinstance(source, Source) else Source(value, DType.F32)
    if codes.decode is not None and (
        is_told(node) or zero_sensitive(graph, node) or zero_is_far(graph, node, codes.decode.quant)
    ):  # (q - z)*s rounds once, q*s - z*s twice
        along = codes.decode
    if along is not None:
        codes = Source(along.input, graph.type(along.input).dtype, decode=along)
    refusal = _from_source(builder, node, value, codes, along)
    if refusal is not None and node.op == "PRelu" and codes.decode is not None:
        # of codes with several scales it has a form on what they decode to
        return _from_source(builder, node, value, Source(value, DType.F32), None)
    return refusal


def _from_source(
    builder: StepBuilder, node: Node, value: str, codes: Source, along: Node | None
) -> Refusal | None:
    """Adds the step that reads `codes`, or says why not; `along`: what decodes them among the
    post-ops.
    """
    graph = builder.graph
    front = front_of(builder, node, "binary", codes.dtype, _vector_axis(builder, node, along))
    composer = PostOpsComposer(builder.target, front, builder.approximate)
    if along is not None:
        decoding = offered(End(graph, along, along.input, composer, node))
        if isinstance(decoding, Refusal):
            return decoding
    found = offered(End(graph, node, value, composer, node)) or no_post_op(graph, node)
    doubled = found if isinstance(found, Refusal) else None
    if doubled is not None and not _append_prelu(builder, node, codes, composer):
        return doubled
    chain = grow(builder, composer, node)
    if isinstance(chain, Refusal):
        return chain
    if doubled is not None and codes.decode is None and not chain.links:
        return doubled  # the primitive prelu itself reads the tensor once
    one_source_step(builder, node, codes, chain)
    if isinstance(found, Found) and found.apart is not None:
        builder.decode_apart(node, *found.apart)
    if codes.decode is not None:
        how = "scale of a source of binary, zero point as its second source"
        builder.decoded(codes.decode, DequantizeFate.SOURCE_SCALE, how, node, node.name)
    return None


def _append_prelu(
    builder: StepBuilder, node: Node, source: Source, composer: PostOpsComposer
) -> bool:
    """Takes a PRelu in as a maximum of the source and its multiple; False for other operations, and
    where that is not legal.
    """
    if node.op != "PRelu":
        return False
    ops = prelu_as_maximum(builder.graph, node, source, composer.front)
    refusal = (
        ops
        if isinstance(ops, Refusal)
        else composer.append(as_the_target_compares(builder.graph, ops, composer))
    )
    if refusal is not None:
        builder.refuse("prelu as maximum", node, refusal)
    return refusal is None


def one_source_step(builder: StepBuilder, node: Node, source: Source, chain: Chain) -> None:
    """Adds a step of one source with post-ops: `eltwise` from f32 to f32 where its first operation
    is one, else `binary` with a constant.
    """
    post_ops = chain.composed.post_ops
    first = post_ops[0] if post_ops else None
    pure = source.decode is None and chain.composed.dst is DType.F32
    pure = pure and not any(isinstance(op, Sum) for op in post_ops)
    if pure and isinstance(first, Eltwise) and first.scale == 1:
        numbers = {"alpha": first.alpha, "beta": first.beta}
        build_step(
            builder,
            node,
            "eltwise",
            [("src", source.value)],
            chain,
            PrimitiveAttr(post_ops=post_ops[1:]),
            op="Identity",
            params={"algorithm": first.algorithm, **numbers},
        )
        return
    scale, shift = source.scale, -source.zero_point * source.scale
    # the scale of the source does it, or the second source
    if (
        source.decode is not None
        and (scale, shift) == (1, 0)
        and isinstance(first, Eltwise)
        and _is_half(first)
    ):
        scale, shift = first.alpha, first.beta
        post_ops = post_ops[1:]
        first = post_ops[0] if post_ops else None
    if isinstance(first, Binary) and not shift:  # the first post-op is the operation itself
        algorithm, second, post_ops = first.algorithm, first.operand, post_ops[1:]
    else:
        constant = np.full([1] * builder.graph.type(node.output).rank, shift, np.float32)
        algorithm, second = "add", builder.file_constant(f"{node.name}/shift", constant)
    scales = {"src_0": scale_of(scale)} if source.decode is not None and scale != 1 else {}
    build_step(
        builder,
        node,
        "binary",
        [("src_0", source.value), ("src_1", second)],
        chain,
        replace(attributes_of(chain.composed, scales), post_ops=post_ops),
        op=_ROW_OF[algorithm],
        params={"algorithm": algorithm},
    )


def _is_half(op: Eltwise) -> bool:
    """True for a factor or a shift alone, which the scale of a source is, or the second source."""
    return op.algorithm == "linear" and op.scale == 1 and (op.alpha == 1 or op.beta == 0)


def _vector_axis(builder: StepBuilder, node: Node, decode: Node | None) -> int:
    """The axis along which the node's codes or constant vary; the channels without one."""
    rank = builder.graph.type(node.output).rank
    if decode is not None:
        quant = decode.quant
        if quant.axis is not None:
            return quant.axis
    for value in node.inputs:
        data = builder.graph.constant(value) if value else None
        if data is not None and data.size > 1:
            long = [i for i, size in enumerate(data.shape) if size != 1]
            return rank - data.ndim + long[-1]
    return min(1, rank - 1) if rank else 0
