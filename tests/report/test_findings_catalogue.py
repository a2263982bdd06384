"""Each kind of the catalogue: a small model that provokes it, and the same model with the remedy, where
it is gone; and docs/findings.md, which describes them all.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from make.findings import findings_document
from support.finding_cases import CASES, OPTIONS
from support.finding_networks import Net, codes

import fqfuse
from fqfuse.plan.types import Plan
from fqfuse.report.verdict.catalogue import CATALOGUE
from fqfuse.report.verdict.findings import Finding, verdict_of
from fqfuse.report.verdict.kind import Gain
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.remedies import Tool
from fqfuse.report.verdict.screen import gain_text

VNNI = machine_from("flags\t\t: avx512_vnni\n", cores=2, clock=3.0)
AVX2 = machine_from("flags\t\t: avx2\n", cores=2, clock=3.0)


def found_in(plan: Plan, code: str) -> dict[str, Finding]:
    machine = AVX2 if code == "saturation-without-vnni" else VNNI
    return {finding.kind.code: finding for finding in verdict_of(plan, machine).findings}


def test_every_kind_has_a_case() -> None:
    assert set(CASES) | {"other"} == set(CATALOGUE)


@pytest.mark.each_case
@pytest.mark.parametrize("code", CASES)
def test_a_model_provokes_it(code: str) -> None:
    provoked = found_in(fqfuse.compile(CASES[code](False)), code)
    assert code in provoked
    gains = CATALOGUE[code].gain is Gain.TIME
    assert (provoked[code].ms > 0) == gains, "a gain in time is estimated"


@pytest.mark.each_case
@pytest.mark.parametrize("code", [code for code in CASES if CATALOGUE[code].remedies])
def test_the_remedy_removes_it(code: str) -> None:
    cured = fqfuse.compile(CASES[code](True), **OPTIONS.get(code, {}))
    assert code not in found_in(cured, code)


# -- sizes that the model leaves open --------------------------------------------------------------


def test_the_tool_that_fixes_sizes_does_as_the_remedy_says(tmp_path: Path) -> None:
    """The command of the remedy, once for each size: what is left is what fixed sizes need."""
    path = tmp_path / "0.onnx"
    onnx.save(CASES["open-sizes"](False), path)
    (found,) = (f for f in fqfuse.findings(fqfuse.compile(path)) if f["code"] == "open-sizes")
    tool, arguments = re.search(r"python -m (\S+) (.*?) MODEL", found["change"]).groups()
    for step, (name, size) in enumerate({"batch": "2", "sequence": "8"}.items(), 1):
        told = arguments.replace("NAME", name).replace(" N", f" {size}").split()
        files = [str(path), str(path := tmp_path / f"{step}.onnx")]
        subprocess.run([sys.executable, "-m", tool, *told, *files], check=True)
    before, after = (fqfuse.compile(each) for each in (tmp_path / "0.onnx", path))
    assert "open-sizes" not in found_in(after, "open-sizes")
    gone = len(found["steps"])
    assert len(before.steps) - gone >= len(after.steps), (before.steps, after.steps)


def test_sizes_of_1_are_told_by_steps_until_others_are_given() -> None:
    plan = fqfuse.compile(CASES["open-sizes"](False))
    unknown = verdict_of(plan, VNNI, {"batch": 1, "sequence": 1})
    unknown = replace(unknown, guessed={"sequence": 1}, timed=False)
    known = verdict_of(plan, VNNI, {"batch": 2, "sequence": 8})
    told = [
        gain_text(next(f for f in each.findings if f.kind.code == "open-sizes"), each)
        for each in (unknown, known)
    ]
    first = next(f for f in unknown.findings if f.kind.code == "open-sizes")
    assert "add" in first.layers
    assert told[0] == f"saves {len(first.steps)} of {len(plan.steps)} steps"
    assert re.fullmatch(r"saves about \S+ of \S+ ms, .*", told[1])


def test_a_batch_alone_is_no_finding() -> None:
    """Convolutions with a skip, and a classifier behind `x.view(x.size(0), -1)`."""
    net = Net()
    hidden = net.op("Relu", net.conv(net.quantized("x"), "conv"))
    added = net.op("Add", net.conv(net.quantized(hidden), "conv2"), hidden)
    batch = net.op("Gather", net.op("Shape", added), net.constant(np.int64([0])))
    sizes = net.op("Concat", batch, net.constant(np.int64([-1])), axis=0)
    rows = net.op("Reshape", net.quantized(net.op("GlobalAveragePool", added)), sizes)
    net.op("MatMul", rows, net.weights(codes((8, 16)), axis=1), name="fc", out="y")
    plan = fqfuse.compile(net.proto(inputs={"x": ["batch", 8, 16, 16]}))
    assert isinstance(plan.type("x").shape[0], str)
    assert "open-sizes" not in found_in(plan, "open-sizes")


def test_a_few_sizes_of_a_run_are_no_finding() -> None:
    """One Slice by a size of a run: it costs nothing to speak of."""
    net = Net()
    first, axis = net.constant(np.int64([2])), net.constant(np.int64([1]))
    size = net.op("Gather", net.op("Shape", "x"), net.constant(np.int64([1])))
    table = net.constant(np.ones([1, 64, 16], np.float32))
    net.matmul(net.quantized("x"), "fc1", out="y")
    net.matmul(net.quantized(net.op("Slice", table, first, size, axis)), "fc2", out="z")
    plan = fqfuse.compile(net.proto(inputs={"x": ["batch", "sequence", 16]}, outputs=["y", "z"]))
    assert "onnx.Shape" in {step.primitive for step in plan.steps}
    assert "open-sizes" not in found_in(plan, "open-sizes")


def test_sizes_that_data_decides_are_no_finding() -> None:
    """Nobody can fix how many numbers are not 0: no step on that belongs to the finding."""
    net = Net()
    hidden = net.op("Transpose", net.op("NonZero", net.matmul(net.quantized("x"), "fc")))
    value = net.op("Shape", hidden)
    for _ in range(8):
        value = net.op("Mul", value, net.op("Mod", value, net.constant(np.int64([7, 5]))))
    net.op("Identity", value, name="last", out="y")
    plan = fqfuse.compile(net.proto(inputs={"x": [4, 16]}))
    assert sum(step.primitive == "onnx.Mod" for step in plan.steps) == 8
    assert "open-sizes" not in found_in(plan, "open-sizes")


def test_what_no_rule_knows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = fqfuse.compile(CASES["float-operation"](False))
    monkeypatch.setattr("fqfuse.report.verdict.recognize._RULES", {})
    found = found_in(plan, "other")
    assert list(found) == ["other"]
    assert [plan.steps[index].primitive for index in found["other"].steps] == ["matmul", "matmul"]
    assert "no rule here knows why" in found["other"].kind.why


def test_each_kind_says_what_to_change_or_why_nothing_helps() -> None:
    for kind in CATALOGUE.values():
        assert bool(kind.remedies) != bool(kind.no_remedy), kind.code
        assert not kind.remedies or Tool.ANY in kind.remedies, kind.code
        for tool in Tool:
            assert kind.remedy(tool)[1], kind.code


def test_the_document_is_the_catalogue() -> None:
    path = Path(__file__).parents[2] / "docs" / "findings.md"
    assert path.read_text(encoding="utf-8") == findings_document(), "run `make docs`"


def test_the_document_names_tests_that_there_are() -> None:
    """Each kind has its two, and each of them runs on the case that it names."""
    rows = dict(re.findall(r"^\| \[(\S+)\]\(#\1\) \| (.*) \|$", findings_document(), re.MULTILINE))
    assert set(rows) == set(CATALOGUE)
    texts = [
        (Path(__file__).parent / f"test_findings_{name}.py").read_text(encoding="utf-8")
        for name in ("catalogue", "without_remedy")
    ]
    for code, row in rows.items():
        provoking, curing = row.strip("`").split("` | `")
        for test in (provoking, curing):
            name, _, case = test.rstrip("]").partition("[")
            assert sum(text.count(f"def {name}(") for text in texts) == 1, test
            assert case in ("", code), test
        assert code in CASES or provoking == curing == "test_what_no_rule_knows_says_so"
        cures = code in CASES and bool(CATALOGUE[code].remedies)
        assert curing.startswith("test_the_remedy_removes_it[") == cures


def test_findings_as_data() -> None:
    plan = fqfuse.compile(CASES["f32-product"](False))
    assert verdict_of(plan, VNNI).findings[0].kind.code == "f32-product"
    (first,) = (each for each in fqfuse.findings(plan) if each["code"] == "f32-product")
    assert first["layers"] == ["conv2"]
    assert first["tool"] == "ONNX Runtime, quantize_static"
    assert "'conv2'" in first["change"]
