"""Operations on constants are done once, at compile time."""

from __future__ import annotations

import math
from mmap import mmap

import numpy as np

from ..ir.block_weights import keeps_blocks
from ..ir.cleanup import erase_unread
from ..ir.decision import DequantizeFate, QuantizeFate
from ..ir.graph import Graph
from ..ir.lifting import is_free, memory_of
from ..ir.node import Node, Use, subject
from ..ir.ops.spec import UNCOMPUTABLE, Array, Trait
from ..ir.ranges import decodes_floats, makes_codes, ranges_of
from ..ir.rule import Refusal
from ..ir.types import is_static
from .base import Contract, NodePass, Verdict, settle, swap
from .split_fake_quantize import split_refusal

_KEPT = frozenset({"Dequantize", "FakeQuantize"})
"""Weights must stay int8: what decodes them is folded by the composer, and only where no primitive
takes it.
"""

_PIECE = 1 << 18
"""Elements that are quantized at a time: in f32 they take four times the memory of their codes, and more
in passing.
"""


def fold_constants(
    graph: Graph, node: Node, max_bytes: int = 1 << 30, max_work: int = 1 << 30
) -> Verdict:
    """Evaluates operations whose inputs are all constant, and drops Identity and casts to the type
    a value has already.

    Before -> after::

        y = Op(@a, @b)   ->  @y
        q = Quantize(@w) ->  @q         (the quantize half of a weight quantizer)
        q = Quantize(Dequantize(@p)) ->  @q     (a table of codes in another scale)
        b = Dequantize(@q)  ->  @b      (a bias or another parameter; weights keep their Dequantize)
        b = DequantizeBlocks(@q, @s)  ->  @b    (where neither a matrix product nor a gather keeps the codes)
        y = FakeQuantize(@w) ->  @y     (one that cannot be split into quantize and dequantize)

    Legal because: the same function on the same data; the op table's own arithmetic is used.
    Refuses when: the result would be larger than `max_bytes`, it takes more than `max_work`
    multiply-adds (a run may never ask for it), or
    the operation cannot be computed (an index out of range, say): whoever runs it reports that.
    """
    if node.op == "Identity" or (
        node.op == "Cast" and graph.type(node.input).dtype is graph.type(node.output).dtype
    ):
        _bypass(graph, node)
        return None
    return _fold(graph, node, max_bytes, max_work) if _foldable(graph, node) else None


# in topological order, so that a constant subgraph goes in one run
FOLD_CONSTANTS = NodePass("fold_constants", Contract("identity", "bitwise"), fold_constants)


def _fold(graph: Graph, node: Node, max_bytes: int, max_work: int) -> str | Refusal:
    size = sum(_bytes(graph, value) for value in node.outputs if value)
    work = _work(graph, node)
    if size > max_bytes:
        return Refusal(
            "the folded constant would be too large",
            f"at most {max_bytes} bytes",
            f"{size} bytes",
            "compile in Python with budgets=fqfuse.Budgets(folded_bytes=...), or store the result in the model",
        )
    if work > max_work:
        return Refusal(
            "it would take long to compute",
            f"at most {max_work} multiply-adds",
            f"{work} multiply-adds",
            "store its result in the model: onnxsim does, and ONNX Runtime's quant_pre_process",
        )
    try:
        with np.errstate(all="ignore"):
            results = _computed(graph, node)
    except UNCOMPUTABLE as error:
        expected, hint = (
            "constants that the operation takes",
            "correct the constants that this node reads: it fails in every run",
        )
        return Refusal("it cannot be computed", expected, str(error), hint)
    _settle(graph, node)
    for value, array in zip(node.outputs, results, strict=False):
        if value and graph.read_count(value):
            kind = graph.type(value)
            constant = graph.add_constant(
                f"{value}/folded", np.asarray(array, kind.dtype.numpy), kind.dtype, kind.quant
            )
            graph.replace_uses(value, constant, only=graph.consumers(value))
    decode = _recoded(graph, node)
    if decode is not None:
        _settle(graph, decode)
    _erase(graph, node if decode is None else decode, node)
    return "all inputs are constant"


def _erase(graph: Graph, *nodes: Node) -> None:
    """Erases nodes that nothing reads any more, and the constants that only they read: a model's weights
    are in memory once.
    """
    read = {value for node in nodes for value in node.inputs if value in graph.constants}
    erase_unread(graph, nodes)
    for value in read:
        if not graph.is_read(value):
            graph.forget_constant(value)


def _foldable(graph: Graph, node: Node) -> bool:
    if node.op == "Shape" and is_static(graph.type(node.input).shape):
        return True
    if _recoded(graph, node) is not None:
        return True
    if node.spec.evaluate is None or not any(node.inputs) or graph.computed(node.inputs):
        return False
    if node.op == "Dequantize" and _reader_recodes(graph, node):
        return False
    if node.op == "FakeQuantize":
        return _stays_whole(graph, node)
    if node.op == "DequantizeBlocks":
        return not keeps_blocks(graph, node)
    return node.op not in _KEPT or not _may_be_weights(graph, node)


def _computed(graph: Graph, node: Node) -> tuple[Array, ...]:
    """What a node with constant inputs gives.

    Raises:
        UNCOMPUTABLE: it gives nothing.
    """
    evaluate = node.spec.evaluate
    assert evaluate is not None
    if node.op == "Shape":
        shape = graph.type(node.input).static_shape
        end = None if node.attrs["end"] is None else node.attr("end", int)
        return (np.asarray(shape[node.attr("start", int) : end], np.int64),)
    if node.op == "Quantize":
        return (_codes(graph, node),)
    return evaluate([graph.constant(value) for value in node.inputs], node.attrs)


def _recoded(graph: Graph, node: Node) -> Node | None:
    """What decodes the constant that a Quantize alone reads."""
    decode = graph.producer(node.input, "Dequantize") if node.op == "Quantize" else None
    if decode is None or graph.constant(decode.input) is None:
        return None
    return decode if _reader_recodes(graph, decode) else None


def _reader_recodes(graph: Graph, decode: Node) -> bool:
    uses = graph.uses(decode.output)
    alone = len(uses) == 1 and not graph.is_output(decode.output)
    return alone and uses[0].node.op == "Quantize"


def _codes(graph: Graph, node: Node) -> Array:
    """The codes of a Quantize of a constant, or of what a Dequantize in front of it makes of one, piece
    by piece.
    """
    decode = _recoded(graph, node)
    chain = [node] if decode is None else [decode, node]
    data = graph.constant(chain[0].input)
    assert data is not None
    axis = next((a for a in range(data.ndim) if a not in {n.quant.axis for n in chain}), None)
    if axis is None or data.size <= _PIECE:
        return _through(chain, data)
    count = math.ceil(data.size / _PIECE)
    _through(chain, np.array_split(data, count, axis)[0])  # what cannot be computed says so here
    dtype, memory = graph.type(node.output).dtype.numpy, memory_of(data)
    codes = None
    if decode is not None and memory is not None and data.itemsize == dtype.itemsize:
        shape, kind = data.shape, data.dtype
        del data
        if _given_up(graph, decode, memory):
            codes = np.frombuffer(memory, dtype).reshape(shape)
        data = np.frombuffer(memory, kind).reshape(shape)
    codes = np.empty(data.shape, dtype) if codes is None else codes
    for piece, place in zip(*(np.array_split(a, count, axis) for a in (data, codes)), strict=True):
        place[...] = _through(chain, piece)
    return codes


def _given_up(graph: Graph, decode: Node, memory: mmap) -> bool:
    """True where other codes may be written over the constant that a node decodes, which will go: a
    table is often the largest of a model, and in memory once then. Nobody else may see it: no other
    node, no copy of the graph, no caller.
    """
    alone = len(graph.uses(decode.input)) == 1 and not graph.is_output(decode.input)
    if not alone:
        return False
    graph.give_up_constant(decode.input)
    return is_free(memory)


def _through(chain: list[Node], value: Array) -> Array:
    for node in chain:
        assert node.spec.evaluate is not None
        (value,) = node.spec.evaluate([value], node.attrs)
    return value


def _stays_whole(graph: Graph, node: Node) -> bool:
    """True of a FakeQuantize that `split_fake_quantize` will not split, or has left in front of a
    Quantize.
    """
    if makes_codes(graph, node):
        return True
    ranges = ranges_of(graph, node)
    return isinstance(ranges, str) or split_refusal(ranges) is not None


def _may_be_weights(graph: Graph, node: Node) -> bool:
    """True of constants of up to 16 bits that an anchor reads as an operand, at once or over data
    movement.

    The composer takes 8 bits and less, and says of the others why it does not. An Identity, by which exporters
    share equal parameters, is no reader.
    """
    if graph.type(node.input).dtype.range[1] >= 1 << 16:
        return False
    waiting = [node.output]
    while waiting:
        for use in graph.uses(waiting.pop()):
            if use.node.op == "Identity":
                waiting.append(use.node.output)
            elif (
                (use.node.has(Trait.PRODUCT) and use.index < 2)
                or use.node.op in _KEPT
                or use.node.has(Trait.LAYOUT_ONLY)
            ):
                return True
    return False


def _bytes(graph: Graph, value: str) -> int:
    kind = graph.type(value)
    return math.prod(kind.static_shape) * kind.dtype.numpy.itemsize if is_static(kind.shape) else 0


def _work(graph: Graph, node: Node) -> int:
    """How many elements are multiplied or compared: for each of the result, those that it is made
    of. At least as many as that.
    """
    if not all(
        is_static(graph.type(value).shape) for value in (*node.inputs[:2], *node.outputs) if value
    ):
        return 0
    results = sum(math.prod(graph.type(value).static_shape) for value in node.outputs if value)
    return results * _read_for_each(graph, node)


def _read_for_each(graph: Graph, node: Node) -> int:
    """How many elements of its first input one element of the result is made of, where they are
    many.
    """
    if node.has(Trait.PRODUCT) or node.op == "MatMulInteger":
        left, right = (graph.type(value).static_shape for value in node.inputs[:2])
        if node.op in ("Conv", "ConvTranspose"):
            return math.prod(right[1:] if node.op == "Conv" else (right[0], *right[2:]))
        return left[0 if node.attrs.get("transA") else -1]
    return (
        math.prod(node.attr("kernel_shape", tuple))
        if node.spec.primitive == "pooling" and "kernel_shape" in node.attrs
        else 1
    )


def _bypass(graph: Graph, node: Node) -> None:
    """Lets readers read the input. What its codes stand for may be told of the input alone. Of a cast that is
    an output what is in front takes the name; an Identity keeps both names, which the model gave on purpose.
    """
    given, made = graph.type(node.input), graph.type(node.output)
    alike = made.shape == given.shape and made.quant in (None, given.quant)
    if not alike or made.dtype is not given.dtype:
        return
    named = graph.producer(node.input) is not None and not graph.is_output(node.input)
    if not graph.is_output(node.output) or (node.op == "Cast" and named):
        swap(graph, node, node.input)


def _settle(graph: Graph, node: Node) -> None:
    """Records the fate of the quantizer half that a folded node was."""
    floats = node.op == "Cast" and graph.type(node.output).dtype.is_small_float
    if node.op in ("Quantize", "FakeQuantize") or floats:
        stored = "quantized values" if node.op == "FakeQuantize" else "codes"
        reason = f"the value is constant: its {stored} are stored"
        settle(graph, node.quantizer, QuantizeFate.CONSTANT, reason)
    if node.op in ("Dequantize", "DequantizeBlocks", "FakeQuantize") or decodes_floats(graph, node):
        for use in _read_by(graph, node):
            reason = "the constant is stored as f32, which is what its reader takes"
            is_bias = use.node.op == "Add" or (use.node.has(Trait.PRODUCT) and use.index == 2)
            fate = DequantizeFate.BIAS if is_bias else DequantizeFate.CONSTANT
            settle(graph, node.quantizer, fate, reason, [subject(use.node)])


def _read_by(graph: Graph, node: Node) -> list[Use]:
    """What reads a decoded value, behind the nodes that the same node of the model became."""
    found: list[Use] = []
    pending = [node.output]
    while pending:
        for use in graph.uses(pending.pop()):
            if use.node.origin == node.origin and not use.node.quantizer:
                pending.append(use.node.output)
            else:
                found.append(use)
    return found
