"""Floats of 16 bits: which arrays they are, and what they give; `test_law.py` draws them for all
kinds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from laws.primitives import halves_are_known

from fqfuse.errors import InvalidInput
from fqfuse.ir.ops.elementwise import round_to_bf16
from fqfuse.onednn.capi import OneDnnError, Status
from fqfuse.primitives import PrimitiveAttr, Scale, prim

ENGINES = ["numpy", "onednn"]
WORDS = {"src": "bf16[6,200]", "weights": "bf16[200,5]"}


def requires(engine: str, request: pytest.FixtureRequest) -> None:
    if engine == "onednn":
        request.getfixturevalue("of_the_rules")
        if not halves_are_known(request.getfixturevalue("library")):
            pytest.skip("the rules are of CPUs with AVX512-BF16 and without AVX512-FP16")


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return round_to_bf16(rng.normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dst", ["f32", "bf16"])
def test_products_of_bf16(engine: str, dst: str, request: pytest.FixtureRequest) -> None:
    """Sums are f32 in the engine's own order: within their rounding, and that of the store."""
    requires(engine, request)
    rng = np.random.default_rng(0)
    args = {"src": numbers(rng, 6, 200), "weights": numbers(rng, 200, 5)}
    found = prim("matmul", engine=engine, **WORDS, dst=f"{dst}[6,5]").execute(args)
    wide = {role: array.astype(np.float64) for role, array in args.items()}
    exact, terms = wide["src"] @ wide["weights"], np.abs(wide["src"]) @ np.abs(wide["weights"])
    # 200 sums, each rounded by at most half a unit of the sum of magnitudes
    bound = 200 * 2.0**-24 * terms + (2.0**-8 * np.abs(exact) if dst == "bf16" else 0)
    assert found.dtype == np.float32
    assert (np.abs(found - exact) <= bound).all()
    assert dst == "f32" or np.array_equal(found, round_to_bf16(found))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_mode_that_narrows_gives_what_such_tensors_give(
    engine: str, request: pytest.FixtureRequest
) -> None:
    """NumPy's fpmath="bf16" against tensors of bf16: the same on NumPy, on the library but for the
    order of the sums.
    """
    requires(engine, request)
    rng = np.random.default_rng(1)
    plain = {
        "src": rng.normal(size=(6, 200)).astype(np.float32),
        "weights": rng.normal(size=(200, 5)).astype(np.float32),
    }
    words = {"src": "f32[6,200]", "weights": "f32[200,5]", "dst": "f32[6,5]"}
    narrowed = prim("matmul", fpmath="bf16", **words).execute(plain)
    halves = {role: round_to_bf16(array) for role, array in plain.items()}
    found = prim("matmul", engine=engine, **WORDS, dst="f32[6,5]").execute(halves)
    if engine == "numpy":
        assert np.array_equal(found, narrowed)
        return
    terms = np.abs(halves["src"]).astype(np.float64) @ np.abs(halves["weights"])
    assert (np.abs(found.astype(np.float64) - narrowed) <= 2 * 200 * 2.0**-24 * terms).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_codes_stored_as_bf16_are_rounded_once(engine: str, request: pytest.FixtureRequest) -> None:
    requires(engine, request)
    rng = np.random.default_rng(2)
    attr = PrimitiveAttr({"src": Scale((0.5,))})
    words = {"src": "u8[6,40]", "weights": "s8[40,5]", "bias": "bf16[1,5]", "dst": "bf16[6,5]"}
    args = {
        "src": rng.integers(0, 256, (6, 40)).astype(np.uint8),
        "weights": rng.integers(-128, 128, (40, 5)).astype(np.int8),
        "bias": np.array([[1, -2, 0.5, 256, 0]], np.float32),
    }
    sums = args["src"].astype(int) @ args["weights"].astype(int) * 0.5 + args["bias"]
    found = prim("matmul", attr, engine=engine, **words).execute(args)
    assert np.array_equal(found, round_to_bf16(sums.astype(np.float32)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["reorder", "concat", "sum", "binary"])
def test_what_is_stored_is_rounded(engine: str, kind: str, request: pytest.FixtureRequest) -> None:
    """To the nearest number, half to even, but numbers below the smallest normal one to 0."""
    requires(engine, request)
    array = np.float32([1 + 2**-8, 1 + 3 * 2**-8, -1.01, 3.4e38, 1e-40, -1e-38])
    tensors: dict[str, dict[str, Any]] = {
        "reorder": {"src": "f32[6]"},
        "concat": {"src_0": "f32[6]", "axis": 0},
        "sum": {"src_0": "f32[6]", "scales": (1.0,)},
        "binary": {"src_0": "f32[6]", "src_1": "f32[6]", "algorithm": "max"},
    }
    made = prim(kind, engine=engine, **tensors[kind], dst="bf16[6]")
    args = dict.fromkeys(made.description.sources(), array)
    found = made.execute(args)
    assert found.tolist() == [1, 1 + 2**-6, -1.0078125, np.inf, 0, 0]
    assert np.signbit(found).tolist() == [False, False, True, False, False, True]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_window_in_the_padding_has_the_lowest_number(
    engine: str, request: pytest.FixtureRequest
) -> None:
    requires(engine, request)
    made = prim(
        "pooling",
        engine=engine,
        src="bf16[1,16,1]",
        dst="bf16[1,16,2]",
        kernel=(1,),
        algorithm="max",
        padding_r=(1,),
    )
    found = made.execute({"src": np.ones((1, 16, 1), np.float32)})
    assert (found[0, :, 1] == -(2 - 2.0**-7) * 2.0**127).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_f16_is_moved_and_added(engine: str, request: pytest.FixtureRequest) -> None:
    requires(engine, request)
    array = np.array([0.1, -65504, 3.4e-5, np.inf], np.float16)
    back = prim("reorder", engine=engine, src="f16[4]", dst="f32[4]").execute({"src": array})
    assert np.array_equal(back, array.astype(np.float32))
    there = np.array([0.1, 70000, -2049, 1e-9], np.float32)
    found = prim("reorder", engine=engine, src="f32[4]", dst="f16[4]").execute({"src": there})
    with np.errstate(over="ignore"):
        assert np.array_equal(found, there.astype(np.float16))
    words = {"src_0": "f16[4]", "src_1": "f16[4]", "dst": "f32[4]", "scales": (1.0, 0.5)}
    total = prim("sum", engine=engine, **words).execute({"src_0": array, "src_1": array})
    wide = array.astype(np.float32)
    assert np.array_equal(total, wide + np.float32(0.5) * wide)


@pytest.mark.parametrize("engine", ENGINES)
def test_numbers_that_bf16_does_not_hold_are_refused(
    engine: str, request: pytest.FixtureRequest
) -> None:
    requires(engine, request)
    made = prim("eltwise", engine=engine, src="bf16[3]", dst="bf16[3]", algorithm="relu")
    kept = np.array([-1, np.nan, np.inf], np.float32)
    assert np.array_equal(made.execute({"src": kept})[[0, 2]], np.float32([0, np.inf]))
    with pytest.raises(InvalidInput, match="src has numbers that bf16 does not hold"):
        made.execute({"src": np.array([1, 1.001, 2], np.float32)})


LAYER = {
    "src_layer": "bf16[3,2,4]",
    "weights_layer": "bf16[1,1,4,3,5]",
    "weights_iter": "bf16[1,1,5,3,5]",
    "bias": "f32[1,1,3,5]",
    "dst_layer": "bf16[3,2,5]",
}


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_layer_of_bf16(engine: str, target: str, request: pytest.FixtureRequest) -> None:
    """GRU in float64, whose states, and r*h, are rounded."""
    requires(engine, request)
    rng = np.random.default_rng(2)
    made = prim("gru", engine=engine, target=target, **LAYER)
    args = {
        "src_layer": numbers(rng, 3, 2, 4),
        "weights_layer": numbers(rng, 1, 1, 4, 3, 5),
        "weights_iter": numbers(rng, 1, 1, 5, 3, 5),
        "bias": rng.normal(size=(1, 1, 3, 5)).astype(np.float32),
    }
    w, r, bias = (
        args[name][0, 0].astype(float) for name in ("weights_layer", "weights_iter", "bias")
    )
    h, states = np.zeros((2, 5)), []
    for x in args["src_layer"].astype(float):
        u, reset, new = (x @ w[:, gate] + bias[gate] for gate in range(3))
        u, reset = (1 / (1 + np.exp(-(g + h @ r[:, i]))) for i, g in enumerate((u, reset)))
        kept = round_to_bf16((reset * h).astype(np.float32)).astype(float)
        h = u * h + (1 - u) * np.tanh(new + kept @ r[:, 2])
        h = round_to_bf16(h.astype(np.float32)).astype(float)
        states.append(h)
    found = made.execute(args)
    assert found.dtype == np.float32
    assert np.array_equal(found, round_to_bf16(found))
    # a state that lies next to a tie is one unit away, and moves the next ones by less
    assert np.abs(found - np.array(states)).max() <= 2.0**-8
    assert np.mean(found != np.array(states)) < 0.2


def test_what_is_not_built_says_so() -> None:
    for target in ("onednn-v2", "unified"):
        with pytest.raises(OneDnnError, match="has no floats of 16 bits") as caught:
            prim("matmul", target=target, **WORDS, dst="f32[6,5]")
        assert caught.value.status == Status.unimplemented


@pytest.mark.parametrize("engine", ENGINES)
def test_products_of_f16_need_another_cpu(engine: str, request: pytest.FixtureRequest) -> None:
    requires(engine, request)
    with pytest.raises(OneDnnError) as caught:
        prim("matmul", engine=engine, src="f16[2,2]", weights="f16[2,2]", dst="f32[2,2]")
    assert caught.value.status == Status.unimplemented
