"""The libraries that only batches need: imported when they are, and never without a plain error."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import BackendUnavailable

_EXTRAS = {"pyarrow": "batch", "PIL": "batch", "ray": "ray"}


def library(module: str, purpose: str) -> Any:
    """A module of pyarrow, Pillow or Ray.

    Args:
        module: such as `pyarrow.parquet`.
        purpose: what it is needed for, as "Parquet is read with pyarrow".

    Raises:
        BackendUnavailable: it is not installed, or cannot be loaded here.
    """
    extra = _EXTRAS[module.partition(".")[0]]
    try:
        return import_module(module)
    except ImportError as error:
        raise BackendUnavailable(
            f"{purpose}, and it cannot be imported: {error}",
            where=module,
            hint=f'install it: pip install "fqfuse[{extra}]"',
        ) from error
