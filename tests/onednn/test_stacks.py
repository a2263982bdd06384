"""Stacks are the user's to choose (threading.stack_size, OMP_STACKSIZE): no kernel of ours takes more
than a page of one, and runs give the same bytes on the smallest that Python allows.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.machine_code import Lines, listed
from support.onnx_cases import model, node
from support.packed_models import Net, Scheme

from fqfuse.onednn.library import Library
from fqfuse.onednn.lookup_kernel import lookup_kernel
from fqfuse.onednn.recurrent_kernel import lstm_kernel

PAGE = 4096
LEAST_STACK = 32 * 1024
"""What threading.stack_size takes at least."""

Feeds = Mapping[str, np.ndarray]
Case = tuple[onnx.ModelProto, Feeds]


# -- listings --------------------------------------------------------------------------------------


LISTINGS = {f"{name}.{function}": lines for name, function, lines in listed()}

_MOVES = {
    r"push \w+": 8,
    r"sub rsp, (0x[0-9a-f]+)": None,  # as many as it says
    r"and rsp, 0xffffffffffffffc0": 64,
    r"(pop \w+|leave|add rsp, 0x[0-9a-f]+|lea rsp, \[rbp-0x[0-9a-f]+\])": 0,  # back again
}
"""Instructions that move the stack's end, and by how many bytes at most."""

_CALLS = {r"call (qword ptr \[r\w+\]|r\w+)": 8}
"""Of a function that is told by its address, and whose stack is its own."""

CALLERS = {"call_loop.call_all", "call_loop.share"}
"""What is there to call functions that it is given; a kernel calls none."""


def frame(lines: Lines, *, calls: bool = False) -> int:
    """Bytes of stack that a function takes, which may call others; it moves the stack's end in no other way."""
    moves = _MOVES | (_CALLS if calls else {})
    taken = 128  # which a function may use below the stack's end without a word
    for _, _, text in lines:
        for form, count in moves.items():
            if move := re.fullmatch(form, text):
                taken += int(move[1], 16) if count is None else count
                break
        else:
            first, _, rest = text.partition(" ")
            assert first not in ("push", "pop", "call", "enter", "leave"), text
            assert rest.partition(",")[0] not in ("rsp", "esp", "sp"), text
    return taken


@pytest.mark.parametrize("name", LISTINGS)
def test_a_kernel_takes_less_than_a_page_of_stack(name: str) -> None:
    assert frame(LISTINGS[name], calls=name in CALLERS) < PAGE


@pytest.mark.parametrize("name", sorted(CALLERS))
def test_what_calls_is_seen(name: str) -> None:
    with pytest.raises(AssertionError, match="call "):
        frame(LISTINGS[name])


@pytest.mark.parametrize(
    "text", ["sub rsp, rax", "mov rsp, rdi", "call .+0x20", "lea rsp, [rsp-0x8000]"]
)
def test_a_stack_that_grows_in_another_way_is_seen(text: str) -> None:
    with pytest.raises(AssertionError):
        frame([(0, "", text)], calls=True)
    assert frame([(0, "", "push rbp"), (1, "", "sub rsp, 0x1000")]) > PAGE


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
    session = fqfuse.InferenceSession(plan, "onednn", threads)
    wanted = session.run(None, feeds)
    threading.stack_size(least)
    found = on_a_small_stack(lambda: session.run(None, feeds))
    threading.stack_size(0)
    assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted], path.stem
    for placed in session.placement():
        print(placed.step.op, placed.implementation, end="; ")
    print(flush=True)
"""


def product(rows: int, scheme: Scheme) -> Case:
    """[rows, 160] times packed weights [160, 96]."""
    net = Net(scheme)
    proto = net.model(net.linear("x", 160, 96, bias=False), (rows, 160))
    return proto, {"x": np.random.default_rng(rows).standard_normal((rows, 160)).astype(np.float32)}


def lookup() -> Case:
    """A swish of codes, which is a table."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        node("Sigmoid", ["d"], ["a"]),
        node("Mul", ["d", "a"], ["m"]),
        node("QuantizeLinear", ["m", "s", "z"], ["y"]),
    ]
    constants = {"s": np.float32(0.05), "z": np.uint8(100)}
    x = np.random.default_rng(0).integers(0, 256, (9, 400)).astype(np.uint8)
    types = {"x": onnx.TensorProto.UINT8}
    return model(nodes, inputs={"x": x.shape}, constants=constants, types=types), {"x": x}


def lstm(batch: int) -> Case:
    """f32, both directions."""
    rng = np.random.default_rng(batch)
    constants = {
        "w": rng.normal(0, 0.1, (2, 4 * 40, 24)).astype(np.float32),
        "r": rng.normal(0, 0.1, (2, 4 * 40, 40)).astype(np.float32),
    }
    nodes = [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=40, direction="bidirectional")]
    x = rng.standard_normal((12, batch, 24)).astype(np.float32)
    return model(nodes, inputs={"x": x.shape}, constants=constants), {"x": x}


def dynamic_lstm() -> Case:
    """Quantized as it runs, both directions."""
    rng = np.random.default_rng(5)
    constants: dict[str, np.ndarray] = {}
    for name, size in (("w", 24), ("r", 40)):
        constants[name] = rng.integers(-127, 128, (2, size, 4 * 40)).astype(np.int8)
        constants[f"{name}_scale"] = np.full(2, 0.002, np.float32)
        constants[f"{name}_zero"] = np.zeros(2, np.int8)
    inputs = ["x", "w", "r", "", "", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"]
    layer = node(
        "DynamicQuantizeLSTM",
        inputs,
        ["y"],
        domain="com.microsoft",
        hidden_size=40,
        direction="bidirectional",
    )
    x = rng.standard_normal((12, 3, 24)).astype(np.float32)
    domains = {"com.microsoft": 1}
    proto = model([layer], inputs={"x": x.shape}, constants=constants, domains=domains)
    return proto, {"x": x}


CODED = "packed codes by avx512_core_"  # vnni, or amx
ROWS = "packed rows by avx512_core"
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
            ("block decode_columns", 8, 16, "decoded by avx512_core"),
        )
    },
    "lookup": (lookup(), "Lookup"),
    "f32 lstm_sequence": (lstm(1), "LSTM by avx512_core"),
    "f32 lstm_steps": (lstm(3), "LSTM by avx512_core"),
    "quantize and lstm_steps": (dynamic_lstm(), "DynamicQuantizeLSTM by avx512_core_vnni"),
}
"""Kernel -> a model that it runs, and what the placement says of it."""


@pytest.mark.parametrize("threads", [1, 2])
def test_runs_on_the_smallest_stack(library: Library, threads: int, tmp_path: Path) -> None:
    """The first thread of a run has what Python gives it, the others what OpenMP does."""
    if lookup_kernel(library.effective_isa()) is None or lstm_kernel(library) is None:
        pytest.skip("the CPU lacks AVX-512 with VNNI, or the system refuses memory for code")
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
