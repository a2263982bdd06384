"""Feeds as stacked arrays: one file holds many inputs along a common first axis."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]


def split_feeds(stacked: Feeds) -> Iterator[dict[str, Array]]:
    """Yield one feed of batch 1 for each index of the common first axis."""
    count = len(next(iter(stacked.values())))
    for index in range(count):
        yield {
            name: np.ascontiguousarray(value[index : index + 1]) for name, value in stacked.items()
        }


def save_arrays(path: Path, arrays: Feeds) -> None:
    """Write arrays by name, uncompressed, never pickled."""
    # numpy.savez takes names as keyword arguments, and an input may be called `file`.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def load_arrays(path: Path) -> dict[str, Array]:
    """Read what ``save_arrays`` wrote."""
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)
