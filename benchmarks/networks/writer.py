"""Writes an ONNX graph node by node and evaluates each node at once on calibration samples.

A random network is only a fair subject for quantization if its activations neither vanish nor
explode. BatchNormalization statistics must therefore be those of the network's own activations, and
each depends on all layers before it. Evaluating while writing gives every layer its input's true
values in one pass. The evaluation is ONNX Runtime's, one single-node session a step, so there is no
second implementation of the operators to keep right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fqfuse.measure.arrays import Array
from fqfuse.measure.engines import onnxruntime_session

OPSET = 17


@dataclass(frozen=True)
class Tensor:
    """A value of the graph under construction: its name and its calibration data (first axis: the
    samples).
    """

    name: str
    value: Array


class NetworkWriter:
    """Collects nodes, inputs and initializers; names follow the torch exporter
    (``/layer1/conv1/Conv_output_0``).
    """

    def __init__(self, name: str, seed: int) -> None:
        """Start an empty graph called ``name``; all weights come from ``rng``, seeded with
        ``seed``.
        """
        self.rng = np.random.default_rng(seed)
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._initializers: list[onnx.TensorProto] = []

    def input(self, name: str, samples: Array) -> Tensor:
        """Declare a graph input of batch 1; ``samples`` ``[n, ...]`` are its calibration data."""
        elem_type = helper.np_dtype_to_tensor_dtype(samples.dtype)
        self._inputs.append(helper.make_tensor_value_info(name, elem_type, [1, *samples.shape[1:]]))
        return Tensor(name, samples)

    def parameter(self, name: str, value: Array) -> Tensor:
        """Add an initializer."""
        self._initializers.append(numpy_helper.from_array(value, name))
        return Tensor(name, value)

    def constant(self, name: str, value: Array) -> Tensor:
        """Add a Constant node ``name``, numbered where it is taken, as exporters write literals."""
        name = self._unique(name)
        output = f"{name}_output_0"
        self._nodes.append(
            helper.make_node("Constant", [], [output], name, value=numpy_helper.from_array(value))
        )
        return Tensor(output, value)

    def op(self, op_type: str, inputs: Sequence[Tensor], scope: str, **attributes: Any) -> Tensor:
        """Add a node ``<scope>/<op_type>`` with one output and evaluate it on the samples."""
        name = self._unique(f"{scope}/{op_type}")
        output = f"{name}_output_0"
        node = helper.make_node(
            op_type, [tensor.name for tensor in inputs], [output], name, **attributes
        )
        self._nodes.append(node)
        return Tensor(output, _evaluate(node, {tensor.name: tensor.value for tensor in inputs}))

    def model(self, outputs: Mapping[str, Tensor]) -> onnx.ModelProto:
        """Return the checked model; ``outputs`` maps the public name of each graph output to its
        tensor (batch 1).
        """
        names = {tensor.name: name for name, tensor in outputs.items()}
        for node in self._nodes:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
        infos = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(t.value.dtype), [1, *t.value.shape[1:]]
            )
            for name, t in outputs.items()
        ]
        graph = helper.make_graph(self._nodes, self._name, self._inputs, infos, self._initializers)
        # IR version 8 is what opset 17 came with; newer ones shut out runtimes for no gain.
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="fqfuse-benchmarks",
            ir_version=8,
        )
        onnx.checker.check_model(model, full_check=True)
        return model

    def _unique(self, name: str) -> str:
        taken = {node.name for node in self._nodes}
        candidate, count = name, 0
        while candidate in taken:
            count += 1
            candidate = f"{name}_{count}"
        return candidate


def _evaluate(node: onnx.NodeProto, feeds: Mapping[str, Array]) -> Array:
    """Run one node on ONNX Runtime, unoptimized, and return its only output."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape))
        for name, a in feeds.items()
    ]
    output = helper.make_empty_tensor_value_info(node.output[0])
    output.type.tensor_type.elem_type = _output_type(node, feeds)
    graph = helper.make_graph([node], "step", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    session = onnxruntime_session(model.SerializeToString(), 2, optimized=False)
    result: Array = session.run(None, dict(feeds))[0]
    return result


def _output_type(node: onnx.NodeProto, feeds: Mapping[str, Array]) -> int:
    """Element type of the node's output: Cast's target, else that of its first input (true of every
    operator used here).
    """
    for attribute in node.attribute:
        if node.op_type == "Cast" and attribute.name == "to":
            return int(attribute.i)
    return int(helper.np_dtype_to_tensor_dtype(feeds[node.input[0]].dtype)) or TensorProto.FLOAT
