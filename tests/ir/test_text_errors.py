"""A text that is not a graph: the error says line, place and what was expected; hostile text costs
nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.graph_text import parse_graph
from support.text_reader import TextLimits

from fqfuse.errors import FqfuseError, InvalidModel
from fqfuse.ir.graph import Graph
from fqfuse.ir.text_print import print_graph
from fqfuse.ir.types import DType, TensorType

HEAD = "graph g\n  in %x : f32[2,3]\n"

CASES = {
    "": "the text form is empty",
    "tree g\n  out": "expected `graph` and its name, found",
    "graph g\n": "the text ends without a line `out`",
    "graph g nodes=2\n  out": "the header says nodes=2, the text has 0",
    "graph g constants=1 nodes=0\n  out": "the header says constants=1, the text has 0",
    HEAD + "  input %y : f32[1]": "expected `in`, `const`, a node",
    HEAD + "  in %x : f32[1]": "%x is defined a second time",
    HEAD + "  in @y : f32[1]": "expected `%` and a new name",
    HEAD + "  in %y f32[1]": "expected `:`",
    HEAD + "  in %y : float32[1]": "expected an element type (f32, f64, ",
    HEAD + "  in %y : f32[1": "expected `]`, found the end of the line",
    HEAD + "  in %y : f32[1,]": 'expected a dimension, found "]"',
    HEAD + "  in %y : f32[1] more": 'expected the end of the line, found "more"',
    HEAD
    + "  in %y : u8[2]{s=[1,2],z=[0]}": "this quantization is impossible: 2 scales with 1 zero points",
    HEAD + "  in %y : u8[2]{s=[1,2],z=[0,0]}": "more than one scale needs an axis",
    HEAD + "  in %y : u8[2]{s=[64 values 1..2],z=0}": "this list was shortened for reading",
    HEAD + "  const @c : f32[2] = [1.0]": "expected 2 elements, found 1",
    HEAD + "  const @c : u8[2] = [1,256]": "256 is no u8",
    HEAD + "  const @c : f32[1] = [1e40]": "1e+40 is beyond float32",
    HEAD + "  const @c : f32[1] = [0x1ffffffff]": "0x1ffffffff has more bits than float32",
    HEAD + "  const @c : bool[1] = [yes]": "expected `true` or `false`",
    HEAD + "  const @c : f32[N] = fill(0)": "the constant's shape is not static: f32[N]",
    HEAD + "  const @c : f32[-1] = fill(0)": "the constant's shape is not static",
    HEAD + "  const @c : f32[100000,100000] = fill(0)": "constants take more than 2147483648 bytes",
    HEAD + "  const @c : u8[4611686018427387905] = fill(0)": "no array has the shape",
    HEAD
    + "  const @c : f32[99] = #0123456789abcdef": "the data of #0123456789abcdef is not in the text",
    HEAD + "  const @c : string[1] = #0123456789abcdef": "strings are not kept by digest",
    HEAD + "  %y = Relu(%z)": "%z is read before it is defined",
    HEAD + "  %y = Relu(@x)": "x is no constant: write %x",
    HEAD + "  const @c : f32[] = 1.0\n  %y = Relu(%c)": "c is a constant: write @c",
    HEAD + "  %y = Relux(%x)": "this node does not fit the op table: no op Relux",
    HEAD + "  %y = Softmax(%x){axis=7}": "this node does not fit the op table: Softmax",
    HEAD + "  %y = Softmax(%x){angle=1}": "Softmax has no attribute angle",
    HEAD + '  %y = Softmax(%x){axis="one"}': "this node does not fit the op table",
    HEAD + "  %y = MatMul(%x, %x)": "this node does not fit the op table: MatMul",
    HEAD + "  %y = Relu(%x){a=1,a=2}": "the attribute a stands here twice",
    HEAD + "  %y : f32[3,2] = Relu(%x)": "%y is stated as f32[3,2], and the op gives f32[2,3]",
    HEAD + "  %y, %z = Relu(%x)": "the op has no output for %z",
    HEAD + "  %y = Relu(%x) ; a\n  %z = Relu(%x) ; a": "a second node is called a",
    HEAD + '  %y = Onnx(%x){op_type="A",opset=1,proto=b""}': "%y needs a type",
    HEAD + '  %y = Relu(%x) ; "unclosed': "expected the node's name",
    HEAD + r'  %y = Relu(%x) ; "\q"': "expected a string with valid escapes",
    HEAD + '  %"" = Relu(%x)': "expected a value's name, which is never empty",
    HEAD + "  out %y": "%y is read before it is defined",
    HEAD + "  out %x\n  out %x": "a second line `out`",
    HEAD + "  quantizer q : F of x\n  quantizer q : F of x": "the quantizer q stands here twice",
    HEAD
    + '  fate q quantize -> sum : ""': "a fate of a quantize half is one of dst_scale, source, post_op",
    HEAD + '  fate q halve -> sum : ""': "expected `quantize` or `dequantize`",
    HEAD + "  decision fired r at n : because": "expected the reason, quoted",
    HEAD + '  decision done r at n : ""': "expected `fired` or `refused`",
    HEAD + "  out %x\ndata\n  nothing": "expected `#` and a digest",
    HEAD + "  %y = Relu(%x){a=" + "[" * 40 + "}": "lists are nested more than 32 deep",
    HEAD + "  %y = Relu(%x){a=1e99}": "1e99 is beyond f32",
    HEAD + '  %y = Relu(%x){a=b"A"}': "this is no base64",
}


@pytest.mark.parametrize(("text", "message"), CASES.items(), ids=range(len(CASES)))
def test_the_error_says_what_was_expected(text, message):
    with pytest.raises(InvalidModel) as caught:
        parse_graph(text, source="net.txt")
    assert message in caught.value.what
    assert caught.value.hint


def test_the_error_shows_the_place():
    with pytest.raises(InvalidModel) as caught:
        parse_graph(HEAD + "  %y = Relu(%z) ; relu\n", source="net.txt")
    assert str(caught.value) == (
        "the text form cannot be read: %z is read before it is defined\n"
        "  where: net.txt, line 3, column 13\n"
        "      %y = Relu(%z) ; relu\n"
        "                ^\n"
        "  fix:   the grammar is in docs/contributing/text-form.md"
    )


def _stored(raw: bytes, digest: str | None = None, size: int = 100) -> str:
    packed = base64.b64encode(zlib.compress(raw)).decode()
    digest = digest or hashlib.sha256(raw).hexdigest()[:16]
    return (
        f"graph g\n  const @c : u8[{size}] = #{digest}\n  out @c\ndata\n  #{digest}\n    {packed}\n"
    )


def test_damaged_data_is_refused():
    good = _stored(bytes(range(100)))
    assert parse_graph(good).constants["c"].tolist() == list(range(100))
    for text, message in [
        (_stored(bytes(100), "0" * 16), "does not have that digest"),
        (_stored(bytes(99)), "is not 100 bytes long"),
        (good[:-8] + "\n", "is damaged|is not 100 bytes long"),
        (good.replace("    e", "    !"), "is damaged"),
        (
            good.replace("const @c : u8[100]", "const @c : bool[100]"),
            "a bool is stored as a byte 0 or 1",
        ),
    ]:
        with pytest.raises(InvalidModel, match=message):
            parse_graph(text)


def test_a_decompression_bomb_is_not_unpacked():
    bomb = _stored(bytes(1 << 26), size=100)
    start = time.process_time()
    with pytest.raises(InvalidModel, match="is not 100 bytes long"):
        parse_graph(bomb)
    # unpacking 64 MiB is not what takes the time: reading the base64 is
    assert time.process_time() - start < 2


def test_limits_are_the_callers():
    text = _stored(bytes(range(100)))
    with pytest.raises(InvalidModel, match="more than the limit of 50"):
        parse_graph(text, limits=TextLimits(chars=50))
    with pytest.raises(InvalidModel, match="constants take more than 99 bytes"):
        parse_graph(text, limits=TextLimits(data_bytes=99))
    with pytest.raises(InvalidModel, match="nested more than 1 deep"):
        parse_graph(HEAD + "  %y = Relu(%x){a=[[1]]}", limits=TextLimits(depth=1))


def test_long_tokens_take_linear_time():
    for evil in (
        '"' + "\\" * 200_000,
        "%" + "." * 200_000,
        "[" * 200_000,
        "9" * 200_000,
        '"' + 'a\\"' * 100_000,
        "%" + "a." * 100_000 + ":",
    ):
        start = time.process_time()
        for line in (
            f"  in {evil}",
            f"  %y = Relu(%x){{a={evil}",
            f"  const @c : f32[1] = {evil}",
            f"  %y = {evil}",
        ):
            with pytest.raises(InvalidModel):
                parse_graph(HEAD + line)
        assert time.process_time() - start < 2  # quadratic time would take minutes


def _sample() -> str:
    graph = Graph("sample")
    graph.add_input("x", TensorType(DType.F32, (2, 3)))
    graph.add_constant("c", np.array([[1.5, -2.0, np.nan]], np.float32))
    graph.add("Add", ["x", "c"], name="add", outputs=["a"], origin=["one", "two words"])
    graph.add("Softmax", ["a"], {"axis": 0}, name="soft", outputs=["y"], quantizer=["q"])
    graph.set_outputs(["y"])
    told = '  quantizer q : FakeQuantize of a\n  decision fired "r" at soft : "yes"\n  fate q quantize -> post_op at #3 : "w"\n'
    return print_graph(graph) + told


@given(st.data())
def test_any_change_of_a_text_gives_a_graph_or_an_error_with_a_place(data):
    text = _sample()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(start + 6, len(text))))
        piece = data.draw(
            st.sampled_from(
                ["", "%", "@", "{", "[", '"', "\n", "0", "-", ",", "nan", "#", ";", "x", "é"]
            )
            | st.text(max_size=3)
        )
        text = text[:start] + piece + text[end:]
    try:
        graph = parse_graph(text)
    except FqfuseError as error:
        assert re.search(r"line \d+, column \d+|empty", str(error))  # noqa: PT017  # the alternative is a graph, not a failure
    else:
        assert parse_graph(print_graph(graph)) == graph
