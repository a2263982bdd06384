"""The graph verifier: for each row of each stage a graph that breaks it, and the diagnostic that a
person sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from support.graph_text import parse_graph
from support.text_strategies import graphs

from fqfuse.errors import InternalError, InvalidModel
from fqfuse.ir import diagnostic
from fqfuse.ir.decision import Decision, DequantizeFate, Fate, Half, Outcome, Quantizer
from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType, Quantization, TensorType
from fqfuse.ir.verify import IMPORTED, SPLIT, WELL_FORMED, Stage, check, verify

CASES = Path(__file__).parents[1] / "golden" / "verify"

NET = """
graph net
  in %x : f32[1,3,8,8]
  const @w : f32[4,3,3,3] = fill(0.5)
  const @low : f32[] = 0.0
  const @high : f32[] = 6.0
  %fq : f32[1,3,8,8] = FakeQuantize(%x, @low, @high, @low, @high){levels=256} ; fq quantizer fq
  %conv : f32[1,4,6,6] = Conv(%fq, @w) ; conv
  %relu : f32[1,4,6,6] = Relu(%conv) ; relu
  %sum : f32[1,4,6,6] = Add(%relu, %conv) ; sum
  %y : f32[1,4,6,6] = Softmax(%sum){axis=1} ; softmax
  out %y
  quantizer fq : FakeQuantize of x
"""


def _node(graph: Graph, name: str, **changes: object) -> None:
    """Changes a node behind the graph's back; the table of uses and the index follow, so that one
    row alone is broken.
    """
    graph._disconnect(graph._nodes[name])
    graph._nodes[name] = replace(graph._nodes[name], **changes)
    graph._connect(graph._nodes[name])
    graph._order = None


def _unbind(graph: Graph, value: str) -> None:
    for name in [use.node.name for use in graph.uses(value)]:
        graph._disconnect(graph._nodes[name])
    del graph._types[value]


def _second_definition(graph: Graph) -> None:
    graph._nodes["relu"] = replace(graph.node("relu"), outputs=("relu", "conv"))


def _no_type(graph: Graph) -> None:
    del graph._types["relu"]


def _stray_type(graph: Graph) -> None:
    graph._types["stray"] = TensorType(DType.F32, ())
    graph._uses["stray"] = {}


def _late(graph: Graph) -> None:
    graph._uses["sum"][("relu", 0)] = None  # the index does not know, so the order does not change
    graph._uses["conv"].pop(("relu", 0))
    graph._nodes["relu"] = replace(graph.node("relu"), inputs=("sum",))


def _unknown_input(graph: Graph) -> None:
    graph._nodes["relu"] = replace(graph.node("relu"), inputs=("nothing",))


def _cycle(graph: Graph) -> None:
    _node(graph, "conv", inputs=("sum", "w"))


def _lost_output(graph: Graph) -> None:
    graph.outputs = ("gone",)


def _no_outputs(graph: Graph) -> None:
    graph.outputs = ()


def _lost_use(graph: Graph) -> None:
    graph._uses["conv"].pop(("sum", 1))


def _stale_use(graph: Graph) -> None:
    graph._uses["x"][("gone", 0)] = None


def _lost_edge(graph: Graph) -> None:
    graph._index.remove_edge("relu", "sum")


def _stale_edge(graph: Graph) -> None:
    graph._index.add_edge("fq", "softmax")


def _unknown_op(graph: Graph) -> None:
    _node(graph, "relu", op="Relux")


def _too_many_inputs(graph: Graph) -> None:
    _node(graph, "relu", inputs=("conv", "x"))


def _too_few_inputs(graph: Graph) -> None:
    _node(graph, "conv", inputs=("fq", ""))


def _no_result(graph: Graph) -> None:
    graph.add("Relu", ["x"], name="silent", outputs=[""], origin=["silent"])


def _attributes(graph: Graph) -> None:
    _node(graph, "softmax", attrs={"angle": 1})


def _misfit(graph: Graph) -> None:
    _node(graph, "sum", inputs=("relu", "x"))


def _wrong_type(graph: Graph) -> None:
    graph._types["relu"] = TensorType(DType.F32, (1, 4, 5, 5))


def _too_many_outputs(graph: Graph) -> None:
    graph._types["more"] = TensorType(DType.F32, ())
    graph._uses["more"] = {}
    graph._producer["more"] = "relu"
    graph._nodes["relu"] = replace(graph.node("relu"), outputs=("relu", "more"))


def _negative_dimension(graph: Graph) -> None:
    graph._types["x"] = TensorType(DType.F32, (-1, 3, 8, 8))


def _quantized(quant: Quantization, dtype: DType = DType.S8) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        graph.add_input("extra", TensorType(dtype, (4, 3), quant))

    return change


def _writable(graph: Graph) -> None:
    graph._constants["w"] = graph.constants["w"].copy()


def _wrong_data(graph: Graph) -> None:
    data = np.zeros((4, 3), np.float64)
    data.setflags(write=False)
    graph._constants["w"] = data


def _unknown_quantizer(graph: Graph) -> None:
    _node(graph, "relu", quantizer=("nobody",))


def _unknown_fate(graph: Graph) -> None:
    graph.fates.append(Fate("nobody", Half.DEQUANTIZE, DequantizeFate.SUM, "because", "sum"))


def _fate_of_the_other_half(graph: Graph) -> None:
    graph.fates.append(Fate("fq", Half.QUANTIZE, DequantizeFate.SUM, "because"))


def _misfiled_quantizer(graph: Graph) -> None:
    graph.quantizers["other"] = Quantizer("third", "FakeQuantize", "x")


def _no_origin(graph: Graph) -> None:
    _node(graph, "relu", origin=())


def _no_quantizer(graph: Graph) -> None:
    _node(graph, "fq", quantizer=())
    del graph.quantizers["fq"]


def _quantizer_gone(graph: Graph) -> None:
    graph.quantizers["lost"] = Quantizer("lost", "QuantizeLinear", "x")


def _nothing(_: Graph) -> None:
    """The graph breaks the stage as it is."""


SABOTAGE: dict[str, tuple[Callable[[Graph], None], Stage]] = {
    "bound-once": (_second_definition, WELL_FORMED),
    "bound-once.no-type": (_no_type, WELL_FORMED),
    "bound-once.nothing-defines-it": (_stray_type, WELL_FORMED),
    "acyclic": (_cycle, WELL_FORMED),
    "bound-before-use": (_late, WELL_FORMED),
    "bound-before-use.unknown": (_unknown_input, WELL_FORMED),
    "outputs-exist": (_lost_output, WELL_FORMED),
    "outputs-exist.none": (_no_outputs, WELL_FORMED),
    "index": (_lost_use, WELL_FORMED),
    "index.stale-use": (_stale_use, WELL_FORMED),
    "index.lost-edge": (_lost_edge, WELL_FORMED),
    "index.stale-edge": (_stale_edge, WELL_FORMED),
    "known-op": (_unknown_op, WELL_FORMED),
    "counts": (_too_many_inputs, WELL_FORMED),
    "counts.too-few": (_too_few_inputs, WELL_FORMED),
    "counts.no-output": (_no_result, WELL_FORMED),
    "attributes": (_attributes, WELL_FORMED),
    "types": (_wrong_type, WELL_FORMED),
    "types.misfit": (_misfit, WELL_FORMED),
    "types.too-many-outputs": (_too_many_outputs, WELL_FORMED),
    "quantization": (_quantized(Quantization((0.5, 0.25), (0.0, 0.0), 1)), WELL_FORMED),
    "quantization.axis": (_quantized(Quantization((0.5, 0.25), (0.0, 0.0), 7)), WELL_FORMED),
    "quantization.float": (_quantized(Quantization((0.5,)), DType.F32), WELL_FORMED),
    "quantization.scale": (_quantized(Quantization((0.0,))), WELL_FORMED),
    "quantization.zero-point": (_quantized(Quantization((1.0,), (float("nan"),))), WELL_FORMED),
    "quantization.dimension": (_negative_dimension, WELL_FORMED),
    "constants": (_writable, WELL_FORMED),
    "constants.type": (_wrong_data, WELL_FORMED),
    "quantizers": (_unknown_quantizer, WELL_FORMED),
    "quantizers.fate": (_unknown_fate, WELL_FORMED),
    "quantizers.half": (_fate_of_the_other_half, WELL_FORMED),
    "quantizers.name": (_misfiled_quantizer, WELL_FORMED),
    "origin": (_no_origin, WELL_FORMED),
    "quantizer-named": (_no_quantizer, IMPORTED),
    "quantizer-stands": (_quantizer_gone, IMPORTED),
    "no-fake-quantize": (_nothing, SPLIT),
}


def test_the_graph_is_sound_before_it_is_broken():
    assert verify(parse_graph(NET), IMPORTED) == []


@pytest.mark.golden("verify")
def test_the_diagnostic_of_a_broken_graph(golden):
    break_it, stage = SABOTAGE[golden.name]
    graph = parse_graph(golden.input)
    break_it(graph)
    found = verify(graph, stage)
    # What breaks one rule often breaks another one, too: the file holds what this row says.
    own = [
        diagnostic
        for diagnostic in found
        if diagnostic.rule == f"{stage.name}/{golden.name.split('.')[0]}"
    ]
    assert own
    golden.check("\n\n".join(map(str, own)))


def test_every_row_of_every_stage_has_a_case_and_every_case_a_file():
    rows = {row.name for stage in (WELL_FORMED, IMPORTED, SPLIT) for row in stage.rows}
    assert {case.split(".")[0] for case in SABOTAGE} == rows
    assert {path.stem for path in CASES.glob("*.txt")} == set(SABOTAGE)


@given(graphs())
def test_generated_graphs_break_nothing_but_what_was_drawn_broken(graph):
    drawn = {"quantization", "quantizers", "origin", "outputs-exist"}
    assert {
        found.rule.removeprefix("well-formed/") for found in verify(graph, WELL_FORMED)
    } <= drawn


def test_a_fake_quantize_may_stay_where_a_refusal_says_why():
    graph = parse_graph(NET)
    graph.decide(Decision("split_fake_quantize", "fq", Outcome.FIRED, "split"))
    assert [found.rule for found in verify(graph, SPLIT)] == ["split/no-fake-quantize"]
    graph.decide(
        Decision("split_fake_quantize", "fq", Outcome.REFUSED, "the ranges are not constant")
    )
    assert verify(graph, SPLIT) == []
    check(graph, SPLIT)


def test_the_users_model_is_the_users_to_mend():
    graph = parse_graph(NET)
    _misfit(graph)
    with pytest.raises(InvalidModel) as caught:
        check(graph, IMPORTED)
    assert "Add sum" in caught.value.what
    assert caught.value.where == "sum"
    assert "^^^" in caught.value.excerpt
    assert (
        str(caught.value).index("where: sum")
        < str(caught.value).index("^^^")
        < str(caught.value).index("fix:")
    )
    assert caught.value.hint == "run onnx.shape_inference to find the contradiction"


def test_what_a_pass_broke_is_a_bug_and_the_graph_is_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(diagnostic.tempfile, "tempdir", str(tmp_path))
    graph = parse_graph(NET)
    _no_origin(graph)
    with pytest.raises(InternalError) as caught:
        check(graph, WELL_FORMED, blame="fold_scale")
    saved = Path(caught.value.saved)
    assert saved.parent == tmp_path
    assert saved.stat().st_mode & 0o077 == 0
    assert parse_graph(saved.read_text(encoding="utf-8")) == graph
    assert "after fold_scale the graph breaks the stage `well-formed`" in str(caught.value)
    assert f"the graph was saved to {saved}" in str(caught.value)
    assert "^^^^" in str(caught.value)


def test_an_error_is_reported_where_no_file_can_be_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(diagnostic.tempfile, "tempdir", str(tmp_path / "missing"))
    graph = parse_graph(NET)
    _no_origin(graph)
    with pytest.raises(InternalError) as caught:
        check(graph, WELL_FORMED, blame="fold_scale")
    assert caught.value.saved == ""


def test_many_findings_are_cut():
    graph = Graph("many")
    graph.add_input("x", TensorType(DType.F32, ()))
    for _ in range(200):
        graph.set_outputs([graph.add("Relu", ["x"]).output])
    assert len(verify(graph, WELL_FORMED)) == 50
    with pytest.raises(InvalidModel, match=r"\(and 49 more\)"):
        check(graph, WELL_FORMED)


def test_a_long_line_is_shown_around_its_offender():
    graph = Graph("wide")
    for index in range(60):
        graph.add_input(f"input_number_{index}", TensorType(DType.F32, (1,)))
    graph.add(
        "Concat",
        [f"input_number_{index}" for index in range(60)],
        {"axis": 0},
        name="cat",
        outputs=["y"],
        origin=["cat"],
    )
    graph.set_outputs(["y"])
    graph._nodes["cat"] = replace(
        graph.node("cat"), inputs=(*graph.node("cat").inputs[:58], "gone", "input_number_59")
    )
    (found,) = [d for d in verify(graph, WELL_FORMED) if d.rule.endswith("bound-before-use")]
    lines = found.excerpt.splitlines()
    (marked,) = [i for i, line in enumerate(lines) if line.startswith("  >")]
    assert max(map(len, lines)) < 180
    start = lines[marked + 1].index("^")
    assert lines[marked][start : start + 5] == "%gone"
