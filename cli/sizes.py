"""The options that give sizes which a model leaves open."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import InvalidInput
from .options import UsageError, option, place, sizes_of

if TYPE_CHECKING:
    from ..plan.types import Plan

Size = Annotated[
    list[str] | None,
    option(
        "--size",
        "A size that the model leaves open, for the figures; several times for several.",
        "NAME=N",
    ),
]
InputShape = Annotated[
    list[str] | None,
    option("--shape", "The shape of an input, for the figures.", "INPUT=1x3x224x224"),
]
ShapesOf = Annotated[
    Path | None,
    option("--data", "An .npz file whose arrays have the sizes for the figures.", "DIR|NPZ"),
]

_SHAPE = re.compile(r"(?P<name>.+)=(?P<sizes>[0-9]{1,9}([x,][0-9]{1,9})*)?")


def given_sizes(
    plans: Sequence[Plan], size: list[str] | None, shape: list[str] | None, data: Path | None
) -> list[dict[str, int]]:
    """The open sizes of each plan as the options give them; the last one counts.

    Raises:
        InvalidInput: the data cannot be read, or an option fits none of the plans.
    """
    named, shapes = sizes_of(size), _shapes_of(shape)
    found = []
    for plan in plans:
        sizes = {} if data is None else _sizes_of_data(plan, data)
        found.append(sizes | _of_shapes(plan, shapes) | named)
    _check_names(plans, named)
    return [_known(plan, sizes) for plan, sizes in zip(plans, found, strict=True)]


def _known(plan: Plan, sizes: Mapping[str, int]) -> dict[str, int]:
    from ..plan.open_sizes import symbols_of

    symbols = symbols_of(plan)
    return {name: size for name, size in sizes.items() if name in symbols}


def _check_names(plans: Sequence[Plan], named: Mapping[str, int]) -> None:
    """Refuses a name of which no plan leaves a size open."""
    from ..plan.open_sizes import symbols_of

    symbols = list(dict.fromkeys(name for plan in plans for name in symbols_of(plan)))
    for name in named:
        if name not in symbols:
            others = ", ".join(symbols) or "none: all of its sizes are fixed"
            raise InvalidInput(
                f"the inputs have no size {name!r}",
                where=place("--size"),
                hint=f"the sizes that are open: {others}",
            )


def _sizes_of_data(plan: Plan, data: Path) -> dict[str, int]:
    from ..plan.open_sizes import sizes_of_shapes
    from .feeds import read_samples

    arrays = next(read_samples(data, plan.inputs))
    return sizes_of_shapes(plan, {name: array.shape for name, array in arrays.items()})


def _of_shapes(plan: Plan, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    from ..plan.open_sizes import sizes_of_shapes

    try:
        return sizes_of_shapes(plan, shapes)
    except InvalidInput as error:
        raise InvalidInput(error.what, where=place("--shape"), hint=error.hint) from error


def _shapes_of(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    found = {}
    for text in texts or ():
        match = _SHAPE.fullmatch(text)
        if match is None:
            raise UsageError(
                f"{text!r} is no shape of an input",
                where=place("--shape"),
                hint="give a name and sizes, such as --shape images=1x3x320x320",
            )
        sizes = re.split("[x,]", match["sizes"]) if match["sizes"] else []
        found[match["name"]] = tuple(map(int, sizes))
    return found
