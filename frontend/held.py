"""What a sequence or an optional of ONNX is while a model is imported: tensors of the graph."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.types import DType


@dataclass(frozen=True)
class Tensors:
    """A sequence of known length.

    Attributes:
        tensors: its tensors.
        dtype: of the elements, where it is empty and the model says it.
    """

    tensors: tuple[str, ...]
    dtype: DType | None = None


@dataclass(frozen=True)
class Rows:
    """A sequence of tensors that are all of one shape: the rows of a value."""

    value: str


@dataclass(frozen=True)
class Packed:
    """A sequence of any tensors of one rank.

    Attributes:
        data: the elements of all of them, one tensor behind the other, [elements].
        sizes: their shapes, s64[tensors, rank].
    """

    data: str
    sizes: str


Held = Tensors | Rows | Packed
"""A sequence."""


@dataclass(frozen=True)
class Maybe:
    """An optional.

    Attributes:
        held: a tensor of the graph, or a sequence; '' for nothing.
        there: bool value that says whether it holds something; '' where `held` says it.
    """

    held: str
    there: str = ""
