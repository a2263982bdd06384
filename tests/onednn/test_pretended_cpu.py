"""`support/without_vnni.c`, by which tests run as on a CPU without VNNI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

SEEN = """
import os, threading
from fqfuse.onednn.loading import load
from support.judge import saturates

def look():
    print(load().effective_isa().name, saturates(), flush=True)

look()
thread = threading.Thread(target=look)
thread.start()
thread.join()
if not (child := os.fork()):
    look()
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("it is for Linux on x86-64, and wants a C compiler")
    made = tmp_path_factory.mktemp("preload") / "without_vnni.so"
    source = TESTS / "support" / "without_vnni.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source], check=True)
    if under(made, "AVX2", "-c", "").returncode == 70:
        pytest.skip("this kernel or this CPU lets no program see an older CPU")
    return made


def under(preload: Path, cpu: str, *told: str) -> subprocess.CompletedProcess[str]:
    """Python under the preload."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "PRETEND_CPU": cpu,
        "LD_PRELOAD": str(preload),
    }
    command = [sys.executable, *told]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("cpu", ["AVX512_CORE", "AVX2"])
def test_both_libraries_see_it_in_threads_and_forked_processes(preload: Path, cpu: str) -> None:
    ran = under(preload, cpu, "-c", SEEN)
    first, *others = ran.stdout.splitlines()
    assert first in (f"{cpu.lower()} True", "avx2 True"), ran.stderr
    assert others == [first, first]


def test_a_fault_of_the_program_is_its_own(preload: Path) -> None:
    fault = "import ctypes; ctypes.string_at(0)"
    assert under(preload, "AVX2", "-c", fault).returncode < 0
    told = under(preload, "AVX2", "-X", "faulthandler", "-c", fault)
    assert told.returncode < 0
    assert "Segmentation fault" in told.stderr


def test_another_name_of_a_cpu_is_refused(preload: Path) -> None:
    ran = under(preload, "AVX512_CORE_VNNI", "-c", "print('runs')")
    assert (ran.returncode, ran.stdout) == (70, "")
    assert "PRETEND_CPU is AVX512_CORE or AVX2" in ran.stderr
