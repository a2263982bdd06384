"""parse(print(graph)) == graph, for whatever a graph can hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.graph_text import parse_graph
from support.text_strategies import arrays, attrs, exactly, graphs, names, types

from fqfuse.errors import InvalidModel
from fqfuse.ir.graph import Graph
from fqfuse.ir.text_print import print_graph
from fqfuse.ir.text_read import Reader
from fqfuse.ir.text_write import Writer, name_text
from fqfuse.ir.types import DType, Quantization, TensorType

F32 = TensorType(DType.F32, (2, 3))


@given(graphs())
def test_a_graph_survives_the_text_form(graph):
    text = print_graph(graph)
    again = parse_graph(text)
    assert again == graph
    assert (again.name, again.decisions, again.fates) == (graph.name, graph.decisions, graph.fates)
    assert list(again.quantizers) == list(graph.quantizers)
    assert [node.name for node in again.nodes()] == [node.name for node in graph.nodes()]
    assert print_graph(again) == text
    for node in graph.nodes():
        assert {k: exactly(v) for k, v in node.attrs.items()} == {
            k: exactly(v) for k, v in again.node(node.name).attrs.items()
        }
    for name, data in graph.constants.items():
        assert not again.constants[name].flags.writeable
        assert again.constants[name].dtype == data.dtype


def test_the_text_does_not_tell_in_which_order_constants_were_made():
    def make(order):
        graph = Graph("g")
        for name in order:
            graph.add_constant(name, np.full(2, float(len(name)), np.float32))
        graph.add("Add", ["longer", "a"], name="sum", outputs=["y"])
        graph.set_outputs(["y"])
        return print_graph(graph)

    assert make(["a", "longer"]) == make(["longer", "a"])


@given(attrs)
def test_an_attribute_survives(value):
    reader = Reader(Writer(in_place=True).attr(value))
    assert exactly(reader.attr()) == exactly(value)
    reader.end()


@given(types())
def test_a_type_survives(type_):
    reader = Reader(Writer().type(type_))
    found = reader.type()
    reader.end()
    assert (found.dtype, found.shape) == (type_.dtype, type_.shape)
    assert found.quant == type_.quant


@given(names)
def test_a_name_survives_and_does_not_break_its_line(name):
    text = name_text(name)
    assert len(text.splitlines()) == 1
    assert Reader(text).name() == name


@given(arrays())
def test_a_constant_survives_bit_for_bit(data):
    graph = Graph("c")
    graph.add_constant("c", data)
    graph.set_outputs(["c"])
    again = parse_graph(print_graph(graph)).constants["c"]
    assert (again.dtype, again.shape) == (data.dtype, data.shape)
    assert (
        again.tolist() == data.tolist()
        if data.dtype.kind == "O"
        else again.tobytes() == data.tobytes()
    )


@pytest.mark.parametrize(
    "bits", [0x7FC00000, 0x7FC00001, 0xFFC00000, 0x7F800001, 0x80000000, 0x00000001, 0x7F7FFFFF]
)
@pytest.mark.parametrize("count", [1, 40])
def test_every_bit_of_a_float_survives(bits, count):
    data = np.full(count, bits, np.uint32)
    data[count // 2] ^= 1
    test = data.view(np.float32)
    graph = Graph()
    graph.add_constant("c", test)
    graph.set_outputs(["c"])
    assert parse_graph(print_graph(graph)).constants["c"].tobytes() == test.tobytes()


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_carried])
def test_types_that_numpy_lacks_survive(dtype):
    graph = Graph()
    graph.add_constant(
        "c",
        np.arange(4).astype(dtype.numpy) % 2,
        dtype,
        Quantization.of([0.5, 0.25, 1, 2], 0, 0) if dtype.is_integer else None,
    )
    graph.set_outputs(["c"])
    assert parse_graph(print_graph(graph)) == graph
    assert f": {dtype.value}[4]" in print_graph(graph)


def test_types_read_as_they_are_written_elsewhere():
    quant = Quantization.of(0.02, 0)
    assert (
        Writer().type(TensorType(DType.U8, (1, 64, 56, 56), quant)) == "u8[1,64,56,56]{s=0.02,z=0}"
    )
    for type_ in (
        TensorType(DType.F32, None),
        TensorType(DType.S8, ("N", 3), Quantization.of([0.5, 0.1], [1, 127.5], 1)),
    ):
        assert Writer().type(type_) == str(type_)


def test_a_number_is_the_nearest_f32_and_says_so_when_it_is_more():
    assert Writer().attr(float(np.float32(0.1))) == "0.1"
    assert Writer().attr(0.1) == "0.1d"
    assert Reader("0.1").attr() == float(np.float32(0.1))
    assert Reader("0.1d").attr() == 0.1


@given(st.integers(9, 70))
def test_the_display_form_shortens_lists_and_does_not_read_back(count):
    graph = Graph("g")
    graph.add_input(
        "x", TensorType(DType.S8, (count, 2), Quantization.of(np.linspace(1, 2, count), 0, 0))
    )
    graph.set_outputs(["x"])
    text = print_graph(graph, data="digest")
    assert f"s=[{count} values 1..2],z=[{count} values 0..0],axis=0" in text
    with pytest.raises(InvalidModel, match="shortened for reading"):
        parse_graph(text)


def test_large_data_stands_behind_the_graph_in_the_full_form_only():
    graph = Graph("g")
    graph.add_constant("w", np.arange(100, dtype=np.int32))
    graph.set_outputs(["w"])
    digest, full = print_graph(graph, data="digest"), print_graph(graph)
    assert full.startswith(digest)
    assert "; 0..99" in digest
    with pytest.raises(InvalidModel, match="is not in the text"):
        parse_graph(digest)


def test_equal_data_is_stored_once():
    graph = Graph("g")
    for name in ("a", "b"):
        graph.add_constant(name, np.arange(100, dtype=np.int32))
    graph.set_outputs(["a", "b"])
    lines = print_graph(graph).splitlines()
    assert sum(line.startswith("  #") for line in lines) == 1
    assert parse_graph(print_graph(graph)) == graph


def test_a_graph_with_a_cycle_is_printed_too():
    graph = Graph("g")
    graph.add_input("x", F32)
    first = graph.add("Relu", ["x"], name="first", outputs=["a"])
    graph.add("Relu", ["a"], name="second", outputs=["b"])
    graph._nodes["first"] = type(first)("first", "Relu", ("b",), ("a",))
    graph._connect(graph._nodes["first"])
    graph._touch()
    assert "%a : f32[2,3] = Relu(%b)" in print_graph(graph)


def test_the_examples_of_the_grammar_are_what_the_printer_writes():
    text = (Path(__file__).parents[2] / "docs" / "contributing" / "text-form.md").read_text(
        encoding="utf-8"
    )
    examples = [block for block in text.split("```\n") if block.startswith("graph ")]
    assert examples
    for example in examples:
        again = print_graph(parse_graph(example))
        # zlib may pack the data behind it in another way elsewhere
        assert again.split("\ndata\n")[0] == example.split("\ndata\n")[0]


PARTS = st.sampled_from(
    [
        "0",
        "-0",
        "1",
        "-2.5",
        "3.",
        "0.1",
        "1e-3",
        "7E+2",
        "1e-60",
        "3e38",
        "0.1d",
        "inf",
        "nan",
        "12345678901",
    ]
)


@given(st.lists(PARTS, min_size=1, max_size=6), st.sampled_from([",", ", ", ",  "]))
def test_a_list_is_read_as_its_numbers_are(parts: list[str], comma: str) -> None:
    reader = Reader(f"[{comma.join(parts)}] then")
    found = reader.numbers()
    assert (
        np.array(found).tobytes() == np.array([Reader(part).number() for part in parts]).tobytes()
    )
    assert reader.text[reader.at :] == "then"


def test_a_list_with_a_number_beyond_f32_is_refused_as_the_number_is() -> None:
    with pytest.raises(InvalidModel, match="1e99 is beyond f32"):
        Reader("[1,2,1e99]").numbers()
