"""The benchmark's harness: worker processes and their failures, accuracy, summary, report."""

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.onnx_cases import model, node

import fqfuse
from fqfuse import BackendUnavailable
from fqfuse.accuracy.measures import sqnr_of
from fqfuse.benchmarks import __main__ as program
from fqfuse.benchmarks.__main__ import main
from fqfuse.benchmarks.accuracy import compare_outputs, top1_agreement
from fqfuse.benchmarks.build import Case, cases
from fqfuse.benchmarks.compile_time import CompileRow, Timing, compile_chains, compile_plain_chains
from fqfuse.benchmarks.exported import FILES, Gain, exports, exports_table
from fqfuse.benchmarks.measure import REFERENCE
from fqfuse.benchmarks.networks import NETWORKS, Network
from fqfuse.benchmarks.networks.chain import build_chain
from fqfuse.benchmarks.networks.plain_chains import PLAIN_CHAINS
from fqfuse.benchmarks.quantizers import QUANTIZERS
from fqfuse.benchmarks.remedies import CHANGES, Outcome, Recipe, Trial, remedies, remedies_table
from fqfuse.benchmarks.report import write_compile, write_speed
from fqfuse.benchmarks.summary import summarize, summarize_file
from fqfuse.benchmarks.versus import versus
from fqfuse.measure.arrays import load_arrays, save_arrays
from fqfuse.measure.peak import SHAPES, measure_peak
from fqfuse.measure.process import WorkerFailed, WorkerProcess
from fqfuse.measure.turns import Row, Settings, median_interval
from fqfuse.onednn.loading import load
from fqfuse.report.verdict.catalogue import CATALOGUE

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60.0  # seconds for a worker to answer; only a hanging one needs them


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chain")
    onnx.save(build_chain(3), folder / "chain.onnx")
    save_arrays(
        folder / "feeds.npz",
        {"input": np.random.default_rng(0).uniform(0, 4, (4, 16, 8, 8)).astype(np.float32)},
    )
    return folder


def test_worker_loads_times_and_answers(chain):
    with WorkerProcess(1, chain / "log") as worker:
        load = worker.ask(
            "load",
            LIMIT,
            engine="onnxruntime",
            path=str(chain / "chain.onnx"),
            feeds=str(chain / "feeds.npz"),
            threads=1,
        )
        assert load["load_s"] > 0
        assert len(worker.ask("time", LIMIT, runs=5, warmup=1)["seconds"]) == 5
        worker.ask("outputs", LIMIT, to=str(chain / "out.npz"))
        memory = worker.ask("memory", LIMIT)
    outputs = load_arrays(chain / "out.npz")["output_0"]
    assert outputs.shape == (4, 16, 8, 8)
    assert not np.array_equal(outputs[0], outputs[1])
    assert memory["peak"] >= memory["resident"] > load["resident_before"]


def test_an_engines_error_is_an_answer_and_the_worker_goes_on(chain):
    (chain / "broken.onnx").write_bytes(b"no model")
    with WorkerProcess(1, chain / "log") as worker:
        arguments = {
            "path": str(chain / "broken.onnx"),
            "feeds": str(chain / "feeds.npz"),
            "threads": 1,
        }
        with pytest.raises(WorkerFailed, match=r"broken\.onnx"):
            worker.ask("load", LIMIT, engine="onnxruntime", **arguments)
        with pytest.raises(WorkerFailed, match="load a model first"):
            worker.ask("time", LIMIT, runs=1, warmup=0)
        with pytest.raises(WorkerFailed, match="no command 'dance'"):
            worker.ask("dance", LIMIT)
        assert worker.ask("memory", LIMIT)["peak"] > 0


def test_the_interval_of_a_median():
    # n = 6: both extremes miss it with 2 / 64 = 3.1 %; n = 21: 2 * P(Bin(21, 1/2) < 6) = 2.7 %,
    # with < 7 it would be 7.8 %.
    assert median_interval([6, 1, 5, 2, 4, 3]) == (1, 6)
    assert median_interval(range(1, 22)) == (6, 16)
    with pytest.raises(ValueError, match="5 ratios"):
        median_interval([1, 2, 3, 4, 5])


def test_versus_wants_a_checkout(tmp_path):
    with pytest.raises(ValueError, match="no checkout of fqfuse"):
        versus(tmp_path, cases(tmp_path), Settings(), 6, tmp_path, print)


@pytest.mark.slow
def test_a_checkout_against_itself(chain, capsys):
    case = Case(Network("chain", build=build_chain, feeds=dict, logits=""), "qdq", chain)
    shutil.copy(chain / "chain.onnx", case.path)
    shutil.copy(chain / "feeds.npz", case.inputs_path)
    (found,) = versus(
        ROOT, [case], Settings(threads=1, rounds=1, turn_seconds=0.01, pause=0.0), 6, chain, print
    )
    assert found.low <= found.ratio <= found.high
    assert "geometric mean" in capsys.readouterr().out


def test_a_file_that_a_checkout_cannot_run_is_left_out(tmp_path, capsys):
    case = Case(Network("broken", build=build_chain, feeds=dict, logits=""), "qdq", tmp_path)
    case.path.write_bytes(b"no model")
    save_arrays(case.inputs_path, {"input": np.zeros((1, 2), np.float32)})
    settings = Settings(threads=1, rounds=1, turn_seconds=0.01, pause=0.0)
    with pytest.raises(WorkerFailed, match="no file runs on both"):
        versus(ROOT, [case], settings, 6, tmp_path, print)
    assert "broken-qdq         left out: here it does not run" in capsys.readouterr().out


def test_a_crash_is_named(tmp_path):
    with WorkerProcess(1, tmp_path / "log") as worker:
        worker.ask("memory", LIMIT)
        worker._process.kill()
        with pytest.raises(WorkerFailed, match="crashed by SIGKILL"):
            worker.ask("memory", LIMIT)


def test_silence_is_named(tmp_path):
    with (
        WorkerProcess(1, tmp_path / "log") as worker,
        pytest.raises(WorkerFailed, match="no answer to 'memory' within 0 s"),
    ):
        worker.ask("memory", 0.0)


def test_peak_is_measured_through_the_binding():
    try:
        load()
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
    found = measure_peak(1, seconds=0.01)
    # No CPU that oneDNN 3.2 runs on is below 1 Gop/s, and none reaches 100 Top/s on one thread.
    assert 1e9 < found["operations_per_second"] < 1e14
    assert found["operations_per_second"] == max(found["shapes"].values())
    assert len(found["shapes"]) == len(SHAPES)


def test_sqnr_and_top1_of_known_errors():
    reference = np.array([[3.0, 4.0], [0.0, 5.0]])
    # 50 over 0.5
    assert sqnr_of(reference, reference + np.array([[0.3, -0.4], [0.5, 0.0]])) == pytest.approx(
        20.0
    )
    assert sqnr_of(reference, reference) == math.inf
    assert top1_agreement(reference, np.array([[4.0, 3.0], [0.0, 1.0]])) == 0.5


def test_comparison_takes_the_worst_output_and_refuses_other_shapes():
    reference = [np.ones((2, 3)), np.array([[1.0, 0.0], [0.0, 1.0]])]
    result = [np.full((2, 3), 1.1), np.array([[1.01, 0.0], [0.0, 1.0]])]
    found = compare_outputs(reference, result, ["hidden", "logits"], "logits")
    assert found["sqnr_db"] == found["outputs_db"]["hidden"] == pytest.approx(20.0)
    assert found["top1"] == 1.0
    with pytest.raises(ValueError, match="shapes"):
        compare_outputs(reference, [np.ones((3, 2)), result[1]], ["hidden", "logits"], "logits")


def rows(file, fqfuse, ort, openvino, gap=0.1):
    """Rows of one file; None for an engine that crashed."""
    times = {
        "fqfuse-onednn": fqfuse,
        "fqfuse-numpy": 50.0,
        "onnxruntime": ort,
        "openvino": openvino,
        REFERENCE: 25.0,
    }
    decibels = {"fqfuse-onednn": 20.0, "onnxruntime": 20.0 + gap, "openvino": 19.0}
    return [
        Row(
            file,
            engine,
            "" if ms else "crashed by SIGSEGV",
            ms,
            [ms] if ms else [],
            sqnr_db=decibels.get(engine) if ms else None,
        )
        for engine, ms in times.items()
    ]


def test_summary_compares_with_the_faster_and_the_better_peer():
    found = summarize_file(rows("a", 4.0, 10.0, 5.0), macs=10**9, peak=1e12)
    assert found.ratio == pytest.approx(0.8)
    assert found.numpy_ratio == pytest.approx(2.0)
    assert found.sqnr_gap_db == pytest.approx(0.1)
    assert found.limit_ms == pytest.approx(2.0)  # two operations a multiply-accumulate


def test_summary_means_count_only_files_of_both_peers():
    files = [
        summarize_file(rows(name, *times), 10**9, None)
        for name, times in {
            "a": (4, 10, 5),
            "b": (5, 10, 25),
            "crash": (9.5, 10, None),
            "bert": (9, 10, 10),
        }.items()
    ]
    summary = summarize(files)
    assert summary["geometric_mean_both_peers"] == pytest.approx((0.8 * 0.5 * 0.9) ** (1 / 3))
    assert summary["files_both_peers"] == 3
    # the crash file still counts against the living peer
    assert summary["worst_ratio"] == pytest.approx(0.95)
    assert summary["worst_sqnr_gap_db"] == pytest.approx(0.1)
    assert summarize(files[:0])["worst_ratio"] is None


def test_a_file_that_is_not_quantized_has_no_gap():
    found = replace(summarize_file(rows("f32", 4, 10, 5), 1, None), sqnr_gap_db=math.inf)
    assert summarize([found])["worst_sqnr_gap_db"] is None


ENVIRONMENT = {
    "cpu": "a CPU",
    "flags": ["avx2"],
    "cpus": 4,
    "packages": {"numpy": "1"},
    "python": "3.11",
    "commit": "abc",
    "time": "now",
    "load_average": [0.0],
}


def test_report_says_what_crashed_and_is_strict_json(tmp_path):
    measured = rows("a", 4.0, 10.0, None)
    measured[0].sqnr_db = math.inf
    result = {
        "environment": ENVIRONMENT,
        "settings": {"threads": 2, "rounds": 7, "pause": 0.3, "accuracy_inputs": 64},
        "label": "rough",
        "peak": {"reason": "unavailable"},
        "summary": summarize([summarize_file(measured, 10**9, None)]),
    }
    text = write_speed(tmp_path, result, measured).read_text()
    assert "| a | openvino |  |  |  |  |  |  |  |  | crashed by SIGSEGV |" in text
    assert "**rough**" in text
    saved = json.loads((tmp_path / "speed.json").read_text(), parse_constant=pytest.fail)
    assert saved["schema"] == "fqfuse-bench-speed/1"
    assert [row["engine"] for row in saved["rows"]] == [row.engine for row in measured]
    assert saved["rows"][0]["sqnr_db"] is None


def test_compile_report_gives_the_growth(tmp_path):
    chains = [
        CompileRow(f"chain-{size}", "onnxruntime", 5 * size + 2, "", seconds, 0.1, 0.1)
        for size, seconds in ((1000, 2.0), (10000, 23.0))
    ]
    result = {"environment": ENVIRONMENT, "settings": {"threads": 2}, "label": ""}
    text = write_compile(tmp_path, result, [], chains).read_text()
    assert "onnxruntime: 10,000 convolutions take 11.5 times as long as 1,000" in text
    assert json.loads((tmp_path / "compile.json").read_text())["chains"][1]["ready_s"] == 23.0


def test_the_report_says_what_twice_the_chain_costs(tmp_path):
    lengths = ((1000, 1.0), (10000, 10.0), (100000, 100.0))
    plain = [
        CompileRow(f"mul-add-{nodes}", "fqfuse-onednn", nodes, "", seconds, 0.1, 0.1)
        for nodes, seconds in lengths
    ]
    plain.append(CompileRow("relu-1000", "fqfuse-onednn", 1000, "no answer"))
    result = {"environment": ENVIRONMENT, "settings": {"threads": 2}, "label": ""}
    text = write_compile(tmp_path, result, [], [], plain).read_text()
    assert "fqfuse-onednn, time for twice the length: mul-add 2.00\n" in text
    assert json.loads((tmp_path / "compile.json").read_text())["plain_chains"][0]["nodes"] == 1000


@pytest.mark.slow
def test_plain_chains_are_timed_by_kind(tmp_path):
    timing = Timing(("onnxruntime",), 1, 1, LIMIT, tmp_path, lambda _: None)
    found = compile_plain_chains(timing, (20,))
    assert {row.file.rpartition("-")[0] for row in found} == set(PLAIN_CHAINS)
    assert {row.file for row in found if row.reason} <= {"fake-quantize-20"}  # OpenVINO's operator


def test_an_engine_that_fails_a_chain_is_spared_the_longer_ones(tmp_path):
    lines = []
    timing = Timing(("onnxruntime",), 1, 1, 0.0, tmp_path, lines.append)
    found = compile_chains(timing, (2, 3))
    assert [row.reason for row in found] == [
        "no answer to 'load' within 0 s",
        "not tried: a shorter chain failed",
    ]
    assert found[1].nodes == 17
    assert "no answer" in lines[0]


def test_wrong_options_exit_with_2(tmp_path, capsys):
    assert main(["build", "--build-dir", str(tmp_path), "--files", "resnet51-ort"]) == 2
    assert "resnet51-ort" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main(["run", "--engines", "abacus"])
    assert stop.value.code == 2
    assert "abacus" in capsys.readouterr().err


def test_there_is_a_case_for_each_quantizer_of_a_network(tmp_path):
    every = cases(tmp_path)
    assert len(every) == sum(len(network.quantizers) for network in NETWORKS.values()) == 42
    assert {case.quantizer for case in every} == set(QUANTIZERS)
    assert [case.name for case in cases(tmp_path, ["bert-nncf", "resnet50-ort"])] == [
        "resnet50-ort",
        "bert-nncf",
    ]


def test_exports_are_measured_beside_their_source(tmp_path):
    case = Case(tiny_network(), "ort", tmp_path)
    onnx.save(build_chain(3), case.path)
    onnx.save(build_chain(3), case.float_path)
    settings = Settings(1, 6, 0.0, min_runs=1, pause=0.0, accuracy_inputs=2)
    with pytest.raises(ValueError, match="six at least"):
        exports([case], ["onnxruntime"], Settings(rounds=5), tmp_path, print)
    said = []
    gains = exports([case], ["onnxruntime"], settings, tmp_path / "out", said.append)
    assert [gain.form for gain in gains] == ["source", "qdq", "qoperator"]
    assert not any(gain.reason for gain in gains)
    assert all(gain.low <= gain.times <= gain.high for gain in gains)
    assert gains[0].times == 1
    assert gains[0].sqnr_db == math.inf  # the same model serves as f32 file
    assert min(gain.sqnr_db for gain in gains[1:]) > 30  # codes next to ties
    assert len(said) == 3
    table = exports_table([*gains, Gain("a", "b", "qdq", "crashed")])
    assert table.count("\n") == 6
    assert "| a | b | qdq | crashed |" in table
    assert [case.name for case in cases(tmp_path, FILES)]  # they exist


def tiny_network():
    """A chain in f32."""
    shape = [1, 16, 8, 8]
    return Network(
        "tiny",
        lambda _seed, _samples: relu_chain(shape),
        lambda rng, count: {"input": rng.uniform(0, 4, (count, *shape[1:])).astype(np.float32)},
        "output",
    )


def test_a_remedy_is_built_measured_and_told(tmp_path, monkeypatch):
    """With files that need no quantizer: a chain in f32 for the network, a quantized one after it."""
    named = []

    def change(recipe, names):
        named.extend(names)
        return replace(recipe, prepared=True)

    monkeypatch.setattr("fqfuse.benchmarks.remedies.CHANGES", {"not-quantized": change})
    monkeypatch.setattr(Recipe, "write", written)
    said = []
    (outcome,) = remedies(tmp_path, 1, 2, said.append, [Trial("as is", tiny_network(), Recipe())])
    assert outcome.code == "not-quantized"
    assert outcome.estimated > 0
    assert min(outcome.before, outcome.after) > 0
    assert named == list(fqfuse.findings(fqfuse.compile(tmp_path / "tiny-f32.onnx"))[0]["layers"])
    assert said[0].startswith("as is: not-quantized, ")
    files = [path.name for path in sorted(tmp_path.glob("as-*"))]
    assert files == ["as-is-not-quantized.onnx", "as-is.onnx"]


@pytest.mark.of_vnni("7 bits come first elsewhere")
def test_a_file_that_nothing_helps_counts_as_that(tmp_path, monkeypatch):
    monkeypatch.setattr(Recipe, "write", written)
    trial = Trial("whole", tiny_network(), Recipe(prepared=True))
    (outcome,) = remedies(tmp_path, 1, 1, str, [trial])
    assert (outcome.code, outcome.after) == ("nothing would help", None)
    assert outcome.confirmed
    monkeypatch.setattr("fqfuse.benchmarks.remedies.CHANGES", {})
    (outcome,) = remedies(tmp_path, 1, 1, str, [Trial("asked", tiny_network(), Recipe())])
    assert outcome.code == "not-quantized"
    assert not outcome.confirmed, "a change is asked for, and none was tried"


def test_a_change_that_changes_no_setting_is_no_measurement(tmp_path, monkeypatch):
    monkeypatch.setattr("fqfuse.benchmarks.remedies.CHANGES", {"not-quantized": lambda old, _: old})
    monkeypatch.setattr(Recipe, "write", written)
    (outcome,) = remedies(tmp_path, 1, 1, str, [Trial("as is", tiny_network(), Recipe())])
    assert outcome.after is None
    assert remedies_table([outcome]).endswith("| not tried |\n")


def test_the_attention_of_a_dynamic_file_is_calibrated():
    assert CHANGES["f32-attention"](Recipe("dynamic"), []).tool == "static"
    assert not CHANGES["f32-attention"](Recipe("nncf", transformer=True), []).transformer


def test_a_dynamic_recipe_has_its_scales_as_it_says(tmp_path):
    """A matmul whose first column is large: a scale for each column, or one for all."""
    source, scales = tmp_path / "f32.onnx", []
    feeds = {"x": np.zeros((1, 16), np.float32)}
    weights = np.random.default_rng(0).normal(size=(16, 8)) * ([1.0] + [0.05] * 7)
    product = node("MatMul", ["x", "w"], ["y"])
    constants = {"w": weights.astype(np.float32)}
    onnx.save(model([product], inputs={"x": [1, 16]}, constants=constants), source)
    for per_channel in (False, True):
        target = tmp_path / f"{per_channel}.onnx"
        Recipe("dynamic", per_channel=per_channel).write(source, target, feeds)
        tensors = onnx.load(target).graph.initializer
        scales += [list(each.dims) for each in tensors if each.name == "w_scale"]
    assert scales == [[], [8]]


@pytest.mark.of_vnni("7 bits come first elsewhere")
def test_accuracy_is_that_of_inputs_which_no_calibration_has_seen(tmp_path):
    """quantize_static by its defaults: one scale for all weights, of which the first channel is large."""
    shape = [1, 16, 8, 8]
    network = replace(tiny_network(), build=lambda *_: relu_chain(shape, [1.0] + [0.05] * 15))
    (outcome,) = remedies(tmp_path, 1, 1, str, [Trial("weights", network, Recipe())])
    assert (outcome.code, outcome.measure) == ("unused-weight-range", "dB")
    assert outcome.after > outcome.before + 0.5  # dB; 1.0 here: the output's own step remains
    assert outcome.confirmed


def test_a_change_is_known_for_what_the_trials_find():
    """Each belongs to a finding that has a remedy, and changes a recipe."""
    for code, change in CHANGES.items():
        assert not CATALOGUE[code].no_remedy
        before = Recipe(
            "nncf", transformer=True, activations="QInt16", exclude=("a",), layout="QOperator"
        )
        assert change(before, ["a", "b"]) != before, code


def test_the_table_of_remedies():
    table = remedies_table(
        [
            Outcome("a", "b", "c", 1.0, "ms", 2.0, 1.0),
            Outcome("d", "e", "", 1, "ms", 1, 2),
            Outcome("f", "g", "", 0, "cosine", 0.5, 0.9),
            Outcome("h", "nothing would help", "", 0, "ms", 1, None),
            Outcome("i", "j", "", 0, "dB", 12.25, 17.5),
        ]
    )
    assert "| a | b | 1 ms | 2.00 ms | 1.00 ms | yes |" in table
    assert "| d | e | 1 ms | 1.00 ms | 2.00 ms | NO |" in table
    assert "| f | g |  | cosine 0.5000 | cosine 0.9000 | yes |" in table
    assert "| h | nothing would help |  | 1.00 ms |  | nothing to change |" in table
    assert "| i | j |  | 12.2 dB | 17.5 dB | yes |" in table


def written(recipe, source, target, _feeds):
    """The f32 file as it is, or a quantized chain for one that is to be prepared."""
    if recipe.prepared:
        onnx.save(build_chain(3), target)
    else:
        shutil.copyfile(source, target)


def relu_chain(shape, sizes=(1.0,) * 16):
    """A convolution and a relu in f32; the channels' weights are of these sizes."""
    data = np.random.default_rng(0).uniform(0.5, 1, (16, 16, 1, 1)) * np.reshape(
        sizes, [16, 1, 1, 1]
    )
    weights = onnx.numpy_helper.from_array(data.astype(np.float32), "w")
    nodes = [
        onnx.helper.make_node("Conv", ["input", "w"], ["c"]),
        onnx.helper.make_node("Relu", ["c"], ["output"]),
    ]
    info = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name in ("input", "output")
    ]
    graph = onnx.helper.make_graph(nodes, "tiny", info[:1], info[1:], [weights])
    return onnx.helper.make_model(graph, ir_version=10)


@pytest.mark.each_case
@pytest.mark.parametrize("sent", ["SIGTERM", "SIGINT", "SIGKILL"])
def test_a_worker_ends_with_its_coordinator_also_within_a_command(tmp_path, chain, sent):
    path, feeds = chain / "chain.onnx", chain / "feeds.npz"
    # a shell starts what runs behind it with SIGINT ignored, which children inherit
    code = f"""
import signal
import sys
from pathlib import Path
from fqfuse.measure.process import WorkerProcess
signal.signal(signal.SIGINT, signal.default_int_handler)
with WorkerProcess(1, Path({str(tmp_path / "worker.log")!r})) as worker:
    worker.ask("load", 60, engine="fqfuse-numpy", path={str(path)!r}, feeds={str(feeds)!r}, threads=1)
    print(worker._process.pid, flush=True)
    worker.ask("time", 600, runs=10**9, warmup=0)
"""
    command = [sys.executable, "-c", code]
    coordinator = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with coordinator, coordinator.stdout as told:
        worker = int(told.readline())
        time.sleep(0.5)  # until the command has arrived
        coordinator.send_signal(signal.Signals[sent])
        coordinator.wait(timeout=20)
    ended = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and time.monotonic() < ended:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


def test_it_tells_its_time_and_the_quick_form_leaves_out_what_takes_longer(
    tmp_path, monkeypatch, capsys
):
    measured = []

    def measure(case, *_):
        measured.append(case.name)
        clock[0] += 100
        return []

    clock = [0.0]
    monkeypatch.setattr(program.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(program, "build_all", lambda *_: None)
    monkeypatch.setattr(program, "measure_case", measure)
    monkeypatch.setattr(program, "measure_peak", lambda *_: {})
    monkeypatch.setattr(program, "count_macs", lambda _: 1)
    monkeypatch.setattr(program, "summarize_file", lambda *_: {})
    monkeypatch.setattr(program, "summarize", lambda *_: {})
    results = []

    def write(folder, result, _):
        results.append(result)
        return folder / "speed.md"

    monkeypatch.setattr(program, "write_speed", write)
    monkeypatch.setattr(program.onnx, "load", lambda _: None)
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "speed.md").write_text("")
    assert main(["--quick", "--build-dir", str(tmp_path)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("all: less than 5 minutes; before that 13 models are built, once")
    assert measured == ["yolo-nncf", "lstm-qdq"]  # those that take least time
    assert sum(line.endswith("left out, for the time is up") for line in told) == 11
    assert results[0]["label"].endswith("; 11 of 13 files left out, for the time was up")
    assert clock[0] < 300
