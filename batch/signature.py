"""What one row of the data holds for a plan, and how many rows make a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidInput
from ..ir.types import DType
from ..plan.types import Plan

DEFAULT_BATCH = 32

RowShape = tuple[int, ...]
Dims = Sequence[int | str]


@dataclass(frozen=True)
class RowType:
    """An input without its first dimension."""

    dtype: np.dtype[np.generic]
    shape: RowShape

    @property
    def bytes(self) -> int:
        """Of one row; texts count as what points to them."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name if self.dtype.kind not in 'OU' else 'string'}{list(self.shape)}"


@dataclass(frozen=True)
class Signature:
    """What is fed.

    Attributes:
        inputs: by name, in the plan's order.
        outputs: names, in the plan's order.
        batch: rows of a batch.
        exactly: the model takes batches of this size alone; smaller ones are filled up.
    """

    inputs: Mapping[str, RowType]
    outputs: tuple[str, ...]
    batch: int
    exactly: bool


def signature_of(
    plan: Plan,
    batch: int | None,
    sizes: Mapping[str, int],
    found: Callable[[str], RowShape | None],
) -> Signature:
    """What the plan takes.

    Args:
        plan: each input's first dimension counts the rows.
        batch: rows of a batch; None: those that the model demands, else 32.
        sizes: of dimensions that the model leaves open.
        found: the shape of the first row that the data have for an input, which gives sizes that
            are left open still; None: they do not tell.

    Raises:
        InvalidInput: the plan takes no rows, a size is not known, or `batch` does not fit.
    """
    shapes = {name: _dims(plan, name) for name in plan.inputs}
    first = {name: dims[0] for name, dims in shapes.items()}
    if len(set(first.values())) > 1:
        told = ", ".join(f"{name} has {dim}" for name, dim in first.items())
        raise InvalidInput(
            f"the inputs do not count the same rows in their first dimension: {told}",
            where=plan.name,
            hint="export the model with one batch dimension, first in each input",
        )
    counted = first[plan.inputs[0]]
    size = counted if isinstance(counted, int) else sizes.get(counted)
    if batch is not None and size is not None and batch != size:
        raise InvalidInput(
            f"the model takes {size} rows at once, and --batch says {batch}",
            where=plan.name,
            hint="leave --batch out, or export the model with a symbolic batch dimension",
        )
    known = dict(sizes)
    rows = {
        name: RowType(plan.type(name).dtype.numpy, _row_shape(name, dims[1:], known, found))
        for name, dims in shapes.items()
    }
    _check_outputs(plan, counted)
    chosen = size if size is not None else batch or DEFAULT_BATCH
    return Signature(rows, plan.outputs, chosen, exactly=isinstance(counted, int))


def ranks_of(plan: Plan) -> dict[str, int]:
    """How many dimensions each input has.

    Raises:
        InvalidInput: the model has no inputs, or nothing counts the rows of one.
    """
    if not plan.inputs:
        raise InvalidInput(
            "the model has no inputs", where=plan.name, hint="run it once: fqfuse run"
        )
    return {name: len(_dims(plan, name)) for name in plan.inputs}


def _dims(plan: Plan, name: str) -> Dims:
    shape = plan.type(name).shape
    if shape:
        return shape
    what = "no known rank" if shape is None else "no dimensions"
    raise InvalidInput(
        f"the input {name} has {what}, so that nothing counts its rows",
        where=plan.name,
        hint="export the model with a batch dimension, first in each input",
    )


def _row_shape(
    name: str,
    dims: Dims,
    known: dict[str, int],
    found: Callable[[str], RowShape | None],
) -> RowShape:
    """The shape of a row; sizes that the data tell are added to those that are `known`."""
    if all(isinstance(dim, int) or dim in known for dim in dims):
        return tuple(dim if isinstance(dim, int) else known[dim] for dim in dims)
    told = found(name)
    if told is not None and len(told) == len(dims):
        for dim, size in zip(dims, told, strict=True):
            if isinstance(dim, str) and dim != "?":
                known.setdefault(dim, size)
        return tuple(
            dim if isinstance(dim, int) else known.get(dim, size)
            for dim, size in zip(dims, told, strict=True)
        )
    open_ = [dim for dim in dims if isinstance(dim, str) and dim not in known]
    named = " ".join(f"--size {dim}=N" for dim in open_ if dim != "?")
    raise InvalidInput(
        f"the model leaves sizes of the input {name} open ({', '.join(open_)}), and the data do not tell them",
        where=f"input {name}",
        hint=f"add {named}" if named else "export the model with names for these dimensions",
    )


def _check_outputs(plan: Plan, counted: int | str) -> None:
    """Refuses outputs of which it is known that they have no row for each row of the inputs."""
    for name in plan.outputs:
        shape = plan.type(name).shape
        if shape is None or (shape and (shape[0] == counted or isinstance(shape[0], str))):
            continue
        raise InvalidInput(
            f"the output {name} is {plan.type(name)}: its first dimension does not count rows",
            where=plan.name,
            hint="cut it off the model, or run the model once for each input: fqfuse run",
        )


def is_text(row: RowType) -> bool:
    """True for an input of strings."""
    return row.dtype == DType.STRING.numpy
