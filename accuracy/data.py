"""What a comparison is fed with: arrays of the caller's, or random ones of the right kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInput
from ..ir.graph import Graph
from ..ir.ops import dims
from ..ir.ops.spec import Array
from ..ir.types import DType, Shape
from ..measure.feeds import NORMAL, ONES, ZEROS, Kind, drawn_array
from ..plan.open_sizes import NO_SIZES, checked_sizes, symbols_of, usual_sizes

SEED = 1

MADE_FROM = "compare a quantized model with the f32 model that it was made from"

_NO_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType({})
_MOST_ELEMENTS = 1 << 28


@dataclass(frozen=True)
class Samples:
    """Feeds, one after the other.

    Attributes:
        feeds: for each sample an array for each input.
        told: what they are, in a sentence for people.
        random: nobody gave them.
        within: they lie within the range of the model's own quantizer, so that a range too narrow for real
            data does not show.
        guessed: open sizes that nobody gave.
    """

    feeds: Sequence[Mapping[str, Array]]
    told: str
    random: bool
    within: bool = False
    guessed: Mapping[str, int] = field(default_factory=dict)


def check_alike(f32: Graph, int8: Graph) -> None:
    """Refuses models that cannot be fed alike, or whose outputs cannot be compared.

    Raises:
        InvalidInput: inputs of one are not inputs of the other; no output is of both; or an input or
            output surely has other sizes.
    """
    ours, theirs = set(f32.inputs), set(int8.inputs)
    if ours != theirs:
        raise no_pair(
            f"the models have different inputs: {', '.join(sorted(ours)) or 'none'} and {', '.join(sorted(theirs)) or 'none'}",
            f"{f32.name} and {int8.name}",
        )
    common = [name for name in f32.outputs if name in int8.outputs]
    if not common:
        raise no_pair(
            f"the models have no output in common: {', '.join(f32.outputs)} and {', '.join(int8.outputs)}",
            f"{f32.name} and {int8.name}",
        )
    for what, names in (("input", f32.inputs), ("output", common)):
        for name in names:
            first, second = f32.type(name), int8.type(name)
            if not _may_be_one(first.shape, second.shape):
                raise no_pair(
                    f"{what} {name!r} is {first} in one and {second} in the other",
                    f"{f32.name} and {int8.name}",
                )


def _may_be_one(a: Shape | None, b: Shape | None) -> bool:
    """False where two shapes surely differ."""
    if a is None or b is None:
        return True
    return len(a) == len(b) and not any(map(dims.differ, a, b))


def no_pair(what: str, where: str) -> InvalidInput:
    """The error of two models of which one was not made from the other."""
    return InvalidInput(what, where=where, hint=MADE_FROM)


def given(graph: Graph, feeds: Iterable[Mapping[str, npt.ArrayLike]], told: str) -> Samples:
    """Arrays of the caller's. One that holds several batches of a model whose batch is fixed gives several samples.

    Raises:
        InvalidInput: there are none, or one is no mapping.
    """
    found = [part for sample in feeds for part in _split(graph, sample)]
    if not found:
        raise InvalidInput("there is no sample", where=told, hint="give one array for each input")
    count = f"{len(found)} samples" if len(found) > 1 else "1 sample"
    return Samples(found, f"{count} of {told}", random=False)


def listed(data: object) -> list[Any]:
    """The samples of one or several.

    Raises:
        InvalidInput: it is neither a dictionary nor a list of such.
    """
    if isinstance(data, Mapping):
        return [data]
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return list(data)
    raise InvalidInput(
        f"data is of type {type(data).__name__}",
        where="data",
        hint="give a dictionary {name of input: array}, or a list of such dictionaries",
    )


def _split(graph: Graph, sample: Mapping[str, npt.ArrayLike]) -> Iterator[dict[str, Array]]:
    if not isinstance(sample, Mapping):
        raise InvalidInput(
            f"a sample is of type {type(sample).__name__}",
            where="data",
            hint="give a dictionary for each: {name of input: array}",
        )
    arrays = {name: np.asarray(array) for name, array in sample.items()}
    parts = {_batches(graph, name, array) for name, array in arrays.items() if name in graph.inputs}
    count = parts.pop() if len(parts) == 1 else 1
    for index in range(count):
        yield {
            name: array if count == 1 else np.split(array, count)[index]
            for name, array in arrays.items()
        }


def _batches(graph: Graph, name: str, array: Array) -> int:
    """How many times an array fills its input along the first axis; 1 where the model leaves that open."""
    shape = graph.type(name).shape
    if not shape or array.ndim != len(shape) or not isinstance(shape[0], int) or not shape[0]:
        return 1
    return array.shape[0] // shape[0] if array.shape[0] and array.shape[0] % shape[0] == 0 else 1


def drawn(
    graph: Graph,
    count: int,
    sizes: Mapping[str, int],
    ranges: Mapping[str, tuple[float, float]] = _NO_RANGES,
    seed: int = SEED,
    guessed: Mapping[str, int] = NO_SIZES,
) -> Samples:
    """Random feeds of the right kind: token ids within the embedding that they select from, attention masks of ones, else normal
    numbers, of which one in 370 lies beyond the range that the input's quantizer expects.

    Args:
        graph: whose inputs.
        ranges: (low, high) of inputs that are quantized.
        count: how many samples.
        sizes: of what the model leaves open; others are usual ones, see `usual_sizes`.
        seed: of the random numbers.
        guessed: those that nobody gave, as far as they are known.

    Raises:
        InvalidInput: a name of `sizes` that the model has not, or sizes that make more than 2^28 elements.
    """
    symbols = symbols_of(graph)
    checked_sizes(sizes, symbols)
    usual = {name: size for name, size in guessed.items() if name in symbols}
    taken = usual_sizes(map(graph.type, graph.inputs), usual | dict(sizes))
    shapes = {name: _shape(graph, name, taken) for name in graph.inputs}
    rng = np.random.default_rng(seed)
    numbers = {name: _numbers(graph, name) for name in graph.inputs}
    kinds = {name: numbers[name] or _normal(ranges.get(name)) for name in graph.inputs}
    feeds = [
        {
            name: drawn_array(rng, graph.type(name).dtype, shapes[name], kinds[name])
            for name in graph.inputs
        }
        for _ in range(count)
    ]
    parts = [f"{name} {_told(numbers[name], ranges.get(name))}" for name in graph.inputs]
    opened = [f"{name}={size}" for name, size in taken.items()]
    told = f"random data (seed {seed}): {', '.join(parts)}"
    told += f"; sizes {', '.join(opened)}" if opened else ""
    within = any(numbers[name] is None and _is_narrow(ranges.get(name)) for name in graph.inputs)
    left = {name: size for name, size in taken.items() if name not in sizes}
    return Samples(feeds, told, random=True, within=within, guessed=left)


def _shape(graph: Graph, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape = graph.type(name).shape
    if shape is None:
        raise InvalidInput(
            "the model does not say how many dimensions this input has, so no data can be drawn",
            where=f"input {name}",
            hint="give data",
        )
    found = [dim if isinstance(dim, int) else sizes[dim] for dim in shape]
    if np.prod(found, dtype=np.float64) > _MOST_ELEMENTS:
        raise InvalidInput(
            f"random data of {found} would have more than 2^28 elements",
            where=f"input {name}",
            hint="give data, or smaller sizes",
        )
    return tuple(found)


def _numbers(graph: Graph, name: str) -> range | None:
    """The whole numbers that an input is made of; None: normal numbers."""
    dtype = graph.type(name).dtype
    if "mask" in name.lower() or dtype is DType.BOOL:
        return ONES
    tables = [
        (graph.type(use.node.inputs[0]).shape, use.node.attr("axis", int))
        for use in graph.uses(name)
        if use.node.op == "Gather" and use.index == 1
    ]
    sizes = [size for shape, axis in tables if shape and isinstance(size := shape[axis], int)]
    if sizes:
        return range(min(sizes))
    if dtype.is_integer:
        return ZEROS
    if dtype is DType.STRING:
        raise InvalidInput("no texts can be drawn", where=f"input {name}", hint="give data")
    return None


def _told(numbers: range | None, between: tuple[float, float] | None) -> str:
    if numbers is not None:
        words = {ONES: "ones", ZEROS: "zeros"}
        return words.get(numbers, f"ids below {numbers.stop:,}")
    if between is None or not _is_narrow(between):
        return "normal numbers"
    return f"normal numbers within its quantizer's {between[0]:.3g} to {between[1]:.3g}"


def _normal(between: tuple[float, float] | None) -> Kind:
    """Numbers of which one in 370 lies beyond a range."""
    if between is None or not _is_narrow(between):
        return NORMAL
    low, high = between
    return (high + low) / 2, (high - low) / 6


def _is_narrow(between: tuple[float, float] | None) -> bool:
    """False of a range that takes normal numbers as they are; its ends are rare values of calibration."""
    return between is not None and (between[0] > -3 or between[1] < 3)
