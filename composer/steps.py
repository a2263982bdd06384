"""Steps without weights: pooling, concatenation, elementwise arithmetic, lone quantizers, and operations that stay what they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..ir.decision import DequantizeFate, QuantizeFate
from ..ir.node import Node
from ..ir.types import DType, Quantization
from .attributes import Binary, Eltwise, PrimitiveAttr, Scale, Sum, ZeroPoint
from .chain import Chain, decoded, grow, operations_of
from .drafts import Drafts, origins
from .formula import BasicOp, Refusal, ScaleBy, Shift, Store, vec
from .operands import Source, source_of
from .plan import Step
from .post_ops_composer import Composed, Front, PostOpsComposer

__all__ = ["concat", "dequantize_alone", "elementwise", "plain", "pooling", "quantize_alone"]


# -- pooling -----------------------------------------------------------------------------------------------------------------------


def pooling(drafts: Drafts, node: Node) -> None:
    """Average pooling: on codes when the chain behind it ends in the source's own type, in f32 otherwise."""
    graph, capability = drafts.graph, drafts.target.capability("pooling")
    source = source_of(graph, node.inputs[0], replace(capability, src_zero_point=True))
    if isinstance(source, Source):
        refusal = _padding_refusal(node, source)
        if refusal is None:
            chain = _pooled(drafts, node, source)
            if isinstance(chain, Chain):
                step = _simple(node, "pooling", [("src", source.value)], chain, attr=_attributes(chain.composed))
                drafts.add_chain(step, node, chain)
                assert source.decode is not None
                drafts.decoded(source.decode, DequantizeFate.SOURCE_SCALE, "pools codes; the scale is applied to the average", node, step.name)
                return
            refusal = chain
        drafts.refuse("pooling in int8", node, refusal)
    elif graph.type(node.inputs[0]).dtype is DType.F32:
        drafts.refuse("pooling in int8", node, source)
    plain(drafts, node)


def _pooled(drafts: Drafts, node: Node, source: Source) -> Chain | Refusal:
    rank = drafts.graph.type(node.output).rank
    shape = drafts.graph.type(node.output).shape
    channels = shape[1] if shape is not None and isinstance(shape[1], int) else 0
    composer = PostOpsComposer(drafts.target, Front("pooling", node.name, source.dtype, rank, 1, channels))
    refusal = composer.append([Shift(vec(-source.zero_point)), ScaleBy(vec(source.scale))])
    if refusal is not None:
        return refusal
    return grow(drafts.graph, composer, node.output, node, drafts.is_claimed)


def _padding_refusal(node: Node, source: Source) -> Refusal | None:
    pads = node.attrs.get("pads")
    padded = (isinstance(pads, tuple) and any(pads)) or node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if source.zero_point and padded and node.attrs.get("count_include_pad"):
        return Refusal("padding counts as code 0, which is not the real 0", "zero point 0, or count_include_pad=0", f"zero point {source.zero_point:g}")
    return None


# -- concatenation -----------------------------------------------------------------------------------------------------------------


def concat(drafts: Drafts, node: Node) -> None:
    """A concatenation of codes or f32 values; symmetric codes of another scale are rescaled by the primitive itself."""
    graph = drafts.graph
    dtype = graph.type(node.output).dtype
    args: list[tuple[str, str]] = []
    scales: dict[str, Scale] = {}
    folded: list[tuple[Node, Node]] = []
    for number, value in enumerate(node.inputs):
        requant = _rescaling(drafts, value) if dtype in (DType.U8, DType.S8) else None
        if requant is not None:
            quantize, decode, factor = requant
            scales[f"src_{number}"] = Scale((factor,))
            folded.append((quantize, decode))
            value = decode.inputs[0]
        args.append((f"src_{number}", value))
    if dtype not in (DType.U8, DType.S8, DType.F32):
        plain(drafts, node)
        return
    step = Step(node.name, "concat", "Concat", tuple(args), node.outputs, node.attrs, PrimitiveAttr(scales), node.origin)
    drafts.add(step, [node])
    for quantize, decode in folded:
        drafts.encoded(quantize, QuantizeFate.DST_SCALE, "concat rescales its source", step.name)
        drafts.decoded(decode, DequantizeFate.SOURCE_SCALE, "concat rescales its source", quantize, step.name)


def _rescaling(drafts: Drafts, value: str) -> tuple[Node, Node, float] | None:
    """A Quantize(Dequantize(codes)) read by nothing else, with zero points 0, that a source scale can do: both nodes and the factor."""
    graph = drafts.graph
    quantize = graph.producer(value)
    if quantize is None or quantize.op != "Quantize" or drafts.is_claimed(quantize) or len(graph.uses(value)) != 1 or graph.is_output(value):
        return None
    decode = decoded(graph, quantize.inputs[0])
    dtype, quant = quantize.attrs["dtype"], quantize.attrs["quant"]
    if decode is None or not drafts.target.capability("concat").src_scale:
        return None
    assert isinstance(dtype, DType) and isinstance(quant, Quantization)
    inner = decode.attrs["quant"]
    assert isinstance(inner, Quantization)
    full = (quantize.attrs["lo"], quantize.attrs["hi"]) == dtype.range
    if not (full and quant.per_tensor and quant.symmetric and inner.symmetric):
        return None
    return quantize, decode, float(np.float32(inner.scale[0] / quant.scale[0]))


# -- elementwise arithmetic --------------------------------------------------------------------------------------------------------


def elementwise(drafts: Drafts, node: Node) -> None:
    """What no anchor took: a binary primitive of two tensors, or one tensor with a chain of post-ops; as itself where neither fits."""
    computed = [value for value in node.inputs if value and drafts.graph.constant(value) is None]
    if node.spec.binary is not None and len(computed) == 2 and computed[0] != computed[1]:
        built = _binary(drafts, node)
    else:
        built = bool(computed) and len(set(computed)) == 1 and _unary(drafts, node, computed[0])
    if not built:
        plain(drafts, node)


def _binary(drafts: Drafts, node: Node) -> bool:
    graph, target = drafts.graph, drafts.target
    algorithm = node.spec.binary
    assert algorithm is not None
    if any(graph.type(value).dtype is not DType.F32 for value in (*node.inputs, node.output)):
        return False
    capability = replace(target.capability("binary"), src_zero_point=algorithm in ("add", "sub"))
    found = [source_of(graph, value, capability) for value in node.inputs]
    sources = [s if isinstance(s, Source) else Source(v, DType.F32) for s, v in zip(found, node.inputs, strict=True)]
    shift = -sources[0].zero_point * sources[0].scale - (1 if algorithm == "add" else -1) * sources[1].zero_point * sources[1].scale
    integer = all(source.decode is not None for source in sources)
    rank = graph.type(node.output).rank
    src = next((source.dtype for source in sources if source.decode is not None), DType.F32)
    foldable = integer and algorithm in ("add", "sub", "max", "min")
    front = Front("binary", node.name, src, rank, 1, _size(drafts, node.output, 1), vec(1.0) if foldable else None, None, per_channel=False)
    composer = PostOpsComposer(target, front)
    if shift and composer.append([Shift(vec(shift))]) is not None:
        return False
    chain = grow(graph, composer, node.output, node, drafts.is_claimed)
    if isinstance(chain, Refusal):
        drafts.refuse("binary", node, chain)
        return False
    factor = 1.0 if chain.composed.scale is None else float(chain.composed.scale[0])
    scales = {f"src_{i}": Scale((float(np.float32(s.scale * factor)),)) for i, s in enumerate(sources) if s.decode is not None}
    attr = _attributes(chain.composed, scales)
    args = [(f"src_{i}", source.value) for i, source in enumerate(sources)]
    step = replace(_simple(node, "binary", args, chain, attr), params={"algorithm": algorithm})
    drafts.add_chain(step, node, chain)
    for source in sources:
        if source.decode is not None:
            drafts.decoded(source.decode, DequantizeFate.SOURCE_SCALE, "scale of a source of binary", node, step.name)
    return True


def _unary(drafts: Drafts, node: Node, value: str) -> bool:
    """One tensor with post-ops. Codes, or an 8-bit destination, go through `binary` with a constant second source: see the target."""
    graph = drafts.graph
    if graph.type(value).dtype is not DType.F32:
        return False
    capability = replace(drafts.target.capability("binary"), src_zero_point=True)
    source = source_of(graph, value, capability)
    along = _codes(drafts, value) if isinstance(source, Refusal) else None
    codes = source if isinstance(source, Source) else Source(value, DType.F32)
    if along is not None:
        codes = Source(along.inputs[0], graph.type(along.inputs[0]).dtype, decode=along)
    axis = _vector_axis(drafts, node, along)
    front = Front("binary", node.name, codes.dtype, graph.type(node.output).rank, axis, _size(drafts, node.output, axis))
    composer = PostOpsComposer(drafts.target, front)
    start = [] if along is None else operations_of(graph, along, along.inputs[0], composer, node)
    found = operations_of(graph, node, value, composer, node)
    if found is None or isinstance(found, Refusal) or start is None or isinstance(start, Refusal):
        return False
    if composer.append([*(start[0] if start else []), *found[0]]) is not None:
        return False
    chain = grow(graph, composer, node.output, node, drafts.is_claimed)
    if isinstance(chain, Refusal):
        return False
    step = _unary_step(drafts, node, codes, chain)
    drafts.add_chain(step, node, chain)
    if codes.decode is not None:
        drafts.decoded(codes.decode, DequantizeFate.SOURCE_SCALE, "scale of a source of binary, zero point as its second source", node, step.name)
    return True


def _unary_step(drafts: Drafts, node: Node, source: Source, chain: Chain) -> Step:
    post_ops = chain.composed.post_ops
    first = post_ops[0] if post_ops else None
    pure = source.decode is None and chain.composed.dst is DType.F32
    if pure and isinstance(first, Eltwise) and first.scale == 1 and not any(isinstance(op, Sum) for op in post_ops):
        params = {"algorithm": first.algorithm, "alpha": first.alpha, "beta": first.beta}
        step = _simple(node, "eltwise", [("src", source.value)], chain, PrimitiveAttr(post_ops=post_ops[1:]))
        return replace(step, op="Identity", params=params)
    scales = {"src_0": Scale((source.scale,))} if source.decode is not None and source.scale != 1 else {}
    if isinstance(first, Binary) and not source.zero_point:  # the first post-op is the operation itself
        attr = replace(_attributes(chain.composed, scales), post_ops=post_ops[1:])
        step = _simple(node, "binary", [("src_0", source.value), ("src_1", first.operand)], chain, attr)
        return replace(step, op="Add", params={"algorithm": first.algorithm})
    shift = np.full([1] * drafts.graph.type(node.output).rank, -source.zero_point * source.scale, np.float32)
    args = [("src_0", source.value), ("src_1", drafts.file_constant(f"{node.name}/shift", shift))]
    step = _simple(node, "binary", args, chain, _attributes(chain.composed, scales))
    return replace(step, op="Add", params={"algorithm": "add"})


def _codes(drafts: Drafts, value: str) -> Node | None:
    """The Dequantize of 8-bit codes made at run time, per tensor or along an axis, that produces a value, or None."""
    node = drafts.graph.producer(value)
    if node is None or node.op != "Dequantize" or drafts.graph.constant(node.inputs[0]) is not None:
        return None
    return node if drafts.graph.type(node.inputs[0]).dtype in (DType.U8, DType.S8) else None


def _vector_axis(drafts: Drafts, node: Node, decode: Node | None) -> int:
    """The axis along which the node's codes or constant vary; the channels without one."""
    rank = drafts.graph.type(node.output).rank
    if decode is not None:
        quant = decode.attrs["quant"]
        assert isinstance(quant, Quantization)
        if quant.axis is not None:
            return quant.axis
    for value in node.inputs:
        data = drafts.graph.constant(value) if value else None
        if data is not None and data.size > 1:
            long = [i for i, size in enumerate(data.shape) if size != 1]
            return rank - data.ndim + long[-1]
    return min(1, rank - 1) if rank else 0


def _size(drafts: Drafts, value: str, axis: int) -> int:
    shape = drafts.graph.type(value).shape
    size = shape[axis] if shape is not None and len(shape) > axis else 0
    return size if isinstance(size, int) else 0


# -- lone quantizers ---------------------------------------------------------------------------------------------------------------


def quantize_alone(drafts: Drafts, node: Node) -> None:
    """A Quantize that no primitive took: a reorder, of codes where its input is a Dequantize, or post-ops of a binary with what follows."""
    quant, dtype = node.attrs["quant"], node.attrs["dtype"]
    assert isinstance(quant, Quantization) and isinstance(dtype, DType)
    if dtype not in (DType.U8, DType.S8) or drafts.graph.type(node.inputs[0]).dtype is not DType.F32:
        plain(drafts, node)
        drafts.encoded(node, QuantizeFate.FALLBACK, f"no primitive stores {dtype.value} codes", node.name)
        return
    decode = _codes(drafts, node.inputs[0])
    inner = _quant_of(decode)
    if inner is not None and len({q.axis for q in (quant, inner)} - {None}) > 1:
        decode, inner = None, None
    chain = _requantizing_chain(drafts, node, decode, inner)
    source = Source(node.inputs[0], DType.F32) if decode is None else Source(decode.inputs[0], drafts.graph.type(decode.inputs[0]).dtype, decode=decode)
    simple = (node.attrs["lo"], node.attrs["hi"]) == dtype.range and quant.integral and (inner is None or inner.integral)
    if simple and not chain.links:
        attr = _reorder_attributes(drafts, inner, quant)
        step = Step(node.name, "reorder", "Identity", (("src", source.value),), node.outputs, {}, attr, node.origin)
        drafts.add(step, [node])
    else:
        step = _unary_step(drafts, node, source, chain)
        drafts.add_chain(step, node, chain)
    drafts.encoded(node, QuantizeFate.STANDALONE, _why_alone(drafts, node), step.name)
    if decode is not None:
        drafts.decoded(decode, DequantizeFate.SOURCE_SCALE, "requantized in one step, from codes to codes", node, step.name)


def _requantizing_chain(drafts: Drafts, node: Node, decode: Node | None, inner: Quantization | None) -> Chain:
    """A Quantize as post-ops of a binary, with what decodes its input in front and what follows behind."""
    graph = drafts.graph
    quant, dtype, low, high = (node.attrs[key] for key in ("quant", "dtype", "lo", "hi"))
    assert isinstance(quant, Quantization) and isinstance(dtype, DType) and isinstance(low, int) and isinstance(high, int)
    rank = graph.type(node.output).rank
    axis = next((q.axis for q in (quant, inner) if q is not None and q.axis is not None), min(1, rank - 1))
    src = DType.F32 if decode is None else graph.type(decode.inputs[0]).dtype
    composer = PostOpsComposer(drafts.target, Front("binary", node.name, src, rank, axis, _size(drafts, node.output, axis)))
    start: list[BasicOp] = [] if inner is None else [Shift(-vec(inner.zero_points)), ScaleBy(vec(inner.scales))]
    refusal = composer.append([*start, Store(dtype, vec(quant.scales), vec(quant.zero_points), low, high)])
    assert refusal is None  # binary takes every post-op that a quantizer needs, into both 8-bit types
    chain = grow(graph, composer, node.output, node, drafts.is_claimed)
    assert isinstance(chain, Chain)
    return chain


def _quant_of(node: Node | None) -> Quantization | None:
    quant = None if node is None else node.attrs["quant"]
    return quant if isinstance(quant, Quantization) else None


def _why_alone(drafts: Drafts, node: Node) -> str:
    graph = drafts.graph
    value = node.inputs[0]
    if value in graph.inputs:
        return "it quantizes an input of the model"
    producer = graph.producer(value)
    if producer is not None and (len(graph.uses(value)) > 1 or graph.is_output(value)):
        return f"others read the f32 values of {producer.name} too"
    return f"{producer.name if producer is not None else value} cannot store these codes"


def _reorder_attributes(drafts: Drafts, source: Quantization | None, destination: Quantization | None) -> PrimitiveAttr:
    scales: dict[str, Scale] = {}
    zero_points: dict[str, ZeroPoint] = {}
    for role, quant in (("src", source), ("dst", destination)):
        if quant is None:
            continue
        mask = 0 if quant.axis is None else 1 << quant.axis
        scales[role] = Scale(quant.scale, mask)
        zeros = tuple(int(zero) for zero in quant.zero_point)
        if any(zeros):
            zero_points[role] = ZeroPoint(zeros[:1], 0) if len(set(zeros)) == 1 else ZeroPoint(zeros, mask)
    if drafts.target.scales == "arguments":
        return PrimitiveAttr(scales, zero_points)
    factor = np.asarray(1.0) if source is None else source.scales.astype(np.float64)
    factor = factor if destination is None else factor / destination.scales.astype(np.float64)
    values = np.atleast_1d(factor).astype(np.float32)
    mask = max((scale.mask for scale in scales.values()), default=0)
    return PrimitiveAttr({}, zero_points, (), Scale(tuple(values.tolist()), mask if values.size > 1 else 0))


def dequantize_alone(drafts: Drafts, node: Node) -> None:
    """A Dequantize whose f32 values something reads: a constant, a reorder, or the operation itself for other than 8-bit codes."""
    graph = drafts.graph
    quant = node.attrs["quant"]
    assert isinstance(quant, Quantization)
    readers: list[Node | str] = [reader for reader in graph.consumers(node.output) if drafts.reads(reader, node.output)]
    if graph.is_output(node.output):
        readers.append(f"output {node.output}")
    evaluate = node.spec.evaluate
    codes = graph.constant(node.inputs[0])
    if codes is not None and evaluate is not None and not graph.is_output(node.output):
        drafts.file_constant(node.output, evaluate([codes], node.attrs)[0])
        drafts.claim(node)
        for reader in readers:
            drafts.decoded(node, DequantizeFate.CONSTANT, "decoded at compile time: its reader takes f32", reader)
        return
    simple = quant.integral and graph.type(node.inputs[0]).dtype in (DType.U8, DType.S8) and codes is None
    if simple:
        step = Step(node.name, "reorder", "Identity", (("src", node.inputs[0]),), node.outputs, {}, _reorder_attributes(drafts, quant, None), node.origin)
        drafts.add(step, [node])
    else:
        plain(drafts, node)
    fate = DequantizeFate.STANDALONE if simple else DequantizeFate.FALLBACK
    for reader in readers:
        drafts.decoded(node, fate, "its reader takes f32" if simple else "codes that no primitive reads", reader, node.name)


# -- as they are -------------------------------------------------------------------------------------------------------------------


def plain(drafts: Drafts, node: Node) -> None:
    """The operation itself: a primitive where the target has one for f32, with the chain behind it; else the ONNX operator."""
    graph = drafts.graph
    floats = all(graph.type(value).dtype is DType.F32 for value in (*node.inputs[:1], node.output) if value)
    primitive = node.spec.primitive
    codes = primitive == "pooling" and graph.type(node.output).dtype in (DType.U8, DType.S8)
    if primitive is None or not (floats or codes) or primitive in ("eltwise", "binary", "reorder", "matmul"):
        primitive = f"onnx.{node.op}"
    roles = _roles(node)
    if not primitive.startswith("onnx."):
        roles[0] = ("src", roles[0][1])
    if primitive.startswith("onnx.") or codes or len([v for v in node.outputs if v]) != 1:
        drafts.add(Step(node.name, primitive, node.op, tuple(roles), node.outputs, node.attrs, origin=node.origin), [node])
        return
    rank = graph.type(node.output).rank
    front = Front(primitive, node.name, DType.F32, rank, min(1, rank - 1), _size(drafts, node.output, min(1, rank - 1)))
    chain = grow(graph, PostOpsComposer(drafts.target, front), node.output, node, drafts.is_claimed)
    assert isinstance(chain, Chain)  # every primitive can store f32
    drafts.add_chain(_simple(node, primitive, roles, chain, _attributes(chain.composed)), node, chain)


def _roles(node: Node) -> list[tuple[str, str]]:
    names = [param.name for param in node.spec.inputs]
    if node.spec.inputs and node.spec.inputs[-1].variadic:
        fixed = len(names) - 1
        names = names[:fixed] + [f"{names[-1]}_{i}" for i in range(len(node.inputs) - fixed)]
    return [(name, value) for name, value in zip(names, node.inputs, strict=False) if value]


def _simple(node: Node, primitive: str, args: list[tuple[str, str]], chain: Chain, attr: PrimitiveAttr) -> Step:
    return Step(node.name, primitive, node.op, tuple(args), (chain.value,), node.attrs, attr, origins(node, chain))


def _attributes(composed: Composed, scales: dict[str, Scale] | None = None) -> PrimitiveAttr:
    found = dict(scales or {})
    if composed.dst_scale is not None:
        found["dst"] = Scale((float(np.float32(composed.dst_scale)),))
    zero_points = {} if not composed.dst_zero_point else {"dst": ZeroPoint((composed.dst_zero_point,))}
    return PrimitiveAttr(found, zero_points, composed.post_ops)

