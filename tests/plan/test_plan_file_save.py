"""Saving is atomic: either the whole new file is there, or what was there before, and never
anything else.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.plan_strategies import full_plan, tiny_plan

from fqfuse import files
from fqfuse.errors import InvalidInput
from fqfuse.files import write_atomically
from fqfuse.plan.file import plan_bytes, read_plan, save_plan

OLD = b"what was there before"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An existing file in a folder of its own."""
    target = tmp_path / "plan.onnx"
    target.write_bytes(OLD)
    return target


def untouched(path: Path) -> bool:
    """The old file is there, and nothing beside it."""
    return path.read_bytes() == OLD and list(path.parent.iterdir()) == [path]


def test_an_existing_plan_is_replaced(path):
    save_plan(full_plan(), path)
    assert read_plan(path) == full_plan()
    save_plan(tiny_plan(), path)
    assert read_plan(path) == tiny_plan()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_full_disk_leaves_the_old_file(path, monkeypatch, code):
    real = os.write

    def full(handle: int, data: memoryview) -> int:
        if len(data) > 100:
            return real(handle, data[:100])
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.os, "write", full)
    with pytest.raises(InvalidInput) as caught:
        save_plan(tiny_plan(), path)
    assert os.strerror(code) in caught.value.what
    assert caught.value.where == str(path)
    assert caught.value.hint
    assert untouched(path)


def test_a_real_limit_on_the_size_of_files_leaves_the_old_file(path):
    code = (
        "import fqfuse, resource, signal, sys; sys.path.insert(0, sys.argv[1]); from support.plan_strategies import full_plan\n"
        "from fqfuse.errors import InvalidInput\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: fqfuse.save_plan(full_plan(), sys.argv[2])\n"
        "except InvalidInput as error: print(error)\n"
    )
    tests = str(Path(__file__).parents[1])
    # -B: the interpreter would write cut-off caches of what it imports
    run = subprocess.run(
        [sys.executable, "-B", "-c", code, tests, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (
        run.stdout
        == f"the file cannot be written: File too large\n  where: {path}\n  fix:   name another path\n"
    )
    assert untouched(path)


@pytest.mark.parametrize("call", ["fsync", "fchmod"])
def test_a_failure_behind_the_last_byte_leaves_the_old_file(path, monkeypatch, call):
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(files.os, call, fail)
    with pytest.raises(InvalidInput, match="broken disk"):
        save_plan(tiny_plan(), path)
    assert untouched(path)


def test_an_interrupt_leaves_the_old_file(path, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_plan(tiny_plan(), path)
    assert untouched(path)


def test_an_unsound_plan_leaves_the_old_file(path):
    plan = tiny_plan()
    with pytest.raises(Exception, match="not sound"):
        save_plan(type(plan)(**{**vars(plan), "outputs": ()}), path)
    assert untouched(path)


@pytest.mark.parametrize(
    ("place", "what", "hint"),
    [
        (
            "missing/plan.onnx",
            "No such file or directory",
            "create the folder first, or name another path",
        ),
        (
            "plan.onnx/plan.onnx",
            "Not a directory",
            "a part of the path is a file: name another path",
        ),
        (".", "Is a directory", "it is a folder: name a file in it"),
        ("x" * 300, "File name too long", "choose a shorter name"),
    ],
)
def test_a_path_that_cannot_be_written_gets_a_remedy(path, place, what, hint):
    wanted = path.parent / place
    with pytest.raises(InvalidInput) as caught:
        save_plan(tiny_plan(), wanted)
    assert (
        str(caught.value)
        == f"the file cannot be written: {what}\n  where: {wanted}\n  fix:   {hint}"
    )
    assert untouched(path)


def test_a_folder_without_the_right_to_write_gets_a_remedy(path, monkeypatch):
    real = os.open

    def refuse(name: object, flags: int, *rest: int) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(name, flags, *rest)  # type: ignore[arg-type]

    # simulated: a test that runs as root may write everywhere
    monkeypatch.setattr(files.os, "open", refuse)
    with pytest.raises(InvalidInput, match="Permission denied") as caught:
        save_plan(tiny_plan(), path)
    assert "get the right to write" in caught.value.hint
    assert untouched(path)


@pytest.mark.skipif(
    os.geteuid() == 0, reason="root may write everywhere; the test above simulates the refusal"
)
def test_a_read_only_folder_gets_a_remedy(path):
    path.parent.chmod(0o500)
    try:
        with pytest.raises(InvalidInput, match="Permission denied"):
            save_plan(tiny_plan(), path)
    finally:
        path.parent.chmod(0o700)
    assert untouched(path)


def test_what_is_no_file_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for special in (pipe, Path("/dev/null")):
        with pytest.raises(InvalidInput, match="not a regular file"):
            save_plan(tiny_plan(), special)
        assert not stat.S_ISREG(special.stat().st_mode)


def test_what_a_file_may_do_as_its_owner_is_not_kept(path):
    path.chmod(0o7755)
    save_plan(tiny_plan(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_permissions_are_those_of_the_old_file_or_of_the_umask(path, tmp_path):
    path.chmod(0o640)
    save_plan(tiny_plan(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    fresh = tmp_path / "fresh.onnx"
    old = os.umask(0o027)
    try:
        save_plan(tiny_plan(), fresh)
    finally:
        os.umask(old)
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o640


def test_a_link_keeps_pointing_where_it_points(path, tmp_path):
    link = tmp_path / "link.onnx"
    link.symlink_to(path)
    save_plan(tiny_plan(), link)
    assert link.is_symlink()
    assert path.read_bytes() == plan_bytes(tiny_plan())


def test_a_name_of_the_greatest_length_can_be_written(tmp_path):
    target = tmp_path / ("x" * 255)
    write_atomically(target, b"data")
    assert target.read_bytes() == b"data"
    write_atomically(tmp_path / ("🦜" * 63), b"data")


def test_a_relative_path_is_one_of_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_plan(tiny_plan(), "plan.onnx")
    assert read_plan("plan.onnx") == tiny_plan()


def test_two_writers_of_one_path_leave_one_whole_file(tmp_path):
    code = (
        "import fqfuse, sys; sys.path.insert(0, sys.argv[1]); from support import plan_strategies\n"
    )
    code += "plan = getattr(plan_strategies, sys.argv[3])()\n"
    code += "for _ in range(30): fqfuse.save_plan(plan, sys.argv[2])"
    target = tmp_path / "plan.onnx"
    arguments = [sys.executable, "-c", code, str(Path(__file__).parents[1]), str(target)]
    writers = [subprocess.Popen([*arguments, name]) for name in ("full_plan", "tiny_plan")]
    while any(writer.poll() is None for writer in writers):
        if target.exists():
            # every read in between sees a whole plan
            assert read_plan(target).name in (
                "everything",
                "tiny",
            )
    assert [writer.wait() for writer in writers] == [0, 0]
    assert list(tmp_path.iterdir()) == [target]
