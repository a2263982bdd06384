"""The way back: a quantized ONNX model, its quantizers placed, as standard ONNX."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike

from .errors import InvalidInput
from .exporter import FORMS, Exported, model_from_graph
from .exporter.file import save_model
from .files import checked_path, is_there
from .frontend import DEFAULT, Budgets, ModelSource, check_budgets, graph_from_onnx, read_model
from .ir.cleanup import erase_dead
from .ir.graph import Graph
from .ir.node import Node
from .ir.ops.spec import Array
from .ir.verify import IMPORTED, SPLIT, check
from .passes import PIPELINE, run_pipeline
from .passes.base import NodePass, Pass, Verdict
from .passes.split_fake_quantize import SPLIT_FAKE_QUANTIZE
from .passes.split_weights_zero_point import SPLIT_WEIGHTS_ZERO_POINT, split_weights_zero_point
from .passes.tabulate import TABULATE
from .plan.open_sizes import NO_SIZES, checked_sizes, symbols_of
from .plan.seal import is_plan
from .plan.types import Plan


def _split_weights(graph: Graph, node: Node) -> Verdict:
    """As for a plan, but for weights with one integer zero point: runtimes multiply these as they are."""
    decode = graph.producer(node.inputs[1], "Dequantize")
    if decode is not None and decode.quant.per_tensor and decode.quant.integral:
        return None
    return split_weights_zero_point(graph, node)


_SPLIT = NodePass(
    SPLIT_WEIGHTS_ZERO_POINT.name,
    SPLIT_WEIGHTS_ZERO_POINT.contract,
    _split_weights,
    ("Conv", "MatMul"),
)

# without tables of activations: a runtime looks codes up more slowly than it computes in f32
_STEPS = tuple(
    _SPLIT if step is SPLIT_WEIGHTS_ZERO_POINT else step
    for step in PIPELINE
    if step is not TABULATE
)

_SPLIT_AT = _STEPS.index(SPLIT_FAKE_QUANTIZE) + 2  # constants behind it become codes


def export(
    model: ModelSource,
    path: str | PathLike[str],
    *,
    to: str = "qdq",
    calibrate: Mapping[str, Array] | Iterable[Mapping[str, Array]] | None = None,
    sizes: Mapping[str, int] = NO_SIZES,
    budgets: Budgets = DEFAULT,
) -> Exported:
    """Writes a quantized ONNX model, in any dialect, as standard ONNX whose quantizers stand where
    ONNX Runtime and OpenVINO fuse them.

    Passes move the quantizers as they do for a plan; the plan itself is no source, since scales are
    folded into its weights.

    Args:
        model: path of an ONNX file, its bytes, or a loaded `onnx.ModelProto`.
        path: the file to write; data beyond 2 GiB lies in a second one beside it.
        to: `qdq` (QuantizeLinear and DequantizeLinear around float operators; for ONNX Runtime and
            OpenVINO), or `qoperator` (operators on codes, some of them ONNX Runtime's own).
        calibrate: samples, an array for each input: quantizers are added, with the ranges that these give,
            where ONNX Runtime multiplies codes in a convolution only with one behind it. None: the
            model's own quantizers are all there are.
        sizes: of what the model leaves open, such as `{"batch": 1}`: they are fixed in the file. Others stay
            open.
        budgets: limits on what the file may ask for.

    Returns:
        What was written, and notes on what peers will compute in f32.

    Raises:
        InvalidModel: the file is no valid ONNX model, or goes past a budget.
        UnsupportedOp: an operation cannot be said in standard ONNX; the node is named.
        InvalidInput: no such file or form, a plan, samples that do not fit, or the path is the model's or cannot be written.
    """
    refuse_over(path, model)
    graph = placed(model, to=to, sizes=sizes, budgets=budgets)
    samples = [calibrate] if isinstance(calibrate, Mapping) else calibrate
    return write_placed(graph, path, to, samples)


def placed(
    model: ModelSource,
    *,
    to: str,
    sizes: Mapping[str, int] | Callable[[Graph], Mapping[str, int]] = NO_SIZES,
    budgets: Budgets = DEFAULT,
) -> Graph:
    """The graph behind the passes that an export is written from; arguments and errors as of `export`."""
    if str(to) not in FORMS:  # also of what has no hash
        raise InvalidInput(
            f"there is no form {to!r}", where="to", hint=f"choose {' or '.join(FORMS)}"
        )
    check_budgets(budgets)
    if isinstance(model, Plan) or (isinstance(model, str | bytes | PathLike) and is_plan(model)):
        raise InvalidInput(
            "a plan has its scales folded into weights, biases and post-ops: the model's quantizers"
            " are gone",
            where="" if isinstance(model, Plan | bytes) else os.fspath(model),
            hint="export the ONNX model that it was compiled from",
        )
    graph = graph_from_onnx(model, budgets=budgets)
    given = checked_sizes(sizes(graph) if callable(sizes) else sizes, symbols_of(graph))
    if given:
        graph = graph_from_onnx(replace(read_model(model, budgets), named=given), budgets=budgets)
    check(graph, IMPORTED)
    return _through(graph, _STEPS)


def split_graph(graph: Graph) -> Graph:
    """An imported graph with every quantizer as codes and what decodes them, where the model has it: what a
    repair edits. It is changed.
    """
    return _through(graph, _STEPS[:_SPLIT_AT])


def written(graph: Graph) -> Exported:
    """A graph of `split_graph` as Q/DQ; it is used up. Raises as `export`."""
    return model_from_graph(_through(graph, _STEPS), FORMS[0])


def _through(graph: Graph, steps: Sequence[Pass]) -> Graph:
    run_pipeline(graph, steps)
    erase_dead(graph)
    check(graph, SPLIT, blame="the pipeline of passes")
    return graph


def write_placed(
    graph: Graph,
    path: str | PathLike[str],
    to: str,
    samples: Iterable[Mapping[str, Array]] | None = None,
) -> Exported:
    """Writes a graph of `placed`, which is changed; arguments and errors as of `export`."""
    exported = model_from_graph(graph, to, samples)
    save_model(exported.model, path)
    return exported


def refuse_over(path: str | PathLike[str], *sources: ModelSource | None) -> None:
    """Refuses to write over a model that is read.

    Raises:
        InvalidInput: the path is one of them.
    """
    target = checked_path(path)
    for source in sources:
        if not isinstance(source, str | PathLike) or not is_there(target):
            continue
        read = checked_path(source)
        if is_there(read) and target.samefile(read):
            raise InvalidInput(
                "the new file would replace a model that is read",
                where=str(target),
                hint="name another file",
            )
