"""ONNX Runtime as the judge of numbers, exact on every CPU.

Where a CPU has no VNNI, its kernels for u8 times s8 add two products at a time in 16 bits, and
saturate. Those for two operands of one signedness never do. So there `exact` moves the signed
operand of each such product to u8, by 128, with its zero point: the numbers that the model means
stay the same. All tests that compare numbers with ONNX Runtime open their sessions here, which
`tests/packaging/test_judge.py` holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.inliner import inline_local_functions

MICROSOFT = "com.microsoft"

OPERANDS: dict[str, tuple[tuple[int, int] | None, tuple[tuple[int, int], ...]]] = {
    "ConvInteger": ((0, 2), ((1, 3),)),
    "MatMulInteger": ((0, 2), ((1, 3),)),
    "QLinearConv": ((0, 2), ((3, 5),)),
    "QLinearMatMul": ((0, 2), ((3, 5),)),
    "QGemm": ((0, 2), ((3, 5),)),
    "MatMulIntegerToFloat": ((0, 4), ((1, 5),)),
    "QAttention": ((0, 6), ((1, 7),)),
    "DynamicQuantizeMatMul": (None, ((1, 3),)),
    "DynamicQuantizeLSTM": (None, ((1, 9), (2, 11))),
}
"""Product of codes -> its source and its weights, each as the places of the codes and of their zero point
among the inputs. A source without a place is f32, and becomes u8.
"""


@cache
def saturates() -> bool:
    """Whether ONNX Runtime's products of u8 and s8 saturate on this CPU: it is asked for one."""
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    infos = [
        helper.make_tensor_value_info("x", TensorProto.UINT8, [16, 64]),
        helper.make_tensor_value_info("w", TensorProto.INT8, [64, 16]),
        helper.make_tensor_value_info("y", TensorProto.INT32, [16, 16]),
    ]
    graph = helper.make_graph([node], "pairs", infos[:2], infos[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=8)
    feeds = {"x": np.full((16, 64), 255, np.uint8), "w": np.full((64, 16), 127, np.int8)}
    (found,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    return bool((found != 255 * 127 * 64).any())


def ort_session(model: ModelProto | str | Path, *, optimized: bool = False) -> Any:
    """A session of ONNX Runtime whose products are exact, without any optimization or with all of them."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is raised, too
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if saturates():
        model = exact(model if isinstance(model, ModelProto) else onnx.load(model))
        if decodes_u8(model):
            # what the optimizer fuses out of it. The option makes weights u8, and there is no kernel for s8 by u8
            options.add_session_config_entry("session.x64quantprecision", "1")
        if optimized and (fed := products_by_fed_weights(model)):
            raise ValueError(f"no option makes these products exact once they are fused: {fed}")
    source = model.SerializeToString() if isinstance(model, ModelProto) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def optimized_model(model: ModelProto, folder: Path, level: str = "ALL") -> ModelProto:
    """What ONNX Runtime's optimizer makes of a model on this CPU at one of its levels, by way of a folder."""
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = getattr(levels, f"ORT_ENABLE_{level}")
    options.log_severity_level = 4  # that the file belongs to this CPU
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    return onnx.load(folder / "optimized.onnx")


def decodes_u8(model: ModelProto) -> bool:
    """Whether a DequantizeLinear reads codes that are u8, as they are without a zero point where nothing says a type."""
    known = types_of(onnx.shape_inference.infer_shapes(model).graph)
    codes = [node.input for node in model.graph.node if node.op_type == "DequantizeLinear"]
    kinds = [
        next((known[name] for name in (*names[2:], names[0]) if known.get(name)), TensorProto.UINT8)
        for names in codes
    ]
    return TensorProto.UINT8 in kinds


def products_by_fed_weights(model: ModelProto) -> list[str]:
    """Products of decoded u8 by decoded s8 that is no constant, by their outputs."""
    known = types_of(onnx.shape_inference.infer_shapes(model).graph)
    constants = {tensor.name for tensor in model.graph.initializer}
    codes = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type == "DequantizeLinear"
    }
    return [
        node.output[0]
        for node in model.graph.node
        if node.op_type in ("MatMul", "Gemm", "Conv")
        and known.get(codes.get(node.input[0], "")) == TensorProto.UINT8
        and known.get(weights := codes.get(node.input[1], "")) == TensorProto.INT8
        and weights not in constants
    ]


def exact(model: ModelProto) -> ModelProto:
    """The same numbers, without a product of u8 and s8 in it. Raises ValueError where a type is not known."""
    changed = ModelProto()
    changed.CopyFrom(inline_local_functions(model) if model.functions else model)
    known: dict[str, int] = {}
    for graph in graphs_of(onnx.shape_inference.infer_shapes(changed).graph):
        known |= types_of(graph)
    for graph in graphs_of(changed.graph):
        nodes = list(graph.node)
        del graph.node[:]
        for node in nodes:
            graph.node.extend([*moved(node, known), node])
    return changed


def graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph, and those that its nodes hold."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for held in (attribute.g, *attribute.graphs):
                if held.node:
                    yield from graphs_of(held)


def types_of(graph: GraphProto) -> dict[str, int]:
    """The element types of the tensors of which a graph says them."""
    infos = (*graph.input, *graph.output, *graph.value_info)
    return {tensor.name: tensor.data_type for tensor in graph.initializer} | {
        info.name: info.type.tensor_type.elem_type for info in infos
    }


def moved(node: NodeProto, known: dict[str, int]) -> list[NodeProto]:
    """The nodes that a product of codes needs in front of it to be one of u8 alone, which it then reads."""
    if node.op_type not in OPERANDS:
        return []
    source, weights = OPERANDS[node.op_type]
    added: list[NodeProto] = []
    for other in weights:
        kinds = [
            TensorProto.UINT8 if at is None else kind(node, at, known) for at in (source, other)
        ]
        if len({*kinds}) == 1:
            continue
        signed = (source, other)[kinds.index(TensorProto.INT8)]
        assert signed is not None
        for place in signed:
            added += as_unsigned(node, place)
    return added


def kind(node: NodeProto, at: tuple[int, int], known: dict[str, int]) -> int:
    """The type of codes, which is that of their zero point."""
    names = [node.input[place] for place in at if place < len(node.input)]
    found = next((known[name] for name in names if known.get(name)), None)
    if found is None:
        raise ValueError(f"the types of {names} are not known: declare them in value_info")
    return found


def as_unsigned(node: NodeProto, place: int) -> list[NodeProto]:
    """Makes a node read u8 codes in place of s8 ones; without a zero point there, 128."""
    node.input.extend([""] * (place + 1 - len(node.input)))
    given, name = node.input[place], f"{node.output[0]}/unsigned{place}"
    node.input[place] = name
    number = numpy_helper.from_array(np.array(128, np.int32))
    nodes = [helper.make_node("Constant", [], [f"{name}/128"], value=number)]
    total = nodes[0].output[0]
    if given:
        nodes += [
            helper.make_node("Cast", [given], [f"{name}/wide"], to=TensorProto.INT32),
            helper.make_node("Add", [f"{name}/wide", total], [f"{name}/sum"]),
        ]
        total = f"{name}/sum"
    return [*nodes, helper.make_node("Cast", [total], [name], to=TensorProto.UINT8)]
