"""The ONNX graph that is being written: its nodes, initializers, and names that are free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from ..ir.element_types import ELEMENT_TYPES
from ..ir.ops.spec import Array
from ..ir.types import DType
from ..plan.nodes import tensor_of

OPSET = 21
"""The first with 16-bit and packed 4-bit codes in QuantizeLinear and DequantizeLinear. A model
gets a newer one where an operator needs it.
"""

MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""


class Writer:
    """Collects the nodes of an ONNX graph.

    Attributes:
        nodes: in order of execution.
        tensors: initializers by name.
        opsets: domain -> version that the nodes need.
        notes: what was written in another way than a peer would fuse: (node, why).
        spelled: values that are written as Cast, Sub and Mul of constant codes.
    """

    def __init__(self, taken: Sequence[str]) -> None:
        self._taken = set(taken)
        self._nodes: set[str] = set()
        self.nodes: list[NodeProto] = []
        self.tensors: dict[str, TensorProto] = {}
        self.opsets: dict[str, int] = {"": OPSET}
        self.notes: list[tuple[str, str]] = []
        self.spelled: set[str] = set()

    def fresh(self, base: str) -> str:
        """A value name that nothing else has."""
        name, count = base, 1
        while name in self._taken:
            count += 1
            name = f"{base}.{count}"
        self._taken.add(name)
        return name

    def constant(self, base: str, data: Array, dtype: DType | None = None) -> str:
        """Files an initializer under about that name, and returns its name."""
        return self.file(self.fresh(base), data, dtype)

    def file(self, name: str, data: Array, dtype: DType | None = None) -> str:
        """Files an initializer under a name that belongs to it."""
        if dtype is not None and dtype.is_carried:
            kind = ELEMENT_TYPES[dtype]
            self.tensors[name] = helper.make_tensor(
                name, kind, data.shape, data.reshape(-1).tolist()
            )
        else:
            self.tensors[name] = tensor_of(name, np.asarray(data))
        return name

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        name: str,
        domain: str = "",
        **attributes: Any,
    ) -> None:
        """Appends a node; trailing absent inputs are left out, and attributes that are None."""
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        held = {key: value for key, value in attributes.items() if value is not None}
        self.append(helper.make_node(op, inputs, outputs, domain=domain or None, **held), name)
        if domain:
            self.opsets.setdefault(domain, 1)

    def append(self, node: NodeProto, name: str) -> None:
        """Appends a node under about that name."""
        free, count = name or node.op_type, 1
        while free in self._nodes:
            count += 1
            free = f"{name or node.op_type}.{count}"
        self._nodes.add(free)
        node.name = free
        self.nodes.append(node)

    def one(self, op: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """Appends a node with one new output, and returns that."""
        output = self.fresh(f"{name}/{op}")
        self.node(op, inputs, [output], f"{name}/{op}", **attributes)
        return output

    def note(self, name: str, why: str) -> None:
        """Tells that a node was written so that peers compute it in f32."""
        self.notes.append((name, why))
