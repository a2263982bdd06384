"""The first screen: golden texts, its size, and the arithmetic behind its numbers, by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.finding_cases import CASES, f32_operands
from support.finding_networks import Net
from support.onnx_cases import ort_session
from support.plan_text import parse_plan
from support.screen_networks import NETWORKS

import fqfuse
from fqfuse.errors import InvalidInput
from fqfuse.ir.types import DType, TensorType
from fqfuse.models.digits import digits_model_path
from fqfuse.plan.types import Plan
from fqfuse.report.layout import PIPE, Layout
from fqfuse.report.verdict.catalogue import CATALOGUE
from fqfuse.report.verdict.estimate import Remedied, costs_of
from fqfuse.report.verdict.findings import Finding, verdict_of
from fqfuse.report.verdict.kind import Gain
from fqfuse.report.verdict.layers import name_in_f32
from fqfuse.report.verdict.machine import machine_from, this_machine
from fqfuse.report.verdict.remedies import Tool, tool_of
from fqfuse.report.verdict.screen import (
    answer_text,
    findings_report,
    gain_text,
    is_shown,
    verdict_report,
)
from fqfuse.report.verdict.shares import share_text
from fqfuse.report.verdict.view import View
from fqfuse.report.verdict.work import operator_of, work_of

ROOT = Path(__file__).parents[2]
MODELS = {name: partial(make, False) for name, make in CASES.items()} | dict(NETWORKS)
MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=4, clock=3.0)


def screen(rendered, plan: Plan, title: str = "model.onnx") -> list[str]:
    return rendered(verdict_report(plan, verdict_of(plan, MACHINE), PIPE, title=title), PIPE)


@pytest.mark.golden("verdict")
def test_screen(golden, rendered) -> None:
    name = golden.input.strip()
    source = ROOT / name if name.endswith(".onnx") else MODELS[name]()
    plan = fqfuse.compile(source)
    lines = screen(rendered, plan, Path(name).name)
    golden.check("\n".join(lines))
    verdict = verdict_of(plan, MACHINE)
    shown = [finding for finding in verdict.findings if is_shown(finding, verdict)]
    if all(finding.kind.no_remedy for finding in shown):
        options = "One sentence about options, as long as two lines of the screen are. " * 2
        report = verdict_report(plan, verdict, PIPE, title=Path(name).name, more=options)
        assert len(rendered(report, PIPE)) <= 24


def test_what_nobody_can_change_stands_behind_no_gain_to_speak_of(rendered) -> None:
    """A GRU takes most of the time; what a model of fixed sizes would save is next to nothing."""
    net = Net()
    weights = f32_operands(net, 3)[1:]
    source = net.quantized("x")
    net.op("Shape", source, name="shape", out="z")
    net.op("GRU", source, *weights, name="cell", hidden_size=16, linear_before_reset=1, out="y")
    proto = net.proto(inputs={"x": ["time", 1, 16]}, outputs=["y", "z"])
    lines = screen(rendered, fqfuse.compile(proto))
    assert "Nothing in the quantization" in " ".join(lines)
    (first,) = (line for line in lines if line.startswith("1  "))
    assert "GRU" in first
    assert len(lines) <= 24


def test_the_networks_that_people_bring_first_have_a_screen() -> None:
    golden = {path.stem for path in (ROOT / "tests" / "golden" / "verdict").glob("*.txt")}
    assert set(NETWORKS) <= golden
    assert len(NETWORKS) == 13


def test_names_to_change_are_whole_and_the_others_counted(rendered) -> None:
    plan = fqfuse.compile(CASES["f32-product"](False))
    long = ["/encoder/" + letter * 50 + "/MatMul" for letter in "vwxyz"]
    index = next(i for i, step in enumerate(plan.steps) if step.origin[-1:] == ("conv2",))
    many = [replace(plan.steps[index], origin=(name,)) for name in long]
    plan = replace(plan, steps=(*plan.steps[:index], *many, *plan.steps[index + 1 :]))
    lines = rendered(verdict_report(plan, verdict_of(plan, MACHINE), Layout(80)), PIPE)
    text = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= 80
    assert f"take '{long[0]}', '{long[1]}', '{long[2]}' and 2 more (--findings lists them)" in text
    (found, *_) = verdict_of(plan, MACHINE).findings
    assert f"'{long[4]}' out of" in found.change()


def test_a_name_that_is_longer_than_a_line_stays_whole(rendered) -> None:
    plan = fqfuse.compile(CASES["f32-product"](False))
    long = "/encoder/" + "x" * 90 + "/MatMul"
    plan = replace(plan, steps=tuple(replace(step, origin=(long,)) for step in plan.steps))
    lines = rendered(verdict_report(plan, verdict_of(plan, MACHINE), PIPE), PIPE)
    assert any(repr(long) in line for line in lines)


def test_a_node_of_a_qoperator_file_is_changed_by_its_name_in_the_f32_model() -> None:
    assert name_in_f32("/conv1/Conv_quant", Tool.ORT) == "/conv1/Conv"
    assert name_in_f32("/conv1/Conv_quant", Tool.NNCF) == "/conv1/Conv_quant"
    finding = Finding(CATALOGUE["f32-product"], (0,), ("/a_quant", "/b"), 0.0, 0, Tool.ORT)
    assert finding.change().startswith("take '/a', '/b' out of nodes_to_exclude")
    assert finding.layers == ("/a_quant", "/b"), "as the file has them"


OPEN = """plan p target=onednn-v3
  in %a : f32[N,M,4]
  in %o : f32[M]
  in %m : f32[4,400]
  #0 %b : f32[N,M,400] = matmul<MatMul>(src=%a, weights=%m) ; matmul
  #1 %c : f32[N,M,400] = onnx.Floor<Floor>(x=%b) ; floor
  out %c
"""


def test_no_name_is_left_out_for_one_more() -> None:
    """`and 1 more` is as long as a name, and what is to be copied whole."""
    four, five = (
        Finding(CATALOGUE["absurd-scale"], (0,), tuple(names), 0.0, 0, Tool.ORT)
        for names in ("abcd", "abcde")
    )
    assert four.change(3, " (x)").startswith("nodes_to_exclude=['a', 'b', 'c', 'd'];")
    assert five.change(3, " (x)").startswith("nodes_to_exclude=['a', 'b', 'c' and 2 more (x)];")


@pytest.mark.parametrize(("ms", "text"), [(0.001, "saves under 1 %"), (0.5, "saves about 50 %")])
def test_a_share_of_open_sizes_reads_as_a_sentence(ms: float, text: str) -> None:
    verdict = verdict_of(parse_plan(OPEN), MACHINE)
    whole = verdict.estimate.ms
    found = Finding(CATALOGUE["f32-product"], (0,), ("a",), ms * whole, 1, Tool.ORT)
    assert gain_text(found, verdict) == f"{text} of the time at these sizes"


def test_calls_rank_nothing_where_sizes_are_open(rendered) -> None:
    plan = parse_plan(OPEN)
    taken, batch = verdict_of(plan, MACHINE), verdict_of(plan, MACHINE, {"M": 5})
    assert (taken.timed, batch.timed) == (False, True)
    assert taken.estimate.ms < MACHINE.call < batch.estimate.ms, "no call, and two"
    lines = rendered(verdict_report(plan, taken, PIPE), PIPE)
    text = " ".join(" ".join(lines).split())
    assert "guessed: N=1, M=1 (--size, --data), where bytes and shares mean little:" in text
    assert " ms" not in text
    text = "\n".join(rendered(verdict_report(plan, batch, PIPE), PIPE))
    assert "guessed: N=1 (--size, --data):" in text


def test_a_gain_below_one_percent_is_no_headline() -> None:
    plan = fqfuse.compile(CASES["concat-parameters"](False))
    verdict = verdict_of(plan, MACHINE)
    for finding in verdict.findings:
        if finding.kind.gain is Gain.TIME and not finding.kind.no_remedy:
            assert not is_shown(finding, verdict) or finding.ms >= 0.01 * verdict.estimate.ms
    gain = 0.009 * verdict.estimate.ms
    timed = next(each for each in verdict.findings if each.kind.gain is Gain.TIME)
    small = replace(timed, ms=gain, bytes=10**9, handed_on=0)
    assert not is_shown(small, verdict)


def test_a_finding_that_saves_nothing_is_no_headline() -> None:
    """It hands on f32, and the change costs as much as it saves."""
    verdict = verdict_of(fqfuse.compile(CASES["f32-residual"](False)), MACHINE)
    found = next(each for each in verdict.findings if each.kind.code == "f32-residual")
    residual = replace(found, ms=0.009 * verdict.estimate.ms)
    assert is_shown(residual, verdict)
    only = replace(verdict, findings=(residual,))
    assert "would make it notably faster" in " ".join(answer_text(only).split())


def test_a_gain_that_hardly_anybody_measures_stands_behind_accuracy() -> None:
    plan = fqfuse.compile(CASES["concat-parameters"](False))
    verdict = verdict_of(plan, MACHINE)
    first, second = verdict.findings[:2]
    assert (first.kind.gain, second.kind.gain) == (Gain.ACCURACY, Gain.TIME)
    assert 0 < second.ms < 0.03 * verdict.estimate.ms


def test_quantizing_what_a_layer_normalization_gives_promises_nothing() -> None:
    """It takes as much longer to write codes as the quantizer behind it, which is measured."""

    def gain(normalized: bool) -> float:
        net = Net()
        hidden = net.matmul(net.quantized("x"), "fc1")
        skip = net.op("Relu", hidden, name="relu")
        if normalized:
            ends = [net.constant(np.ones(16, np.float32)) for _ in range(2)]
            skip = net.op("LayerNormalization", skip, *ends, name="norm")
        added = net.op("Add", net.matmul(net.quantized(skip), "fc2"), skip, name="add")
        net.op("Sigmoid", added, name="last", out="y")
        verdict = verdict_of(fqfuse.compile(net.proto(inputs={"x": [512, 16]})), MACHINE)
        return next(e.ms for e in verdict.findings if e.kind.code == "f32-residual")

    assert gain(normalized=False) > 3 * gain(normalized=True)


@pytest.mark.parametrize(("path", "shown"), [("", 12), ("encoder/attention/self/" * 2, 8)])
def test_names_that_are_to_be_copied_are_shown_where_they_fit(
    rendered, path: str, shown: int
) -> None:
    net = Net()
    for number in range(20):
        net.conv(net.quantized("x", 1e36), f"{path}c{number}", out=f"y{number}")
    plan = fqfuse.compile(net.proto(outputs=[f"y{number}" for number in range(20)]))
    lines = screen(rendered, plan)
    start = next(index for index, line in enumerate(lines) if line.startswith("   change"))
    change = "\n".join(lines[start : start + 10]).split("]")[0]
    assert change.count(f"'{path}c") == shown
    assert f"and {20 - shown} more (--findings lists them)" in " ".join(change.split())
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize("layers", [1, 120])
def test_a_model_without_problems_takes_24_lines_whatever_its_size(rendered, layers: int) -> None:
    net = Net()
    value = "x"
    for number in range(layers):
        value = net.conv(net.quantized(value), f"conv{number}")
    net.conv(net.quantized(value), "last", out="y")
    lines = screen(rendered, fqfuse.compile(net.proto()))
    assert len(lines) <= 24
    assert lines[1].startswith("  All multiply-adds run in int8, and no step hands f32 to another.")


PRODUCTS = """plan p target=onednn-v3
  in %x : f32[N,8,10,10]
  in %w : f32[16,2,3,3]
  in %d : f32[16,5,2,2]
  in %m : f32[4,7]
  in %a : f32[2,3,4]
  #0 %y : f32[N,16,5,5] = convolution<Conv>(src=%x, weights=%w){group=4} ; conv
  #1 %z : f32[N,5,6,6] = deconvolution<ConvTranspose>(src=%y, weights=%d) ; deconv
  #2 %b : f32[2,3,7] = matmul<MatMul>(src=%a, weights=%m) ; matmul
  #3 %r : f32[5,36] = onnx.Reshape<Reshape>(data=%z) ; view
  out %r, %b
"""


def test_multiply_adds_and_bytes_by_hand() -> None:
    plan = parse_plan(PRODUCTS)
    works = [work_of(plan, step) for step in plan.steps]
    assert [work.macs for work in works] == [
        16 * 5 * 5 * 2 * 3 * 3,  # each output element: the input channels of its group, the window
        16 * 5 * 5 * 5 * 2 * 2,  # each input element: the output channels, the window
        2 * 3 * 7 * 4,
        0,
    ]
    assert works[0].read == 4 * (8 * 100 + 16 * 2 * 9)
    assert works[0].written == 4 * 16 * 25
    assert works[3].bytes == 0, "another shape of the same memory"
    assert work_of(plan, plan.steps[0], frozenset({"x", "w", "y"})).bytes * 4 == works[0].bytes


def test_a_recurrence_multiplies_input_and_state_in_every_step() -> None:
    plan = fqfuse.compile(CASES["unquantized-recurrence"](False))
    (step,) = [step for step in plan.steps if operator_of(step) == "LSTM"]
    assert work_of(plan, step).macs == 4 * 2 * 4 * (16 * 16 + 16 * 16)


def test_a_step_takes_its_arithmetic_or_its_bytes_and_a_call() -> None:
    plan = parse_plan(PRODUCTS)
    fast = replace(MACHINE.at_peak, f32=1e12)
    moved = work_of(plan, plan.steps[0]).bytes
    assert costs_of(plan, fast).ms[0] == pytest.approx(moved / (8 * 3e6 * 4) + fast.call)
    slow = replace(MACHINE.at_peak, f32=1e-3)
    costs = costs_of(plan, slow)
    assert costs.ms[0] == pytest.approx(7200 / (1e-3 * 3e6 * 4) + fast.call)
    assert costs.estimate.ms == pytest.approx(sum(costs.ms))
    in_int8 = costs.saved(Remedied(int8=frozenset({0})), [0])
    assert 0 < in_int8.ms < costs.ms[0]
    assert in_int8.bytes == 0
    gone = costs.saved(Remedied(gone=frozenset({0})), [0])
    assert (gone.ms, gone.bytes) == (pytest.approx(costs.ms[0]), moved)
    narrow = costs.saved(Remedied(narrow=frozenset({"y"})), [0, 1])
    assert narrow.bytes == 2 * 3 * 16 * 25, "once written, once read, three bytes an element less"


ZEN4 = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\ncpu MHz\t\t: 2596.136\nflags\t\t: avx2 avx512bw avx512_vnni\n\nprocessor\t: 1\n"


@pytest.mark.parametrize(
    ("text", "int8", "f32", "exact"),
    [
        (ZEN4, 64, 16, True),
        (ZEN4.replace("family\t: 25", "family\t: 26"), 128, 32, True),
        (ZEN4.replace("AuthenticAMD", "GenuineIntel"), 128, 32, True),
        ("flags\t\t: avx2 avx_vnni\n", 64, 16, True),
        ("flags\t\t: avx2 avx512bw\n", 42.7, 32, False),
        ("flags\t\t: avx2\n", 32, 16, False),
        ("flags\t\t: avx512_vnni amx_int8\n", 1024, 32, True),
        ("flags\t\t: sse4_1\n", 8, 4, False),
        ("", 16, 8, True),
    ],
)
def test_rates_follow_from_the_instruction_set(text: str, int8: float, f32: float, exact) -> None:
    machine = machine_from(text, cores=2)
    assert (machine.int8, machine.f32, machine.exact_int8) == (int8, f32, exact)
    assert machine.clock == (3.8 if "MHz" in text else 4.0)
    named = machine_from(f"model name\t: X @ 2.40GHz\n{text}", cores=2)
    assert named.clock == 3.5


def test_this_machine_is_known_and_stays_the_same() -> None:
    assert this_machine() is this_machine()
    assert this_machine().cores >= 1


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (9999, 10000, "over 99 %"),
        (1, 10000, "under 1 %"),
        (1, 3, "33 %"),
        (0, 0, "0 %"),
    ],
)
def test_a_share_never_rounds_to_all_or_nothing(part: int, whole: int, text: str) -> None:
    assert share_text(part, whole) == text


@pytest.mark.parametrize(
    ("name", "form", "tool"),
    [
        ("QuantizeLinear_/conv1/Conv_output_0_1", "QuantizeLinear", Tool.NNCF),
        ("DequantizeLinear_fc.weight_1", "DequantizeLinear on a constant", Tool.NNCF),
        ("features/fq", "FakeQuantize", Tool.NNCF),
        ("/conv1/Conv_output_0_QuantizeLinear", "QuantizeLinear", Tool.ORT),
        ("conv1_quant", "QLinearConv", Tool.ORT),
        ("/fc/MatMul_quant.b", "MatMulInteger of codes", Tool.ORT_DYNAMIC),
        ("x", "DynamicQuantizeLinear", Tool.ORT_DYNAMIC),
        ("/conv1/QuantizeLinear", "QuantizeLinear", Tool.PYTORCH),
        ("q", "Quant", Tool.ANY),
    ],
)
def test_the_names_tell_which_quantizer_wrote_a_model(name: str, form: str, tool: Tool) -> None:
    text = f'plan p target=onednn-v3\n  in %x : f32[1]\n  out %x\n  quantizer "{name}" : "{form}" of x\n'
    assert tool_of(parse_plan(text)) is tool


def test_a_scalar_input_leaves_no_size_open() -> None:
    plan = parse_plan("plan p target=onednn-v3\n  in %a : f32[]\n  out %a\n")
    assert verdict_of(plan, MACHINE).guessed == {}


def test_modules_named_like_quantizers_are_layers() -> None:
    net = Net()
    names = ["/enc/QuantizeLinear_0/Conv", "/enc/a{{b}}/Conv", "/enc/{names}/Conv"]
    value = "x"
    for name in names[:-1]:
        weights = net.constant(np.ones((8, 8, 3, 3), np.float32))
        value = net.op("Conv", value, weights, name=name, pads=[1] * 4)
    net.op("Conv", value, net.constant(np.ones((8, 8, 3, 3), np.float32)), name=names[-1], out="y")
    net.quantized("y")
    (found,) = [
        f for f in fqfuse.findings(fqfuse.compile(net.proto())) if f["code"] == "f32-product"
    ]
    assert sorted(found["layers"]) == sorted(names)
    assert all(repr(name) in found["change"] for name in names)


def test_a_fake_quantize_of_a_computed_range_is_a_range_taken_at_run_time() -> None:
    net = Net()
    ends = [net.op(op, "x", name=op, keepdims=0) for op in ("ReduceMin", "ReduceMax")] * 2
    quantized = net.op(
        "FakeQuantize", "x", *ends, name="fq", levels=256, domain="org.openvinotoolkit"
    )
    net.conv(quantized, "conv", out="y")
    found, *_ = fqfuse.findings(fqfuse.compile(net.proto()))
    assert (found["code"], found["layers"]) == ("dynamic-quantizer", ["fq"])
    assert len(found["steps"]) >= 4  # both ends, the grid, and what makes codes by it


def test_lines_end_at_80_columns_under_a_long_title(rendered) -> None:
    plan = fqfuse.compile(CASES["f32-product"](False))
    assert max(map(len, screen(rendered, plan, "t" * 60))) <= 80


def test_a_clip_at_zero_leaves_the_sign_unused() -> None:
    net = Net()
    ends = [net.constant(np.float32(end)) for end in (0, 6)]
    hidden = net.op("Clip", net.conv(net.quantized("x"), "conv1"), *ends)
    net.conv(net.quantized(hidden, zero=np.int8(0)), "conv2", out="y")
    codes = {f.kind.code for f in verdict_of(fqfuse.compile(net.proto()), MACHINE).findings}
    assert "unused-sign" in codes


@pytest.mark.parametrize("report", [verdict_report, findings_report])
def test_names_are_shown_printable(rendered, report) -> None:
    plan = fqfuse.compile(CASES["f32-product"](False))
    hostile = "[bold]a\x1b[31m\u202eb\nc"
    steps = tuple(replace(step, origin=(hostile,)) for step in plan.steps)
    plan = replace(plan, steps=steps, name=hostile)
    for layout in (PIPE, Layout(60)):
        text = "\n".join(rendered(report(plan, verdict_of(plan, MACHINE), layout), layout))
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "[bold]a" in text


def test_saturation_is_told_only_where_the_cpu_saturates() -> None:
    plan = fqfuse.compile(CASES["saturation-without-vnni"](False))
    code = "saturation-without-vnni"
    assert code not in {finding.kind.code for finding in verdict_of(plan, MACHINE).findings}
    old = machine_from("flags\t\t: avx2\n", cores=4)
    assert code in {finding.kind.code for finding in verdict_of(plan, old).findings}


def test_a_constant_that_is_no_data_is_no_absurd_scale() -> None:
    """A clip to the ends of f32 says nothing, and is no scale."""
    net = Net()
    hidden = net.op(
        "Clip",
        net.conv(net.quantized("x"), "conv1"),
        net.constant(np.float32(0)),
        net.constant(np.float32(1e37)),
    )
    net.conv(net.quantized(hidden), "conv2", out="y")
    codes = {f.kind.code for f in verdict_of(fqfuse.compile(net.proto()), MACHINE).findings}
    assert "absurd-scale" not in codes


@pytest.mark.parametrize("scale", [np.inf, np.nan, 0.0, 1.33e36])
def test_a_quantizer_that_cannot_divide_is_the_first_thing_said(scale: float) -> None:
    """An infinite scale is what a calibration makes of -3.4e38 and a positive number. Such a quantizer
    stays the ONNX operator, so that no scale of the plan tells of it.
    """
    net = Net()
    hidden = net.op("Sigmoid", net.conv(net.quantized("x"), "conv1"))
    net.conv(net.quantized(hidden, scale), "conv2", out="y")
    verdict = verdict_of(fqfuse.compile(net.proto()), MACHINE)
    first = verdict.findings[0]
    assert first.kind.code == "absurd-scale"
    assert "conv2" in first.layers
    assert [f.kind.code for f in verdict.findings].count("absurd-scale") == 1


def test_a_long_chain_of_moves_shares_what_lies_behind_it() -> None:
    """Otherwise the verdict on n moves would take n * n steps."""
    lines = ["plan p target=onednn-v3", "  in %v0 : f32[4,4]"]
    for number in range(300):
        moved = f"onnx.Transpose<Transpose>(data=%v{number}){{perm=[1,0]}}"
        lines.append(f"  #{number} %v{number + 1} : f32[4,4] = {moved} ; move{number}")
    lines += ["  #300 %y : f32[4,4] = softmax<Softmax>(src=%v300) ; softmax", "  out %y"]
    view = View(parse_plan("\n".join(lines)))
    assert [reading.step for reading in view.behind("v1")] == [300]
    assert all(view.behind(f"v{number}") is view.behind("v300") for number in range(1, 300))


def test_sizes_that_are_given_count_and_formulas_follow() -> None:
    plan = parse_plan(PRODUCTS)
    plan = replace(
        plan,
        values=plan.values
        | {"y": TensorType(DType.F32, ("2*N", 16, 5, 5)), "r": TensorType(DType.F32, ("?",))},
    )
    one, seven = verdict_of(plan, MACHINE), verdict_of(plan, MACHINE, {"N": 7})
    matmul = 2 * 3 * 7 * 4
    deconvolution = 2 * 16 * 5 * 5 * 5 * 2 * 2
    convolution = 2 * 16 * 5 * 5 * 2 * 3 * 3
    assert one.shares.macs == convolution + deconvolution + matmul
    assert seven.shares.macs == 7 * (convolution + deconvolution) + matmul
    assert (one.guessed, seven.guessed) == ({"N": 1}, {})
    assert fqfuse.findings(plan, sizes={"N": 7})[0]["ms"] > fqfuse.findings(plan)[0]["ms"]


def test_sizes_that_the_model_computes_with_follow_from_those_that_are_given() -> None:
    """As transformers exported with open sizes look up positions: Shape, Gather and Range."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (int64[batch, seq] ids) => (float[n, 4] y)
        <int64 one = {1}, int64 zero = {0}, float[512, 8] table = {0}, float[8, 4] w = {0}>
        {
            sizes = Shape(ids)
            length = Gather(sizes, one)
            positions = Range(zero, length, one)
            found = Gather(table, positions)
            y = MatMul(found, w)
        }
    """)
    for name, shape in (("table", (512, 8)), ("w", (8, 4))):
        weights = onnx.numpy_helper.from_array(np.ones(shape, np.float32), name)
        next(item for item in model.graph.initializer if item.name == name).CopyFrom(weights)
    verdict = verdict_of(fqfuse.compile(model), MACHINE, {"batch": 2, "seq": 64})
    assert verdict.shares.macs == 64 * 8 * 4
    guessed = verdict_of(fqfuse.compile(model), MACHINE)
    assert guessed.guessed == {"batch": 1, "seq": 128}
    assert guessed.shares.macs == 128 * 8 * 4


def test_a_size_of_0_counts_as_0() -> None:
    """An empty cache of keys, say: what is computed of it is nothing, and the rest stays."""
    plan = parse_plan(PRODUCTS)
    assert verdict_of(plan, MACHINE, {"N": 0}).shares.macs < verdict_of(plan, MACHINE).shares.macs
    digits = fqfuse.compile(digits_model_path("qdq"))
    assert verdict_of(digits, MACHINE, {"N": 0}).shares.macs == 0


def test_sizes_of_1_that_do_not_fit_the_model_count_as_they_are() -> None:
    net = Net()
    net.op("Conv", "x", net.constant(np.ones((4, 3, 3, 3), np.float32)), name="conv", out="y")
    plan = fqfuse.compile(net.proto(inputs={"x": [1, 3, "height", "width"]}))
    assert verdict_of(plan, MACHINE).shares.macs == 222 * 222 * 4 * 3 * 3 * 3
    assert verdict_of(plan, MACHINE, {"height": 1, "width": 1}).shares.macs == 4 * 3 * 3 * 3
    assert verdict_of(plan, MACHINE, {"height": 5, "width": 5}).shares.macs == 9 * 4 * 3 * 3 * 3


@pytest.mark.parametrize("sizes", [{"M": 2}, {"N": -1}, {"N": True}, {"N": "3"}, ["N"]])
def test_a_wrong_size_is_told(sizes) -> None:
    with pytest.raises(fqfuse.InvalidInput):
        fqfuse.findings(parse_plan(PRODUCTS), sizes=sizes)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_networks_are_models_that_onnx_runtime_takes(name: str) -> None:
    session = ort_session(NETWORKS[name]())
    assert [output.name for output in session.get_outputs()] == ["logits"]


@pytest.mark.parametrize("size", [2, np.int64(2), np.uint8(2), np.array(2)], ids=repr)
def test_any_integer_is_a_size(size) -> None:
    plan = fqfuse.compile(digits_model_path("qdq"))
    by_two, given = (
        (plan.findings(sizes=sizes), plan.steps_table(sizes=sizes), plan.to_html(sizes=sizes))
        for sizes in ({"N": 2}, {"N": size})
    )
    assert given == by_two
    assert all(type(row["macs"]) is int for row in given[1])


@pytest.mark.parametrize(
    "size", [-1, 2.0, "2", None, True, np.float32(2), np.array([2, 3])], ids=repr
)
def test_what_is_no_whole_number_is_no_size(size) -> None:
    plan = fqfuse.compile(digits_model_path("qdq"))
    with pytest.raises(InvalidInput, match="no size of 'N'"):
        plan.findings(sizes={"N": size})


def transformer() -> onnx.ModelProto:
    """A layer whose residual addition a layer normalization reads, with no quantizer on its terms."""
    net, ones = Net(), np.ones(16, np.float32)
    first = net.op("LayerNormalization", "x", net.constant(ones), net.constant(ones), name="first")
    added = net.op("Add", net.matmul(net.quantized(first), "fc"), first, name="add")
    net.op(
        "LayerNormalization", added, net.constant(ones), net.constant(ones), name="last", out="y"
    )
    return net.proto(inputs={"x": [512, 16]})


def test_a_sum_that_a_layer_normalization_reads_is_no_residual_addition() -> None:
    """Its codes would be decoded there: it belongs to what computes in f32, with the quantizers around it."""
    plan = fqfuse.compile(transformer())
    found = {each.kind.code: each for each in verdict_of(plan, MACHINE).findings}
    assert "f32-residual" not in found
    (addition,) = (i for i, step in enumerate(plan.steps) if "add" in step.origin)
    assert View(plan).stays_float(plan.steps[addition].output)
    assert addition in found["float-operation"].steps
    assert found["float-operation"].kind.no_remedy


@pytest.mark.parametrize(
    ("name", "in_f32"),
    [
        ("/layer/LayerNormalization_0_0/nncf_smooth_quant", "/layer/LayerNormalization"),
        ("/layer/Reshape_3_0_12/nncf_smooth_quant", "/layer/Reshape_3"),
        ("/nncf_smooth_quant/MatMul_1_0", "/nncf_smooth_quant/MatMul_1_0"),
    ],
)
def test_a_multiplication_that_nncf_added_is_told_by_the_node_in_front(
    name: str, in_f32: str
) -> None:
    assert name_in_f32(name) == in_f32
