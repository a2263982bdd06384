"""A plan or model and its data in a second file change in one step: whatever else writes, reads,
fails or ends a process meanwhile, the old pair or a new one is there, and the next save tidies up.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.pairs import LIMIT, number_of, plan_of

from fqfuse import files
from fqfuse.errors import InvalidInput
from fqfuse.exporter.file import save_model
from fqfuse.plan import beside
from fqfuse.plan.file import save_plan

CALLS = ("open", "write", "fsync", "replace", "unlink")
"""What saving asks the system for, but for locks."""


class Killed(BaseException):
    """The process has ended: nothing that it still does reaches the disk."""


def save_a_plan(number: float, path: Path) -> None:
    save_plan(plan_of(number), path, LIMIT)


def save_a_model(number: float, path: Path) -> None:
    data = numpy_helper.from_array(np.full((64, 64), number, np.float32), "w")
    y = helper.make_tensor_value_info("w", TensorProto.FLOAT, [64, 64])
    save_model(helper.make_model(helper.make_graph([], "g", [], [y], [data])), path, 100)


def number_of_model(path: Path) -> float:
    (tensor,) = onnx.load(path).graph.initializer
    (number,) = set(numpy_helper.to_array(tensor).reshape(-1).tolist())
    return number


@dataclass(frozen=True)
class Kind:
    """How something with a second file is written, and which number lies in what is there."""

    save: Callable[[float, Path], None]
    number: Callable[[Path], float]


KINDS = {"plan": Kind(save_a_plan, number_of), "model": Kind(save_a_model, number_of_model)}


@pytest.fixture(params=KINDS)
def kind(request) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def path(kind: Kind, tmp_path: Path) -> Path:
    target = tmp_path / "pair.onnx"
    kind.save(1, target)
    return target


def is_tidy(path: Path) -> bool:
    """True where the file and its data are all there is."""
    return {*path.parent.iterdir()} == {path, path.with_name(beside.data_of(path))}


def at_each_call(
    patch: pytest.MonkeyPatch, before: Callable[[int], None], calls: Sequence[str] = CALLS
) -> None:
    """Calls `before` with the number of each call to the system, in front of it."""
    count = 0

    def hooked(real):
        def call(*args, **kwargs):
            nonlocal count
            count += 1
            before(count - 1)
            return real(*args, **kwargs)

        return call

    for name in calls:
        patch.setattr(os, name, hooked(getattr(os, name)))


def test_killed_at_each_call(kind: Kind, path: Path) -> None:
    ended = set()
    for last in range(200):

        def kill(at: int, last: int = last) -> None:
            if at >= last:
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            at_each_call(patch, kill)
            try:
                kind.save(2, path)
                whole = True
            except Killed:
                whole = False
        found = kind.number(path)
        ended.add(found)
        assert found == 2 if whole else found in (1, 2), last
        kind.save(1, path)
        assert kind.number(path) == 1
        assert is_tidy(path), last
        if whole:
            break
    assert whole
    assert ended == {1, 2}
    assert last > 10  # both files are opened, written and put into place


def test_disks_of_fifty_sizes(kind: Kind, path: Path) -> None:
    real, needed = os.write, sum(file.stat().st_size for file in path.parent.iterdir())
    ended = []
    for size in range(0, needed + needed // 24, needed // 48):
        left = size

        def write(handle: int, data: memoryview) -> int:
            nonlocal left
            if not left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = real(handle, data[:left])
            left -= written
            return written

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "write", write)
            is_full = pytest.raises(InvalidInput, match="No space left")
            with is_full if size < needed else contextlib.nullcontext():
                kind.save(2, path)
        ended.append(kind.number(path))
        assert is_tidy(path), size
        if ended[-1] == 2:
            kind.save(1, path)
    assert len(ended) >= 50
    assert ended == sorted(ended)
    assert set(ended) == {1, 2}


def is_refused(save: Callable[[], None]) -> bool:
    try:
        save()
    except InvalidInput as error:
        if "locked the folder" not in error.what:
            raise
        return True
    return False


def test_another_save_and_readers_at_each_call(kind: Kind, path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "_WAIT", 0)  # here the other one can wait for nobody
    refused, seen = 0, ("open", "replace", "unlink")  # readers notice no others
    for moment in range(200):
        done = False

        def other(at: int, moment: int = moment) -> None:
            nonlocal done, refused
            hooks.undo()
            assert kind.number(path) in (1, 2, 3), at
            if at == moment:
                done = True
                refused += is_refused(lambda: kind.save(3, path))
            at_each_call(hooks, lambda inner: other(at + 1 + inner), seen)

        with pytest.MonkeyPatch.context() as hooks:
            at_each_call(hooks, other, seen)
            kind.save(2, path)
        assert kind.number(path) == 2 if not done else kind.number(path) in (2, 3), moment
        kind.save(1, path)
        assert is_tidy(path), moment
        if not done:
            break
    assert moment > 7  # both files are opened and put into place
    assert refused < 5  # while the first one removes the old data


def test_plans_that_are_replaced_while_they_are_read(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "plan.onnx"
    save_a_plan(1, path)
    real, left = beside._opened, [3, 2, 3, 2]

    def opened(file: Path) -> memoryview:
        if left:
            save_a_plan(left.pop(), path)
        return real(file)

    monkeypatch.setattr(beside, "_opened", opened)
    assert number_of(path) == 3
    assert not left


def test_data_that_a_copy_names_stays_until_it_goes(tmp_path: Path) -> None:
    path, copy = tmp_path / "plan.onnx", tmp_path / "best"
    save_a_plan(1, path)
    copy.write_bytes(path.read_bytes())
    save_a_plan(2, path)
    assert (number_of(path), number_of(copy)) == (2, 1)
    copy.unlink()
    save_a_plan(3, path)
    assert is_tidy(path)


def running(path: Path, role: str, seconds: float) -> subprocess.Popen:
    code = "from support.pairs import main; main()"
    tests = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", code, str(path), role, str(seconds)]
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": tests}, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow  # processes start, and write and read for some seconds
def test_two_writers_and_three_readers(tmp_path: Path) -> None:
    path = tmp_path / "plan.onnx"
    save_a_plan(1, path)
    roles = ["write", "write", "read", "read", "read"]
    processes = [running(path, role, 2) for role in roles]
    counts = [int(process.communicate()[0]) for process in processes]
    assert not any(process.returncode for process in processes)
    assert min(counts) > 5
    assert is_tidy(path)


@pytest.mark.slow  # processes start
def test_killed_at_random_moments(tmp_path: Path) -> None:
    path, rng = tmp_path / "plan.onnx", np.random.default_rng(7)
    for _ in range(4):
        save_a_plan(1, path)
        with running(path, "write", 60) as process:
            process.stdout.readline()  # it has saved one
            time.sleep(rng.uniform(0, 0.05))
            process.kill()
        assert number_of(path) > 0
        save_a_plan(1, path)
        assert is_tidy(path)
