"""The weights argument of a product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ...onednn.enums import DataType
from ...onednn.memory import Memory, MemoryDesc
from .values import Values, Wanted


@dataclass(frozen=True)
class Weights:
    """The weights argument.

    Attributes:
        name: the plan's constant or value.
        dims, dtype: what the primitive sees.
        form: how the constant becomes it, in words: with the name it identifies the content.
        data: gives the weights in the primitive's shape; None where they are computed at run time.
    """

    name: str
    dims: tuple[int, ...]
    dtype: DataType
    form: str
    data: Callable[[], NDArray[Any]] | None

    @classmethod
    def of(
        cls,
        binder: Values,
        name: str,
        dims: tuple[int, ...],
        view: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
        form: str = "weights",
    ) -> Weights:
        """Weights of the plan, reshaped or seen by `view`."""

        def data() -> NDArray[Any]:
            array = binder.constants.data(name)
            return array.reshape(dims) if view is None else view(array)

        constant = data if binder.is_constant(name) else None
        return cls(name, dims, binder.dtype(name), f"{form} {list(dims)}", constant)

    def argument(self, binder: Values, desc: MemoryDesc) -> Wanted | Memory:
        """The weights in the layout `desc`: packed once when constant."""
        if self.data is None:
            return Wanted(self.name, desc)
        return binder.constants.packed(self.name, self.form, self.data(), desc)
