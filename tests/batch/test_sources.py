"""Which files are the data: all of them, or a word about what stands in the way."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fqfuse.batch.reading import Reading
from fqfuse.batch.sources import data_set
from fqfuse.errors import InvalidInput


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data" / "below").mkdir(parents=True)
    np.save(tmp_path / "data" / "below" / "b.npy", np.zeros((2, 3)))
    return tmp_path / "data"


def names(folder: Path) -> list[str]:
    return [file.name for file in data_set(folder, {"x": 2}, Reading()).files]


def linked(link: Path, target: Path) -> None:
    try:
        link.symlink_to(target, target_is_directory=True)
    except OSError as error:  # Windows gives the right to few
        pytest.skip(f"links cannot be made here: {error}")


def test_folders_that_are_links_are_searched(data: Path, tmp_path: Path) -> None:
    """Their rows would be missing, in silence."""
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    np.save(tmp_path / "elsewhere" / "deep" / "c.npy", np.zeros((2, 3)))
    linked(data / "other disk", tmp_path / "elsewhere")
    linked(data / "_left out", tmp_path / "elsewhere")
    assert names(data) == ["below/b.npy", "other disk/deep/c.npy"]


@pytest.mark.parametrize("steps", [1, 2])
def test_links_that_lead_around_in_a_circle_are_told(data: Path, steps: int) -> None:
    (data / "second").mkdir()
    linked(data / "below" / "link", data if steps == 1 else data / "second")
    linked(data / "second" / "back", data / "below")
    with pytest.raises(InvalidInput, match="leads back to a folder that it lies in"):
        names(data)


def test_a_folder_that_cannot_be_read_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("below"):
            raise PermissionError(13, os.strerror(13), path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(InvalidInput, match="may not be read") as told:
        names(data)
    assert told.value.where == str(data / "below")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_among_the_files_is_told(data: Path) -> None:
    """To open it would wait for ever."""
    os.mkfifo(data / "a.npy")
    with pytest.raises(InvalidInput, match="not a regular file"):
        names(data)
