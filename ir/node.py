"""A node of the graph, and a use of a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from .ops import OPS
from .ops.spec import Attr, OpSpec, Trait
from .types import Quantization

T = TypeVar("T")


class GraphError(ValueError):
    """A verb was used against the rules of the graph: unknown value, name taken, erasing what is
    used, types that do not fit.
    """


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. Absent optional inputs and outputs are empty strings; `attrs` is complete
    (defaults filled in).

    Attributes:
        name: unique in the graph.
        op: name of its row in the op table.
        inputs: names of values, in the order of the row.
        outputs: names of the values that it produces.
        attrs: complete attributes.
        origin: names of the nodes in the user's model that it came from.
        quantizer: for Quantize, Dequantize and FakeQuantize: names of the quantizers whose halves
            it is.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    origin: tuple[str, ...] = ()
    quantizer: tuple[str, ...] = ()

    @property
    def spec(self) -> OpSpec:
        """The row of the op table."""
        return OPS[self.op]

    @property
    def input(self) -> str:
        """The first input: what most ops work on."""
        return self.inputs[0]

    @property
    def output(self) -> str:
        """The first output (most ops have just one)."""
        return self.outputs[0]

    def attr(self, name: str, kind: type[T]) -> T:
        """The attribute, checked to be of that kind (an int serves as a float).

        Raises:
            GraphError: it is of another kind.
        """
        value = self.attrs[name]
        if kind is float and isinstance(value, int):
            value = float(value)
        if not isinstance(value, kind):
            raise GraphError(f"{self.name}: attribute {name} is no {kind.__name__} but {value!r}")
        return value

    def operand(self, index: int) -> str:
        """An input, or '' where it is absent."""
        return self.inputs[index] if index < len(self.inputs) else ""

    @property
    def quant(self) -> Quantization:
        """The parameters of a Quantize or Dequantize."""
        return self.attr("quant", Quantization)

    def has(self, *traits: Trait) -> bool:
        """True when the op's row has one of the traits."""
        return not OPS[self.op].traits.isdisjoint(traits)


@dataclass(frozen=True, slots=True)
class Use:
    """Input number `index` of a node reads a value."""

    node: Node
    index: int


def subject(node: Node) -> str:
    """The node's name as the user knows it."""
    return node.origin[0] if node.origin else node.name


def origin_of(*nodes: Node) -> tuple[str, ...]:
    """The origins of several nodes, merged in order, each name once."""
    return tuple(dict.fromkeys(name for node in nodes for name in node.origin))
