"""Products whose weights are codes in blocks, and whose sources become codes as they run: plan, file,
placement and numbers, against ONNX Runtime at accuracy_level 4.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from support.onnx_cases import run_ort
from support.packed_models import FORMS, Net, Scheme, network
from support.plan_text import parse_plan

import fqfuse
from fqfuse.errors import PlanError
from fqfuse.ir.decision import DequantizeFate, Half, Outcome, QuantizeFate
from fqfuse.onednn.coded_kernels import coded_kernels
from fqfuse.onednn.loading import load
from fqfuse.plan.file import plan_bytes, read_plan
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan, runs_in_int8
from fqfuse.plan.verify import verify_plan
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.work import work_of
from fqfuse.runtime.lowering import packed

KERNEL = "packed codes by "


def coded_steps(plan: Plan) -> list:
    return [step for step in plan.steps if step.params.get("source_bits") == 8]


def product(
    rows: int, size: int, columns: int, scheme: Scheme | None = None, **attributes: int
) -> onnx.ModelProto:
    net = Net(scheme or Scheme())
    proto = net.model(net.linear("x", size, columns), (rows, size))
    for node in proto.graph.node:
        if node.op_type == "MatMulNBits":
            node.attribute.extend(onnx.helper.make_attribute(*pair) for pair in attributes.items())
    return proto


def feeds_for(proto: onnx.ModelProto, seed: int = 3) -> dict[str, np.ndarray]:
    dims = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(seed).standard_normal(dims).astype(np.float32)}


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("rows", "size", "columns"), [(1, 768, 64), (5, 100, 33), (64, 512, 96)])
def test_products_agree_with_onnx_runtime(rows, size, columns, bits, block, symmetric):
    proto = product(rows, size, columns, Scheme("nbits", bits, block, symmetric), accuracy_level=4)
    feeds = feeds_for(proto)
    (wanted,) = run_ort(proto, feeds)
    plan = fqfuse.compile(proto, dynamic="matmul")
    assert len(coded_steps(plan)) == 1
    found = fqfuse.InferenceSession(plan, "numpy").run(None, feeds)[0]
    # the same codes; sums of at most 48 blocks in f32, in another order
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * float(np.abs(wanted).max()))
    again = fqfuse.InferenceSession(plan, "onednn").run(None, feeds)[0]
    np.testing.assert_array_equal(again, found)


@pytest.mark.parametrize("form", FORMS)
def test_weights_of_every_form_are_multiplied_by_codes(form):
    """A network's products with weights in blocks; its two others have no weights."""
    proto = network("gpt2", Scheme(form))
    plan = fqfuse.compile(proto, dynamic="matmul")
    assert len(coded_steps(plan)) == 6
    feeds = feeds_for(proto)
    (exact,) = fqfuse.InferenceSession(proto, "numpy").run(None, feeds)
    session = fqfuse.InferenceSession(plan, "onednn")
    (found,) = session.run(None, feeds)
    # codes of 8 bits: a part in 254 of the largest of each 32
    assert 0 < np.abs(found - exact).max() < 0.05 * np.abs(exact).max()
    told = [p for p in session.placement() if p.step in coded_steps(plan)]
    if coded_kernels(load(), 4) is not None:
        assert {p.runtime for p in told} == {"onednn"}
        assert all(KERNEL in p.implementation for p in told)


def test_nothing_changes_unless_it_is_asked_for():
    proto = product(4, 96, 40, accuracy_level=4)
    plan = fqfuse.compile(proto)
    (step,) = plan.steps
    assert "source_bits" not in step.params
    assert not runs_in_int8(plan, step)
    (told,) = (d for d in plan.decision_records if d.rule == "quantize_at_run_time")
    assert told.outcome is Outcome.REFUSED
    assert "accuracy_level=4" in told.found
    assert "dynamic" in told.hint
    (quantizer,) = plan.quantizers.values()
    assert quantizer.form == "MatMulNBits (accuracy_level=4) of codes"
    unasked = fqfuse.compile(product(4, 96, 40)).decision_records
    assert "quantize_at_run_time" not in {d.rule for d in unasked}


@pytest.mark.parametrize(
    ("level", "change"), [(4, "compile with --dynamic matmul"), (1, "nothing where tokens come")]
)
def test_the_finding_says_what_the_model_permits(level, change):
    proto = product(4, 96, 40, accuracy_level=level)
    told = {found["code"]: found["change"] for found in fqfuse.compile(proto).findings()}
    assert told["weights-only"].startswith(change)


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
def test_the_plan_says_it(target):
    plan = fqfuse.compile(product(4, 96, 40), dynamic="matmul", target=target)
    (step,) = plan.steps
    assert step.params["source_bits"] == 8
    assert runs_in_int8(plan, step)
    assert verify_plan(plan) == []
    assert read_plan(plan_bytes(plan)) == plan
    text = print_plan(plan)
    assert "source_bits=8" in text
    assert print_plan(parse_plan(text)) == text
    fates = {(f.quantizer, f.half): (f.fate, f.step) for f in plan.fate_records}
    assert fates["MatMulNBits_0.dynamic", Half.QUANTIZE] == (QuantizeFate.SOURCE, 0)
    assert fates["MatMulNBits_0.dynamic", Half.DEQUANTIZE] == (DequantizeFate.SOURCE_SCALE, 0)


def test_every_target_gives_the_same_bits():
    proto = product(4, 96, 40, Scheme("nbits", 4, 32, False))
    feeds = feeds_for(proto)
    found = [
        fqfuse.InferenceSession(
            fqfuse.compile(proto, dynamic="matmul", target=target), backend
        ).run(None, feeds)[0]
        for target, backend in (
            ("onednn-v3", "numpy"),
            ("onednn-v3", "onednn"),
            ("onednn-v2", "numpy"),
            ("onednn-v2", "onednn"),
            ("unified", "numpy"),
        )
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_the_verdict_counts_codes():
    """All multiply-adds are int8, and the finding is about ranges, not about weights alone."""
    proto = product(4, 96, 40)
    for dynamic, share, code in ((None, 0, "weights-only"), ("matmul", 1, "dynamic-quantizer")):
        plan = fqfuse.compile(proto, dynamic=dynamic)
        (step,) = plan.steps
        work = work_of(plan, step)
        assert (work.macs, work.int8) == (4 * 96 * 40, bool(share))
        assert code in {finding.kind.code for finding in verdict_of(plan).findings}


def test_two_products_share_a_quantizer():
    net = Net(Scheme())
    first, second = (net.linear("x", 96, 40) for _ in range(2))
    proto = net.model(net.op("Add", first, second), (4, 96))
    plan = fqfuse.compile(proto, dynamic="matmul")
    assert len(coded_steps(plan)) == 2
    assert [q.form for q in plan.quantizers.values()].count("dynamic, added by fqfuse") == 1


@pytest.mark.parametrize("bits_of_source", [4, -1, True])
def test_other_codes_of_the_source_are_refused(bits_of_source):
    plan = fqfuse.compile(product(4, 96, 40), dynamic="matmul")
    (step,) = plan.steps
    hostile = replace(
        plan, steps=(replace(step, params={**step.params, "source_bits": bits_of_source}),)
    )
    assert verify_plan(hostile) != []
    with pytest.raises(PlanError):
        read_plan(plan_bytes(hostile))


def test_fractions_as_zero_points_stay_f32():
    proto = product(4, 96, 40, Scheme("nbits", 4, 32, False))
    node = next(n for n in proto.graph.node if n.op_type == "MatMulNBits")
    for tensor in proto.graph.initializer:
        if tensor.name == node.input[3]:
            tensor.CopyFrom(
                onnx.numpy_helper.from_array(np.full(40 * 3, 7.5, np.float32), tensor.name)
            )
    plan = fqfuse.compile(proto, dynamic="matmul")
    assert coded_steps(plan) == []
    (told,) = (d for d in plan.decision_records if d.rule == "quantize_at_run_time")
    assert "zero points" in told.reason


def test_blocks_whose_sums_f32_does_not_hold_stay_f32():
    plan = fqfuse.compile(product(2, 2048, 16, Scheme("nbits", 8, 1024, True)), dynamic="matmul")
    assert coded_steps(plan) == []
    (told,) = (d for d in plan.decision_records if d.rule == "quantize_at_run_time")
    assert told.expected == "blocks of at most 518"


@pytest.mark.parametrize("way", ["no kernel", "two bits"])
def test_what_no_kernel_multiplies_runs_on_numpy(way, monkeypatch):
    bits = 2 if way == "two bits" else 4
    if way == "no kernel":
        monkeypatch.setattr(packed, "coded_kernels", lambda *_: None)
    proto = product(5, 96, 40, Scheme("nbits", bits, 32, True))
    plan = fqfuse.compile(proto, dynamic="matmul")
    feeds = feeds_for(proto)
    session = fqfuse.InferenceSession(plan, "onednn")
    np.testing.assert_array_equal(
        session.run(None, feeds)[0], fqfuse.InferenceSession(plan, "numpy").run(None, feeds)[0]
    )
    (told,) = session.placement()
    assert told.runtime == "numpy"
    assert "no kernel multiplies codes" in told.reason


def test_scales_of_the_middle_alone_are_no_zero_points():
    """Zero points that are all the middle code, and none: the same bits."""
    plan = fqfuse.compile(product(5, 96, 40, Scheme("nbits", 4, 32, False)), dynamic="matmul")
    (step,) = plan.steps
    zeros = step.arg("zero_points_weights")
    middles = {**plan.constants, zeros: np.full_like(plan.constants[zeros], 8)}
    args = tuple(pair for pair in step.args if pair[1] != zeros)
    without = {name: data for name, data in plan.constants.items() if name != zeros}
    x = {"x": np.random.default_rng(0).standard_normal((5, 96)).astype(np.float32)}
    found = [
        fqfuse.InferenceSession(replace(plan, **changed), backend).run(None, x)[0]
        for changed in (
            {"constants": middles},
            {"constants": without, "steps": (replace(step, args=args),)},
        )
        for backend in ("numpy", "onednn")
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_a_sum_and_an_activation_follow_the_product():
    """Bias, gelu and a residual behind it, on both runtimes; symbols for rows."""
    net = Net(Scheme())
    hidden = net.op("Relu", net.linear("x", 96, 96))
    proto = net.model(net.op("Add", net.linear(hidden, 96, 96), "x"), (7, 96))
    plan = fqfuse.compile(proto, dynamic="all")
    assert len(coded_steps(plan)) == 2
    feeds = feeds_for(proto)
    found = [
        fqfuse.InferenceSession(plan, backend, threads).run(None, feeds)[0]
        for backend in ("numpy", "onednn")
        for threads in (1, 2)
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
