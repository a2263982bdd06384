"""Random products of codes by the backend `onednn` on this process's library, against the NumPy runtime: run as a
script under ONEDNN_MAX_CPU_ISA.

    exact_products.py SEED COUNT KIND...     prints one JSON line
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
from support.isa_cases import case, shape_of

from fqfuse import InferenceSession
from fqfuse.ir.types import TensorType
from fqfuse.plan.types import Plan, Step


def sized(plan: Plan, step: Step, live: dict[str, np.ndarray]) -> Plan:
    """The plan with the shape of its result."""
    shape, dtype = shape_of(plan, step, live), plan.type(step.output).dtype
    return replace(plan, values={**plan.values, step.output: TensorType(dtype, shape)})


def main(seed: str, count: str, *kinds: str) -> None:
    """Runs the cases."""
    ways, unequal, reasons = Counter[str](), list[str](), Counter[str]()
    for index in range(int(count)):
        rng = np.random.default_rng([int(seed), index])
        kind = kinds[index % len(kinds)]
        plan, step, live = case(rng, kind)
        plan = sized(plan, step, live)
        session = InferenceSession(plan, "onednn", 1 + index % 2)
        expected = InferenceSession(plan, "numpy", 1).run(None, live)[0]
        placed = session.placement()[0]
        ways[f"{placed.runtime} {placed.implementation}"] += 1
        if placed.runtime == "numpy":
            reasons[f"{kind}: {placed.reason}"] += 1
        for _ in range(2):
            found = session.run(None, live)[0]
            if found.tobytes() != expected.tobytes():
                off = float(np.mean(found != expected))
                unequal.append(f"{index} {kind} {placed.implementation} {off:.3f} {step.attr}")
                break
        every = session.run_steps(live)[step.output]
        if every.tobytes() != found.tobytes():
            unequal.append(f"{index} {kind}: run_steps gives other bytes than run")
    print(json.dumps({"ways": ways, "unequal": unequal, "numpy": reasons}, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
