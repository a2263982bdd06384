"""Nothing at import or in the NumPy runtime takes the machine for an x86 with Linux."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fqfuse
from fqfuse.models.digits import digits_test_set

ROOT = Path(__file__).parents[2]

# What the other systems do not have is taken away before fqfuse is imported; what numpy and onnx make of
# the real machine is theirs.
PROGRAM = """
import os, platform, sys
import asyncio, ctypes, mmap, multiprocessing, subprocess, zipfile
import google.protobuf, networkx, numpy as np, onnx, rich.console, threadpoolctl, typer
system, machine, missing = sys.argv[1:4]
platform.machine = lambda: machine
sys.platform = system
for name in missing.split(","):
    owner, _, name = name.rpartition(".")
    owner = sys.modules[owner]
    if hasattr(owner, name):
        delattr(owner, name)
def no_library(*_, **__):
    raise OSError("no such library")
ctypes.CDLL = no_library
import fqfuse
from fqfuse.models.digits import digits_model_path, digits_test_set
images = digits_test_set()[0][:4]
plan = fqfuse.compile(digits_model_path("qdq"))
fqfuse.save_plan(plan, "plan.onnx")
fqfuse.save_plan(plan, "plan.onnx")  # over an old file
fqfuse.save_plan(plan, "large.onnx", limit=0)  # as one of more than 2 GiB, with a second file
assert fqfuse.load_plan("large.onnx") == plan
assert fqfuse.findings(plan) is not None
session = fqfuse.InferenceSession("plan.onnx", "auto")
session.run(None, {"image": images})[0].tofile("logits")
print(session.backend)
try:
    fqfuse.InferenceSession("plan.onnx", "onednn")
except fqfuse.BackendUnavailable as error:
    print(error)
"""

LINUX_ONLY = "os.sched_getaffinity"
POSIX_ONLY = (
    "os.sysconf,os.fchmod,os.getloadavg,os.register_at_fork,os.fork,os.O_DIRECTORY,os.O_CLOEXEC"
)
WINDOWS = (
    f"{LINUX_ONLY},{POSIX_ONLY},os.O_NONBLOCK,os.O_NOFOLLOW,os.pread,os.preadv,"
    "mmap.PROT_READ,mmap.PROT_EXEC,mmap.MAP_PRIVATE,mmap.MAP_ANONYMOUS"
)


@pytest.mark.each_case
@pytest.mark.parametrize(
    ("system", "machine", "missing"),
    [
        ("linux", "x86_64", "os.none"),
        ("linux", "aarch64", "os.none"),
        ("darwin", "arm64", LINUX_ONLY),
        ("win32", "AMD64", WINDOWS),
    ],
    ids=lambda text: text.partition(",")[0],
)
def test_plans_are_made_saved_and_run_by_numpy(
    tmp_path: Path, system: str, machine: str, missing: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, system, machine, missing],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("numpy\n")
    if (system, machine) != ("linux", "x86_64"):
        assert f"this is {system} on {machine}" in ran.stdout
    session = fqfuse.InferenceSession(tmp_path / "plan.onnx", "numpy")
    (expected,) = session.run(None, {"image": digits_test_set()[0][:4]})
    assert (tmp_path / "logits").read_bytes() == expected.tobytes()


def test_the_container_is_slim_runs_as_nobody_special_and_has_openmp() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    stages = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert stages
    assert all(stage.endswith("-slim") for stage in stages)
    assert [line for line in lines if line.startswith("USER ")] == ["USER fqfuse"]
    assert any("libgomp1" in line for line in lines if line.startswith("RUN "))
