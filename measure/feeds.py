"""Inputs that nobody gave: made of the types that the model declares."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..errors import InvalidInput
from ..ir.ops.spec import Array
from ..ir.types import DType, TensorType
from ..plan.types import Plan
from ..runtime.foreign_types import in_type
from ..runtime.processors import run_budget

Kind = range | tuple[float, float]
"""What an input is made of: whole numbers of a range, each as likely as the others, or normally
distributed ones by their mean and standard deviation.
"""

ZEROS, ONES, CODES = range(1), range(1, 2), range(256)
NORMAL = (0.0, 1.0)

_SEED = 0


def made_feeds(plan: Plan, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Inputs of the declared types: floats from the normal distribution, 8-bit codes of the whole
    range, and 1 for every other integer and truth value, which is a token, a position, a length and a
    mask of almost any model.

    Args:
        plan: the plan.
        sizes: of what the inputs leave open; what is not in it counts as 1.

    Raises:
        InvalidInput: an input holds strings or is of unknown rank, or is larger than a run may be.
    """
    shapes = {name: _shape(name, plan.type(name), sizes) for name in plan.inputs}
    run_budget().check(plan, shapes)
    rng = np.random.default_rng(_SEED)
    types = {name: plan.type(name).dtype for name in shapes}
    return {
        name: drawn_array(rng, types[name], shape, _kind(types[name]))
        for name, shape in shapes.items()
    }


def _shape(name: str, type_: TensorType, sizes: Mapping[str, int]) -> tuple[int, ...]:
    if type_.shape is None or type_.dtype is DType.STRING:
        what = "holds strings" if type_.dtype is DType.STRING else "is of unknown rank"
        raise InvalidInput(
            f"the input {what}, so that nothing can be made up for it",
            where=f"input {name}",
            hint="give arrays: feeds={name: array}, or --data FILE.npz on the command line",
        )
    return tuple(dim if isinstance(dim, int) else sizes.get(dim, 1) for dim in type_.shape)


def _kind(dtype: DType) -> Kind:
    if dtype.is_code:
        return CODES
    return NORMAL if dtype.is_float else ONES


def drawn_array(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], kind: Kind
) -> Array:
    """An array for an input: whole numbers of a range, or normally distributed ones."""
    if isinstance(kind, range):
        return in_type(rng.integers(kind.start, kind.stop, shape), dtype)
    mean, deviation = kind
    return in_type(rng.standard_normal(shape) * deviation + mean, dtype)
