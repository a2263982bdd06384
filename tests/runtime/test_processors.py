"""The default number of threads: processors that the process is bound to, within its container's
quota.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fqfuse.runtime import processors
from fqfuse.runtime.processors import default_threads, machine_bytes, quota


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def test_version_2(tmp_path: Path, own: Path) -> None:
    own.write_text("0::/kubepods/pod1\n")
    group(tmp_path / "fs", cpu__max="max 100000\n")
    group(tmp_path / "fs" / "kubepods", cpu__max="400000 100000\n")
    group(tmp_path / "fs" / "kubepods" / "pod1", cpu__max="150000 100000\n")
    assert quota(tmp_path / "fs", own) == 1.5
    group(tmp_path / "fs" / "kubepods" / "pod1", cpu__max="max 100000\n")
    assert quota(tmp_path / "fs", own) == 4


def test_version_2_in_a_namespace_of_its_own(tmp_path: Path, own: Path) -> None:
    own.write_text("0::/\n")
    group(tmp_path / "fs", cpu__max="200000 100000\n")
    assert quota(tmp_path / "fs", own) == 2


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_version_1_whose_own_group_is_mounted_as_the_root(
    tmp_path: Path, own: Path, mount: str
) -> None:
    own.write_text("12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n")
    group(tmp_path / "fs" / mount, cpu__cfs_quota_us="300000\n", cpu__cfs_period_us="100000\n")
    assert quota(tmp_path / "fs", own) == 3
    group(tmp_path / "fs" / mount, cpu__cfs_quota_us="-1\n")
    assert quota(tmp_path / "fs", own) is None


def test_memory(tmp_path: Path, own: Path) -> None:
    own.write_text("12:memory:/docker/abc\n0::/pod\n")
    whole = machine_bytes(tmp_path / "fs", own)
    assert whole == machine_bytes(tmp_path / "fs", tmp_path / "no such file") >= 1 << 20
    group(tmp_path / "fs" / "memory", memory__limit_in_bytes="2097152\n")
    assert machine_bytes(tmp_path / "fs", own) == 2 << 20
    group(tmp_path / "fs", memory__max="1048576\n")
    group(tmp_path / "fs" / "pod", memory__max="max\n")
    assert machine_bytes(tmp_path / "fs", own) == 1 << 20
    group(tmp_path / "fs", memory__max="max\n")
    # version 1 says so where there is no limit
    group(tmp_path / "fs" / "memory", memory__limit_in_bytes="9223372036854771712\n")
    assert machine_bytes(tmp_path / "fs", own) == whole


@pytest.mark.parametrize("text", ["", "max", "a b\n", "0 100000", "100000 0", "1 2 3"])
def test_what_says_no_limit(tmp_path: Path, own: Path, text: str) -> None:
    own.write_text("0::/\n")
    group(tmp_path / "fs", cpu__max=text)
    assert quota(tmp_path / "fs", own) is None
    assert quota(tmp_path / "fs", tmp_path / "no such file") is None
    assert quota(tmp_path / "no such folder", own) is None


def test_a_path_that_leaves_the_mount_is_not_followed_above_it(tmp_path: Path, own: Path) -> None:
    own.write_text("0::/../outside\n")
    group(tmp_path / "outside", cpu__max="100000 100000")
    group(tmp_path / "fs", cpu__max="200000 100000")
    # whichever: it ends, and gives a limit that stands there
    assert quota(tmp_path / "fs", own) in (
        1,
        2,
    )


@pytest.mark.parametrize(("paid", "expected"), [(None, 8), (2.0, 2), (2.9, 2), (0.5, 1), (64.0, 8)])
def test_default(monkeypatch: pytest.MonkeyPatch, paid: float | None, expected: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(processors, "quota", lambda: paid)
    assert default_threads() == expected
