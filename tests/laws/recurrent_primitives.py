"""Random recurrent layers as primitives, and what the two engines say of them: as `primitives.py` does
for the other kinds.

    python -m laws.recurrent_primitives FIRST COUNT      prints what differs, and how many were drawn
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from laws.primitives import (
    Array,
    Drawn,
    _chance,
    _one,
    _spoiled,
    _text,
    contradict,
    halves_are_known,
    has_halves,
    made,
    statuses,
)
from numpy.random import Generator
from support.codes import s8_codes

from fqfuse.ir.ops.elementwise import round_to_bf16
from fqfuse.ir.types import DType
from fqfuse.onednn.capi import OneDnnError, Status
from fqfuse.onednn.library import Engine
from fqfuse.onednn.loading import load
from fqfuse.primitives import Eltwise, Primitive, PrimitiveAttr, Scale, ZeroPoint
from fqfuse.primitives.kinds import CELLS
from fqfuse.primitives.neglected import neglected
from fqfuse.primitives.recurrent import gates_of
from fqfuse.primitives.refusal import refusal

TYPES = ("f32", "bf16", "s32", "s8", "u8")
ERROR = 1e-5
"""Of layers in f32, and of the cell state: gates are smooth and the weights small, so that what differs is
the order of sums of up to 60 products and the two approximations of exp and tanh, each a few ulp of
1.
"""

HALVES_APART = 2.0**-5
"""Of layers in bf16: a state next to a tie is the next number of bf16, 2^-8 from it where it is near 1, and
so are what later steps and layers make of it.
"""

STEPS, BATCH, INPUTS, HIDDEN = 3, 2, 4, 5
BEHIND_A_CODE = 0.1
"""Of the cell state behind a code of the hidden state that fell to the other side of a tie: one code
moves a gate by at most 127 / (60 * 30), weights' and data's smallest scales here. It counts as a code
apart, of which the law allows few.
"""

QPARAMS = {
    "rnn_data_qparams": Scale((127.0, 128.0)),
    "rnn_weights_qparams": Scale((200.0,)),
}


def words(kind: str, src: str = "f32", direction: str = "left2right") -> dict[str, Any]:
    """A layer with all its states."""
    count = 2 if direction in ("concat", "sum") else 1
    weights = "f32" if src == "f32" else "s8"
    gates, side = gates_of(kind), 2 if direction == "concat" else 1
    state = f"[1,{count},{BATCH},{HIDDEN}]"
    found = {
        "src_layer": f"{src}[{STEPS},{BATCH},{INPUTS}]",
        "src_iter": f"f32{state}",
        "src_iter_c": f"f32{state}",
        "attention": f"f32[{STEPS},{BATCH},1]",
        "weights_layer": f"{weights}[1,{count},{INPUTS},{gates},{HIDDEN}]",
        "weights_iter": f"{weights}[1,{count},{HIDDEN},{gates},{HIDDEN}]",
        "bias": f"f32[1,{count},{gates + kind.startswith('lbr')},{HIDDEN}]",
        "dst_layer": f"{src}[{STEPS},{BATCH},{side * HIDDEN}]",
        "dst_iter": f"f32{state}",
        "dst_iter_c": f"f32{state}",
    }
    found = {role: text for role, text in found.items() if role in CELLS[kind].roles}
    if kind == "vanilla_rnn":
        found["algorithm"] = "tanh"
    return {**found, "direction": direction}


def draw(seed: int) -> Drawn:
    """One layer; mostly a sound one."""
    rng = np.random.default_rng(seed)
    kind = _one(rng, ("lstm", "gru", *CELLS))
    int8 = _chance(rng, 0.45 if kind in ("lstm", "gru") else 0.05)
    direction = _one(rng, ("left2right", "left2right", "right2left", "concat", "sum"))
    if "augru" in kind and _chance(rng, 0.9):
        direction = "left2right"
    given = _tensors(rng, kind, int8, direction)
    given["direction"] = direction
    if kind == "vanilla_rnn":
        given["algorithm"] = _one(rng, ("relu", "tanh", "logistic", "relu", "tanh", "elu"))
        given["alpha"] = _one(rng, (0.0, 0.25))
    return Drawn(kind, _attributes(rng, kind, int8, given), given)


def _tensors(rng: Generator, kind: str, int8: bool, direction: str) -> dict[str, Any]:
    steps, batch = _one(rng, (1, 1, 2, 3, 5)), _one(rng, (1, 2, 3, 17))
    inputs, hidden = (int(rng.integers(1, 34)) for _ in range(2))
    layers = 1 if "augru" in kind and _chance(rng, 0.95) else _one(rng, (1, 1, 1, 2, 3))
    sides, count = 2 if direction == "concat" else 1, 2 if direction in ("concat", "sum") else 1
    projected = kind == "lstm" and _chance(rng, 0.3)
    outputs = int(rng.integers(1, 34)) if projected else hidden
    state = outputs
    if steps == 1 and layers == 1 and _chance(rng, 0.2):
        state = int(rng.integers(1, 34))
    if layers > 1:
        inputs = outputs
    src = _one(rng, ("u8", "u8", "u8", "s8")) if int8 else _one(rng, ("f32", "f32", "bf16"))
    weights = "s8" if int8 else src
    between = _one(rng, (src, "f32")) if int8 else src
    lead, gates = (layers, count), gates_of(kind)
    found = {
        "src_layer": (src, (steps, batch, inputs)),
        "src_iter": (between, (*lead, batch, state)),
        "src_iter_c": ("f32", (*lead, batch, hidden)),
        "attention": ("f32" if int8 else src, (steps, batch, 1)),
        "weights_layer": (weights, (*lead, inputs, gates, hidden)),
        "weights_iter": (weights, (*lead, state, gates, hidden)),
        "weights_peephole": ("f32", (*lead, 3, hidden)),
        "weights_projection": (weights, (*lead, hidden, outputs)),
        "bias": (
            _one(rng, ("f32", src)) if src == "bf16" else "f32",
            (*lead, gates + kind.startswith("lbr"), hidden),
        ),
        "dst_layer": (_one(rng, (src, "f32")) if int8 else src, (steps, batch, sides * outputs)),
        "dst_iter": (between, (*lead, batch, outputs)),
        "dst_iter_c": ("f32", (*lead, batch, hidden)),
    }
    return _chosen(rng, kind, found, projected, int8)


def _chosen(
    rng: Generator,
    kind: str,
    found: dict[str, tuple[str, tuple[int, ...]]],
    projected: bool,
    int8: bool,
) -> dict[str, Any]:
    """Those that the kind has, some left out, and now and then one spoiled."""
    out = set(found) - set(CELLS[kind].roles)
    for role in ("src_iter", "dst_iter"):
        if _chance(rng, 0.4):
            out |= {role, f"{role}_c"}
        elif _chance(rng, 0.03):
            out.add(_one(rng, (role, f"{role}_c")))
    if not projected:
        out.add("weights_projection")
    if _chance(rng, 0.97 if int8 else 0.7):
        out.add("weights_peephole")
    if _chance(rng, 0.04):
        out.add("bias")
    words = {}
    for role, (dtype, dims) in found.items():
        if role not in out:
            kept = _one(rng, TYPES) if _chance(rng, 0.01) else dtype
            sizes = _spoiled(rng, dims) if _chance(rng, 0.2) else dims
            words[role] = _text(kept, sizes[:-1] if _chance(rng, 0.003) else sizes)
    return words


def _attributes(rng: Generator, kind: str, int8: bool, given: dict[str, Any]) -> PrimitiveAttr:
    gates = gates_of(kind)
    hidden, outputs = (
        int(given[role][:-1].split(",")[-1]) if role in given else 1
        for role in ("weights_layer", "weights_projection")
    )
    attr = PrimitiveAttr()
    if int8 or _chance(rng, 0.02):
        signed = given["src_layer"].startswith("s8") and _chance(rng, 0.9)
        data = _one(rng, ((127.0, 128.0), (60.0, 100.0), (30.0, 128.0), (200.0, 3.0)))
        attr = PrimitiveAttr(
            rnn_data_qparams=Scale((data[0], 0.0 if signed else data[1])),
            rnn_weights_qparams=_scale(rng, 24, gates * hidden),
        )
        if "weights_projection" in given:
            attr = replace(attr, rnn_weights_projection_qparams=_scale(rng, 8, outputs))
    what = rng.random()
    if what < 0.02:
        role = _one(rng, [role for role in given if "[" in str(given[role])])
        attr = replace(attr, scales={role: Scale((1.0,), int(_one(rng, (0, 0, 1, -1))))})
    elif what < 0.04:
        role = _one(rng, [role for role in given if "[" in str(given[role])])
        attr = replace(attr, zero_points={role: ZeroPoint((1,), int(_one(rng, (0, 0, 1, -1))))})
    elif what < 0.05:
        attr = replace(attr, post_ops=(_one(rng, (Eltwise("relu"), Eltwise("clip", 2.0, 1.0))),))
    return attr


def _scale(rng: Generator, mask: int, count: int) -> Scale:
    if _chance(rng, 0.5):
        mask, count = 0, 1
    if _chance(rng, 0.05):
        mask = int(_one(rng, (1, 8, 24, -1)))
    if _chance(rng, 0.02):
        count += 1
    return Scale(tuple(rng.uniform(60, 300, count).astype(np.float32).tolist()), mask)


def arguments(primitive: Primitive, seed: int) -> dict[str, Array]:
    """Weights whose gates are neither all open nor all shut, and codes of all values."""
    rng, found = np.random.default_rng((seed, 1)), dict[str, Array]()
    what = primitive.description
    for role, type_ in what.tensors.items():
        shape = type_.static_shape
        if role in what.destinations():
            continue
        if type_.dtype in (DType.F32, DType.BF16):
            fan = {"weights_layer": shape[-3:][0], "weights_iter": shape[-3:][0]}.get(role)
            fan = shape[-2] if role == "weights_projection" else fan
            scale = 0.7 / np.sqrt(fan) if fan else 0.5
            values = rng.normal(size=shape) * scale
            found[role] = np.clip(values, -1, 1).astype(np.float32)
            if role == "attention":
                found[role] = rng.uniform(0, 1, shape).astype(np.float32)
            if type_.dtype is DType.BF16:
                found[role] = round_to_bf16(found[role])
        elif type_.dtype is DType.U8:
            found[role] = rng.integers(0, 256, shape).astype(np.uint8)
        else:
            most = 127 if role.startswith("src") or rng.random() < 0.5 else 40
            found[role] = s8_codes(rng, shape, most)
    return found


def complaint(seed: int, engine: Engine, seen: Counter[str] | None = None) -> str:
    """What the engines do not agree on; '' where they do."""
    drawn, seen = draw(seed), Counter() if seen is None else seen
    if has_halves(drawn) and not halves_are_known(engine.library):
        return ""
    what, ours, theirs = statuses(drawn, engine)
    told = f"{seed}: {drawn}"
    seen[f"status {theirs}"] += 1
    if contradict(ours, theirs) or bool(ours) != bool(theirs):
        return f"{told}\n  statuses {ours} and {theirs}, {refusal(what)}"
    if theirs:
        return ""
    found = [made(drawn, name) for name in ("numpy", "onednn")]
    if neglected(what) is not None:
        seen["neglected"] += 1
        refused = [p.status for p in found if isinstance(p, OneDnnError)]
        return "" if refused == [Status.unimplemented] * 2 else f"{told}\n  {found}"
    first, second = found
    if isinstance(second, OneDnnError) and not isinstance(first, OneDnnError):
        seen["no implementation that computes it right"] += 1
        halves = what.dtype("src_layer") is DType.BF16 and "weights_projection" in what.tensors
        known = halves or what.dtype("src_layer") is DType.S8
        on_amx = engine.library.effective_isa().has_amx and " on AMX)" in str(second)
        return "" if known or on_amx else f"{told}\n  {found}"
    if isinstance(first, OneDnnError) or isinstance(second, OneDnnError):
        return f"{told}\n  {found}"
    args = arguments(first, seed)
    told = f"{told} {second.impl_info}"
    before = seen["one code apart"]
    pairs = zip(first.execute_all(args).items(), second.execute_all(args).values(), strict=True)
    for (role, mine), real in pairs:
        different = _differs(drawn, role, mine, real, seen)
        if different:
            return f"{told}\n  {role}: {different}"
    seen["made"] += 1
    seen["layers apart"] += seen["one code apart"] > before
    return ""


def _differs(drawn: Drawn, role: str, ours: Array, theirs: Array, seen: Counter[str]) -> str:
    """Codes are the same, but where the two approximations of exp and tanh take one to the other
    side of a tie: then it is the next one, and is counted.
    """
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return f"{ours.dtype}{ours.shape} and {theirs.dtype}{theirs.shape}"
    data = drawn.attr.rnn_data_qparams
    wide, other = ours.astype(np.float64), theirs.astype(np.float64)
    if drawn.given["src_layer"].startswith("bf16"):
        far = np.abs(wide - other)
        seen["halves"] += far.size
        seen["halves apart"] += int((far > ERROR).sum())
        return "" if far.max(initial=0) <= HALVES_APART else f"off by up to {far.max()}"
    if drawn.given["src_layer"].startswith("f32") or role == "dst_iter_c":
        far = np.abs(wide - other)
        seen["floats"] += far.size
        if (far <= ERROR).all():
            return ""
        if data is not None and (far <= BEHIND_A_CODE).all():
            seen["one code apart"] += int((far > ERROR).sum())
            return ""
        return f"off by up to {far.max()}"
    if ours.dtype == np.float32 and data is not None:
        wide, other = wide * data.values[0], other * data.values[0]
    far = np.abs(wide - other)
    seen["codes"] += far.size
    # decoded codes are off by the rounding of a division
    seen["one code apart"] += int((far > 1e-3).sum())
    if far.max(initial=0) <= 1 + 1e-3:
        return ""
    return f"{(far > 1 + 1e-3).sum()} of {far.size} are off by up to {far.max()} codes"


def main(first: int, count: int) -> None:
    """Prints what differs."""
    seen: Counter[str] = Counter()
    engine = Engine(load())
    for seed in range(first, first + count):
        try:
            found = complaint(seed, engine, seen)
        except Exception as error:  # noqa: BLE001  # for a person at a terminal
            found = f"{seed} {draw(seed)}: {type(error).__name__} {error}"
        if found:
            print(found)
    print(f"{count} layers, {dict(seen)}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
