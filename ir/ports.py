"""Inputs and outputs of a model that are sequences or optionals: which values of the graph, or of the plan, hold them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..errors import InvalidInput
from .ops.spec import Array

TENSOR: Final = "tensor"
LIST: Final = "list"
ROWS: Final = "rows"
PACKED: Final = "packed"

COUNTS: Final = {TENSOR: 1, ROWS: 1, PACKED: 2}
"""Form of a port -> how many values hold it; a list has any number."""


@dataclass(frozen=True)
class Port:
    """An input or output of a model.

    Attributes:
        name: as the model has it.
        form: how the values hold it. `tensor`: the value is it. `list`: each value is a tensor of the
            sequence. `rows`: the rows of one value are its tensors, all of one shape. `packed`: the first
            value holds the elements of all its tensors, one behind the other, [elements]; the second their
            shapes, s64[tensors, rank].
        values: names of values.
        there: bool value that says whether an optional holds something; '' where it is none.
    """

    name: str
    form: str
    values: tuple[str, ...]
    there: str = ""

    @property
    def held(self) -> tuple[str, ...]:
        """All its values."""
        return (*filter(None, [self.there]), *self.values)

    @property
    def is_tensor(self) -> bool:
        """True of what is neither a sequence nor an optional."""
        return self.form == TENSOR and not self.there


def packed(tensors: Sequence[Array], dtype: np.dtype[Any], rank: int = 0) -> tuple[Array, Array]:
    """The values of a port of this form.

    Args:
        tensors: the tensors, all of one rank.
        dtype: of their elements.
        rank: where there is none.
    """
    flat = [np.asarray(tensor, dtype).reshape(-1) for tensor in tensors]
    data = np.concatenate(flat) if flat else np.empty(0, dtype)
    sizes = np.asarray([tensor.shape for tensor in tensors], np.int64)
    return data, sizes.reshape(len(tensors), tensors[0].ndim if tensors else rank)


def unpacked(data: Array, sizes: Array) -> list[Array]:
    """The tensors that the values of a port of that form hold, with memory of their own.

    Raises:
        InvalidInput: the shapes are not those of as many elements: no model makes such, a plan that was
            changed by hand may.
    """
    counts = [math.prod(shape) for shape in sizes.tolist()]
    if (sizes.size and sizes.min() < 0) or sum(counts) != data.size:
        raise InvalidInput(
            f"{data.size} elements, and shapes of {sum(counts)}",
            where="a sequence that the plan returns",
            hint="compile the model again",
        )
    found, start = [], 0
    for shape in sizes.tolist():
        end = start + math.prod(shape)
        found.append(data[start:end].reshape(shape).copy())
        start = end
    return found


def demand_tensors(ports: Ports | None, what: str, where: str) -> None:
    """Refuses a model with sequences or optionals where only tensors can be handled.

    Args:
        ports: of the model.
        what: cannot handle them, for the message.
        where: the name of the model.

    Raises:
        InvalidInput: it has some.
    """
    other = (
        [port.name for port in (*ports.inputs, *ports.outputs) if not port.is_tensor]
        if ports
        else []
    )
    if other:
        raise InvalidInput(
            f"{other[0]} is a sequence or an optional, and {what} knows tensors alone",
            where=where,
            hint="run the model from Python, with lists of arrays and None (docs/operators.md), or give it the tensors",
        )


@dataclass(frozen=True)
class Ports:
    """The inputs and outputs of a model, in its order, where some are no tensors."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
