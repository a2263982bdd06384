"""What is known before ONNX's own code sees a foreign node, and what becomes of all that this code
raises.

The shape inference and the reference evaluator of the onnx package do not look at the numbers that
they work with: on some they crash or never end. Those are named here once, in plain attribute
values; models (frontend) and plan files (composer) are held against them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ...errors import FqfuseError

_TERM: Final = r"[A-Za-z ]*+(?:\. *\. *\.[A-Za-z ]*+)?"
_EQUATION: Final = re.compile(f"{_TERM}(?:,{_TERM})*+(?:->{_TERM})?")
"""What ONNX's Einsum takes: terms of letters, blanks and at most one ellipsis."""

_AXES: Final = frozenset({"axis", "axes", "batch_dims", "batch_axis", "time_axis"})

_MOST_AXES: Final = 1 << 10

_MOST_BLOCK: Final = 1 << 20
"""Elements that share a scale. The evaluator repeats each scale so often, whatever the input's
size.
"""

_MOST_SAMPLES: Final = 1 << 8
"""Of a bin of RoiAlign, along each axis: exported models take 0 to 4, and the evaluator a
microsecond for each.
"""

_MOST_SKIPS: Final = 1 << 10

_Values = Mapping[str, object]


def foreign_refusal(op: str, attributes: _Values, inputs: int, outputs: int) -> str:
    """Why ONNX's own code must not see a node.

    Args:
        op: its op type.
        attributes: its attributes by name: numbers, bytes, and lists of these; others are not
            looked at.
        inputs: how many inputs it has.
        outputs: how many outputs it has.

    Returns:
        What is wrong with it; empty when nothing is known to be.
    """
    for name in sorted(_AXES & attributes.keys()):
        least = 0 if name == "batch_dims" else -_MOST_AXES
        if any(not least <= axis <= _MOST_AXES for axis in _integers(attributes[name])):
            return f"no tensor has the axes of the attribute {name!r} of {op}"
    guard = _GUARDS.get(op)
    return guard(attributes, inputs, outputs) if guard else ""


@contextmanager
def onnx_speaking(
    refuse: Callable[[str], FqfuseError], through: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Around calls of the onnx package on a node from outside: what it raises becomes the error
    that `refuse` makes of its first line.

    Errors of our own, and those of the types `through`, pass.
    """
    passing: tuple[type[Exception], ...] = (FqfuseError, *through)
    try:
        yield
    except passing:
        raise
    except (
        Exception
    ) as error:  # another's code on a stranger's data: no list of what it raises is ever whole
        said = str(error).splitlines()
        raise refuse(said[0][:300] if said else type(error).__name__) from error


def _integers(value: object) -> list[int]:
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, int)]


def _within(attributes: _Values, op: str, name: str, least: int, most: int) -> str:
    found = [v for v in _integers(attributes.get(name)) if not least <= v <= most]
    return f"{name} of {op} is {found[0]}, and has to be from {least} to {most}" if found else ""


def _einsum(attributes: _Values) -> str:
    equation = attributes.get("equation", b"")
    text = equation.decode("utf-8", "replace") if isinstance(equation, bytes) else str(equation)
    if _EQUATION.fullmatch(text) is not None:
        return ""
    return f"{text[:100]!r} is no equation of an Einsum: terms of letters, each with at most one ellipsis, as in 'bij,bjk->bik'"


def _tf_idf(attributes: _Values) -> str:
    pools = [
        pool
        for name in ("pool_int64s", "pool_strings")
        if isinstance(pool := attributes.get(name), list)
    ]
    starts = _integers(attributes.get("ngram_counts", []))
    size = max(map(len, pools), default=0)
    if starts != sorted(starts) or any(not 0 <= start <= size for start in starts):
        return f"ngram_counts of TfIdfVectorizer are the starts of n-grams in a pool of {size}, in order"
    lengths = _within(attributes, "TfIdfVectorizer", "min_gram_length", 1, max(len(starts), 1))
    lengths = lengths or _within(
        attributes, "TfIdfVectorizer", "max_gram_length", 1, max(len(starts), 1)
    )
    return lengths or _within(attributes, "TfIdfVectorizer", "max_skip_count", 0, _MOST_SKIPS)


def _split(attributes: _Values, outputs: int) -> str:
    count = attributes.get("num_outputs", outputs)
    return "" if count == outputs else f"Split has {outputs} outputs, and num_outputs is {count}"


_GUARDS: Final[Mapping[str, Callable[[_Values, int, int], str]]] = {
    "DequantizeLinear": lambda a, *_: _within(a, "a quantizer", "block_size", 0, _MOST_BLOCK),
    "Einsum": lambda a, *_: _einsum(a),
    "QuantizeLinear": lambda a, *_: _within(a, "a quantizer", "block_size", 0, _MOST_BLOCK),
    "RoiAlign": lambda a, *_: _within(a, "RoiAlign", "sampling_ratio", 0, _MOST_SAMPLES),
    "Scan": lambda a, inputs, _: _within(a, "Scan", "num_scan_inputs", 1, inputs),
    "Split": lambda a, _, outputs: _split(a, outputs),
    "TfIdfVectorizer": lambda a, *_: _tf_idf(a),
}


# -- what ONNX's inference gets wrong --------------------------------------------------------------

_ANY_SHAPE: Final = "fqfuse.any_shape"


def for_inference(model: Any) -> Any:
    """The ModelProto with something of unknown shape in place of each Einsum inside a subgraph,
    where ONNX infers wrong shapes for it.

    That is a Reshape of its first operand to a shape that is an input of the model. What an Einsum
    outside gives, `einsum_shape` says.
    """
    if not any(True for node in model.graph.node for body in _bodies(node) for _ in _einsums(body)):
        return model
    shown = type(model)()
    shown.CopyFrom(model)
    shape = shown.graph.input.add(name=_ANY_SHAPE).type.tensor_type
    shape.elem_type = 7  # TensorProto.INT64
    shape.shape.dim.add()
    for node in [
        inner for outer in shown.graph.node for body in _bodies(outer) for inner in _einsums(body)
    ]:
        node.op_type = "Reshape"
        node.input[:] = [node.input[0], _ANY_SHAPE]
        del node.attribute[:]
    return shown


def _einsums(graph: Any) -> Iterator[Any]:
    """Each Einsum with an operand, in a GraphProto and in the subgraphs of its nodes."""
    for node in graph.node:
        if node.op_type == "Einsum" and not node.domain and node.input:
            yield node
        for body in _bodies(node):
            yield from _einsums(body)


def _bodies(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.type == 5:  # AttributeProto.GRAPH
            yield attribute.g
        yield from attribute.graphs
