"""Plans that the composer writes for `onednn-v2`: step by step on oneDNN 2.6, and, converted, on
oneDNN 3.2.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from laws.corpus import CORPUS
from laws.registry import feeds_for
from onednn_legacy.legacy import Legacy

import fqfuse
from fqfuse.composer.compose import plan_from_graph
from fqfuse.errors import BackendUnavailable
from fqfuse.ir.algorithms import ELTWISE
from fqfuse.ir.types import DType
from fqfuse.models.digits import digits_model_path, digits_test_set
from fqfuse.onednn.loading import load
from fqfuse.passes import optimize
from fqfuse.plan.attributes import Eltwise, Sum
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.numpy_runtime import run_step
from fqfuse.runtime.session import InferenceSession

INT8 = (DType.U8, DType.S8)
COMPOSED = (
    "digits_fakequantize",
    "digits_qdq",
    "conv_relu_qdq",
    "clip_with_odd_bounds",
    "powers",
    "skip_added_twice",
    "skip_by_the_op_sum",
    "leaky_with_negative_slope_and_factor",
    "squeeze_and_excitation",
    "products_by_computed_scales",
    "products_by_computed_weights",
    "products_in_integers",
    "decoded_by_computed_parameters",
)


@cache
def plan_of(name: str) -> Plan:
    return plan_from_graph(optimize(CORPUS[name]().copy()), "onednn-v2")


@pytest.mark.parametrize("name", CORPUS)
def test_plans_avoid_what_2_6_lacks_or_gets_wrong(name: str) -> None:
    for step in plan_of(name).steps:
        eltwise = [op for op in step.attr.post_ops if isinstance(op, Eltwise)]
        assert len({op.algorithm for op in eltwise}) == len(set(eltwise)), (
            f"{step.name}: an algorithm with two sets of parameters"
        )
        assert "hardsigmoid" not in {op.algorithm for op in eltwise} | {
            step.params.get("algorithm")
        }
        sums = [op for op in step.attr.post_ops if isinstance(op, Sum)]
        assert step.primitive != "deconvolution" or all(op.dtype is None for op in sums)
        assert all(len(zero.values) == 1 for zero in step.attr.zero_points.values()), (
            f"{step.name}: zero points along an axis"
        )


def int8_steps(plan: Plan) -> list[Step]:
    """Steps of the primitives with v2 attributes that read or write codes: their bytes are
    defined.
    """
    kinds = ("convolution", "deconvolution", "matmul", "binary", "reorder")
    types = {
        step.name: {plan.type(v).dtype for v in (step.args[0][1], step.output)}
        for step in plan.steps
    }
    return [step for step in plan.steps if step.primitive in kinds and types[step.name] & set(INT8)]


@pytest.mark.of_vnni("the weights of these networks have 8 bits, whose products saturate elsewhere")
@pytest.mark.parametrize("name", COMPOSED)
def test_composed_steps_on_2_6(legacy: Legacy, name: str) -> None:
    plan, feeds = plan_of(name), feeds_for(CORPUS[name]())
    values = {**feeds, **InferenceSession(plan, "numpy", 1).run_steps(feeds)}
    steps = int8_steps(plan)
    assert steps
    for step in steps:
        live = {value: values[value] for value in step.inputs if value not in plan.constants}
        algorithms = {op.algorithm for op in step.attr.post_ops if isinstance(op, Eltwise)}
        # 2.6's hardswish rounds in another order, see test_hardswish.
        inexact = (
            any(name == "hardswish" or ELTWISE[name].transcendental for name in algorithms)
            and plan.type(step.output).dtype in INT8
        )
        legacy.compare(plan, step, live, lsb=int(inexact))


@pytest.mark.parametrize("form", ["fakequantize", "qdq"])
def test_digits_plan_for_v2_on_3_2(form: str) -> None:
    try:
        load()
    except BackendUnavailable as error:
        pytest.skip(f"no oneDNN 3: {error}")
    plan = fqfuse.compile(digits_model_path(form), target="onednn-v2")
    images, labels = digits_test_set()
    feeds = {plan.inputs[0]: images}
    converted = InferenceSession(plan, "onednn", 2)
    (logits,), (mine,) = (
        converted.run(None, feeds),
        InferenceSession(plan, "numpy", 2).run(None, feeds),
    )
    np.testing.assert_array_equal(logits.argmax(1), mine.argmax(1))
    assert np.mean(logits.argmax(1) == labels) > 0.95
    assert any(place.runtime == "onednn" for place in converted.placement())
    values = {**feeds, **converted.run_steps(feeds)}
    for step in plan.steps:  # NumPy on the inputs that the library's step had
        live = {value: values[value] for value in step.inputs if value not in plan.constants}
        for name, array in zip(step.outputs, run_step(plan, step, live, threads=2), strict=True):
            if array.dtype.kind in "iu":
                assert np.abs(array.astype(np.int64) - values[name]).max(initial=0) <= 1, step.name
            # the conversion may fold a factor into the weights' scale: a few f32 roundings of the
            # largest value
            else:
                np.testing.assert_allclose(
                    array, values[name], rtol=0, atol=1e-6 * np.abs(array).max(), err_msg=step.name
                )
