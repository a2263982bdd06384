"""What `fqfuse.bench` measures and returns. No figure is judged: only that figures belong together."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.finding_networks import Net
from support.json_documents import problems
from support.packed_models import Scheme, network

import fqfuse
from fqfuse.errors import BackendUnavailable, InvalidInput
from fqfuse.measure import bench as module
from fqfuse.measure.feeds import made_feeds
from fqfuse.measure.process import WorkerProcess
from fqfuse.measure.trace import trace_bytes
from fqfuse.measure.turns import Row, Turn, attempt, load_turn
from fqfuse.models.digits import digits_model_path
from fqfuse.plan.file import save_plan

QUICK = {"threads": 1, "rounds": 1, "seconds": 0.002, "backend": "numpy"}


@pytest.fixture(scope="module")
def found() -> dict:
    """The digits in two sizes, beside ONNX Runtime."""
    model = digits_model_path("qdq")
    return fqfuse.bench(model, against=["onnxruntime"], sizes={"N": [1, 3]}, **QUICK)


def test_what_is_returned_is_the_document_without_trace(found: dict) -> None:
    assert problems({**found, "trace": None}) == []
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_products_of_packed_weights_are_alike_in_all_engines_and_are_said_to_be() -> None:
    model = network("product", Scheme())
    for dynamic, words in ((False, "in f32"), ("matmul", "in s8, by blocks")):
        plan = fqfuse.compile(model, dynamic=dynamic) if dynamic else fqfuse.compile(model)
        asked = module.Measurement(against=["onnxruntime"], **QUICK)
        ours, theirs = module.measured(plan, model, "product", asked)["cases"][0]["engines"]
        assert ours["note"] == f"sources of packed products {words}"
        assert theirs["note"] == "sources of packed products as accuracy_level says"


def test_without_packed_weights_nothing_is_said_of_them(found: dict) -> None:
    assert {engine["note"] for case in found["cases"] for engine in case["engines"]} == {""}


@pytest.mark.parametrize("cores", [1, 2])
def test_limits_are_those_of_the_processors_that_there_are(monkeypatch, cores: int) -> None:
    """99 threads made a machine of 99 cores, of which each step took less than 1 %."""
    one = replace(module.this_machine(), cores=1)
    monkeypatch.setattr(module, "this_machine", lambda: replace(one, cores=cores))
    asked = module.Measurement(threads=2, rounds=1, seconds=0.002, backend="numpy")
    plan = fqfuse.compile(digits_model_path("qdq"))
    told = module.measured(plan, None, "digits", asked)
    assert told["machine"] == replace(one, cores=cores).description
    assert told["threads"] == 2


def test_each_combination_of_sizes_is_a_case(found: dict) -> None:
    assert [case["sizes"] for case in found["cases"]] == [{"N": 1}, {"N": 3}]
    assert [case["inputs"][0]["type"] for case in found["cases"]] == [
        "float32[1,1,8,8]",
        "float32[3,1,8,8]",
    ]


def test_engines_and_steps_belong_together(found: dict) -> None:
    plan = fqfuse.compile(digits_model_path("qdq"))
    for case in found["cases"]:
        ours, theirs = case["engines"]
        assert (ours["engine"], theirs["engine"]) == ("fqfuse", "onnxruntime")
        assert theirs["reason"] == ""
        # one round: its ratio is the ratio of the medians, and tells no interval
        assert theirs["time_ratio"] == pytest.approx(theirs["ms"] / ours["ms"])
        assert theirs["time_ratio_low"] is None
        profile = case["profile"]
        total = sum(step["ms"] for step in case["steps"]) + profile["rest_ms"]
        assert total == pytest.approx(profile["ms"])  # the same floats in another order
        assert [step["layers"] for step in case["steps"]] == [list(s.origin) for s in plan.steps]
        assert case["limit_ms"] == pytest.approx(sum(step["limit_ms"] for step in case["steps"]))
    first, second = found["cases"]
    assert first["limit_ms"] < second["limit_ms"]


def test_a_ratio_is_taken_round_by_round() -> None:
    ours = Row("m", "fqfuse-auto", rounds_ms=[1.0, 2.0, 4.0, 1.0, 2.0, 4.0])
    theirs = Row("m", "onnxruntime", rounds_ms=[3.0, 4.0, 4.0, 3.0, 4.0, 4.0])
    row = module._engine(theirs, ours)
    assert (row["ms"], row["low_ms"], row["high_ms"]) == (4.0, 3.0, 4.0)
    assert row["time_ratio"] == 2.0  # of 3, 2, 1, 3, 2, 1
    assert (row["time_ratio_low"], row["time_ratio_high"]) == (1.0, 3.0)


def test_a_runtime_that_cannot_run_it_says_why() -> None:
    found = fqfuse.bench(digits_model_path("fakequantize"), against=["onnxruntime"], **QUICK)
    ours, theirs = found["cases"][0]["engines"]
    assert ours["ms"] > 0
    assert theirs["ms"] is None
    assert theirs["time_ratio"] is None
    assert "FakeQuantize" in theirs["reason"]


def test_a_model_in_memory() -> None:
    model = onnx.load(digits_model_path("qdq"))
    (case,) = fqfuse.bench(model, against=["onnxruntime"], **QUICK)["cases"]
    assert [engine["reason"] for engine in case["engines"]] == ["", ""]


def test_a_plan_with_its_weights_in_a_second_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those beyond 2 GiB have them."""
    monkeypatch.setattr(module, "save_plan", partial(save_plan, limit=0))
    (case,) = fqfuse.bench(digits_model_path("qdq"), **QUICK)["cases"]
    assert [engine["reason"] for engine in case["engines"]] == [""]


def test_a_size_may_be_0() -> None:
    """A cache that is empty before the first token."""
    net = Net()
    joined = net.op("Concat", "past", "x", axis=1)
    net.op("MatMul", joined, net.constant(np.ones((8, 4), np.float32)), out="y")
    model = net.proto(inputs={"past": [1, "past", 8], "x": [1, 2, 8]})
    asked = {"against": ["onnxruntime"], "sizes": {"past": [0, 3]}}
    empty, full = fqfuse.bench(model, **QUICK, **asked)["cases"]
    assert [case["inputs"][0]["type"] for case in (empty, full)] == [
        "float32[1,0,8]",
        "float32[1,3,8]",
    ]
    assert all(engine["reason"] == "" for engine in empty["engines"])


def test_other_runtimes_run_no_plans(tmp_path: Path) -> None:
    plan = fqfuse.compile(digits_model_path("qdq"))
    fqfuse.save_plan(plan, tmp_path / "plan.onnx")
    for source in (plan, tmp_path / "plan.onnx", (tmp_path / "plan.onnx").read_bytes()):
        with pytest.raises(InvalidInput, match="cannot run a plan"):
            fqfuse.bench(source, against=["onnxruntime"], **QUICK)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"against": ["abacus"]}, "no runtime 'abacus'"),
        ({"against": "onnxruntime"}, "no list"),
        ({"sizes": {"M": 2}}, "no size 'M'"),
        ({"sizes": {"N": -1}}, "-1 is no size"),
        ({"sizes": {"N": []}}, "0 combinations"),
        ({"sizes": {"N": list(range(1, 100))}}, "99 combinations"),
        ({"sizes": {"N": 1 << 40}}, "there is room for"),
        ({"rounds": 0}, "rounds are 0"),
        ({"rounds": True}, "rounds are True"),
        ({"rounds": "7"}, "rounds are '7'"),
        ({"seconds": float("nan")}, "seconds are nan"),
        ({"seconds": 0}, "seconds are 0"),
        ({"timeout": 0}, "seconds of the timeout are 0"),
        ({"timeout": float("inf")}, "seconds of the timeout are inf"),
        ({"backend": "abacus"}, "no backend 'abacus'"),
        ({"threads": 0}, "threads must be"),
        ({"feeds": {"picture": 1}}, "not those of the model"),
        ({"feeds": {"image": 1}, "sizes": {"N": 1}}, "leave one of them out"),
    ],
)
def test_wrong_arguments(arguments: dict, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        fqfuse.bench(digits_model_path("qdq"), **{**QUICK, **arguments})


def test_an_engine_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """No process answers within a millisecond; another runtime's is a row that failed."""
    with pytest.raises(InvalidInput, match=r"no answer to .load. within 0\.001 s"):
        fqfuse.bench(digits_model_path("qdq"), timeout=0.001, **QUICK)
    settings = module.Measurement(timeout=0.001, **QUICK).settings()
    turn = Turn(Row("digits", "onnxruntime"), WorkerProcess(1, tmp_path / "log"))
    with turn.worker:
        attempt(turn, lambda turn: load_turn(turn, digits_model_path("qdq"), tmp_path, settings))
    assert turn.row.reason == "no answer to 'load' within 0.001 s"


def test_feeds_that_the_session_refuses() -> None:
    feeds = {"image": np.zeros((2, 1, 8, 8))}
    with pytest.raises(InvalidInput, match="float64, expected float32") as refused:
        fqfuse.bench(digits_model_path("qdq"), feeds=feeds, **QUICK)
    assert "astype" in refused.value.hint


def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _name: None)
    with pytest.raises(BackendUnavailable, match="openvino is not installed") as refused:
        fqfuse.bench(digits_model_path("qdq"), against=["openvino"], **QUICK)
    assert refused.value.hint == "pip install openvino"


def test_inputs_are_made_of_their_types() -> None:
    kinds = {
        "codes": TensorProto.UINT8,
        "half": TensorProto.FLOAT16,
        "mask": TensorProto.BOOL,
        "tokens": TensorProto.INT64,
    }
    inputs = [helper.make_tensor_value_info(name, kind, ["N", 64]) for name, kind in kinds.items()]
    outputs = [helper.make_tensor_value_info(f"{n}_out", k, None) for n, k in kinds.items()]
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"], name) for name in kinds]
    graph = helper.make_graph(nodes, "types", inputs, outputs)
    plan = fqfuse.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
    feeds = made_feeds(plan, {"N": 2})
    assert {name: feed.shape for name, feed in feeds.items()} == dict.fromkeys(kinds, (2, 64))
    assert [feeds[name].dtype for name in kinds] == [np.uint8, np.float16, np.bool_, np.int64]
    assert len(np.unique(feeds["codes"])) > 64
    assert np.all(feeds["tokens"] == 1)
    assert np.all(feeds["mask"])
    assert np.isfinite(feeds["half"]).all()
    assert feeds["half"].std() > 0


def test_nothing_is_made_up_for_strings() -> None:
    values = [
        helper.make_tensor_value_info(name, TensorProto.STRING, [2]) for name in ("text", "same")
    ]
    node = helper.make_node("Identity", ["text"], ["same"], "node")
    graph = helper.make_graph([node], "strings", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    with pytest.raises(InvalidInput, match="holds strings") as refused:
        fqfuse.bench(model, **QUICK)
    assert "--data" in refused.value.hint
    found = fqfuse.bench(model, feeds={"text": np.array(["a", "bc"])}, **QUICK)
    assert found["cases"][0]["engines"][0]["ms"] > 0


def test_a_trace_has_an_event_for_each_step(found: dict) -> None:
    document = json.loads(trace_bytes("digits", found["cases"]))
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    for thread, case in enumerate(found["cases"], 1):
        run, *steps = [event for event in events if event["tid"] == thread]
        assert run["name"] == "run"
        assert [event["args"]["index"] for event in steps] == [
            step["index"] for step in case["steps"] if step["runtime"] != "view"
        ]
        assert [event["args"]["layers"] for event in steps] == [
            step["layers"] for step in case["steps"] if step["runtime"] != "view"
        ]
        ends = [run["ts"]]
        for event in steps:
            assert event["dur"] > 0
            # one begins where the one before ended, but for the rounding of the sum
            assert event["ts"] >= ends[-1] - 1e-6
            ends.append(event["ts"] + event["dur"])
        assert ends[-1] <= run["ts"] + run["dur"]
