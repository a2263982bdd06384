"""Mixtures of experts: forms that ONNX Runtime's kernels for CPUs do not have, held against their description; what is
run, and what is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.contrib_cases import Case
from support.onnx_cases import random

import fqfuse

T, H, F, E = 5, 8, 6, 4
X, ROUTER = random([T, H]), random([T, E], 1)
FC1, FC2, FC3 = random([E, F, H], 2), random([E, H, F], 3), random([E, F, H], 4)
BIAS, BIAS3 = random([E, F], 5), random([E, F], 6)


def case(op: str = "MoE", **attrs: Any) -> Case:
    inputs = {"x": X, "router": ROUTER, "w1": FC1, "b1": BIAS, "w2": FC2, "b2": None}
    inputs |= {"w3": FC3, "b3": BIAS3}
    return Case(op, inputs, {"k": 2, **attrs}, frozenset(inputs) - {"x", "router"})


def wanted(alpha: float, beta: float, limit: float) -> Any:
    chances = np.exp(ROUTER) / np.exp(ROUTER).sum(-1, keepdims=True)
    result = np.zeros_like(X)
    for token, best in enumerate(np.argsort(-ROUTER, axis=-1)[:, :2]):
        for expert in best:
            gate = np.minimum(FC1[expert] @ X[token] + BIAS[expert], limit)
            other = np.clip(FC3[expert] @ X[token] + BIAS3[expert], -limit, limit)
            inside = gate / (1 + np.exp(-alpha * gate)) * (other + beta)
            result[token] += chances[token, expert] * (FC2[expert] @ inside)
    return result


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("backend", ["numpy", "onednn"])
def test_gates_of_their_own_and_behind_each_other(fused: bool, backend: str) -> None:
    attrs = {"activation_alpha": 1.5, "activation_beta": 0.5, "swiglu_limit": 0.75}
    made = case(activation_type="swiglu", swiglu_fusion=2 * fused, **attrs)
    if fused:
        made.inputs |= {
            "w1": np.concatenate([FC1, FC3], axis=1),
            "b1": np.concatenate([BIAS, BIAS3], axis=1),
            "w3": None,
            "b3": None,
        }
    session = fqfuse.InferenceSession(made.model(), backend, threads=1)
    (found,) = session.run(None, made.feeds)
    np.testing.assert_allclose(found, wanted(1.5, 0.5, 0.75), rtol=1e-4, atol=1e-5)


def test_an_expert_is_a_plan_of_its_own() -> None:
    made = case(activation_type="swiglu")
    made.free = True
    plan = fqfuse.compile(made.model())
    inside = [[step.primitive for step in body.steps] for _, body in plan.within]
    assert len(inside) == 2 * E
    assert sum("matmul" in steps for steps in inside) == E


@pytest.mark.parametrize(
    ("attrs", "told"),
    [
        ({"activation_type": "silu"}, "activation_type silu, swiglu_fusion 0 and a third product"),
        ({"activation_type": "geglu"}, "activation_type of MoE is none of"),
        ({"activation_type": "swiglu", "use_sparse_mixer": 1}, "use_sparse_mixer"),
        ({"activation_type": "swiglu", "k": 5}, "MoE chooses 5 of 4 experts"),
    ],
)
def test_what_is_not_taken_is_told(attrs: dict[str, Any], told: str) -> None:
    with pytest.raises(fqfuse.FqfuseError, match=told):
        fqfuse.compile(case(**attrs).model())
