"""Who allocates what the library needs while it runs, and what f32 may be narrowed to."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from laws import recurrent_primitives as recurrent
from laws.primitives import MAKERS, draw
from laws.primitives import arguments as arguments_of
from support.codes import s8_codes

from fqfuse.errors import InvalidInput
from fqfuse.onednn.capi import OneDnnError
from fqfuse.primitives import PrimitiveAttr, Scale, prim
from fqfuse.primitives.primitive import Primitive

WORDS = {"src": "u8[1,8,9,9]", "weights": "s8[8,8,3,3]", "dst": "u8[1,8,7,7]"}
ATTR = PrimitiveAttr({"src": Scale((0.01,)), "weights": Scale((), 1)})


def arguments() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "src": rng.integers(0, 256, (1, 8, 9, 9)).astype(np.uint8),
        "weights": s8_codes(rng, (8, 8, 3, 3)),
        "scales_weights": np.linspace(0.01, 0.1, 8).astype(np.float32),
    }


def made(scratchpad: str) -> Primitive:
    return prim("convolution", ATTR, engine="onednn", scratchpad=scratchpad, **WORDS)


@pytest.mark.usefixtures("of_the_rules")
def test_by_default_the_library_allocates_it_and_tells_how_much() -> None:
    default = prim("convolution", ATTR, engine="onednn", **WORDS)
    assert default.memory_consumption == made("library").memory_consumption > 0
    assert default.scratchpad_size == 0
    with pytest.raises(InvalidInput, match="reads no 'scratch'"):
        default.execute({**arguments(), "scratch": np.zeros(1, np.uint8)})


@pytest.mark.usefixtures("of_the_rules")
def test_the_users_is_asked_for_its_size_and_given() -> None:
    users = made("user")
    assert users.scratchpad_size > 0
    assert users.memory_consumption == 0
    with pytest.raises(InvalidInput, match="lacks scratchpad"):
        users.execute(arguments())
    with pytest.raises(InvalidInput, match="scratchpad is"):
        users.execute({**arguments(), "scratchpad": np.zeros(8, np.uint8)})
    scratchpad = np.full(users.scratchpad_size, 255, np.uint8)
    found = users.execute({**arguments(), "scratchpad": scratchpad})
    assert np.array_equal(found, made("library").execute(arguments()))
    assert np.array_equal(found, prim("convolution", ATTR, **WORDS).execute(arguments()))


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("kind", [*MAKERS, "lstm"])
def test_primitives_of_every_kind_have_both_modes(kind: str) -> None:
    """Random ones: the same bits, whatever stands in the user's."""
    seen = 0
    for seed in range(30):
        words = draw(seed, kind).given if kind in MAKERS else recurrent.words(kind)
        attr = draw(seed, kind).attr if kind in MAKERS else PrimitiveAttr()
        try:
            library = prim(kind, attr, engine="onednn", **words)
        except OneDnnError:
            continue
        users = prim(kind, attr, engine="onednn", scratchpad="user", **words)
        assert users.scratchpad_size == library.memory_consumption
        assert library.scratchpad_size == users.memory_consumption == 0
        args = (arguments_of if kind in MAKERS else recurrent.arguments)(library, seed)
        expected = library.execute_all(args)
        own = {"scratchpad": np.full(users.scratchpad_size, 255, np.uint8)}
        found = users.execute_all({**args, **(own if users.scratchpad_size else {})})
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            assert np.array_equal(found[name], array, equal_nan=True), (seed, name)
        seen += 1
    assert seen > 1


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("scratchpad", ["library", "user"])
def test_threads_may_share_a_primitive(scratchpad: str) -> None:
    """Each runs on an image of its own, long enough for others to meet it: what they left in its scratchpad
    would be seen.
    """
    words = {"src": "u8[1,64,114,114]", "weights": "s8[16,64,3,3]", "dst": "u8[1,16,112,112]"}
    one = prim("convolution", ATTR, engine="onednn", scratchpad=scratchpad, **words)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4, 1, 64, 114, 114)).astype(np.uint8)
    same = {
        "weights": s8_codes(rng, (16, 64, 3, 3)),
        "scales_weights": np.linspace(1e-3, 1e-2, 16).astype(np.float32),
    }
    expected = [prim("convolution", ATTR, **words).execute({"src": x, **same}) for x in images]

    def run(index: int) -> bool:
        own = {"scratchpad": np.empty(one.scratchpad_size, np.uint8)} if one.scratchpad_size else {}
        found = one.execute({"src": images[index % 4], **same, **own})
        return np.array_equal(found, expected[index % 4])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(400)))


MODES = {"strict": 24, "bf16": 8, "f16": 11, "tf32": 11, "any": 8, "environment": 24}
"""Bits of a number's mantissa that a mode leaves at least."""


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("engine", ["numpy", "onednn"])
def test_f32_is_stored_whatever_it_is_narrowed_to_inside(engine: str, mode: str) -> None:
    rng = np.random.default_rng(0)
    src, weights = (rng.uniform(1, 2, (16, 16)).astype(np.float32) for _ in range(2))
    words = dict.fromkeys(("src", "weights", "dst"), "f32[16,16]")
    found = prim("matmul", engine=engine, fpmath=mode, **words).execute(
        {"src": src, "weights": weights}
    )
    exact = src.astype(np.float64) @ weights.astype(np.float64)
    assert found.dtype == np.float32
    # two factors are rounded, each by half a unit of the last bit, and 16 sums in f32
    assert np.abs(found / exact - 1).max() < 2.0 ** (1 - MODES[mode]) + 16 * 2.0**-24
    # of random sums some need all bits of f32: none of the narrower types has the last 13
    assert (found.view(np.uint32) & 0x1FFF).any()


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("engine", ["numpy", "onednn"])
def test_integers_are_computed_as_they_are(engine: str, mode: str) -> None:
    found = prim("convolution", ATTR, engine=engine, fpmath=mode, **WORDS).execute(arguments())
    assert np.array_equal(found, prim("convolution", ATTR, **WORDS).execute(arguments()))


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize(("mode", "told"), [("FpmathMode.strict", "0"), ("None", "3")])
@pytest.mark.parametrize("by", ["environment", "function"])
def test_the_environments_default_counts_where_it_is_asked_for(
    by: str, mode: str, told: str
) -> None:
    """And the one that was set by the library's function, which 3 is an argument of: `any`."""
    code = f"""
import ctypes
from fqfuse.onednn.attributes import Attributes, attr_of
from fqfuse.onednn.enums import FpmathMode
from fqfuse.onednn.loading import load
library = load()
if {by == "function"}:
    assert library.c["dnnl_set_default_fpmath_mode"](3) == 0
attr, value = attr_of(library, Attributes(fpmath={mode})), ctypes.c_int(-1)
library.c["dnnl_primitive_attr_get_fpmath_mode"](ctypes.c_void_p(attr.pointer), ctypes.byref(value))
print(value.value)
"""
    environment = {**os.environ, "ONEDNN_DEFAULT_FPMATH_MODE": "ANY" if by == "environment" else ""}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert ran.stdout.strip() == told
