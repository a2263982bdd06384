"""Short notation: numbers, names, operands, primitives."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plan_text import parse_plan

from fqfuse.plan.attributes import Binary, Eltwise, Prelu, Scale, Sum, ZeroPoint
from fqfuse.report.columns import columns
from fqfuse.report.notation import (
    Notation,
    bytes_text,
    count_text,
    cut_names,
    middle_cut,
    number_text,
    short_names,
)

PLAN = parse_plan(
    """plan p target=onednn-v3
  in %x : f32[N,4]
  const @c : f32[1,4] = [1,2,3,4]
  const @s : f32[1,1] = [0.125]
  #0 %a : f32[N,4], %b : f32[N,4] = onnx.Split(input=%x){axis=0,num_outputs=2} ; split
  out %a, %b
"""
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (0.0169081, "0.01691"),
        (-2.5, "-2.5"),
        (1e-9, "1e-09"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (math.nan, "nan"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (3 << 20, "3.0 MiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_bytes(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_counts() -> None:
    assert [count_text(n, "step") for n in (0, 1, 1234)] == ["0 steps", "1 step", "1,234 steps"]
    assert (
        count_text(2, "matmul or convolution", "matmuls and convolutions")
        == "2 matmuls and convolutions"
    )


@pytest.mark.parametrize(
    ("names", "short"),
    [
        ([], []),
        (["block1.conv1", "block1.relu1"], ["block1.conv1", "…relu1"]),
        (
            ["/layer.0/conv1/Conv", "/layer.0/conv1/Relu", "/layer.0/add", "/other"],
            ["/layer.0/conv1/Conv", "…Relu", "…add", "/other"],
        ),
        (["Conv_3", "Conv_31"], ["Conv_3", "Conv_31"]),  # no path: part of a word stays
        (["a.x", "a.y"], ["a.x", "a.y"]),  # too short to gain anything
    ],
)
def test_shared_paths_are_left_out(names: list[str], short: list[str]) -> None:
    assert short_names(names) == short


@given(st.text(), st.integers(min_value=1, max_value=40))
def test_a_cut_text_fits_and_keeps_its_ends(text: str, room: int) -> None:
    cut = middle_cut(text, room)
    assert columns(cut) <= room
    assert cut == text or any(
        letter == "…" and text.startswith(cut[:place]) and text.endswith(cut[place + 1 :])
        for place, letter in enumerate(cut)
    )
    assert middle_cut(text, None) == text


def path(layer: int, what: str) -> str:
    """A long beginning and a long end that all names share."""
    return f"/bert/encoder/layer.{layer}/attention/self/{what}/Reshape_1_output_0_QuantizeLinear"


def test_names_of_one_list_keep_what_tells_them_apart() -> None:
    names = [path(0, "query"), path(0, "key"), path(11, "query"), path(11, "key"), "short"]
    assert cut_names(names, 50) == [
        "/bert/encoder/layer.0…self/query…_0_QuantizeLinear",
        "/bert/encoder/layer.0…self/key…ut_0_QuantizeLinear",
        "/bert/encoder/layer.11…self/query…0_QuantizeLinear",
        "/bert/encoder/layer.11…self/key…t_0_QuantizeLinear",
        "short",
    ]
    assert cut_names(names, None) == names
    assert cut_names(names[:1] * 2, 50) == [middle_cut(names[0], 50)] * 2, "these are one"


WORDS = st.text("abyz", min_size=1, max_size=9)


@given(
    st.text("ab/._", max_size=90), WORDS, WORDS, WORDS, WORDS, st.text("ab/._", max_size=90),
    st.integers(min_value=33, max_value=78),
)  # fmt: skip
def test_cut_names_are_as_many_as_names(
    front: str, a: str, b: str, c: str, d: str, end: str, room: int
) -> None:
    """Names that differ in two words of up to 9 letters need room for both, each behind up to 12
    characters in front of it, and two signs of what is left out.
    """
    names = [f"{front}/{x}/{'m' * 30}/{y}/{end}" for x in (a, b) for y in (c, d)]
    shown = cut_names(names, room)
    assert all(columns(text) <= room for text in shown)
    if room >= 2 * (12 + 9 + 2):  # in narrower lists the second word may have none
        assert len(set(shown)) == len(set(names))
    assert all(text == name for text, name in zip(shown, names, strict=True) if len(name) <= room)


@given(st.lists(st.text(max_size=60), max_size=6), st.integers(min_value=1, max_value=40))
def test_cut_names_fit_whatever_they_are(names: list[str], room: int) -> None:
    for name, text in zip(names, cut_names(names, room), strict=True):
        assert columns(text) <= room
        assert text == name or "…" in text


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("%y : f32[4,4] = onnx.Concat(x_0=%u, x_1=%u, x_2=%f){axis=0}", "u8×u8×f32 → f32[4,4]"),
        (
            "%y : u8[4,4] = concat<Concat>(src_0=%u, src_1=%u, src_2=%u, src_3=%f, src_4=%u){axis=0}",
            "3 u8, f32, u8 → u8[4,4]",
        ),
        (
            "%a : u8[1], %b : u8[1], %c : u8[1], _, %y : u8[2] = onnx.Split(input=%u)",
            "u8 → 3 u8[1], u8[2]",
        ),
        ("%y : f32[*] = onnx.Mystery()", "- → f32[*]"),
        ("%y : f32[2] = matmul<MatMul>(src=%u, weights=@w, bias=@w)", "u8×s8 → f32[2]"),
        ("%y : f32[2] = onnx.Gather(data=@w, indices=%f)", "s8×f32 → f32[2]"),
        ("%y : f32[2] = onnx.Reshape(data=%f, shape=@w)", "f32 → f32[2]"),
    ],
)
def test_types(line: str, text: str) -> None:
    head = "plan p target=t\n  in %u : u8[2]\n  in %f : f32[2]\n  const @w : s8[2] = [1,2]\n"
    plan = parse_plan(f"{head}  #0 {line} ; s\n  out %y\n")
    assert Notation(plan).types(plan.steps[0]) == text


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (Eltwise("relu"), "relu"),
        (Eltwise("relu", 0.1), "relu(0.1)"),
        (Eltwise("relu", scale=0.5), "relu ×0.5"),
        (Eltwise("clip", 0, 6), "clip(0, 6)"),
        (Eltwise("clip_v2", -math.inf, 6), "clip(-∞, 6)"),
        (Eltwise("linear", 2.0), "×2"),
        (Eltwise("linear", 2.0, 1.0), "×2 + 1"),
        (Eltwise("linear", 1.0, -3.0), "- 3"),
        (Eltwise("linear", 1.0, 0.0), "×1"),
        (Eltwise("gelu_erf"), "gelu_erf"),
        (Eltwise("hardswish", 0.1666667, 0.5), "hardswish(0.1667, 0.5)"),
        (Binary("add", "c"), "add(const[1,4])"),
        (Binary("mul", "s"), "mul(0.125)"),
        (Binary("max", "x", Scale((0.5,))), "max(x, ×0.5)"),
        (Binary("sub", "a", Scale((0.5, 0.25), 2)), "sub(#0, ×2 values 0.25..0.5)"),
        (Binary("add", "a", Scale((0.5,)), ZeroPoint((3,))), "add(#0, ×0.5, z=3)"),
        (Binary("mul", "a", None, ZeroPoint((3, -4), 2)), "mul(#0, z=2 values -4..3)"),
        (Sum("b"), "sum(#0.1)"),
        (Sum("b", 0.5, 3), "sum(#0.1, ×0.5, z=3)"),
        (Prelu("c"), "prelu(const[1,4])"),
    ],
    ids=str,
)
def test_post_ops(op, text: str) -> None:
    assert Notation(PLAN).post_op(op) == text
