"""Random recurrent layers of codes on this process's library, and on NumPy as it emulates its instruction
set: run as a script under ONEDNN_MAX_CPU_ISA.

    isa_layers.py ISA SEED COUNT     prints one JSON line: how many agreed, and codes apart
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from laws.recurrent_primitives import arguments

from fqfuse.ir.ops import OPS
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.attributes import PrimitiveAttr, Scale
from fqfuse.plan.recurrent import gates_last
from fqfuse.plan.summation import EXACT, summation
from fqfuse.plan.types import Plan, Step
from fqfuse.primitives import prim, recurrent_on_numpy
from fqfuse.runtime.numerics import PROFILES
from fqfuse.runtime.numpy_runtime import run_step

GATES = {"lstm": 4, "gru": 3}


def draw(seed: int) -> tuple[str, PrimitiveAttr, dict[str, str]]:
    """A layer, LSTM and GRU in turn by twos; one in six is so deep that gemm cuts its products: with the input, or
    with the hidden state, a few deeper than where some instruction set begins to cut, or cuts otherwise. Both at
    once are the same two products, and took a third of the time.
    """
    rng = np.random.default_rng(seed)
    kind = ("lstm", "gru")[seed // 2 % 2]
    steps, batch = (int(rng.choice([1, 1, 2, 3, 5])) for _ in range(2))
    inputs, hidden = (int(rng.integers(1, 50)) for _ in range(2))
    if seed % 24 in (0, 6):
        inputs = int(rng.choice([256, 384, 512, 768, 1536]) + rng.integers(0, 7))
    if seed % 24 in (12, 18):
        hidden = int(rng.choice([256, 384, 512]) + rng.integers(0, 7))
    gates = GATES[kind]
    given = {
        "src_layer": f"u8[{steps},{batch},{inputs}]",
        "weights_layer": f"s8[1,1,{inputs},{gates},{hidden}]",
        "weights_iter": f"s8[1,1,{hidden},{gates},{hidden}]",
        "bias": f"f32[1,1,{gates},{hidden}]",
        "dst_layer": f"u8[{steps},{batch},{hidden}]",
    }
    outputs = hidden
    if kind == "lstm" and rng.random() < 0.3 and steps == 1:
        outputs = int(rng.integers(1, 50))
        given["weights_projection"] = f"s8[1,1,{hidden},{outputs}]"
        given["dst_layer"] = f"u8[{steps},{batch},{outputs}]"
    if rng.random() < 0.5:  # results as numbers, and last states
        given["dst_layer"] = given["dst_layer"].replace("u8", "f32")
        given["dst_iter"] = f"f32[1,1,{batch},{outputs}]"
        if kind == "lstm":
            given["dst_iter_c"] = f"f32[1,1,{batch},{hidden}]"
    depth = inputs + hidden
    attr = PrimitiveAttr(
        rnn_data_qparams=Scale(((60.0, 128.0), (127.0, 128.0))[seed % 2]),
        rnn_weights_qparams=Scale((float(60 * np.sqrt(depth)),)),  # gates neither open nor shut
        rnn_weights_projection_qparams=Scale((200.0,)) if outputs != hidden else None,
    )
    return kind, attr, given


def extremes(rng: np.random.Generator, args: dict[str, Any]) -> dict[str, Any]:
    """Weights and codes at the ends of their range, so that pairs saturate both ways."""
    found = dict(args)
    for role, array in args.items():
        if role.startswith("weights"):
            size = rng.integers(90, 128, array.shape)
            found[role] = (size * rng.choice([-1, 1], array.shape)).astype(np.int8)
    high = rng.random(args["src_layer"].shape) < 0.6
    found["src_layer"] = np.where(high, 255, args["src_layer"]).astype(np.uint8)
    return found


def step_of(kind: str, attr: PrimitiveAttr, args: dict[str, Any], hidden: int) -> tuple[Plan, Step]:
    """The same layer as a step of a plan."""
    op = kind.upper()
    constants = {
        short: gates_last(op, args[role][0].transpose(0, 2, 3, 1))
        for short, role in (("w", "weights_layer"), ("r", "weights_iter"))
    }
    biases = gates_last(op, args["bias"][0])
    constants["b"] = np.concatenate([biases, np.zeros_like(biases)], axis=1)
    src = args["src_layer"]
    names = (("src", "x"), *((name, name) for name in constants))
    params = OPS[op].complete({"hidden_size": hidden})
    step = Step("layer", "rnn", op, names, ("y",), params, attr)
    result = TensorType(DType.U8, (src.shape[0], 1, src.shape[1], hidden))
    values = {"x": TensorType(DType.U8, src.shape), "y": result}
    return Plan("layer", "onednn-v3", ("x",), ("y",), values, constants, (step,)), step


def code_of(attr: PrimitiveAttr, array: np.ndarray) -> np.ndarray:
    """The codes that results are, or stand for."""
    if array.dtype == np.uint8:
        return array.astype(int)
    scale, shift = attr.rnn_data_qparams.values
    return np.rint(array.astype(np.float64) * scale + shift).astype(int)


def numbers_agree(real: dict[str, np.ndarray], mine: dict[str, np.ndarray]) -> bool:
    """Of layers without a code apart: hidden states are codes or what these stand for, to the bit. Cells are
    not: exp and tanh are other polynomials, each less than 2^-22 off in each of the five steps at most.
    """
    cells = np.abs(real["dst_iter_c"] - mine["dst_iter_c"]) if "dst_iter_c" in real else np.zeros(1)
    names = [name for name in real if name != "dst_iter_c"]
    return bool(cells.max() <= 5 * 2.0**-22) and all(
        real[name].tobytes() == mine[name].tobytes() for name in names
    )


def main(isa: str, seed: int, count: int) -> None:
    """Prints what agreed."""
    law = summation(isa, "rnn", signed=False)
    agreed = other = steps = apart = codes = numbers = 0
    for number in range(seed, seed + count):
        kind, attr, given = draw(number)
        made = prim(kind, attr, engine="onednn", **given)
        args = extremes(np.random.default_rng(number), arguments(made, number))
        theirs = made.execute_all(args)
        ours = recurrent_on_numpy.run(made.description, args, law)
        exact = recurrent_on_numpy.run(made.description, args, EXACT)["dst_layer"]
        real, mine = theirs["dst_layer"], ours["dst_layer"]
        if "weights_projection" not in given and mine.dtype == np.uint8:
            plan, step = step_of(kind, attr, args, real.shape[-1])
            (y,) = run_step(plan, step, {"x": args["src_layer"]}, profile=PROFILES[isa])
            assert np.array_equal(y[:, 0], mine), "the plan's step gives something else"
            steps += 1
        far = np.abs(code_of(attr, mine) - code_of(attr, real))
        same = far.max(initial=0) <= 1 and (far.any() or numbers_agree(theirs, ours))
        if not same:
            print(f"{number}: {kind} {given} differs by {far.max()}", file=sys.stderr)
        agreed, numbers = agreed + bool(same), numbers + (mine.dtype == np.float32)
        apart, codes = apart + int((far > 0).sum()), codes + far.size
        other += not np.array_equal(mine, exact)
    found = {"agreed": agreed, "tried": count, "not exact": other, "steps": steps}
    print(json.dumps({**found, "apart": apart, "codes": codes, "numbers": numbers}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
