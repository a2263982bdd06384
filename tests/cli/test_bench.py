"""`fqfuse bench`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support.onnx_cases import model, node

from fqfuse.cli.bench_report import bench_report
from fqfuse.models.digits import digits_model_path
from fqfuse.report.layout import PIPE, Layout

MODEL = digits_model_path("qdq")
QUICK = ("--threads", "1", "--rounds", "1", "--time", "0.002", "--backend", "numpy")


def step(index: int, ms: float, layer: str, **others: object) -> dict:
    common = {"index": index, "name": layer, "primitive": "convolution", "op": "Conv"}
    where = {"runtime": "onednn", "implementation": "brgconv:avx512_core_vnni", "reason": ""}
    told = {
        "what": "convolution 3x3",
        "codes_in_f32": False,
        "limit_ms": ms / 2,
        "limit_share": 0.5,
    }
    return {**common, **where, **told, "layers": [layer], "ms": ms, "share": ms / 100, **others}


def document(steps: list[dict], *, idle: bool = True, engines: list[dict] | None = None) -> dict:
    ours = {
        "engine": "fqfuse", "version": "1", "note": "", "reason": "", "ms": 50.0, "low_ms": 49.0,
        "high_ms": 52.0, "runs_per_second": 20.0, "rounds_ms": [50.0], "time_ratio": None,
        "time_ratio_low": None, "time_ratio_high": None,
    }  # fmt: skip
    case = {
        "sizes": {"batch": 1}, "guessed_sizes": {"batch": 1}, "made_up": True,
        "inputs": [{"name": "x", "type": "float32[1]"}], "backend": "onednn",
        "backend_reason": "oneDNN", "engines": [ours, *({**ours, **e} for e in engines or [])],
        "profile": {"runs": 9, "ms": 50.0, "plain_ms": 50.0, "rest_ms": 1.0, "timeline": None},
        "limit_ms": 25.0, "steps": steps,
    }  # fmt: skip
    return {
        "schema": "fqfuse.bench/1", "model": "m", "target": "onednn-v3", "machine": "1 core",
        "threads": 1, "load_average": [0.1, 0, 0], "idle": idle, "rounds": 7, "turn_seconds": 0.3,
        "cases": [case],
    }  # fmt: skip


def lines(found: dict, *, width: int | None = 80, all_rows: bool = False) -> list[str]:
    console = Console(width=width or 500, record=True, file=io.StringIO())
    layout = PIPE if width is None else Layout(width)
    console.print(bench_report(found, layout, title="m", steps=12, all_rows=all_rows))
    return [line.rstrip() for line in console.export_text().splitlines()]


PATH = "/encoder/layer.{}/attention/output/dense/MatMul_quant_with_a_long_tail"


def test_the_slowest_steps_stand_first_on_80_columns() -> None:
    steps = [step(i, float(i + 1), PATH.format(i)) for i in range(20)]
    found = lines(document(steps))
    assert max(map(len, found)) <= 80
    rows = found[next(i for i, line in enumerate(found) if "kernel  " in line) + 1 :]
    assert [row.split()[0] for row in rows[:10]] == [f"{n}.00" for n in range(20, 10, -1)]
    assert all(f"layer.{n}" in row for n, row in zip(range(19, 9, -1), rows, strict=False))
    assert "10 more steps: --all" in rows[10]
    assert rows[10].split()[0] == "55.00"  # 10 + 9 + ... + 1
    assert any("kernels" in row and "avx512_core_vnni" in row for row in rows)
    assert "more steps" not in "\n".join(lines(document(steps), all_rows=True))


def test_a_pipe_has_whole_names() -> None:
    text = "\n".join(lines(document([step(0, 1.0, PATH.format(0))]), width=None))
    assert PATH.format(0) in text
    assert "brgconv:avx512_core_vnni" in text


@pytest.mark.parametrize("width", [80, None])
def test_names_never_steer_a_terminal(width: int | None) -> None:
    steps = [step(0, 1.0, "evil\x1b[31m\nname"), step(1, 2.0, "a\x07b", runtime="numpy")]
    text = "\n".join(lines(document(steps), width=width))
    assert not any(bad in text for bad in ("\x1b", "\x07"))
    assert "\\x1b[31m\\nname" in text


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        (
            {"time_ratio": 1.4, "time_ratio_low": 1.2, "time_ratio_high": 1.5},
            "1.40 times as fast as",
        ),
        (
            {"time_ratio": 0.5, "time_ratio_low": 0.4, "time_ratio_high": 0.6},
            "2.00 times as long as",
        ),
        (
            {"time_ratio": 1.4, "time_ratio_low": 0.9, "time_ratio_high": 1.5},
            "no certain difference",
        ),
        ({"time_ratio": 1.4}, "about 1.40 times as fast as"),
        ({"ms": None, "reason": "no"}, "peer did not run it"),
    ],
)
def test_the_answer_compares(engine: dict, says: str) -> None:
    found = lines(document([step(0, 1.0, "a")], engines=[{"engine": "peer", **engine}]))
    assert says in "\n".join(found[1:4])


def test_a_busy_machine_is_told() -> None:
    assert "NOT idle" in "\n".join(lines(document([step(0, 1.0, "a")], idle=False)))
    assert "NOT idle" not in "\n".join(lines(document([step(0, 1.0, "a")])))


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        (50.0, ""),
        (54.0, "runs in between, without a look at the clock: 54.00 ms"),
        (30.0, "these 30.00"),
    ],
)
def test_times_that_do_not_agree_are_told(plain: float, says: str) -> None:
    found = document([step(0, 1.0, "a")])
    found["cases"][0]["profile"]["plain_ms"] = plain
    text = " ".join(" ".join(lines(found)).split())
    assert says in text
    assert ("apart" in text) == bool(says)


def test_the_command_measures_and_writes_a_trace(call, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    result = call("bench", MODEL, *QUICK, "--trace", trace)
    assert result.exit_code == 0, result.stderr
    assert "For open sizes, guessed: N=1 (--size, --shape, --data):" in result.stdout
    assert "stem.conv" in result.stdout
    assert str(trace) in result.stdout
    assert json.loads(trace.read_text())["traceEvents"]
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


def test_json_and_data(call, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", image=np.zeros((2, 1, 8, 8), np.float32))
    result = call("bench", MODEL, *QUICK, "--data", tmp_path / "in.npz", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["schema"] == "fqfuse.bench/1"
    assert found["trace"] is None
    (case,) = found["cases"]
    assert (case["sizes"], case["made_up"], case["guessed_sizes"]) == ({"N": 2}, False, {})


def test_several_sizes_stand_in_rows(call) -> None:
    result = call("bench", MODEL, *QUICK, "--size", "N=1,2")
    assert result.exit_code == 0, result.stderr
    assert "At N=1: " in result.stdout
    assert "At N=2: " in result.stdout
    assert "stem.conv" not in result.stdout
    assert "with --all" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--rounds", "0"), "no number of rounds"),
        (("--rounds", "many"), "no number of rounds"),
        (("--time", "0"), "no time of a turn"),
        (("--time", "61"), "no time of a turn"),
        (("--time", "nan"), "no time of a turn"),
        (("--timeout", "0"), "no time that an engine may take"),
        (("--timeout", "-5"), "no time that an engine may take"),
        (("--size", "N"), "'N' is no size"),
        (("--size", "N=1,"), "'N=1,' is no size"),
        (("--size", "N=0,-1"), "'N=0,-1' is no size"),
        (("--size", "N=1", "--size", "N=2"), "for the second time"),
        (("--size", "M=1"), "no size 'M'"),
        (("--against", "abacus"), "no runtime 'abacus'"),
        (("--data", "none.npz"), "no such file"),
        (("--trace", "none/trace.json"), "no such folder"),
        (("--trace", "."), "it is a folder"),
        (("--backend", "abacus"), "no backend 'abacus'"),
    ],
)
def test_wrong_options(call, arguments: tuple[str, ...], says: str) -> None:
    result = call("bench", MODEL, *arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_trace_is_not_written_over_the_model(call, tmp_path: Path) -> None:
    copy = tmp_path / "model.onnx"
    copy.write_bytes(Path(MODEL).read_bytes())
    result = call("bench", copy, "--trace", copy)
    assert result.exit_code == 2
    assert copy.read_bytes() == Path(MODEL).read_bytes()


@pytest.mark.parametrize(("name", "code"), [("file", 0), ("allow_pickle", 0), ("a\0b", 2)])
def test_inputs_with_odd_names(call, tmp_path: Path, name: str, code: int) -> None:
    proto = model([node("Relu", [name])], inputs={name: [1, 4]})
    path = tmp_path / "named.onnx"
    path.write_bytes(proto.SerializeToString())
    assert call("bench", path, "--rounds", 1, "--time", 0.01).exit_code == code
