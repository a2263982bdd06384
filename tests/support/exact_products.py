"""Products of codes by the backend `onednn` on this process's library, against the NumPy runtime: run as a script
under ONEDNN_MAX_CPU_ISA.

    exact_products.py products SEED COUNT KIND...     random steps
    exact_products.py graphs COUNT                    the corpus, and random graphs around each block
    exact_products.py deep COUNT                      layers whose sums pass 2^24, against integers

Prints one JSON line: `ways`, how many products ran where; `unequal`, what differs in a byte; `numpy`, why products ran
on NumPy.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from hypothesis import settings
from laws import corpus
from laws.branches import BLOCKS
from laws.many import drawn
from laws.registry import feeds_for
from onnx import TensorProto
from support.isa_cases import case, shape_of
from support.onnx_cases import model, node
from support.steps_compared import compare_steps

from fqfuse import InferenceSession
from fqfuse import compile as compile_model
from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.cleanup import erase_dead
from fqfuse.ir.graph import Graph
from fqfuse.ir.types import TensorType
from fqfuse.passes import PIPELINE
from fqfuse.plan.attributes import Prelu, ZeroPoint
from fqfuse.plan.types import Plan, Step

PRODUCTS = ("convolution", "deconvolution", "matmul")
CODES = ("u8", "s8")

ways, unequal, reasons = Counter[str](), list[str](), Counter[str]()


def sized(plan: Plan, step: Step, live: Mapping[str, np.ndarray]) -> Plan:
    """The plan with the shape of its result."""
    shape, dtype = shape_of(plan, step, dict(live)), plan.type(step.output).dtype
    return replace(plan, values={**plan.values, step.output: TensorType(dtype, shape)})


def hold(name: str, plan: Plan, feeds: Mapping[str, np.ndarray]) -> None:
    """Holds each step to NumPy on what the library itself gave to it, and `run` to `run_steps`."""
    for threads in (1, 2):
        session = InferenceSession(plan, "onednn", threads)
        outputs = session.run(None, feeds)
        steps = session.run_steps(feeds)
        again = session.run(None, feeds)
        for value, first, second in zip(plan.outputs, outputs, again, strict=True):
            if {steps.get(value, first).tobytes(), second.tobytes()} != {first.tobytes()}:
                unequal.append(f"{name}: runs of {value} differ")
        for difference in compare_steps(plan, session._executor, feeds):
            if difference.step.primitive in PRODUCTS and not difference.transcendental:
                unequal.append(f"{name}: {difference} {difference.step.attr}")
    for placed in session.placement():
        step = placed.step
        if step.primitive in PRODUCTS and plan.type(step.args[0][1]).dtype.value in CODES:
            ways[placed.runtime] += 1
            if placed.runtime == "numpy" and "no elements" not in placed.reason:
                reasons[f"{name}: {placed.reason}"] += 1


def products(seed: str, count: str, *kinds: str) -> None:
    """Random steps."""
    for index in range(int(count)):
        kind = kinds[index % len(kinds)]
        rng = np.random.default_rng([int(seed), index])
        plan, step, live = case(rng, kind)
        while unusual_slopes(plan, step):
            plan, step, live = case(rng, kind)
        if step.primitive != "matmul" and rng.random() < 0.15:
            plan, step = between_codes(plan, step, float(rng.uniform(-100, 100)))
        hold(f"{kind} {seed} {index}", sized(plan, step, live), live)


def unusual_slopes(plan: Plan, step: Step) -> bool:
    """Slopes that are not one number a channel. No network has slopes along space, for which oneDNN has only its
    reference implementation, and the composer writes a single slope as a relu.
    """
    for op in step.attr.post_ops:
        if isinstance(op, Prelu):
            shape = plan.type(op.operand).shape
            channel = len(shape) - 1 if step.primitive == "matmul" else 1
            return any((size == 1) == (axis == channel) for axis, size in enumerate(shape))
    return False


def between_codes(plan: Plan, step: Step, zero_point: float) -> tuple[Plan, Step]:
    """The plan with a zero point of the source that is no integer."""
    zeros = {**step.attr.zero_points, "src": ZeroPoint((zero_point,))}
    changed = replace(step, attr=replace(step.attr, zero_points=zeros))
    return replace(plan, steps=(changed,)), changed


def graphs(count: str) -> None:
    """The corpus, and random graphs."""

    for name, make in corpus.CORPUS.items():
        if name not in corpus.SLOW:
            compiled(name, make())
    settings.load_profile("exact")
    for block in BLOCKS:
        drawn(block, int(count), around(block))


def compiled(name: str, graph: Graph) -> None:
    """Holds the plan of a graph."""
    for step in PIPELINE:
        step.run(graph)
    erase_dead(graph)
    hold(name, plan_from_graph(graph), feeds_for(graph))


def around(block: str) -> Callable[[Graph], None]:
    """What holds a random graph."""

    def held(graph: Graph) -> None:
        compiled(block, graph.copy())

    return held


def deep(count: str) -> None:
    """Convolutions and matmuls of constant weights whose sums pass 2^24, rounded once to f32."""
    rng = np.random.default_rng(0)
    for index in range(int(count)):
        channels, kernel, size = (
            int(rng.integers(*span)) for span in ((600, 1500), (1, 3), (2, 6))
        )
        shape = int(rng.integers(1, 40)), channels, kernel, kernel
        least = rng.integers(60, 127)
        positive = rng.random(shape) < rng.choice([0.7, 0.9])
        drawn_weights = rng.integers(least, 128, shape), rng.integers(-128, 0, shape)
        w = np.where(positive, *drawn_weights).astype(np.int8)
        image = 1, channels, size, size
        x = np.where(rng.random(image) < 0.8, rng.integers(200, 256, image), 0).astype(np.uint8)
        op = "ConvInteger"
        if index % 2:
            op, w, x = "MatMulInteger", w[:, :, 0, 0].T.copy(), x[0, :, :, 0].T.copy()
        nodes = [node(op, ["x", "w"], ["s"]), node("Cast", ["s"], to=TensorProto.FLOAT)]
        proto = model(nodes, inputs={"x": list(x.shape)}, constants={"w": w})
        proto.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
        session = InferenceSession(compile_model(proto), "onednn", 1 + index % 2)
        (found,) = session.run(None, {"x": x})
        whole = x.astype(np.int64)
        exact = whole @ w.astype(np.int64) if op == "MatMulInteger" else correlated(whole, w)
        ways[session.placement()[0].runtime] += bool(np.abs(exact).max() > 1 << 24)
        if found.tobytes() != exact.astype(np.float32).tobytes():
            unequal.append(f"deep {index}: {op} {list(x.shape)} {list(w.shape)}")


def correlated(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A convolution without padding in integers."""
    height, width = (x.shape[2 + axis] - w.shape[2 + axis] + 1 for axis in (0, 1))
    return sum(
        np.einsum(
            "nchw,oc->nohw", x[:, :, i : i + height, j : j + width], w[:, :, i, j].astype(int)
        )
        for i in range(w.shape[2])
        for j in range(w.shape[3])
    )


if __name__ == "__main__":
    settings.register_profile("exact", deadline=None, derandomize=True, max_examples=100)
    {"products": products, "graphs": graphs, "deep": deep}[sys.argv[1]](*sys.argv[2:])
    print(json.dumps({"ways": ways, "unequal": unequal, "numpy": reasons}))
