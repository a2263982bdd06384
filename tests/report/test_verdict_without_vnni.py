"""What is said and estimated of a CPU without VNNI: codes that may saturate are multiplied in f32 there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.finding_cases import CASES
from support.finding_networks import Net

import fqfuse
from fqfuse.onednn.enums import CpuIsa
from fqfuse.report.html.data import document
from fqfuse.report.layout import PIPE
from fqfuse.report.tables import steps_table
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.kind import Gain
from fqfuse.report.verdict.machine import machine_from, this_machine
from fqfuse.report.verdict.remedies import Tool
from fqfuse.report.verdict.screen import verdict_report
from fqfuse.report.why.index import Index
from fqfuse.report.why.story import story_of

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=1, clock=3.0)
OLD = machine_from("flags\t\t: avx2\n", cores=1, clock=3.0)


@pytest.mark.parametrize(
    ("most", "isa"),
    [
        ("", "vnni"),
        ("avx512_core_amx", "vnni"),
        ("avx512_core_bf16", "vnni"),
        ("avx512_core", "avx512_core"),
        ("avx2_vnni", "vnni"),
        ("avx2", "avx2"),
        ("sse41", "sse41"),
    ],
)
def test_the_instruction_sets_that_onednn_may_use_decide(most: str, isa: str) -> None:
    flags = "flags\t\t: sse4_1 avx2 avx_vnni avx512bw avx512_vnni amx_int8\n"
    machine = machine_from(flags, cores=1, most=CpuIsa[most] if most else CpuIsa.default)
    assert (machine.isa, machine.exact_int8) == (isa, isa == "vnni")
    assert machine != machine.at_peak, "estimates are no bounds"


def test_the_variable_of_onednn_is_read(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("flags\t\t: avx2 avx512bw avx512_vnni\n", encoding="utf-8")
    monkeypatch.setattr("fqfuse.report.verdict.machine._CPUINFO", tmp_path / "cpuinfo")
    for told, isa in (("AVX2", "avx2"), ("avx512_core", "avx512_core"), ("ALL", "vnni")):
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", told)
        assert this_machine.__wrapped__().isa == isa


def strided(weights: np.ndarray) -> fqfuse.Plan:
    net = Net()
    net.conv(net.quantized("x"), "conv", out="y", weights=net.weights(weights))
    return fqfuse.compile(net.proto(inputs={"x": [1, weights.shape[1], 14, 14]}))


@pytest.mark.parametrize(("deep", "products"), [(64, 1), (1024, 2)])
def test_a_product_that_may_saturate_is_priced_as_products_in_f32(deep: int, products: int) -> None:
    """A proven one is priced as one of codes; with VNNI each is."""
    full = strided(np.full((64, deep, 3, 3), 127, np.int8))
    fits = strided(np.full((64, deep, 3, 3), 63, np.int8))
    for plan, in_f32 in ((full, products), (fits, 0)):
        costs = verdict_of(plan, OLD).costs
        (index,) = (i for i, step in enumerate(plan.steps) if step.primitive == "convolution")
        work = costs.works[index]
        assert work.in_f32 == in_f32
        taken = OLD.ms_of(work.macs * max(1, in_f32), int8=not in_f32)
        assert costs.ms[index] == pytest.approx(taken + OLD.call)
        assert verdict_of(plan, MACHINE).costs.works[index].in_f32 == 0
    (found,) = (f for f in verdict_of(full, OLD).findings if f.kind.gain is Gain.TIME)
    assert found.kind.code == "saturation-without-vnni"
    gained = verdict_of(full, OLD).estimate.ms - verdict_of(fits, OLD).estimate.ms
    assert found.ms == pytest.approx(gained)


def test_every_report_says_where_codes_are_multiplied_in_f32(rendered) -> None:
    plan = strided(np.full((64, 64, 3, 3), 127, np.int8))
    text = " ".join(
        " ".join(rendered(verdict_report(plan, verdict_of(plan, OLD), PIPE), PIPE)).split()
    )
    assert "0 % of the multiply-adds run in int8, and 100 % multiply codes in f32" in text
    assert "0 % in int8, 100 % of codes in f32" in text
    assert "what kernels reach on" in text
    assert "at the peak rates" not in text
    page = document(plan, machine=OLD)
    kinds = [page["categories"][step["category"]] for step in page["steps"]]
    rows = steps_table(plan, machine=OLD)
    assert [kind == "coded" for kind in kinds] == [row["codes_in_f32"] for row in rows]
    assert kinds.count("coded") == 1
    (name,) = (row["origin"][0] for row in rows if row["codes_in_f32"])
    story = story_of(Index(plan), name, verdict_of(plan, OLD))
    assert "runs on codes in f32 as step" in story.answer


@pytest.mark.parametrize("tool", [Tool.ORT, Tool.NNCF, Tool.PYTORCH])
def test_no_option_is_named_for_products_of_two_activations(tool: Tool) -> None:
    """They have no weights, so that `reduce_range` leaves them as they are: it may be in force already."""
    net = Net()
    left, right = net.quantized("x"), net.quantized("z")
    net.op("MatMul", left, right, name="scores", out="y")
    plan = fqfuse.compile(net.proto(inputs={"x": [16, 64], "z": [64, 16]}))
    (found,) = (
        f for f in verdict_of(plan, OLD).findings if f.kind.code == "saturation-without-vnni"
    )
    told = replace(found, tool=tool).change()
    assert "fqfuse fix MODEL -o OUT" in told
    for option in ("reduce_range=True", "overflow_fix", "quant_min"):
        assert option not in told


def test_what_makes_products_int8_asks_for_weights_of_7_bits() -> None:
    """With 8 bits they would run in f32 as before."""
    plan = fqfuse.compile(CASES["not-quantized"](False))
    told = [verdict_of(plan, machine).findings[0].change() for machine in (OLD, MACHINE)]
    assert told[0] == told[1] + "; with weights of 7 bits (saturation-without-vnni)"
