"""The law of plan files: a plan that loads runs, with the same numbers on both runtimes, or it is
refused with a PlanError.

Mutants (`plan_mutations.py`) of every kind of plan (`plan_corpus.py`) run in processes of their own
(`plan_worker.py`), which may crash, hang or ask for too much. `make test-all` takes the same few
hundred each time, `make fuzz` draws 50,000 anew; a failure names its seed, and `python
plan_worker.py <folder of plans> <seed> 1` runs that one alone.
"""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from laws.budget import some
from support.executor_plans import Builder
from support.plan_corpus import save_plans

import fqfuse
from fqfuse.errors import PlanError
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan import file as plan_file
from fqfuse.plan.attributes import Binary, PrimitiveAttr, Scale
from fqfuse.plan.file import read_plan
from fqfuse.plan.types import Plan, Step

TESTS = Path(__file__).parents[1]
STARTING, RUNNING = 120.0, 10.0
"""Seconds that a process has until its first mutant, on a machine that does other things as well,
and that one mutant has.
"""

FUZZ = not settings.default.derandomize
SHARDS, SIZE = 2, 25_000 if FUZZ else 200
FOREIGN = 100_000 if FUZZ else len(some(range(2_000)))
"""Plans of one foreign node: nine rounds through the operators of ONNX by default, two to four
milliseconds a plan.
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plans of every kind."""
    path = tmp_path_factory.mktemp("plans")
    save_plans(path)
    return path


def run_mutants(command: list[str], first: int, count: int) -> tuple[Counter[str], list[str]]:
    """How often each outcome occurred, and the failures. A process that dies or hangs is replaced,
    and goes on behind its seed.

    Args:
        command: the worker and its own arguments; the first seed and the count come behind them.
        first: the first seed.
        count: how many.
    """
    seen: Counter[str] = Counter()
    failures: list[str] = []
    end = first + count
    while first < end:
        first, words = _run_worker(command, first, end, seen)
        failures += words
    return seen, failures


def _run_worker(
    command: list[str], first: int, end: int, seen: Counter[str]
) -> tuple[int, list[str]]:
    """Runs one process for as long as it lives; the next seed, and the failures."""
    told: list[str] = []
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(TESTS),
    }
    with subprocess.Popen(
        [sys.executable, "-m", *command, str(first), str(end - first)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as worker:
        assert worker.stdout is not None
        rest, limit, started = b"", STARTING, False
        while select.select([worker.stdout], [], [], limit)[0]:
            data = os.read(worker.stdout.fileno(), 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                seed, *words = line.decode(errors="replace").split(" ", 2)
                started, limit = not words, RUNNING
                if words:
                    first = int(seed) + 1
                    seen[words[0]] += 1
                    told += [f"seed {seed}: {words[1]}"] if words[0] == "FAILURE" else []
        worker.kill()
        code = worker.wait()
    if first < end:
        assert started, f"the worker ended with {code} between two mutants"
        seen["FAILURE"] += 1
        told.append(f"seed {first}: it hangs, or died with {code}")
        first += 1
    return first, told


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("part", range(SHARDS))
def test_a_plan_that_loads_runs_alike_on_both_runtimes_or_is_refused(
    folder: Path, part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    first = random.randrange(1 << 40) if FUZZ else part * SIZE  # noqa: S311
    seen, failures = run_mutants(["support.plan_worker", str(folder)], first, SIZE)
    with capsys.disabled():
        if FUZZ:
            print(f"\n{SIZE} mutated plans from seed {first} on: {dict(seen)}")
    assert not failures, "\n".join(failures[:20])
    assert seen.total() == SIZE
    assert seen["ran"] > SIZE / 20  # enough of them got past the verifier to say something


@pytest.mark.hypothesis
def test_a_plan_with_a_hostile_foreign_node_loads_or_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every operator of ONNX; shape inference and the reference evaluator look at a stranger's
    attributes without care.
    """
    first = random.randrange(1 << 20) if FUZZ else 0  # noqa: S311
    seen, failures = run_mutants(["support.foreign_worker"], first, FOREIGN)
    with capsys.disabled():
        if FUZZ:
            print(f"\n{FOREIGN} foreign nodes from seed {first} on: {dict(seen)}")
    assert not failures, "\n".join(failures[:20])
    assert seen.total() == FOREIGN
    assert min(seen["loaded"], seen["refused"]) > FOREIGN / 10  # neither says nothing


# -- cases that were found -------------------------------------------------------------------------


def resealed(plan: Plan) -> bytes:
    """The file of a plan that nobody looked at."""
    return b"".join(plan_file._content(plan, None))


def _lookup_that_adds() -> Plan:
    """The lookup kernel took the second operand for a table of 256 bytes."""
    b = Builder()
    b.input("x", (1, 64), DType.U8)
    b.constant("one", np.ones(1, np.uint8))
    return b.plan(b.step("onnx.Lookup", "Add", {"a": "x", "b": "one"}, "y", DType.U8, (1, 64)))


def _short_table() -> Plan:
    b = Builder()
    b.input("x", (1, 64), DType.U8)
    b.constant("table", np.ones(1, np.uint8))
    return b.plan(
        b.step(
            "onnx.Lookup",
            "Lookup",
            {"x": "x", "table": "table"},
            "y",
            DType.U8,
            (1, 64),
            {"quant": None},
        )
    )


def _wide_codes() -> Plan:
    """A table that is looked up by f32 numbers: four bytes each."""
    b = Builder()
    b.input("x", (1, 64))
    b.constant("table", np.ones(256, np.uint8))
    return b.plan(
        b.step(
            "onnx.Lookup",
            "Lookup",
            {"x": "x", "table": "table"},
            "y",
            DType.U8,
            (1, 64),
            {"quant": None},
        )
    )


def _convolution(weights: np.ndarray, **fields: object) -> Plan:
    values = {"x": TensorType(DType.U8, (1, 2, 4, 4)), "y": TensorType(DType.F32, (1, 2, 4, 4))}
    args = (("src", "x"), ("weights", "w"))
    step = Step(
        "c", "convolution", "Conv", args, ("y",), {}, PrimitiveAttr({"src": Scale((0.5,))}), ("c",)
    )
    return Plan(
        "net",
        "onednn-v3",
        ("x",),
        ("y",),
        values,
        {"w": weights},
        (Step(**{**vars(step), **fields}),),
    )


def _mul_that_adds() -> Plan:
    b = Builder()
    b.input("x", (1, 4))
    return b.plan(
        b.step(
            "binary",
            "Add",
            {"src_0": "x", "src_1": "x"},
            "y",
            DType.F32,
            (1, 4),
            {"algorithm": "mul"},
        )
    )


def _matmul_by_a_number() -> Plan:
    values = {"x": TensorType(DType.U8, (4, 4)), "y": TensorType(DType.F32, (4, 4))}
    attr = PrimitiveAttr({"weights": Scale((0.5,), 1)})
    args = (("src", "x"), ("weights", "w"))
    step = Step("m", "matmul", "MatMul", args, ("y",), {}, attr, ("m",))
    weights = np.array(1, np.int8)
    return Plan("net", "onednn-v3", ("x",), ("y",), values, {"w": weights}, (step,))


CODES = np.ones((2, 2, 1, 1), np.int8)
FOUND = {
    "lookup that adds": (_lookup_that_adds(), "onnx.Lookup y is of the op Add"),
    "lookup in a short table": (_short_table(), "table must have 256 entries"),
    "lookup of wide codes": (_wide_codes(), "x must be one of s8 u8"),
    "binary that does what its op does not": (
        _mul_that_adds(),
        "binary y computes mul, and is of the op Add",
    ),
    "codes times f32": (
        _convolution(CODES.astype(np.float32)),
        "convolution c multiplies u8 by f32",
    ),
    "codes times u8": (_convolution(CODES.astype(np.uint8)), "convolution c multiplies u8 by u8"),
    "bias at run time": (
        _convolution(CODES, args=(("src", "x"), ("weights", "w"), ("bias", "x"))),
        "convolution c computes its bias at run time",
    ),
    "op without a row": (_convolution(CODES, op="Convolve"), "the op table has no row Convolve"),
    "op of another primitive": (
        _convolution(CODES, op="MatMul"),
        "is of the op MatMul, which it does not compute",
    ),
    "role of another op": (
        _convolution(CODES, args=(("src", "x"), ("weights", "w"), ("roi", "w"))),
        "has the role roi",
    ),
    "parameter of another op": (
        _convolution(CODES, params={"algorithm": "relu"}),
        "has the parameter algorithm",
    ),
    "scales of weights without dimensions": (
        _matmul_by_a_number(),
        "one dimension or more",
    ),
    "operand of bool": (
        Plan(
            **{
                **vars(_convolution(CODES, attr=PrimitiveAttr(post_ops=(Binary("add", "m"),)))),
                "constants": {"w": CODES, "m": np.ones((1, 1, 1, 1), bool)},
            }
        ),
        "post-op binary whose operand is bool",
    ),
}


@pytest.mark.parametrize("case", FOUND, ids=lambda case: case.replace(" ", "-"))
def test_a_plan_that_once_got_past_the_verifier(case: str) -> None:
    plan, message = FOUND[case]
    with pytest.raises(PlanError) as caught:
        read_plan(resealed(plan))
    assert message in str(caught.value)


def test_a_constant_source_is_read_where_it_lies() -> None:
    """A convolution of constant codes, too many of them to be folded at import."""
    x = np.arange(32, dtype=np.uint8).reshape(1, 2, 4, 4)
    plan = _convolution(CODES, args=(("src", "held"), ("weights", "w")))
    plan = Plan(**{**vars(plan), "constants": {"w": CODES, "held": x}})
    expected = np.repeat(x.sum(axis=1, keepdims=True, dtype=np.float32) * 0.5, 2, axis=1)
    for backend in ("numpy", "auto"):
        (y,) = fqfuse.InferenceSession(plan, backend=backend).run(None, {"x": x})
        np.testing.assert_array_equal(y, expected)


def test_a_convolution_without_output_channels() -> None:
    plan = _convolution(np.ones((0, 2, 1, 1), np.int8))
    plan = Plan(
        **{**vars(plan), "values": {**plan.values, "y": TensorType(DType.F32, (1, 0, 4, 4))}}
    )
    (y,) = fqfuse.InferenceSession(read_plan(resealed(plan)), backend="numpy").run(
        None, {"x": np.ones((1, 2, 4, 4), np.uint8)}
    )
    assert y.shape == (1, 0, 4, 4)
