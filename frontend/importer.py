"""The state of one import, and the verbs that the dialects write the graph with.

A dialect handles a node of the model by calling `emit` once for each node of the graph that it
becomes. Names of values are the model's own; what the import adds gets names that the model does
not use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import GraphProto, NodeProto, TypeProto

from ..ir.decision import Quantizer
from ..ir.graph import Graph
from ..ir.node import GraphError
from ..ir.ops.spec import Array, Attr, NotCovered, ShapeError
from ..ir.rule import Refusal
from ..ir.types import DType, TensorType
from .budgets import Budgets
from .folding import Folder
from .nodes import DEFAULT_DOMAIN, OnnxNode, free_name, origin_of_proto
from .source import Source
from .structure import Wiring, captured_names, names_in_bodies
from .tensors import TensorReader

_MEANINGLESS: Final = (ValueError, LookupError, ArithmeticError)
"""What NumPy and arithmetic raise on sizes that make no sense (a kernel of another rank, a stride
of 0).
"""


class _Names:
    """Names that are taken. An object of its own: what asks for names must not keep the import, and
    with it the whole model, alive.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._numbers: dict[str, int] = {}
        self._values = set(values)
        self._nodes: set[str] = set()

    def value(self, base: str) -> str:
        """A name for a value: `base`, `base.1`, ..."""
        return self._unique(base, self._values)

    def node(self, base: str) -> str:
        """A name for a node: `base`, `base.1`, ..."""
        return self._unique(base, self._nodes)

    def _unique(self, base: str, taken: set[str]) -> str:
        # The counter makes a hundred thousand nodes of one name linear.
        name, number = base, self._numbers.get(base, 0)
        while name in taken:
            number += 1
            name = f"{base}.{number}"
        self._numbers[base] = number
        taken.add(name)
        return name


class Importer:
    """One import in progress.

    Attributes:
        graph: what has been imported so far.
        source: the graph of the model (functions inlined).
        wiring: who makes and who reads each value of the model.
        opsets: domain -> version.
        tensors: reads constants within the budgets.
        budgets: the limits.
        import_body: the graph of a body of If, Loop or Scan, given as a model.
        depth: in how many such bodies this graph lies.
        absorbed: indices of nodes that an earlier node has taken in.
        model_outputs: names of the values that the model returns.
        codes: value that holds the codes of a quantizer, as they are or moved about -> names of the
            quantizers.
        decoded: (value, scale, zero point, axis) -> the real value that a dialect has already had
            decoded; other texts -> what several nodes of a dialect share.
        runnable: (domain, op, since) of foreign ops that the reference evaluator is known to have.
        size_names: names of symbolic sizes of the graph's inputs.
        declared: types that the model itself states for its values.
        late: large constants that are added in front of the one node that reads them, and go with
            it: name -> what adds it.
    """

    def __init__(
        self,
        source: GraphProto,
        wiring: Wiring,
        opsets: dict[str, int],
        tensors: TensorReader,
        budgets: Budgets,
        handler_of: Callable[[str, str], Handler],
        import_body: Callable[[Source], Graph],
        depth: int,
    ) -> None:
        self.graph = Graph(source.name)
        self.source = source
        self.wiring = wiring
        self.opsets = opsets
        self.tensors = tensors
        self.budgets = budgets
        self._handler_of = handler_of
        self.import_body, self.depth = import_body, depth
        self.absorbed: set[int] = set()
        self.model_outputs = frozenset(value.name for value in source.output)
        self.codes: dict[str, tuple[str, ...]] = {}
        self.decoded: dict[tuple[str, ...], str] = {}
        self.runnable: set[tuple[str, str, int]] = set()
        self.size_names: set[str] = set()
        self.late: dict[str, Callable[[], object]] = {}
        self.declared: dict[str, TypeProto] = {
            value.name: value.type for value in (*source.value_info, *source.output)
        }
        self._taken: list[NodeProto] = []
        values = {value.name for value in source.input} | set(wiring.producer) | set(wiring.readers)
        self._in_file = {name: name for name in values}
        # what the import hands into a body must not be what the body calls something of its own
        self._names = _Names(values.union(names_in_bodies(source)))
        self._folder = Folder(self.graph, budgets, self._names.value)

    def is_free(self, name: str) -> bool:
        """Whether nothing of the model's graph, and nothing imported so far, has a name."""
        taken = (self.wiring.producer, self.graph.values, self.late, self.declared)
        return not any(name in names for names in taken)

    # -- reading -----------------------------------------------------------------------------------

    def type(self, value: str) -> TensorType:
        """The type of a value that has been imported."""
        return self.graph.type(value)

    def rank(self, node: OnnxNode, value: str) -> int:
        """The rank of a value.

        Raises:
            InvalidModel: it is not known, and the import of this node depends on it.
        """
        shape = self.type(value).shape
        if shape is None:
            hint = (
                "give the graph's inputs a shape (sizes may stay symbolic), and run shape inference"
            )
            raise node.invalid(
                f"the rank of {value!r} is unknown, and the meaning of this node depends on it",
                hint,
            )
        return len(shape)

    def readers(self, value: str) -> list[tuple[int, NodeProto]]:
        """The nodes of the model that read a value, with their indices."""
        return [(index, self.proto(index)) for index in self.wiring.readers.get(value, ())]

    def proto(self, index: int) -> NodeProto:
        """A node of the model, or of a branch that has been taken."""
        count = len(self.source.node)
        return self.source.node[index] if index < count else self._taken[index - count]

    def take_branch(self, nodes: Sequence[NodeProto]) -> Iterator[tuple[int, NodeProto]]:
        """The nodes of a branch, whose values have names of the model's, with the indices that they
        get.
        """
        first = len(self.source.node) + len(self._taken)
        what = "the model, with the branches that are taken,"
        self.budgets.check("nodes", first + len(nodes), what)
        self._taken += nodes
        for index, proto in enumerate(nodes, first):
            for name in filter(None, (*proto.input, *captured_names(proto))):
                self.wiring.readers.setdefault(name, []).append(index)
        yield from enumerate(nodes, first)

    def constant(self, value: str) -> Array | None:
        """The data of a value that is constant, or computed from constants alone within the budget
        `folded_bytes`; otherwise None.
        """
        return self._folder.constant(value)

    def size(self, value: str, axis: int) -> int | None:
        """The size of a dimension of a value as a number; None where it is known at run time only."""
        return self._folder.size(value, axis)

    # -- names -------------------------------------------------------------------------------------

    def fresh(self, base: str) -> str:
        """A value name that neither the model, in its graph and its bodies, nor the import has used: `base`,
        `base.1`, ...
        """
        return self._names.value(base)

    def renamed(self, node: OnnxNode, value: str) -> str:
        """A name for a value of a branch of a node, which the file has as `value`."""
        name = self.fresh(f"{node.name}/{value}")
        self._in_file[name] = value
        return name

    def size_name(self, base: str) -> str:
        """A name that no size of an input has."""
        return free_name(base, self.size_names, "_")

    def node_name(self, proto: NodeProto) -> str:
        """A name for a node of the model that no other node has: its own, or its first output's."""
        return self._names.node(origin_of_proto(proto))

    def derived(
        self,
        node: OnnxNode,
        role: str,
        op: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Any] | None = None,
        *,
        output: str = "",
        version: int = 0,
    ) -> OnnxNode:
        """A node of ONNX's own domain that a dialect's node stands for, to be imported in its
        place.

        Args:
            node: the dialect's node.
            role: `<node>.<role>` becomes its name; '' for the one that carries the node's own.
            op: op type.
            inputs: values of the graph.
            attrs: attributes.
            output: its output; default: a new value.
            version: opset; default: the newest.
        """
        name = self._names.node(f"{node.name}.{role}") if role else node.name
        proto = NodeProto(op_type=op, input=inputs, output=[output or self.fresh(f"{name}.out")])
        newest = version or onnx.defs.onnx_opset_version()
        return OnnxNode(
            name,
            node.origin,
            op,
            DEFAULT_DOMAIN,
            tuple(inputs),
            tuple(proto.output),
            dict(attrs or {}),
            newest,
            proto,
        )

    def take(self, node: OnnxNode) -> None:
        """Imports a node: its dialect does, the op table, or nobody (then it stays as it is)."""
        self._handler_of(node.op, node.domain)(self, node)

    # -- writing -----------------------------------------------------------------------------------

    def add_constant(self, node: OnnxNode, role: str, data: npt.ArrayLike, dtype: DType) -> str:
        """A new constant `<node>.<role>` with the data as elements of `dtype`; its name."""
        array = np.asarray(data, dtype.numpy)
        return self.graph.add_constant(self.fresh(f"{node.name}.{role}"), array, dtype)

    def emit(
        self,
        node: OnnxNode,
        op: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr] | None = None,
        *,
        outputs: Sequence[str] | None = None,
        role: str = "",
        quantizer: Sequence[str] = (),
        types: Sequence[TensorType] | None = None,
        absorbed: Sequence[str] = (),
    ) -> str:
        """A new node of the graph on behalf of a node of the model; its first output.

        Args:
            node: the node of the model.
            op: name of a row of the op table.
            inputs: values; '' where absent.
            attrs: attributes; the row's defaults fill the rest.
            outputs: names of its outputs; default: one new value.
            role: tells several nodes of the graph that come from one node of the model apart; ''
                for the one that carries its name.
            quantizer: names of quantizers whose halves it is.
            types: output types of a foreign op.
            absorbed: names of other nodes of the model that it stands for too.

        Raises:
            InvalidModel: the inputs do not fit the op.
            NotCovered: ONNX allows it, but the row does not cover it.
        """
        name = self._names.node(f"{node.name}.{role}") if role else node.name
        if types is None:
            op, inputs, attrs = self._folder.prepared(op, inputs, dict(attrs or {}))
        results = (
            (self.fresh(name if role else f"{name}.out"),) if outputs is None else tuple(outputs)
        )
        try:
            added = self.graph.add(
                op,
                inputs,
                attrs,
                name=name,
                outputs=results,
                origin=(node.origin, *absorbed),
                quantizer=quantizer,
                types=types,
                after_all=True,
            )
        except GraphError as error:
            raise _refused(node, error) from None
        except _MEANINGLESS as error:
            raise node.invalid(
                f"its attributes or shapes make no sense: {error}", "export the model again"
            ) from error
        self._folder.learn(added)
        return next(filter(None, added.outputs), "")

    def release(self, value: str) -> None:
        """Forgets a constant that no other node of the model reads, once what it stands for is in
        the graph.
        """
        if len(self.readers(value)) == 1 and not self.graph.is_read(value):
            self.graph.forget_constant(value)

    def add_quantizer(self, node: OnnxNode, form: str, value: str, *, operand: bool = False) -> str:
        """Records a quantizer of the model; its name, one that the user's file has.

        Args:
            node: the node that it is, or is part of.
            form: how it was written.
            value: what it quantizes, or its codes.
            operand: it decodes one of the codes that the node reads, and is called by the name of
                these; others are called as the node is.
        """
        held = self.graph.quantizers
        values = [
            self._in_file[name]
            for name in (*(() if operand else node.outputs), value, *node.inputs)
            if name in self._in_file
        ]
        own = [*values, node.origin] if operand else [node.origin, *values]
        name = next((name for name in own if name not in held), "")
        number = 1
        while not name or name in held:  # all that it is near to is taken
            number += 1
            name = f"{node.origin}.{number}"
        held[name] = Quantizer(name, form, value)
        return name

    def quantizers_of_codes(self, node: OnnxNode, codes: str) -> tuple[str, ...]:
        """The quantizers of codes that an operator on codes reads: those behind which they stand,
        or one of their own, of the same name, for all that read them.
        """
        if codes not in self.codes:
            name = self.add_quantizer(node, f"{node.op} of codes", codes, operand=True)
            self.codes[codes] = (name,)
        return self.codes[codes]

    def refuse(self, node: OnnxNode, rule: str, why: Refusal) -> None:
        """Leaves the decision that a rule of the import did not take a node, and why."""
        self.graph.decide(why.at(rule, node.origin))

    def cast(self, node: OnnxNode, value: str, dtype: DType, role: str, output: str = "") -> str:
        """The value as elements of `dtype`: itself when it is of that type and no name for the
        output is asked for.
        """
        if self.type(value).dtype is dtype and not output:
            return value
        return self.emit(
            node, "Cast", (value,), {"to": dtype}, outputs=(output,) if output else None, role=role
        )


Handler = Callable[[Importer, OnnxNode], Any]
"""Imports one node of the model. Raises InvalidModel or UnsupportedOp."""


def _refused(node: OnnxNode, error: GraphError) -> Exception:
    """What the graph has against a node, in terms of the model."""
    if isinstance(error.__cause__, NotCovered):
        return error.__cause__
    detail = str(error.__cause__ if isinstance(error.__cause__, ShapeError) else error)
    return node.invalid(
        detail, "correct the shapes or attributes of this node, or of what feeds it"
    )
