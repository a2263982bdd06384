"""fpmath modes: what NumPy narrows, what the library narrows on this CPU, and the environment's default."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laws.primitives import MAKERS, arguments, draw, made
from laws.recurrent_primitives import QPARAMS, words
from laws.recurrent_primitives import arguments as arguments_of_layer

from fqfuse.errors import InvalidInput
from fqfuse.ir.types import DType
from fqfuse.onednn.capi import OneDnnError
from fqfuse.onednn.enums import FpmathMode
from fqfuse.onednn.library import Library
from fqfuse.primitives import DepthwiseConv, PrimitiveAttr, Scale, prim
from fqfuse.primitives.narrowing import in_environment, narrowed

_F32 = (DType.F32, DType.F32)

MODES = {"bf16": 8, "f16": 11, "tf32": 11, "any": 8}
"""Bits of the mantissa, the hidden one included, of what NumPy narrows to."""

PRODUCTS: dict[str, dict[str, Any]] = {
    "matmul": {"src": "f32[2,8,40]", "weights": "f32[2,40,5]", "dst": "f32[2,8,5]"},
    "inner_product": {"src": "f32[8,10,4]", "weights": "f32[5,10,4]", "dst": "f32[8,5]"},
    "convolution": {
        "src": "f32[1,4,6,6]",
        "weights": "f32[2,3,2,3,3]",
        "bias": "f32[6]",
        "dst": "f32[1,6,4,4]",
    },
    "deconvolution": {"src": "f32[1,4,4,4]", "weights": "f32[6,4,3,3]", "dst": "f32[1,6,6,6]"},
}


def uniform(what: Any, low: float = -2, high: float = 2) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return {
        name: rng.uniform(low, high, type_.static_shape).astype(np.float32)
        for name, type_ in {**what.tensors, **what.operands}.items()
        if name != "dst"
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", PRODUCTS)
def test_numpy_rounds_both_factors(kind: str, mode: str) -> None:
    """To the nearest number with so many bits, by arithmetic; not the bias."""
    one = prim(kind, fpmath=mode, **PRODUCTS[kind])
    args = uniform(one.description)
    rounded = dict(args)
    for role in ("src", "weights"):
        fraction, exponent = np.frexp(args[role].astype(np.float64))
        steps = np.rint(fraction * 2 ** MODES[mode])  # half to even
        rounded[role] = np.ldexp(steps, exponent - MODES[mode]).astype(np.float32)
    assert np.array_equal(one.execute(args), prim(kind, **PRODUCTS[kind]).execute(rounded))
    assert not np.array_equal(one.execute(args), prim(kind, **PRODUCTS[kind]).execute(args))


@pytest.mark.parametrize("mode", MODES)
def test_edges_of_rounding(mode: str) -> None:
    """Ties go to the even number, an infinity and a NaN stay, and what is beyond becomes infinite."""
    unit = 2.0 ** (1 - MODES[mode])
    src = [1 + unit / 2, 1 + 1.5 * unit, -1 - unit / 2, np.inf, np.nan, 3.4028234e38, -0.0]
    expected = [1, 1 + 2 * unit, -1, np.inf, np.nan, np.inf, -0.0]
    array = np.array([src], np.float32)
    found = narrowed("matmul", {"src": array, "weights": array.T.copy()}, FpmathMode[mode])
    assert np.array_equal(found["src"], np.array([expected], np.float32), equal_nan=True)
    assert np.array_equal(np.signbit(found["src"]), np.signbit(np.float32([expected])))


def test_a_depthwise_post_op_narrows_what_lies_between() -> None:
    op = DepthwiseConv("taps", "", 3, 1, 1, *_F32, src_dtype=_F32[0])
    attr = PrimitiveAttr(post_ops=(op,))
    tensors = {"src": "f32[1,4,3,3]", "weights": "f32[4,4,1,1]"}
    one = prim(
        "convolution", attr, fpmath="bf16", **tensors, taps="f32[4,1,3,3]", dst="f32[1,4,3,3]"
    )
    args = uniform(one.description)
    first = prim("convolution", fpmath="bf16", **tensors, dst="f32[1,4,3,3]").execute(
        {role: args[role] for role in tensors}
    )
    second = prim(
        "convolution",
        fpmath="bf16",
        src="f32[1,4,3,3]",
        weights="f32[4,1,1,3,3]",
        dst="f32[1,4,3,3]",
        padding_l=(1, 1),
        padding_r=(1, 1),
    )
    taps = args["taps"].reshape(4, 1, 1, 3, 3)
    assert np.array_equal(one.execute(args), second.execute({"src": first, "weights": taps}))


@pytest.fixture
def without_amx(library: Library) -> None:
    if library.effective_isa().has_amx:
        pytest.skip("this CPU has AMX, where oneDNN narrows to bf16")


@pytest.mark.usefixtures("of_the_rules", "without_amx")
@pytest.mark.parametrize("kind", MAKERS)
def test_without_amx_the_library_narrows_nothing(kind: str) -> None:
    """Random primitives give the same bits in each mode, of numbers that bf16 does not hold."""
    seen = 0
    for seed in range(30):
        drawn = draw(seed, kind)
        strict = made(drawn, "onednn")
        if isinstance(strict, OneDnnError):
            continue
        types = {**strict.description.tensors, **strict.description.operands}
        args = {
            name: array + np.float32(1 / 3)
            if name in types and types[name].dtype is DType.F32
            else array
            for name, array in arguments(strict, seed).items()
        }
        expected = strict.execute(args)
        for mode in MODES:
            one = prim(drawn.kind, drawn.attr, engine="onednn", fpmath=mode, **drawn.given)
            assert one.impl_info == strict.impl_info
            assert np.array_equal(one.execute(args), expected, equal_nan=True), (seed, mode)
        seen += 1
    assert seen > 1


@pytest.mark.usefixtures("of_the_rules", "without_amx")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["lstm", "gru", "vanilla_rnn"])
def test_recurrent_layers_neither(kind: str, mode: str) -> None:
    """128 inputs and states, from where on it narrows with AMX."""
    given = words(kind)
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)
    given |= {"src_layer": "f32[2,16,128]", "dst_layer": "f32[2,16,128]"}
    given |= dict.fromkeys(("weights_layer", "weights_iter"), f"f32[1,1,128,{gates},128]")
    given |= {"bias": f"f32[1,1,{gates},128]"}
    given = {role: text for role, text in given.items() if "_iter" not in role or "weights" in role}
    strict = prim(kind, engine="onednn", **given)
    args = arguments_of_layer(strict, 0)
    one = prim(kind, engine="onednn", fpmath=mode, **given)
    assert np.array_equal(one.execute(args), strict.execute(args))


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("mode", MODES)
def test_a_layer_of_codes_is_computed_as_it_is(mode: str) -> None:
    attr, given = PrimitiveAttr(**QPARAMS), words("lstm", "u8")
    one = prim("lstm", attr, engine="onednn", fpmath=mode, **given)
    args = arguments_of_layer(one, 7)
    expected = prim("lstm", attr, **given).execute_all(args)
    assert np.array_equal(one.execute_all(args)["dst_layer"], expected["dst_layer"])


BARE = """
from dataclasses import replace
import numpy as np
from laws.recurrent_primitives import QPARAMS, arguments, words
from fqfuse.onednn.enums import FpmathMode
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.loading import load
from fqfuse.onednn.primitive import Primitive
from fqfuse.onednn.primitive_desc import PrimitiveDesc
from fqfuse.primitives import PrimitiveAttr, on_library, prim

one = prim("lstm", PrimitiveAttr(**QPARAMS), **words("lstm", "u8"))
args, engine, what = arguments(one, 7), Engine(load()), one.description
request = on_library.descriptor(engine, what).request
narrowing = replace(request.attributes, fpmath=FpmathMode.MODE)
desc = PrimitiveDesc(engine, replace(request, attributes=narrowing))
found = on_library.execute(Stream(engine), what, Primitive(desc), what.attr, args)
right = np.array_equal(found["dst_layer"], one.execute_all(args)["dst_layer"])
print("right" if right else "wrong")
"""


@pytest.mark.of_vnni("elsewhere the library has no code for narrower floats that it could take")
@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("mode", MODES)
def test_the_bare_library_computes_something_else_of_it(mode: str) -> None:
    """It takes its code for floats, and writes beyond the memory of codes: in a process of its own,
    which may end.
    """
    ran = subprocess.run(
        [sys.executable, "-c", BARE.replace("MODE", mode)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    assert ran.returncode < 0 or ran.stdout == "wrong\n", "mended: ask for the mode"


ENVIRONMENT = {
    ("", ""): "strict",
    ("BF16", ""): "bf16",
    ("any", "tf32"): "any",
    ("", "Tf32"): "tf32",
    ("fast", "bf16"): "strict",
}


@pytest.mark.parametrize("variables", ENVIRONMENT)
def test_numpy_takes_the_environments_default_where_it_is_asked_for(
    variables: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in zip(("ONEDNN", "DNNL"), variables, strict=True):
        monkeypatch.setenv(f"{name}_DEFAULT_FPMATH_MODE", value)
    mode = ENVIRONMENT[variables]
    assert in_environment() is FpmathMode[mode]
    kind = PRODUCTS["matmul"]
    one = prim("matmul", fpmath="environment", **kind)
    args = uniform(one.description)
    assert np.array_equal(one.execute(args), prim("matmul", fpmath=mode, **kind).execute(args))
    plain = prim("matmul", **kind).execute(args)
    assert np.array_equal(plain, prim("matmul", fpmath="strict", **kind).execute(args))


def test_there_is_no_other_mode() -> None:
    with pytest.raises(InvalidInput, match="no mode 'half'") as caught:
        prim("matmul", fpmath="half", **PRODUCTS["matmul"])
    assert "environment" in str(caught.value)


def test_codes_are_multiplied_as_they_are() -> None:
    attr = PrimitiveAttr({"src": Scale((1 / 3,))})
    given = {"src": "u8[2,3]", "weights": "s8[3,2]", "dst": "f32[2,2]"}
    args = {
        "src": np.array([[255, 3, 201], [129, 7, 65]], np.uint8),
        "weights": np.array([[127, -3], [65, 9], [-127, 101]], np.int8),
    }
    found = [prim("matmul", attr, fpmath=mode, **given).execute(args) for mode in ("strict", "any")]
    assert np.array_equal(*found)
