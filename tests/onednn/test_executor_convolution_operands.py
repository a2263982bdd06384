"""Convolutions whose post-ops read operands that oneDNN's compiled kernels do not broadcast as they
are: those are broadcast beforehand.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from support.executor_plans import U8, scales
from support.runtime_plans import one_step
from support.steps_compared import compare_steps

from fqfuse.onednn.enums import Arg
from fqfuse.plan.attributes import Binary, Eltwise, PrimitiveAttr, ZeroPoint
from fqfuse.plan.types import Plan
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.lowering.program import PrimitiveAction

SIZES = {"Conv": (2, 16, 3, 4, 5), "ConvTranspose": (3, 16, 4, 5, 6)}
MASKS = [mask for rank in (3, 4, 5) for mask in itertools.product((False, True), repeat=rank)]


def layer(mask: tuple[bool, ...], op: str, *, live: bool) -> tuple[Plan, dict[str, np.ndarray]]:
    """A 1x1 layer whose post-ops add and multiply by an operand that has the destination's sizes
    where `mask` says so, and 1 elsewhere.
    """
    rng = np.random.default_rng(len(mask))
    dims = SIZES[op][: len(mask)]
    shape = tuple(size if full else 1 for size, full in zip(dims, mask, strict=True))
    operands = {name: rng.normal(1, 1, shape).astype(np.float32) for name in ("t", "u")}
    args = [
        ("src", rng.integers(0, 256, dims).astype(np.uint8)),
        ("weights", rng.integers(-127, 128, (16, 16, *(1 for _ in dims[2:]))).astype(np.int8)),
    ]
    chain = (Binary("add", "t"), Eltwise("relu"), Binary("mul", "u"))
    attr = PrimitiveAttr(scales(src=0.02, weights=0.01, dst=0.3), {}, chain)
    primitive = {"Conv": "convolution", "ConvTranspose": "deconvolution"}[op]
    held = ("weights",) if live else ("weights", *operands)
    plan, _, feeds = one_step(primitive, op, args, U8, attr=attr, operands=operands, constants=held)
    return plan, feeds


def refusal(plan: Plan, feeds: Mapping[str, np.ndarray]) -> str:
    """Why the step ran on NumPy, '' on oneDNN; it computed what NumPy computes."""
    executor = OneDnnExecutor(plan, 2)
    assert [str(d) for d in compare_steps(plan, executor, feeds)] == []
    (placement,) = executor.placement()
    assert placement.runtime == ("numpy" if placement.reason else "onednn")
    return placement.reason


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: "".join("n1"[not full] for full in mask))
@pytest.mark.parametrize("op", SIZES)
def test_a_constant_operand_broadcasts_along_any_dimensions(
    op: str, mask: tuple[bool, ...]
) -> None:
    assert refusal(*layer(mask, op, live=False)) == ""


@pytest.mark.parametrize(
    "mask",
    [mask for mask in MASKS if mask[0] and mask[1]],
    ids=lambda mask: "".join("n1"[not full] for full in mask),
)
@pytest.mark.parametrize("op", SIZES)
def test_an_operand_for_each_sample_broadcasts_along_space(op: str, mask: tuple[bool, ...]) -> None:
    """The scales of squeeze-and-excitation, the embedding of a time step."""
    assert refusal(*layer(mask, op, live=True)) == ""


@pytest.mark.parametrize(
    "mask",
    [mask for mask in MASKS if not (mask[0] and mask[1])],
    ids=lambda mask: "".join("n1"[not full] for full in mask),
)
def test_any_other_operand_is_right_too(mask: tuple[bool, ...]) -> None:
    reason = refusal(*layer(mask, "Conv", live=True))
    assert not reason or "reference implementation" in reason or "unimplemented" in reason


@pytest.mark.of_vnni("products in f32 have no zero points")
def test_zero_points_of_zero_are_not_handed_to_the_library() -> None:
    """A plan may be written by hand; kernels would subtract them."""
    plan, feeds = layer((True,) * 4, "Conv", live=False)
    (step,) = plan.steps
    asked = []
    for zero in (0, 7):
        points = {"src": ZeroPoint((zero,)), "dst": ZeroPoint((zero,))}
        attr = replace(step.attr, zero_points=points)
        whole = replace(plan, steps=(replace(step, attr=attr),))
        executor = OneDnnExecutor(whole, 2)
        assert [str(d) for d in compare_steps(whole, executor, feeds)] == []
        executor.run(feeds)
        made = [
            a.primitive.desc for a in executor._latest().actions if isinstance(a, PrimitiveAction)
        ]
        asked += [dict(desc.attributes.zero_points) for desc in made if desc.kind == "convolution"]
    assert asked == [{}, {Arg.SRC: 0, Arg.DST: 0}]
