"""Random products behind a step that stores few codes, as `auto` runs them: run as a script under
ONEDNN_MAX_CPU_ISA.

    proven_cases.py ISA SEED COUNT KIND...      prints one JSON line
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
from support.isa_cases import Case, case
from support.versions import alike

import fqfuse
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.attributes import Eltwise, PrimitiveAttr
from fqfuse.plan.saturation import steps_at_risk
from fqfuse.plan.types import Plan, Step


def behind_few_codes(drawn: Case, largest: int) -> tuple[Plan, dict[str, np.ndarray]]:
    """The case behind a product by 1 that stores its codes cut to 0..largest."""
    plan, step, live = drawn
    codes = live["src"]
    matrix = step.primitive == "matmul"
    channels = codes.shape[-1 if matrix else 1]
    one = np.eye(channels, dtype=np.int8)
    weights = one if matrix else one.reshape(channels, channels, *[1] * (codes.ndim - 2))
    front = Step(
        "front",
        "matmul" if matrix else "convolution",
        "MatMul" if matrix else "Conv",
        (("src", "given"), ("weights", "ones")),
        ("src",),
        {},
        PrimitiveAttr(post_ops=(Eltwise("clip", 0.0, float(largest)),)),
        ("front",),
    )
    rest = [name for name in plan.inputs if name != "src"]
    wide = TensorType(DType.U8, codes.shape)
    plan = replace(
        plan,
        inputs=("given", *rest),
        values={**plan.values, "given": wide, "src": wide},
        constants={**plan.constants, "ones": weights},
        steps=(front, step),
    )
    return plan, {"given": codes, **{name: live[name] for name in rest}}


def main(isa: str, seed: str, count: str, *kinds: str) -> None:
    found: Counter[str] = Counter()
    for index in range(int(count)):
        rng = np.random.default_rng([int(seed), index])
        drawn = case(rng, kinds[index % len(kinds)])
        largest = int(rng.choice([64, 126, 127, 128, 129, 200, 255]))
        if drawn[2]["src"].dtype != np.uint8:
            continue
        plan, feeds = behind_few_codes(drawn, largest)
        exact = fqfuse.InferenceSession(plan, "numpy", 1).run(None, feeds)[0]
        session = fqfuse.InferenceSession(plan, "auto", 1)
        (mine,) = session.run(None, feeds)
        found["tried"] += 1
        same = alike(mine, exact)
        found["same"] += same
        placed = session.placement()[-1].runtime
        found[f"on {placed}"] += 1
        # without what stands in front nothing is known of the codes
        found["by its codes"] += placed == "onednn" and bool(steps_at_risk(drawn[0], isa))
        if not same:
            print(index, largest, drawn[1], session.placement()[-1], file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
