"""The options that give sizes which a model leaves open."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import InvalidInput
from .options import UsageError, option, place, sizes_of

if TYPE_CHECKING:
    from ..plan.open_sizes import Inputs

Size = Annotated[
    list[str] | None,
    option(
        "--size",
        "A size that the model leaves open; repeatable. bench takes several, and measures each.",
        "NAME=N",
    ),
]
InputShape = Annotated[
    list[str] | None,
    option("--shape", "The shape of an input, in the place of --size.", "INPUT=1x3x224x224"),
]
ShapesOf = Annotated[
    Path | None,
    option("--data", "An .npz file whose arrays have the sizes.", "DIR|NPZ"),
]

_SHAPE = re.compile(r"(?P<name>.+)=(?P<sizes>[0-9]{1,9}([x,][0-9]{1,9})*)?")


def given_sizes(
    models: Sequence[Inputs],
    size: list[str] | None,
    shape: list[str] | None,
    data: Path | None = None,
    *,
    least: int = 0,
) -> list[dict[str, int]]:
    """The open sizes of each plan or graph as the options give them; the last one counts.

    Args:
        models: the plans or graphs.
        size, shape, data: the values of the options.
        least: the smallest size.

    Raises:
        InvalidInput: the data cannot be read, or an option fits none of the models.
    """
    from ..plan.open_sizes import checked_sizes, symbols_of

    named, shapes = sizes_of(size, least), _shapes_of(shape)
    symbols = [symbols_of(model) for model in models]
    try:
        checked_sizes(named, [name for each in symbols for name in each])
    except InvalidInput as error:
        raise InvalidInput(error.what, where=place("--size"), hint=error.hint) from error
    found = [
        ({} if data is None else _sizes_of_data(model, data)) | _of_shapes(model, shapes) | named
        for model in models
    ]
    return [
        {name: size for name, size in sizes.items() if name in known}
        for sizes, known in zip(found, symbols, strict=True)
    ]


def refuse_with_data(data: object, size: Sequence[str] | None, shape: Sequence[str] | None) -> None:
    """Refuses sizes for random data where data is given.

    Raises:
        UsageError: both are given.
    """
    if data and (size or shape):
        name = "--size" if size else "--shape"
        raise UsageError(
            f"{name} is for random data, and --data gives data",
            where=place(name),
            hint="leave one of them out",
        )


def _sizes_of_data(plan: Inputs, data: Path) -> dict[str, int]:
    from ..plan.open_sizes import sizes_of_shapes
    from .feeds import read_samples

    arrays = next(read_samples(data, tuple(plan.inputs)))
    return sizes_of_shapes(plan, {name: array.shape for name, array in arrays.items()})


def _of_shapes(plan: Inputs, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
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
