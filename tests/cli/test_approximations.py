"""What approximations would save, which a plan has, and what they cost: inspect and compare."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.finding_networks import Net
from support.json_documents import problems

import fqfuse
from fqfuse.explain import savings
from fqfuse.ir.approximations import APPROXIMATIONS
from fqfuse.models.digits import digits_model_path
from fqfuse.report.approximations import approximated_text, saving_of, savings_text

SHAPE = [1, 8, 12, 12]


def residual_block(*, quantized: bool, low: float = -1.0) -> onnx.ModelProto:
    """Two padded convolutions and a sum with the input; FakeQuantize of 256 levels everywhere, `low`
    of the range for 1, so that -1 gives the zero point 127.5.
    """
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def constant(name: str, data: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(data.astype(np.float32), name))
        return name

    def fake(x: str, name: str, reach: float) -> str:
        if not quantized:
            return x
        ends = [
            constant(f"{name}/{end}", np.float32(value * reach))
            for end, value in (("il", low), ("ih", 1.0), ("ol", low), ("oh", 1.0))
        ]
        made = helper.make_node("FakeQuantize", [x, *ends], [name], name=name, levels=256)
        made.domain = "org.openvinotoolkit"
        nodes.append(made)
        return name

    def conv(x: str, name: str) -> str:
        weights = constant(f"{name}/w", rng.normal(size=(8, 8, 3, 3)) / 9)
        inputs = [x, fake(weights, f"{name}/fw", 0.5)]
        nodes.append(helper.make_node("Conv", inputs, [name], name=name, pads=[1, 1, 1, 1]))
        return name

    skip = fake("x", "fq0", 3.0)
    y = fake(conv(skip, "conv0"), "fq1", 2.0)
    y = fake(conv(y, "conv1"), "fq2", 2.0)
    nodes.append(helper.make_node("Add", [y, skip], ["sum"], name="add"))
    nodes.append(helper.make_node("Relu", ["sum"], ["y"], name="relu"))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "block", values[:1], values[1:], constants)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("org.openvinotoolkit", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=9)


@pytest.fixture
def block(tmp_path: Path) -> Path:
    onnx.save(residual_block(quantized=True), tmp_path / "block.onnx")
    onnx.save(residual_block(quantized=False), tmp_path / "f32.onnx")
    return tmp_path / "block.onnx"


def post_ops(plan: fqfuse.Plan) -> int:
    return sum(len(step.attr.post_ops) for step in plan.steps)


def test_the_saving_is_the_difference_of_two_plans(block: Path) -> None:
    plan = fqfuse.compile(block)
    found = {saving.name: saving for saving in savings(plan, block)}
    assert set(found) == {"fractional-zero-point", "residual-rounding", "middle-rounding"}
    for name, saving in found.items():
        other = fqfuse.compile(block, approximate=[name])
        assert saving.steps == len(plan.steps) - len(other.steps)
        assert saving.post_ops == post_ops(plan) - post_ops(other)
    assert found["fractional-zero-point"].macs == 2 * 8 * 8 * 9 * 12 * 12
    assert found["residual-rounding"].post_ops > found["middle-rounding"].post_ops > 0


@pytest.mark.parametrize(
    "asked", [(), ("fractional-zero-point",), ("residual-rounding",), ("middle-rounding",)], ids=str
)
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "in a body"])
def test_the_savings_are_those_of_whole_compilations(
    tmp_path: Path, asked: tuple[str, ...], inside: bool
) -> None:
    """Whatever is done once for all of them."""
    model = residual_block(quantized=True)
    path = tmp_path / "model.onnx"
    onnx.save(in_a_branch(model) if inside else model, path)
    plan = fqfuse.compile(path, approximate=asked)
    wanted = []
    for name in set(APPROXIMATIONS) - {*asked, "int8-recurrence"}:
        other = fqfuse.compile(path, approximate=(*asked, name))
        wanted.append(saving_of(name, plan, other))
    found, all_of_them = savings(plan, path), list(filter(None, wanted))
    if inside:  # quantizers of bodies make no candidates
        assert all(saving in all_of_them for saving in found)
    else:
        assert found == sorted(all_of_them, key=lambda saving: saving.order)
        assert found


def in_a_branch(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model's nodes as the branch of an If that is taken where an input says so."""
    graph = model.graph
    name, y = graph.output[0].name, helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    branch = helper.make_graph(graph.node, "then", [], [graph.output[0]], graph.initializer)
    zero = helper.make_node("Mul", [graph.input[0].name, graph.input[0].name], ["other"], "other")
    info = helper.make_tensor_value_info("other", TensorProto.FLOAT, None)
    other = helper.make_graph([zero], "else", [], [info])
    taken = helper.make_tensor_value_info("taken", TensorProto.BOOL, [])
    node = helper.make_node("If", ["taken"], ["y"], "if", then_branch=branch, else_branch=other)
    outer = helper.make_graph([node], f"{name}_in_a_branch", [*graph.input, taken], [y])
    return helper.make_model(outer, opset_imports=model.opset_import, ir_version=9)


def test_nothing_is_compiled_for_a_rounding_that_only_a_scale_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in front of an f32 output; on 5,000 layers that took two thirds of the time of `inspect`."""
    net = Net()
    hidden = net.op("Relu", net.conv(net.quantized("x"), "conv"), name="relu")
    net.op("Identity", net.quantized(hidden), name="last", out="y")
    path = tmp_path / "conv.onnx"
    onnx.save(net.proto(), path)
    plan = fqfuse.compile(path)
    kinds = [op.algorithm for step in plan.steps for op in step.attr.post_ops]
    assert "round" in kinds[:-1]
    for name in ("residual-rounding", "middle-rounding"):
        other = fqfuse.compile(path, approximate=[name])
        assert post_ops(other) == post_ops(plan), "it would save nothing"
    monkeypatch.setattr("fqfuse.compiler.graph_from_onnx", None)
    assert savings(plan, path) == []


def test_the_screen_tells_it_in_a_line(call, block: Path) -> None:
    result = call("inspect", block)
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert savings_text(savings(fqfuse.compile(block), block)) in text
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []
    assert call("inspect", digits_model_path("qdq")).stdout.count("--approximate") == 0


def test_a_plan_says_which_it_has(call, block: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.onnx"
    names = ("--approximate", "residual-rounding", "--approximate", "fractional-zero-point")
    assert call("compile", block, "-o", path, *names).exit_code == 0
    plan = fqfuse.load_plan(path)
    told = approximated_text(plan)
    assert "residual-rounding at 1 place" in told
    assert "fractional-zero-point at 5 places" in told
    text = " ".join(call("inspect", path).stdout.split())
    assert told in text
    assert "would save" not in text, "a plan file has no model"
    decisions = " ".join(call("inspect", path, "--decisions").stdout.split())
    assert "neither rounds nor clips" in decisions
    assert "zero point 127.5 becomes 128" in decisions


def test_the_document_has_the_savings(call, block: Path) -> None:
    told = json.loads(call("inspect", block, "--json").stdout)
    assert problems(told) == []
    assert told["approximations"][0].keys() == {"name", "steps", "post_ops", "macs"}
    assert [one["name"] for one in told["approximations"]] == [
        saving.name for saving in savings(fqfuse.compile(block), block)
    ]


def test_compare_runs_with_and_without(call, block: Path) -> None:
    f32 = block.with_name("f32.onnx")
    names = ["fractional-zero-point", "residual-rounding"]
    options = [word for name in names for word in ("--approximate", name)]
    told = json.loads(call("compare", f32, block, *options, "--json").stdout)
    assert problems(told) == []
    assert told["approximate"] == ["residual-rounding", "fractional-zero-point"]
    assert told["exact"].keys() == told["outputs"].keys() == {"y"}
    assert told["outputs"]["y"]["sqnr"] != told["exact"]["y"]["sqnr"]
    exact = fqfuse.compare(f32, block)
    assert exact["exact"] == {}
    assert exact["approximate"] == []
    assert exact["outputs"]["y"]["sqnr"] == pytest.approx(told["exact"]["y"]["sqnr"])
    result = call("compare", f32, block, *options)
    assert "exact" in result.stdout
    assert "Approximated: residual-rounding at 1 place" in result.stdout
    result = call("compare", f32, block, "--approximate", "int4")
    assert result.exit_code == 2
    assert "there is no approximation 'int4'" in result.stderr


def test_a_default_plan_knows_nothing_of_them(block: Path) -> None:
    """Nothing is approximated that is not asked for, and nothing is written of it."""
    plan = fqfuse.compile(block)
    assert plan == fqfuse.compile(block, approximate=[])
    names = ("rounding", "fractional-zero-point", "small-shift")
    assert not any(one.rule.endswith(names) for one in plan.decision_records)
    assert "approximate" not in plan.options
