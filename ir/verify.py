"""The verifier: a graph against the specification of its stage.

A stage is a table of rows; each row says what must hold and finds where it does not. `WELL_FORMED`
holds at every stage, and a stage adds what may occur there and what may no longer occur. `verify`
lists what is broken; `check` raises, and its caller says whose fault it is::

    check(graph, IMPORTED)                        # the user's model: InvalidModel
    check(graph, SPLIT, blame=some_pass.name)     # a pass broke it: InternalError, and the graph is saved for a report
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..errors import InternalError, InvalidModel
from .constants import Halves, as_held, for_types
from .decision import DequantizeFate, Half, Outcome, QuantizeFate
from .diagnostic import Diagnostic, Finding, diagnose, save_text, summary
from .graph import Graph
from .node import GraphError, Node
from .ops import OPS
from .ops.spec import ShapeError, Trait
from .ranges import makes_codes
from .text_print import known_nodes, print_graph, render_graph
from .text_write import name_text, type_text
from .types import TensorType

# a report holds the constants up to this many bytes, and their digests beyond
_SAVED_DATA = 64 << 20
_SHOWN = 50


@dataclass(frozen=True)
class Row:
    """One rule of a stage.

    Attributes:
        name: `bound-before-use`.
        says: what must hold, one sentence.
        find: where it does not hold.
        hint: how a user can mend it; empty where only a bug in a pass can break it.
    """

    name: str
    says: str
    find: Callable[[Graph], Iterable[Finding]]
    hint: str = ""


@dataclass(frozen=True)
class Stage:
    """A place in the pipeline, and what holds there."""

    name: str
    rows: tuple[Row, ...]


def verify(graph: Graph, stage: Stage) -> list[Diagnostic]:
    """Everything in the graph that breaks the stage's specification (the first 50); empty when it
    is sound.
    """
    broken = [(row, finding) for row in stage.rows for finding in row.find(graph)][:_SHOWN]
    if not broken:
        return []
    text = render_graph(graph, data="digest", explain=False)
    return [
        diagnose(f"{stage.name}/{row.name}", row.hint, finding, text) for row, finding in broken
    ]


def check(graph: Graph, stage: Stage, *, blame: str = "") -> None:
    """Raises when the graph breaks the stage's specification.

    Args:
        graph: the graph.
        stage: the stage it is at.
        blame: the pass that ran last; empty when the graph comes straight from the user's model.

    Raises:
        InvalidModel: the user's model breaks it.
        InternalError: a pass broke it; the graph's text form is saved.
    """
    found = verify(graph, stage)
    if not found:
        return
    if not blame:
        hint = found[0].hint or "check the model with onnx.checker"
        raise InvalidModel(
            summary(found), where=found[0].subject, hint=hint, excerpt=found[0].excerpt
        )
    size = sum(data.nbytes for data in as_held(graph.constants).values())
    saved = save_text(print_graph(graph, data="full" if size <= _SAVED_DATA else "digest"), "graph")
    raise InternalError(
        f"after {blame} the graph breaks the stage `{stage.name}`",
        saved,
        "\n".join(map(str, found)),
    )


def each_node(
    problem: Callable[[Graph, Node], str | None],
) -> Callable[[Graph], Iterator[Finding]]:
    """The `find` of a row about nodes: what `problem` says behind the name of a node, if anything,
    is wrong with it.
    """

    def find(graph: Graph) -> Iterator[Finding]:
        for node in known_nodes(graph):
            found = problem(graph, node)
            if found:
                yield _about(node, found)

    return find


# -- rows that hold everywhere ---------------------------------------------------------------------


def _called(node: Node) -> str:
    return f"{node.op} {name_text(node.name)}"


def _about(node: Node, problem: str) -> Finding:
    return Finding(_called(node) + problem, node.name, token=node.op)


def _bound_once(graph: Graph) -> Iterator[Finding]:
    written = [value for node in known_nodes(graph) for value in node.outputs if value]
    defined = Counter([*graph.inputs, *graph.constants, *written])
    for value in dict.fromkeys([*defined, *graph.values]):
        problems = {
            f"is defined {defined[value]} times": defined[value] > 1,
            "has no type": value not in graph.values,
            "has a type, and nothing defines it": value not in defined,
        }
        for problem in (said for said, holds in problems.items() if holds):
            yield Finding(f"%{name_text(value)} {problem}", value=value)


def _bound_before_use(graph: Graph) -> Iterator[Finding]:
    try:
        nodes = graph.nodes()
    except (GraphError, KeyError):
        return  # row `acyclic` says it
    ready = {*graph.inputs, *graph.constants}
    for node in nodes:
        for value in node.inputs:
            if value and value not in ready:
                known = (
                    " before it is computed" if value in graph.values else ", which nothing defines"
                )
                token = f"%{name_text(value)}"
                yield Finding(f"{_called(node)} reads {token}{known}", node.name, token=token)
        ready.update(node.outputs)


def _acyclic(graph: Graph) -> Iterator[Finding]:
    try:
        graph.nodes()
    except (GraphError, KeyError):
        left = {node.name: node for node in known_nodes(graph)}
        before: dict[str, set[str]] = {name: set() for name in left}
        for producer, consumer in graph.edges():
            before.setdefault(consumer, set()).add(producer)
        while free := [name for name in left if not before[name] & left.keys()]:
            for name in free:
                del left[name]
        for node in left.values():
            yield _about(node, " depends on itself, or on a node that does")


def _index(graph: Graph) -> Iterator[Finding]:
    nodes = {node.name: node for node in known_nodes(graph)}
    used: set[tuple[str, str, int]] = set()
    for value in graph.values:
        try:
            used |= {(value, use.node.name, use.index) for use in graph.uses(value)}
        except KeyError as error:
            yield Finding(
                f"the table of uses of %{name_text(value)} names {error}, which is gone",
                value=value,
            )
    read = {
        (value, node.name, index)
        for node in nodes.values()
        for index, value in enumerate(node.inputs)
        if value in graph.values
    }
    for value, name, index in sorted(used ^ read):
        how = "reads" if (value, name, index) in read else "no longer reads"
        yield Finding(
            f"input {index} of {name_text(name)} {how} %{name_text(value)}, and the table of uses does not say so",
            name,
        )
    writer = {value: node.name for node in nodes.values() for value in node.outputs if value}
    edges = {(writer[value], name) for value, name, _ in read if value in writer}
    for producer, consumer in sorted(edges ^ graph.edges()):
        how = "lacks" if (producer, consumer) in edges else "keeps"
        yield Finding(
            f"the index {how} the edge from {name_text(producer)} to {name_text(consumer)}",
            consumer,
        )


def _outputs_exist(graph: Graph) -> Iterator[Finding]:
    if not graph.outputs:
        yield Finding("the graph returns nothing")
    for value in graph.outputs:
        if value not in graph.values:
            yield Finding(
                f"the graph returns %{name_text(value)}, which nothing defines", value=value
            )


def _count_problem(_graph: Graph, node: Node) -> str | None:
    """What is wrong with the number of a node's inputs and outputs against its row, or None."""
    row = OPS.get(node.op)
    if row is None:
        return None
    variadic = bool(row.inputs) and row.inputs[-1].variadic
    if len(node.inputs) > len(row.inputs) and not variadic:
        return f" has {len(node.inputs)} inputs, and the op takes {len(row.inputs)}"
    for index, param in enumerate(row.inputs):
        if not node.operand(index) and not param.optional:
            return f" lacks its input `{param.name}`"
    return None if any(node.outputs) else " has no output"


def _attributes(graph: Graph) -> Iterator[Finding]:
    for node in known_nodes(graph):
        if node.op in OPS and node.attrs.keys() != OPS[node.op].attrs.keys():
            expected = ", ".join(sorted(OPS[node.op].attrs)) or "none"
            yield Finding(
                f"{_called(node)} has the attributes {', '.join(sorted(node.attrs)) or 'none'} instead of {expected}",
                node.name,
            )


def _types(graph: Graph) -> Iterator[Finding]:
    for node in known_nodes(graph):
        row = OPS.get(node.op)
        bound = all(v in graph.values for v in (*node.inputs, *node.outputs) if v)
        if (
            row is None
            or node.op == "Onnx"
            or not bound
            or _count_problem(graph, node)
            or node.attrs.keys() != row.attrs.keys()
            or graph.is_as_inferred(node)
        ):
            continue
        try:
            found = row.infer(
                [graph.type(v) if v else None for v in node.inputs],
                node.attrs,
                [for_types(graph.constants, v) for v in node.inputs],
            )
        except ShapeError as error:
            yield _about(node, f": {error}")
            continue
        yield from _type_problems(graph, node, found)


def _type_problems(graph: Graph, node: Node, found: tuple[TensorType, ...]) -> Iterator[Finding]:
    if len(node.outputs) > len(found):
        yield _about(node, f" has {len(node.outputs)} outputs, and the op gives {len(found)}")
    for value, type_ in zip(node.outputs, found, strict=False):
        if value and graph.type(value) != type_:
            token = f"%{name_text(value)}"
            recorded, given = type_text(graph.type(value)), type_text(type_)
            yield Finding(
                f"{token} is recorded as {recorded}, and {_called(node)} gives {given}",
                node.name,
                token=token,
            )


def _quantization(graph: Graph) -> Iterator[Finding]:
    for value, type_ in graph.values.items():
        problem = quantization_problem(type_)
        if problem:
            yield Finding(f"%{name_text(value)} of type {type_text(type_)} {problem}", value=value)


def quantization_problem(type_: TensorType) -> str | None:
    """What is wrong with a type's dimensions and quantization, or None."""
    if any(isinstance(dim, int) and dim < 0 for dim in type_.shape or ()):
        return "has a negative dimension"
    quant = type_.quant
    if quant is None:
        return None
    if not type_.dtype.is_integer:
        return "has quantization, and no integer codes"
    if not all(abs(s) < float("inf") and s != 0 for s in quant.scale):
        return "has a scale that is zero or not finite"
    if not all(abs(z) < float("inf") for z in quant.zero_point):
        return "has a zero point that is not finite"
    if quant.axis is None or type_.shape is None:
        return None
    if not 0 <= quant.axis < len(type_.shape):
        return f"is quantized along axis {quant.axis}, which it does not have"
    dim = type_.shape[quant.axis]
    return (
        f"has {len(quant.scale)} scales for {dim} channels"
        if isinstance(dim, int) and dim != len(quant.scale)
        else None
    )


def _constants(graph: Graph) -> Iterator[Finding]:
    for value, data in as_held(graph.constants).items():
        type_ = graph.values.get(value)
        if not isinstance(data, Halves) and data.flags.writeable:
            yield Finding(f"the data of @{name_text(value)} can be written to", value=value)
        if type_ is not None and (
            data.dtype != type_.dtype.numpy or tuple(data.shape) != type_.shape
        ):
            recorded, found = type_text(type_), f"{data.dtype}{list(data.shape)}"
            yield Finding(
                f"@{name_text(value)} is recorded as {recorded}, and its data is {found}",
                value=value,
            )


def _quantizers(graph: Graph) -> Iterator[Finding]:
    for node in known_nodes(graph):
        for name in node.quantizer:
            if name not in graph.quantizers:
                yield Finding(
                    f"{_called(node)} belongs to the quantizer {name_text(name)}, which the model does not have",
                    node.name,
                )
    for fate in graph.fates:
        if fate.quantizer not in graph.quantizers:
            yield Finding(
                f"a fate is about the quantizer {name_text(fate.quantizer)}, which the model does not have"
            )
        if not isinstance(
            fate.fate, QuantizeFate if fate.half is Half.QUANTIZE else DequantizeFate
        ):
            yield Finding(
                f"a fate of the {fate.half.value} half of {name_text(fate.quantizer)} is `{fate.fate.value}` of the other half"
            )
    for key, quantizer in graph.quantizers.items():
        if key != quantizer.name:
            yield Finding(
                f"the quantizer {name_text(quantizer.name)} is recorded under {name_text(key)}"
            )


WELL_FORMED = Stage(
    "well-formed",
    (
        Row("bound-once", "every value has one type and one definition", _bound_once),
        Row("acyclic", "no node depends on itself", _acyclic, "break the cycle"),
        Row(
            "bound-before-use",
            "every input of a node is defined before the node",
            _bound_before_use,
        ),
        Row(
            "outputs-exist",
            "the graph returns values that exist",
            _outputs_exist,
            "give the model an output that a node computes",
        ),
        Row("index", "uses and edges agree with the nodes", _index),
        Row(
            "known-op",
            "every op has a row in the op table",
            each_node(lambda _, node: None if node.op in OPS else ": no such op in the op table"),
        ),
        Row(
            "counts",
            "inputs and outputs fit the row",
            each_node(_count_problem),
            "give the node the inputs and outputs that ONNX demands",
        ),
        Row("attributes", "attributes are those of the row", _attributes),
        Row(
            "types",
            "recorded types are those that the op table gives",
            _types,
            "run onnx.shape_inference to find the contradiction",
        ),
        Row(
            "quantization",
            "dimensions and quantization fit each other",
            _quantization,
            "scales are finite, not zero, one for each channel",
        ),
        Row("constants", "constants are read-only and of their type", _constants),
        Row("quantizers", "quantizers and fates are about what the model holds", _quantizers),
        Row(
            "origin",
            "every node says where it came from",
            each_node(
                lambda _, node: None if node.origin else " has no origin in the user's model"
            ),
        ),
    ),
)
"""What holds between any two passes."""

# -- the stages ------------------------------------------------------------------------------------


def _every_quantizer_stands(graph: Graph) -> Iterator[Finding]:
    standing = {name for node in known_nodes(graph) for name in node.quantizer}
    return (
        Finding(f"no node belongs to the quantizer {name_text(name)}")
        for name in graph.quantizers
        if name not in standing
    )


def _unexplained(graph: Graph, node: Node) -> str | None:
    """A FakeQuantize behind the split that makes no codes, and that no refusal is about."""
    if node.op != "FakeQuantize" or makes_codes(graph, node):
        return None
    names = {node.name, *node.origin, *node.quantizer}
    if any(d.outcome is Outcome.REFUSED and d.subject in names for d in graph.decisions):
        return None
    return " may no longer occur, and no refusal says why it stays"


IMPORTED = Stage(
    "imported",
    (
        *WELL_FORMED.rows,
        Row(
            "quantizer-named",
            "a quantizing node belongs to a quantizer",
            each_node(
                lambda _, node: (
                    " belongs to no quantizer"
                    if node.op in OPS and node.has(Trait.QUANTIZER) and not node.quantizer
                    else None
                )
            ),
        ),
        Row("quantizer-stands", "every quantizer of the model is there", _every_quantizer_stands),
    ),
)
"""Behind the frontend: one canonical form, every quantizer recorded."""

SPLIT = Stage(
    "split",
    (
        *WELL_FORMED.rows,
        Row(
            "no-fake-quantize",
            "a FakeQuantize makes codes for a Quantize, or a decision says why it is left",
            each_node(_unexplained),
        ),
    ),
)
"""Behind the split: Quantize and Dequantize; a FakeQuantize only where its comparisons make codes,
or a refusal names the reason.
"""
