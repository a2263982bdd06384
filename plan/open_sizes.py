"""Sizes that a model leaves open, and which ones are usual for it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Protocol, SupportsIndex

from ..errors import InvalidInput
from ..ir.types import TensorType
from .shapes import bind_shapes
from .types import Plan

NO_SIZES: Mapping[str, int] = MappingProxyType({})
"""No size is given."""

USUAL = "usual_sizes"
"""The option of a plan that holds (name, size) of open sizes that the model's metadata tell."""

BATCH, CHANNELS, IMAGE, SEQUENCE = 1, 3, 224, 128

_IMAGE_RANK = 4
_HALVED = 5  # times: 224 to 7


class Inputs(Protocol):
    """A plan or a graph."""

    @property
    def inputs(self) -> Sequence[str]:
        """The names of its inputs."""
        ...

    def type(self, value: str) -> TensorType:
        """The type of a value."""
        ...


def symbols_of(plan: Inputs) -> tuple[str, ...]:
    """The names of the sizes of the inputs that are known at run time only, in their order; `?` for an input of
    unknown rank.
    """
    shapes = (plan.type(value).shape for value in plan.inputs)
    names = (
        size
        for shape in shapes
        for size in (("?",) if shape is None else shape)
        if isinstance(size, str)
    )
    return tuple(dict.fromkeys(names))


def checked_size(name: str, size: object) -> int:
    """A size that a caller gives, an integer of any type, NumPy's among them.

    Raises:
        InvalidInput: it is none.
    """
    found = None
    if isinstance(size, SupportsIndex) and not isinstance(size, bool):
        with suppress(TypeError):  # an array of floats has the method, and refuses
            found = operator.index(size)
    if found is None or found < 0:
        raise InvalidInput(
            f"{size!r} is no size of {name!r}", hint="give a whole number, 0 for what is empty"
        )
    return found


def checked_sizes(sizes: object, symbols: Sequence[str]) -> dict[str, int]:
    """The sizes as a caller gives them, by name.

    Args:
        sizes: integers of any type, by name.
        symbols: the names of the sizes that the inputs leave open.

    Raises:
        InvalidInput: one is no size, or the inputs do not leave it open.
    """
    if not isinstance(sizes, Mapping):
        raise InvalidInput(
            f"sizes are of type {type(sizes).__name__}", hint='give sizes={"name": 128}'
        )
    known: dict[str, int] = {}
    for name, size in sizes.items():
        if name not in symbols:
            others = ", ".join(symbols) or "none: all of its sizes are fixed"
            raise InvalidInput(
                f"the inputs have no size {name!r}", hint=f"the sizes that are open: {others}"
            )
        known[name] = checked_size(name, size)
    return known


def sizes_at(plan: Plan, sizes: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """The size of each symbol of a plan's inputs, and those that were guessed (see `sizes_for`).

    Args:
        plan: the plan.
        sizes: those that a caller gives.

    Raises:
        InvalidInput: one is no size, or the inputs do not leave it open.
    """
    symbols = symbols_of(plan)
    given = checked_sizes(sizes, symbols)
    found = sizes_for(plan, given)
    return found, {name: found.get(name, 1) for name in symbols if name not in given}


def shares_sizes(plan: Plan) -> bool:
    """True where dimensions of inputs have one name, or a formula over names: they have to be fed alike."""
    dims = [
        dim for value in plan.inputs for dim in plan.type(value).shape or () if isinstance(dim, str)
    ]
    return len(set(dims)) < len(dims) or not all(dim.isidentifier() for dim in dims)


def usual_sizes(types: Iterable[TensorType], given: Mapping[str, int] = NO_SIZES) -> dict[str, int]:
    """A size for each open dimension of inputs: 1 for the first one; of images (four dimensions) 3 for the second
    one, else 224; 128 of others.

    Args:
        types: of the inputs.
        given: sizes that are known.
    """
    found = dict(given)
    shapes = [type_.shape or () for type_ in types]
    usual = [
        (dim, BATCH if axis == 0 else _behind(axis, len(shape)))
        for shape in shapes
        for axis, dim in enumerate(shape)
        if isinstance(dim, str)
    ]
    for dim, size in sorted(usual, key=lambda each: each[1] != BATCH):
        found.setdefault(dim, size)
    return found


def _behind(axis: int, rank: int) -> int:
    if rank != _IMAGE_RANK:
        return SEQUENCE
    return CHANNELS if axis == 1 else IMAGE


def sizes_for(plan: Plan, given: Mapping[str, int] = NO_SIZES) -> dict[str, int]:
    """A size for each symbol of a plan's inputs: what is given, else what the model's metadata tell, else what is usual,
    halved until it fits the model (a table of positions may be shorter), or 1 where nothing fits.
    """
    told: Any = plan.options.get(USUAL, ())  # verified
    usual = usual_sizes([plan.type(name) for name in plan.inputs], dict(told))
    for halved in range(_HALVED + 1):
        found = {
            name: size >> halved if size in (IMAGE, SEQUENCE) else size
            for name, size in usual.items()
        } | dict(given)
        if _fit(plan, found):
            return found
    return {**dict.fromkeys(symbols_of(plan), 1), **given}


def _fit(plan: Plan, sizes: Mapping[str, int]) -> bool:
    shapes = {
        name: [sizes[dim] if isinstance(dim, str) else dim for dim in plan.type(name).shape or ()]
        for name in plan.inputs
    }
    try:
        bind_shapes(plan, shapes)
    except InvalidInput:
        return False
    return True


def sizes_like(plan: Plan, other: Plan) -> dict[str, int]:
    """Sizes that one plan leaves open, as another one states them for inputs of the same names."""
    pairs = [
        (plan.type(name).shape or (), other.type(name).shape or ())
        for name in plan.inputs
        if name in other.inputs
    ]
    return {
        dim: size
        for mine, stated in pairs
        if len(mine) == len(stated)
        for dim, size in zip(mine, stated, strict=True)
        if isinstance(dim, str) and isinstance(size, int)
    }


def sizes_of_shapes(plan: Inputs, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The open sizes of a plan in shapes of some of its inputs.

    Raises:
        InvalidInput: there is no such input, or it has no such shape.
    """
    found: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in plan.inputs:
            raise InvalidInput(
                f"the model has no input {name!r}", hint=f"its inputs are: {', '.join(plan.inputs)}"
            )
        stated = plan.type(name).shape
        if stated is None:
            continue
        fits = len(stated) == len(shape) and all(
            dim == size for dim, size in zip(stated, shape, strict=True) if isinstance(dim, int)
        )
        if not fits:
            raise InvalidInput(
                f"{list(shape)} is no shape of {name}: it is {plan.type(name)}",
                where=f"input {name}",
                hint="give the sizes that the model states, and numbers for those that it leaves open",
            )
        found |= {
            dim: size for dim, size in zip(stated, shape, strict=True) if isinstance(dim, str)
        }
    return found
