"""The user's own model, opened for editing: its nodes stay as they are, but for what is changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from ..frontend import Budgets, ModelSource, read_model
from ..frontend.tensors import TensorReader

_INITIALIZERS_ALONE = 4  # IR version
_OWN = ("", "ai.onnx")
_MOVES = ("Identity", "Transpose")  # what exporters write between weights and who reads them

Reading = tuple[NodeProto, int]
"""A node, and which of its inputs."""


class Original:
    """A copy of a model, with all of its data inside.

    Args:
        source: the model.
        budgets: limits on what it may ask for.

    Raises:
        FqfuseError: it cannot be read.
    """

    def __init__(self, source: ModelSource, budgets: Budgets) -> None:
        given = read_model(source, budgets)
        self.model = ModelProto()
        self.model.CopyFrom(given.model)
        for index, raw in given.lifted.items():
            self.model.graph.initializer[index].raw_data = raw.tobytes()
        reader = TensorReader(budgets, given.folder)
        for tensor in _tensors(self.model.graph):
            inside = reader.external_as_raw(tensor, f"tensor {tensor.name[:200]!r}")
            if inside is not tensor:
                tensor.CopyFrom(inside)
        graph = self.model.graph
        self._budgets = budgets
        self._data = {tensor.name: tensor for tensor in graph.initializer}
        self._makers = {value: node for node in graph.node for value in node.output if value}
        self._readers: dict[str, list[Reading]] = {}
        for node in graph.node:
            for index, value in enumerate(node.input):
                self._readers.setdefault(value, []).append((node, index))
        self._names = {*self._data, *self._makers, *(value.name for value in graph.input)}

    def readers(self, value: str) -> list[Reading]:
        """Who reads a value, subgraphs aside."""
        return list(self._readers.get(value, ()))

    def maker(self, value: str) -> NodeProto | None:
        """The node that computes a value, or None."""
        return self._makers.get(value)

    def is_output(self, value: str) -> bool:
        """True of what the model returns."""
        return any(output.name == value for output in self.model.graph.output)

    def constant(self, value: str) -> npt.NDArray[Any] | None:
        """The data of an initializer or a Constant, or of one behind Transpose or Identity; or None."""
        tensor = self._data.get(value)
        if tensor is None:
            node = self.maker(value)
            if node is not None and node.op_type in _MOVES and node.domain in _OWN:
                return self._moved(node)
            if node is None or node.op_type != "Constant":
                return None
            found = [item.t for item in node.attribute if item.name == "value"]
            if not found:
                return None
            tensor = found[0]
        # a reader of its own: what is looked at twice is there once
        return TensorReader(self._budgets, None).read(tensor, f"tensor {value[:200]!r}")[0]

    def _moved(self, node: NodeProto) -> npt.NDArray[Any] | None:
        """What a move makes of a constant; None where it reads none."""
        data = self.constant(node.input[0])
        if data is None or node.op_type == "Identity":
            return data
        order = next((list(item.ints) for item in node.attribute if item.name == "perm"), None)
        return data.transpose(order)

    def opset(self) -> int:
        """Of ONNX's own operators."""
        return next((e.version for e in self.model.opset_import if e.domain in _OWN), 1)

    # -- editing -----------------------------------------------------------------------------------

    def give(self, node: NodeProto, index: int, data: npt.NDArray[Any]) -> None:
        """An input of a node becomes new data, under a new name."""
        while len(node.input) <= index:
            node.input.append("")
        old = node.input[index]
        name = self._fresh(old or f"{node.output[0]}.{index}")
        tensor = numpy_helper.from_array(data, name)
        # before, an initializer had to be an input as well
        self.model.ir_version = max(self.model.ir_version, _INITIALIZERS_ALONE)
        self.model.graph.initializer.append(tensor)
        self._data[name] = self.model.graph.initializer[-1]
        self._reads(node, index, name)

    def put_behind(self, value: str, op: str, *operands: npt.NDArray[Any]) -> str:
        """A new node between a value and all who read it; what it gives."""
        readers = self.readers(value)
        output = self._fresh(value)
        maker = self._makers[value]
        place = next(i for i, node in enumerate(self.model.graph.node) if node is maker)
        node = NodeProto(op_type=op, name=output, input=[value], output=[output])
        self.model.graph.node.insert(place + 1, node)
        made = self.model.graph.node[place + 1]
        self._makers[output] = made
        self._readers.setdefault(value, []).append((made, 0))
        for index, data in enumerate(operands, 1):
            self.give(made, index, data)
        for reader, index in readers:
            self._reads(reader, index, output)
        return output

    def drop_unread(self) -> None:
        """Leaves out initializers that nobody reads any more, and what moved them."""
        graph = self.model.graph
        for node in reversed(list(graph.node)):
            unread = not any(map(self.readers, node.output)) and node.op_type in _MOVES
            if unread and self.constant(node.output[0]) is not None:
                self._drop(node)
        read = set(_read(graph)) | {value.name for value in graph.output}
        declared = {value.name for value in graph.input}
        left = [t for t in graph.initializer if t.name in read or t.name in declared]
        if len(left) < len(graph.initializer):
            kept = [tensor.SerializeToString() for tensor in left]
            del graph.initializer[:]
            graph.initializer.extend(map(TensorProto.FromString, kept))
            self._data = {tensor.name: tensor for tensor in graph.initializer}

    def _drop(self, node: NodeProto) -> None:
        """Leaves out a node, unless a subgraph or the caller of the model reads it."""
        graph, value = self.model.graph, node.output[0]
        if self.is_output(value) or value in set(_read(graph)):
            return
        self._readers[node.input[0]] = [
            reading for reading in self.readers(node.input[0]) if reading[0] is not node
        ]
        del self._makers[value]
        graph.node.remove(node)

    def _reads(self, node: NodeProto, index: int, name: str) -> None:
        old = node.input[index]
        node.input[index] = name
        if old:
            before = self._readers.get(old, [])
            self._readers[old] = [r for r in before if r[0] is not node or r[1] != index]
        self._readers.setdefault(name, []).append((node, index))

    def _fresh(self, base: str) -> str:
        name, number = f"{base}_7bit", 1
        while name in self._names:
            number += 1
            name = f"{base}_7bit{number}"
        self._names.add(name)
        return name


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor of a graph, those of attributes and subgraphs included."""
    yield from graph.initializer
    for node in graph.node:
        for item in node.attribute:
            if item.type == AttributeProto.TENSOR:
                yield item.t
            for inner in (*([item.g] if item.HasField("g") else ()), *item.graphs):
                yield from _tensors(inner)


def _read(graph: GraphProto) -> Iterator[str]:
    """Every value that is read, by subgraphs included."""
    for node in graph.node:
        yield from node.input
        for item in node.attribute:
            for inner in (*([item.g] if item.HasField("g") else ()), *item.graphs):
                yield from _read(inner)
                yield from (value.name for value in inner.output)
