"""`fqfuse batch` as a person and a program see it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.json_documents import problems


@pytest.fixture
def data(tmp_path: Path, images: np.ndarray) -> Path:
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "a.npz", image=images)
    return tmp_path / "data"


OPTIONS = ("--backend", "numpy", "--threads", "1", "--batch", "3")


def test_batch_says_what_became_of_the_rows(call, plan: Path, data: Path, tmp_path: Path) -> None:
    told = call("batch", plan, "-i", data, "-o", tmp_path / "out", *OPTIONS, "--json")
    assert (told.exit_code, told.stderr) == (0, "")
    document = json.loads(told.stdout)
    assert problems(document) == []
    assert (document["rows"], document["written"], document["bad"]) == (8, 8, 0)
    np.savez(data / "b\x1b[2J.npz", image=np.zeros((2, 1, 8, 7), np.float32))
    told = call("batch", plan, "-i", data, "-o", tmp_path / "more", *OPTIONS)
    assert told.exit_code == 1
    assert "10 rows in, 8 out" in told.stdout
    assert "2 bad rows, listed in" in told.stdout
    assert "b\\x1b[2J.npz, row 0: the array for image has rows of shape [1, 8, 7]" in " ".join(
        told.stdout.split()
    )
    (tmp_path / "one").mkdir()
    np.save(tmp_path / "one" / "a.npy", np.zeros((1, 1, 8, 7), np.float32))
    alone = call("batch", plan, "-i", tmp_path / "one", "-o", tmp_path / "single", *OPTIONS)
    assert "1 row in, 0 out" in alone.stdout
    assert "1 bad row, listed in" in alone.stdout
    again = call("batch", plan, "-i", data, "-o", tmp_path / "more", *OPTIONS, "--max-bad", "2")
    assert again.exit_code == 0
    assert "1 of 1 parts were done before" in again.stdout


@pytest.mark.each_case
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--column", "image"), "'image' names no column for an input"),
        (("--column", "x=y"), "the model has no input x"),
        (("--mean", "0.5;1"), "'0.5;1' gives no numbers for the channels"),
        (("--std", "0"), "'0' gives no numbers for the channels"),
        (("--keep", "id"), "columns are kept of Parquet alone"),
        (("--engine", "slurm"), "there is no engine 'slurm'"),
        (("--workers", "0"), "'0' is no number of workers"),
    ],
)
def test_wrong_words_are_refused(
    call, plan: Path, data: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    told = call("batch", plan, "-i", data, "-o", tmp_path / "out", *options)
    assert told.exit_code == 2
    assert message in told.stderr
    assert not (tmp_path / "out").exists()
