"""Stacks are the user's to choose (threading.stack_size, OMP_STACKSIZE): no kernel of ours takes more
than a page of one, and runs give the same bytes on the smallest that Python allows.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.kernel_models import dynamic_lstm, lookup, lstm, product
from support.packed_models import Scheme

import fqfuse
from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Library
from fqfuse.onednn.native import missing

PAGE = 4096
LEAST_STACK = 32 * 1024
"""What threading.stack_size takes at least."""

# -- frames ----------------------------------------------------------------------------------------


SOURCES = Path(fqfuse.__file__).parent / "onednn" / "native"


@pytest.mark.slow
@pytest.mark.parametrize("source", sorted(path.name for path in SOURCES.glob("*.c")))
def test_a_function_takes_less_than_a_page_of_stack(source: str, tmp_path: Path) -> None:
    """Every frame has a bound; what is called is inlined, or has a frame that is counted as well."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("not installed: gcc")
    includes = [f"-I{sysconfig.get_path('include')}"]
    made = tmp_path / "made.o"
    command = [gcc, "-O2", "-fPIC", "-fstack-usage", *includes, "-c", SOURCES / source, "-o", made]
    subprocess.run(command, check=True)
    frames = [line.split("\t") for line in made.with_suffix(".su").read_text().splitlines()]
    assert all(kind != "dynamic" for _, _, kind in frames)  # bounded, or static
    assert max((int(size) for _, size, _ in frames), default=0) < PAGE - 512


# -- runs ------------------------------------------------------------------------------------------


SCRIPT = """
import json, sys, threading
from pathlib import Path
import numpy as np
import fqfuse

folder, threads, least, dynamic = Path(sys.argv[1]), *map(int, sys.argv[2:4]), json.loads(sys.argv[4])


def on_a_small_stack(call):
    found = []
    thread = threading.Thread(target=lambda: found.extend(call()))
    thread.start()
    thread.join()
    return found


for path in sorted(folder.glob("*.onnx")):
    print(path.stem, end=": ", flush=True)
    feeds = dict(np.load(path.with_suffix(".npz")))
    plan = fqfuse.compile(path, dynamic=dynamic.get(path.stem))
    session = fqfuse.InferenceSession(plan, "auto", threads)
    wanted = session.run(None, feeds)
    threading.stack_size(least)
    found = on_a_small_stack(lambda: session.run(None, feeds))
    threading.stack_size(0)
    assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted], path.stem
    for placed in session.placement():
        print(placed.step.op, placed.implementation, end="; ")
    print(flush=True)
"""


CODED = "packed codes by "
ROWS = "packed rows by "
CASES = {
    **{
        f"{name} of {bits} bits": (product(rows, Scheme("nbits", bits, block)), told)
        for bits in (4, 8)
        for name, rows, block, told in (
            ("coded multiply_codes", 40, 32, CODED),
            ("coded multiply_row", 1, 32, CODED),
            ("block multiply_row", 1, 32, ROWS),
            ("block multiply_rows", 8, 32, ROWS),
            ("block multiply_columns", 40, 32, ROWS),
            ("block decode_columns", 8, 16, "decoded by "),
        )
    },
    "lookup": (lookup(), "Lookup"),
    "f32 lstm_sequence": (lstm(1), "LSTM by "),
    "f32 lstm_steps": (lstm(3), "LSTM by "),
    "quantize and lstm_steps": (dynamic_lstm(), "DynamicQuantizeLSTM by "),
}
"""Kernel -> a model that it runs, and what the placement says of it."""


@pytest.mark.parametrize("threads", [1, 2])
def test_runs_on_the_smallest_stack(library: Library, threads: int, tmp_path: Path) -> None:
    """The first thread of a run has what Python gives it, the others what OpenMP does."""
    if missing():
        pytest.skip(f"no functions in C: {missing()}")
    if library.effective_isa() & CpuIsa.avx2 != CpuIsa.avx2:
        pytest.skip("a CPU without AVX2")
    for name, ((proto, feeds), _) in CASES.items():
        onnx.save(proto, tmp_path / f"{name}.onnx")
        np.savez(tmp_path / f"{name}.npz", **feeds)
    dynamic = json.dumps({name: "matmul" for name in CASES if name.startswith("coded")})
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), str(threads), str(LEAST_STACK), dynamic],
        env={**os.environ, "OMP_STACKSIZE": f"{LEAST_STACK}B"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    # what ran last, where a stack was too small
    assert ran.returncode == 0, [*ran.stdout.splitlines()[-1:], ran.stderr]
    told = dict(line.split(": ", 1) for line in ran.stdout.splitlines())
    assert told.keys() == CASES.keys()
    assert {
        name: told[name] for name, (_, wanted) in CASES.items() if wanted not in told[name]
    } == {}
