"""Whether what is made executes, with any values that its types hold.

`refused(seed)` draws a primitive, empties a dimension of it now and then, and executes it on each
engine that makes it.

    python -m laws.executions FIRST COUNT      prints what is not executed, and how many were drawn
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from laws.primitives import Drawn, draw, made

from fqfuse.errors import FqfuseError, InvalidInput
from fqfuse.ir.ops.elementwise import round_to_bf16
from fqfuse.ir.types import DType
from fqfuse.onednn.capi import OneDnnError
from fqfuse.primitives import Primitive, Scale, ZeroPoint
from fqfuse.primitives.description import at_execution

Array = np.ndarray[Any, np.dtype[Any]]
_LARGE = 2**31 - 1


def drawn_of(seed: int, kind: str | None = None) -> Drawn:
    """A primitive; of every third one a dimension is empty in all tensors that have its size there, and some
    have one more mask.
    """
    drawn, rng = draw(seed, kind), np.random.default_rng((seed, 3))
    if seed % 3 == 0:
        drawn = _emptied(drawn, rng)
    if rng.random() < 0.3:
        drawn = _masked(drawn, rng)
    return drawn


def _emptied(drawn: Drawn, rng: np.random.Generator) -> Drawn:
    tensors = {
        name: word for name, word in drawn.given.items() if isinstance(word, str) and "[" in word
    }
    sizes = word_dims(tensors["dst"])
    axis = int(rng.integers(len(sizes)))
    given = dict(drawn.given)
    for name, word in tensors.items():
        dims = word_dims(word)
        if len(dims) == len(sizes) and dims[axis] in (sizes[axis], 0) and rng.random() < 0.97:
            dims[axis] = 0
            given[name] = f"{word[: word.index('[')]}[{','.join(map(str, dims))}]"
    return replace(drawn, given=given)


def word_dims(word: str) -> list[int]:
    """The sizes that a tensor's text says."""
    return [int(size) for size in word[word.index("[") + 1 : -1].split(",")]


def _masked(drawn: Drawn, rng: np.random.Generator) -> Drawn:
    """With one more zero point or scale, along some dimension."""
    role = str(rng.choice([name for name in ("src", "src_0", "dst") if name in drawn.given]))
    mask = 1 << int(rng.integers(len(word_dims(drawn.given[role]))))
    attr = drawn.attr
    if rng.random() < 0.7:
        attr = replace(attr, zero_points={**attr.zero_points, role: ZeroPoint((), mask)})
    else:
        attr = replace(attr, scales={**attr.scales, role: Scale((), mask)})
    return replace(drawn, attr=attr)


def any_arguments(primitive: Primitive, seed: int) -> dict[str, Array]:
    """Codes and zero points from end to end, floats of any magnitude."""
    rng, found = np.random.default_rng((seed, 4)), dict[str, Array]()
    what = primitive.description
    for name, type_ in {**what.tensors, **what.operands}.items():
        shape, dtype = type_.static_shape, type_.dtype
        if name in what.destinations():
            continue
        if not dtype.is_float:
            low, high = dtype.range
            found[name] = rng.integers(low, high + 1, shape).astype(dtype.numpy)
            continue
        values = (rng.normal(size=shape) * 10.0 ** rng.integers(-6, 6)).astype(np.float32)
        values = np.abs(values) if name == "variance" else values
        found[name] = round_to_bf16(values) if dtype is DType.BF16 else values.astype(dtype.numpy)
    for name, count, kind in at_execution(what):
        most = int(rng.choice([200, _LARGE]))
        values = (
            rng.uniform(0.01, 4, count) if kind is np.float32 else rng.integers(-most, most, count)
        )
        found[name] = values.astype(kind)
    return found


def refused(seed: int, seen: Counter[str], kind: str | None = None) -> str:
    """What an engine makes and does not execute; '' where there is nothing."""
    drawn = drawn_of(seed, kind)
    for engine in ("numpy", "onednn"):
        try:
            primitive = made(drawn, engine)
        except InvalidInput:
            seen["unfit"] += 1
            return ""
        if isinstance(primitive, OneDnnError):
            seen["refused"] += 1
            continue
        seen[engine] += 1
        try:
            with np.errstate(all="ignore"):
                found = primitive.execute(any_arguments(primitive, seed))
        except FqfuseError as error:
            return f"{seed}: {drawn}\n  on {engine}: {error}"
        wanted = primitive.description.tensors["dst"]
        seen["empty"] += not found.size
        if (found.shape, found.dtype) != (wanted.static_shape, wanted.dtype.numpy):
            return f"{seed}: {drawn}\n  on {engine}: {found.dtype}{found.shape}"
    return ""


def main(first: int, count: int) -> None:
    """Prints what is not executed."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            found = refused(seed, seen)
        except Exception as error:  # noqa: BLE001  # for a person at a terminal
            found = f"{seed} {drawn_of(seed)}: {type(error).__name__} {error}"
        if found:
            print(found)
    print(f"{count} primitives, {dict(seen)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
