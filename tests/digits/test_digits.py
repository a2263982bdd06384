"""The digits network, trained for real: what the compiler makes of it, and that its int8 numbers
are right on real digits.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from laws.steps import compare_steps, report

from fqfuse import compile as compile_model
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.decision import DequantizeFate, Half, QuantizeFate
from fqfuse.ir.interpret import run_graph
from fqfuse.ir.types import DType
from fqfuse.models.digits import DigitsForm, digits_model_path, digits_test_set
from fqfuse.plan.attributes import Binary, Sum
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.session import InferenceSession

TARGETS = ("onednn-v3", "onednn-v2", "unified")
FORMS: tuple[DigitsForm, ...] = ("fakequantize", "qdq")
COMPUTE = ("convolution", "matmul")

forms = pytest.mark.parametrize("form", FORMS)
targets = pytest.mark.parametrize("target", TARGETS)


@cache
def plan_of(form: DigitsForm, target: str = "onednn-v3") -> Plan:
    return compile_model(digits_model_path(form), target=target)


@cache
def logits_of(form: DigitsForm, target: str = "onednn-v3") -> np.ndarray:
    images, _ = digits_test_set()
    return InferenceSession(plan_of(form, target), "numpy", 1).run(None, {"image": images})[0]


def compute_steps(plan: Plan) -> list[Step]:
    return [step for step in plan.steps if step.primitive in COMPUTE]


# -- numbers ---------------------------------------------------------------------------------------


@forms
@targets
def test_accuracy(form: DigitsForm, target: str) -> None:
    """At least 97 %, and within 0.5 points of the f32 model's."""
    _, labels = digits_test_set()
    accuracy = np.mean(logits_of(form, target).argmax(1) == labels)
    f32 = np.mean(logits_of("f32").argmax(1) == labels)
    print(f"\n{form} on {target}: {accuracy:.2%}, f32 {f32:.2%}")
    assert accuracy >= 0.97
    assert abs(accuracy - f32) <= 0.005


@targets
def test_both_forms_give_the_same_labels(target: str) -> None:
    assert (logits_of("fakequantize", target).argmax(1) == logits_of("qdq", target).argmax(1)).all()


@forms
@pytest.mark.parametrize("target", ["onednn-v2", "unified"])
def test_every_target_gives_the_same_labels(form: DigitsForm, target: str) -> None:
    assert (logits_of(form, target).argmax(1) == logits_of(form).argmax(1)).all()


@forms
def test_the_plan_agrees_with_the_unfused_model(form: DigitsForm) -> None:
    """By SQNR, since flips of single codes compound over a network. Quantizing itself costs more:
    31.6 dB against the f32 model.
    """
    images, _ = digits_test_set()
    graph = graph_from_onnx(digits_model_path(form))
    reference = next(iter(run_graph(graph, {"image": images}).values())).astype(np.float64)
    noise = logits_of(form) - reference
    sqnr = 10 * np.log10((reference**2).sum() / (noise**2).sum())
    print(f"\n{form}: {sqnr:.1f} dB against the unfused run")
    assert sqnr > 50
    assert (reference.argmax(1) == logits_of(form).argmax(1)).all()


@forms
@targets
def test_each_step_is_at_most_one_code_from_what_it_replaced(form: DigitsForm, target: str) -> None:
    images, _ = digits_test_set()
    graph = graph_from_onnx(digits_model_path(form))
    rows = compare_steps(graph, plan_of(form, target), {"image": images})
    print(f"\n{form} on {target}\n{report(rows)}")
    assert len(rows) == len(plan_of(form, target).steps), "every step is compared"
    for row in rows:
        if plan_of(form, target).type(row.step.output).dtype.is_integer:
            assert row.worst <= 1, row.step.name
            assert row.share <= 1e-4, f"{row.step.name}: near ties are rare on real data"
        else:
            assert row.worst <= 16, (
                "units of f32's resolution at the largest logit: sums of 96 products in another order"
            )


# -- what runs in int8 -----------------------------------------------------------------------------


@forms
@targets
def test_every_convolution_and_the_gemm_run_in_int8(form: DigitsForm, target: str) -> None:
    plan = plan_of(form, target)
    assert [step.primitive for step in compute_steps(plan)] == ["convolution"] * 7 + ["matmul"]
    for step in compute_steps(plan):
        assert plan.type(step.arg("src")).dtype is DType.U8
        assert plan.type(step.arg("weights")).dtype is DType.S8
        assert plan.type(step.output).dtype is (
            DType.F32 if step.primitive == "matmul" else DType.U8
        )


@forms
@targets
def test_the_only_quantize_step_is_at_the_input(form: DigitsForm, target: str) -> None:
    plan = plan_of(form, target)
    alone = [
        step
        for step in plan.steps
        if step.primitive in ("reorder", "onnx.Quantize", "onnx.Dequantize", "onnx.FakeQuantize")
    ]
    assert [step.args for step in alone] == [(("src", "image"),)]
    standalone = [
        fate
        for fate in plan.fate_records
        if fate.fate in (QuantizeFate.STANDALONE, DequantizeFate.STANDALONE)
    ]
    assert [fate.step for fate in standalone] == [plan.steps.index(alone[0])]
    assert not [
        fate
        for fate in plan.fate_records
        if fate.fate in (QuantizeFate.FALLBACK, DequantizeFate.FALLBACK)
    ]


@forms
@targets
def test_residual_adds_are_post_ops_of_convolutions(form: DigitsForm, target: str) -> None:
    plan = plan_of(form, target)
    assert not [step for step in plan.steps if step.primitive in ("binary", "onnx.Add", "eltwise")]
    absorbing = [step for step in plan.steps if any(op.endswith(".add") for op in step.origin)]
    assert [step.primitive for step in absorbing] == ["convolution", "convolution"]
    for step in absorbing:
        assert any(
            isinstance(op, Sum) or (isinstance(op, Binary) and op.algorithm == "add")
            for op in step.attr.post_ops
        )
    assert sum(isinstance(op, Sum) for step in absorbing for op in step.attr.post_ops) == 2, (
        "both skips die at their add"
    )


@forms
def test_v2_has_output_scales_and_v3_has_none(form: DigitsForm) -> None:
    for step in compute_steps(plan_of(form, "onednn-v2")):
        assert step.attr.output_scales is not None
        assert len(step.attr.output_scales.values) > 1, "per output channel"
        assert step.attr.output_scales.mask == 2
        assert not step.attr.scales
    for step in compute_steps(plan_of(form)):
        assert step.attr.output_scales is None
        assert {"src", "weights"} <= step.attr.scales.keys()
        assert step.attr.scales["weights"].mask in (1, 2, 3)


@forms
def test_relu_is_part_of_the_store(form: DigitsForm) -> None:
    """Zero point 0 into u8: saturation is the relu."""
    plan = plan_of(form)
    assert not [
        op for step in compute_steps(plan) for op in step.attr.post_ops if not isinstance(op, Sum)
    ]


# -- fates -----------------------------------------------------------------------------------------


@forms
@targets
def test_fates_add_up(form: DigitsForm, target: str) -> None:
    plan, graph = plan_of(form, target), graph_from_onnx(digits_model_path(form))
    assert set(plan.quantizers) == set(graph.quantizers)
    assert {(fate.quantizer, fate.half) for fate in plan.fate_records} == {
        (name, half) for name in graph.quantizers for half in Half
    }
    weights = [fate for fate in plan.fate_records if fate.fate is DequantizeFate.WEIGHTS_SCALE]
    assert len(weights) == 8
    assert len({fate.step for fate in weights}) == 8
    assert [fate.fate for fate in plan.fate_records if fate.fate is DequantizeFate.SUM] == [
        DequantizeFate.SUM
    ] * 2


def test_both_forms_become_the_same_primitives() -> None:
    kinds = [
        [
            (
                step.primitive,
                [type(op).__name__ for op in step.attr.post_ops],
                step.attr.zero_points,
            )
            for step in plan_of(form).steps
        ]
        for form in FORMS
    ]
    assert kinds[0] == kinds[1]
    for a, b in zip(
        compute_steps(plan_of("fakequantize")), compute_steps(plan_of("qdq")), strict=True
    ):
        for role, scale in a.attr.scales.items():
            assert scale.values == pytest.approx(b.attr.scales[role].values, rel=2.0**-22)


@pytest.mark.parametrize("batch", [1, 3, 17])
def test_any_batch_gives_the_same_numbers(batch: int) -> None:
    images, _ = digits_test_set()
    found = InferenceSession(plan_of("qdq"), "numpy", 1).run(None, {"image": images[:batch]})[0]
    assert np.array_equal(found, logits_of("qdq")[:batch])
