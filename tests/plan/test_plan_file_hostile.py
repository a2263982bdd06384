"""A plan file that is cut off, damaged, foreign, of another version or hostile gives one clear
PlanError, and nothing else.
"""

from __future__ import annotations

import json
import os
import random
import time
import tracemalloc

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from support.plan_strategies import full_plan, tiny_plan
from support.plan_text import parse_plan

from fqfuse.errors import InvalidInput, PlanError
from fqfuse.plan import seal as plan_seal
from fqfuse.plan.file import plan_bytes, read_plan
from fqfuse.plan.seal import check_structure, seal
from fqfuse.plan.verify import verify_plan

TINY = plan_bytes(tiny_plan())
FULL = plan_bytes(full_plan())
BODY = FULL[: -len(seal(b""))]


def resealed(model: onnx.ModelProto) -> bytes:
    """The bytes of a changed model with a digest that fits: what an attacker writes."""
    entries = [e for e in model.metadata_props if e.key != "fqfuse.digest"]
    del model.metadata_props[:]
    model.metadata_props.extend(entries)
    body = model.SerializeToString(deterministic=True)
    return body + seal(body)


def test_every_prefix_of_a_file_is_refused():
    for length in range(len(TINY)):
        with pytest.raises(PlanError) as caught:
            read_plan(TINY[:length])
        assert caught.value.hint
        assert caught.value.where


def test_every_flipped_byte_is_noticed():
    for index in range(len(TINY)):
        with pytest.raises(PlanError):
            read_plan(TINY[:index] + bytes([TINY[index] ^ 1 << index % 8]) + TINY[index + 1 :])


def test_what_is_appended_is_noticed():
    for tail in (b"\0", b"x", TINY, seal(TINY)[:-1]):
        with pytest.raises(PlanError, match="cut off or damaged"):
            read_plan(TINY + tail)


def test_large_constants_are_held_to_the_digest_too(tmp_path):
    """They are read apart from the rest, to where the plan has them."""
    plan = parse_plan(
        """
plan large target=onednn-v3
  in %x : f32[1,64]
  const @w : f32[64,128] = fill(0.5)
  #0 %y : f32[1,128] = matmul<MatMul>(src=%x, weights=@w) ; product
  out %y
"""
    )
    path, data = tmp_path / "large.onnx", plan_bytes(plan)
    path.write_bytes(data)
    assert read_plan(path) == read_plan(data) == plan
    inside = data.index(b"\0\0\0?" * 8) + 4096
    for at in (inside, data.index(b"product"), len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(PlanError, match="cut off or damaged"):
            read_plan(path)
    for end in (inside, len(data) - 1):
        path.write_bytes(data[:end])
        with pytest.raises(PlanError, match="cut off or damaged"):
            read_plan(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(PlanError):
        read_plan(path)


def test_the_three_ways_to_be_no_plan_read_differently(tmp_path):
    path = tmp_path / "p.onnx"
    path.write_bytes(TINY[:-9])
    with pytest.raises(PlanError) as caught:
        read_plan(path)
    assert str(caught.value) == (
        f"the plan file is cut off or damaged\n  where: {path}\n  fix:   copy it again, or compile the model again"
    )
    path.write_bytes(b"GIF89a")
    with pytest.raises(PlanError) as caught:
        read_plan(path)
    assert str(caught.value) == (
        f"this is no plan file\n  where: {path}\n  fix:   name a file that fqfuse compile wrote; an ordinary model has to be compiled first"
    )
    model = onnx.load_model_from_string(TINY)
    next(e for e in model.metadata_props if e.key == "fqfuse.schema").value = "7"
    path.write_bytes(resealed(model))
    with pytest.raises(PlanError) as caught:
        read_plan(path)
    assert str(caught.value) == (
        f"the plan file has layout '7', and this fqfuse reads layout 1\n  where: {path}\n"
        "  fix:   compile the model again with this version of fqfuse"
    )


def test_a_path_that_cannot_be_read(tmp_path):
    (tmp_path / "a file").touch()
    for path in (
        tmp_path / "missing",
        tmp_path,
        tmp_path / "missing" / "file",
        tmp_path / "a file" / "file",
    ):
        with pytest.raises(
            InvalidInput,
            match="a folder, not a file" if path == tmp_path else "there is no such file",
        ) as caught:
            read_plan(path)
        assert str(path) in caught.value.where
    os.mkfifo(tmp_path / "pipe")
    start = time.monotonic()
    with pytest.raises(InvalidInput, match="not a regular file"):
        read_plan(tmp_path / "pipe")
    assert time.monotonic() - start < 5  # it does not wait for a writer


def _metadata(model, key, value):
    next(e for e in model.metadata_props if e.key == key).value = value


def _drop(model, key):
    left = [e for e in model.metadata_props if e.key != key]
    del model.metadata_props[:]
    model.metadata_props.extend(left)


def _node(model, name="conv"):
    return next(n for n in model.graph.node if n.name == name)


def _attribute(model, name, node="conv"):
    return next(a for a in _node(model, node).attribute if a.name == name)


def _tensor(model, name="w1"):
    return next(t for t in model.graph.initializer if t.name == name)


def _set(message, **fields):
    for key, value in fields.items():
        if isinstance(value, list):
            del getattr(message, key)[:]
            getattr(message, key).extend(value)
        else:
            setattr(message, key, value)


def _exact(node, text):
    node.metadata_props.add(key="fqfuse.exact", value=text)


DEEP = "[" * 100_000

HOSTILE = {
    "negative dimension": (
        lambda m: _set(_tensor(m), dims=[-1, 4, 3, 3]),
        "no array has the dimensions",
    ),
    "too many dimensions": (
        lambda m: _set(_tensor(m), dims=[1] * 65),
        "no array has the dimensions",
    ),
    "huge dimensions": (
        lambda m: _set(_tensor(m), dims=[1 << 62, 1 << 62]),
        "elements has 144 bytes",
    ),
    "dimensions whose product overflows to the size": (
        lambda m: _set(_tensor(m), dims=[1 << 32, 1 << 32, 144]),
        "has 144 bytes",
    ),
    "short data": (
        lambda m: _set(_tensor(m), raw_data=b"123"),
        "a constant of 144 elements has 3 bytes",
    ),
    "external data": (
        lambda m: _set(_tensor(m), data_location=TensorProto.EXTERNAL),
        "in a place that plans do not use",
    ),
    "4-bit constant": (
        lambda m: _set(_tensor(m), data_type=TensorProto.INT4),
        "a constant is of a type",
    ),
    "unknown element type": (lambda m: _set(_tensor(m), data_type=77), "a constant is of a type"),
    "bool that is 2": (
        lambda m: m.graph.initializer.append(
            TensorProto(name="b", dims=[1], data_type=9, raw_data=b"\2")
        ),
        "neither 0 nor 1",
    ),
    "string that is no text": (
        lambda m: _set(_tensor(m, "words"), string_data=[b"\xff", b""]),
        "is no UTF-8",
    ),
    "too few strings": (
        lambda m: _set(_tensor(m, "words"), string_data=[b""]),
        "a constant of 2 strings has 1",
    ),
    "two constants of one name": (
        lambda m: m.graph.initializer.append(_tensor(m)),
        "two constants have one name",
    ),
    "constant without a name": (
        lambda m: _set(_tensor(m), name=""),
        "a constant has no name",
    ),
    "input without a name": (
        lambda m: (_set(m.graph.input[0], name=""), _set(m.graph.node[0], input=[""])),
        "a value has no name",
    ),
    "two types of one value": (
        lambda m: m.graph.value_info.add(name="x").type.tensor_type.CopyFrom(
            m.graph.output[0].type.tensor_type
        ),
        "two types",
    ),
    "value of no tensor type": (
        lambda m: m.graph.value_info[0].type.Clear(),
        "element type 0 is unknown",
    ),
    "type in words that differ": (
        lambda m: _set(m.graph.value_info[0].metadata_props[0], value="s8[3]"),
        "its type is u8",
    ),
    "type in no words": (
        lambda m: _set(m.graph.value_info[0].metadata_props[0], value="u8["),
        "the text form cannot be read",
    ),
    "infinite scale": (
        lambda m: _set(m.graph.value_info[0].metadata_props[0], value="u8[N,4,6,6]{s=inf,z=0}"),
        "zero or not finite",
    ),
    "no target": (lambda m: _drop(m, "fqfuse.target"), "its metadata lacks fqfuse.target"),
    "unknown target": (lambda m: _metadata(m, "fqfuse.target", "gpu"), "there is no target gpu"),
    "no schema": (lambda m: _drop(m, "fqfuse.schema"), "it does not say its layout"),
    "fates are no JSON": (lambda m: _metadata(m, "fqfuse.fates", "["), "its metadata is no JSON"),
    "fates nested deep": (lambda m: _metadata(m, "fqfuse.fates", DEEP), "its metadata is no JSON"),
    "fates are no rows": (lambda m: _metadata(m, "fqfuse.fates", "[1]"), "is no list of rows of 6"),
    "fate of an unknown kind": (
        lambda m: _metadata(m, "fqfuse.fates", '[["q","quantize","sum","","",0]]'),
        "there is no fate quantize sum",
    ),
    "fate in a step that is true": (
        lambda m: _metadata(m, "fqfuse.fates", '[["q","quantize","redundant","","",true]]'),
        "is no number",
    ),
    "fate in a step far away": (
        lambda m: _metadata(m, "fqfuse.fates", '[["fq","quantize","redundant","","",999]]'),
        "is in step #999",
    ),
    "decision that is a number": (
        lambda m: _metadata(m, "fqfuse.decisions", '[[1,"","fired","","","","",[],null,[]]]'),
        "no list of strings",
    ),
    "decision with an unknown outcome": (
        lambda m: _metadata(m, "fqfuse.decisions", '[["","","maybe","","","","",[],null,[]]]'),
        "outcome is 'maybe'",
    ),
    "cost of a decision that no float holds": (
        lambda m: _metadata(
            m, "fqfuse.decisions", f'[["","","fired","","","","",[["a",{"9" * 400},""]],null,[]]]'
        ),
        "no row of home, cost and reason",
    ),
    "decision about a step that is not there": (
        lambda m: _metadata(m, "fqfuse.decisions", '[["","","fired","","","","",[],999,[]]]'),
        "names a step or post-op that the plan does not have",
    ),
    "decision about a post-op that is not there": (
        lambda m: _metadata(m, "fqfuse.decisions", '[["","","fired","","","","",[],0,[999]]]'),
        "names a step or post-op that the plan does not have",
    ),
    "decision whose post-op is a text": (
        lambda m: _metadata(m, "fqfuse.decisions", '[["","","fired","","","","",[],0,["a"]]]'),
        "no numbers",
    ),
    "JSON number of a million digits": (
        lambda m: _metadata(m, "fqfuse.quantizers", f'[[{"9" * 10**6},"","",""]]'),
        "its metadata is no JSON",
    ),
    "quantizer with three parts": (
        lambda m: _metadata(m, "fqfuse.quantizers", '[["a","b","c"]]'),
        "rows of 4",
    ),
    "weights of nobody": (
        lambda m: m.metadata_props.add(key="fqfuse.weights", value='[["?","{s=1.0,z=0.0}"]]'),
        "the scales of a quantizer that it does not have",
    ),
    "weights in no words": (
        lambda m: m.metadata_props.add(key="fqfuse.weights", value='[["?"]]'),
        "rows of 2",
    ),
    "options in no words": (
        lambda m: _metadata(m, "fqfuse.options", "__import__('os')"),
        "the text form cannot be read",
    ),
    "options nested deep": (
        lambda m: _metadata(m, "fqfuse.options", "{a=" + DEEP),
        "nested more than 32 deep",
    ),
    "origin is no list": (
        lambda m: _set(_node(m).metadata_props[0], value='"conv"'),
        "no list of strings",
    ),
    "graph as attribute": (
        lambda m: _node(m).attribute.append(helper.make_attribute("g", m.graph)),
        "of a kind that plans do not use",
    ),
    "string attribute that is no text": (
        lambda m: _set(_attribute(m, "op"), s=b"\xff"),
        "is no UTF-8",
    ),
    "no op": (
        lambda m: _node(m).attribute.remove(_attribute(m, "op")),
        "its attribute op is missing",
    ),
    "op that is a number": (
        lambda m: (_node(m).attribute.remove(_attribute(m, "op")), _exact(_node(m), "{op=1}")),
        "op is missing or no string",
    ),
    "unknown op": (lambda m: _set(_attribute(m, "op"), s=b"Exec"), "the op table has no row Exec"),
    "unknown primitive": (lambda m: _set(_node(m), op_type="Shell"), "is no primitive"),
    "unknown standard op": (
        lambda m: _set(_node(m, "flat"), op_type="Loop"),
        "no step runs the op Loop",
    ),
    "fqfuse's own op in ONNX's domain": (
        lambda m: _set(_node(m, "flat"), op_type="Quantize"),
        "no step runs the op Quantize",
    ),
    "too many inputs": (
        lambda m: _node(m, "flat").input.append("y"),
        "Flatten has 2 inputs, and takes 1",
    ),
    "more roles than inputs": (lambda m: _set(_node(m), input=["xq"]), "more roles than inputs"),
    "inputs that nothing names": (
        lambda m: _node(m).input.append("x"),
        "its inputs are not its arguments",
    ),
    "roles that are no strings": (
        lambda m: (
            _node(m).attribute.remove(_attribute(m, "roles")),
            _exact(_node(m), "{roles=[1]}"),
        ),
        "no list of strings",
    ),
    "scales that are no floats": (
        lambda m: _exact(_node(m), '{scales.src=["a"]}'),
        "its scales are no list of floats",
    ),
    "zero points that are no numbers": (
        lambda m: _exact(_node(m), '{zero_points.src=[0.5,"a"]}'),
        "its zero points are no numbers",
    ),
    "zero points that are no integers": (
        lambda m: _exact(_node(m), '{zero_points.src=["a"]}'),
        "are no list of integers",
    ),
    "no mask": (
        lambda m: _node(m).attribute.remove(_attribute(m, "scales.src.mask")),
        "the mask of scales.src is missing",
    ),
    "mask of too many bits": (
        lambda m: _set(_attribute(m, "scales.weights.mask"), i=1 << 40),
        "has a scale of weights of mask 1099511627776, which selects dimensions that are not there",
    ),
    "scales that are too few": (
        lambda m: _set(_attribute(m, "scales.weights"), floats=[1.0]),
        "with 1 values for 4 output channels",
    ),
    "post-op with an input that is not there": (
        lambda m: _set(_attribute(m, "post_ops"), strings=[b"binary(add,%9)"]),
        "has no input number 9",
    ),
    "post-op in no words": (
        lambda m: _set(_attribute(m, "post_ops"), strings=[b"exec(1)"]),
        "expected a post-op",
    ),
    "step that reads what comes later": (
        lambda m: _set(_node(m), input=["y", "w1", "b1", "quiet"]),
        "reads %y before it is written",
    ),
    "shape that is a lie": (
        lambda m: _set(m.graph.output[0].type.tensor_type.shape.dim[1], dim_value=99),
        "is recorded as f32[N,99]",
    ),
    "foreign node in no JSON": (
        lambda m: _set(_node(m, "where").metadata_props[0], value="{"),
        "its metadata is no JSON",
    ),
    "foreign node with a malformed record": (
        lambda m: _set(_node(m, "where").metadata_props[0], value="{}"),
        "its metadata is malformed",
    ),
    "foreign node without inputs": (
        lambda m: _set(
            _node(m, "where").metadata_props[0],
            value=json.dumps({"name": "", "opset": 1, "primitive": "onnx.NonZero"}),
        ),
        "no list of strings",
    ),
}


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.replace(" ", "-"))
def test_a_hostile_file_is_refused(case):
    change, message = HOSTILE[case]
    model = onnx.load_model_from_string(FULL)
    change(model)
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(PlanError) as caught:
        read_plan(resealed(model))
    assert message in str(caught.value)
    assert caught.value.hint
    # a clear refusal is quick: nothing in it grows faster than the file
    assert time.process_time() - start < 2
    # and small: the files have a few kilobytes, one a million characters
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


def test_structure_is_bounded_before_it_is_parsed(monkeypatch):
    weights = numpy_helper.from_array(np.zeros(1 << 20, np.uint8), "w")
    graph = helper.make_graph([], "g", [], [], [weights])
    data = helper.make_model(graph).SerializeToString()
    check_structure(data, limit=1000)  # the raw data of a constant is no structure
    bare = onnx.ModelProto()
    bare.graph.node.add().doc_string = "x" * 2000
    with pytest.raises(PlanError, match="besides its constants, and the limit is 1000"):
        check_structure(bare.SerializeToString(), limit=1000)
    monkeypatch.setattr(plan_seal, "_FIELD_LIMIT", 1000)
    nodes = b"\x3a" + _length(b"\x0a\x00" * 1100)  # ModelProto.graph with empty nodes
    tensors = b"\x3a" + _length(b"\x2a" + _length(b"\x42\x00" * 1100))  # a constant of empty names
    # a constant of many dimensions
    numbers = b"\x3a" + _length(b"\x2a" + _length(b"\x08\x01" * 1100))
    for body in (nodes, tensors, numbers, b"\x72\x00" * 1100, b"\x08\x01" * 1100):
        with pytest.raises(PlanError, match="more than 1000 parts"):
            check_structure(body)
    monkeypatch.undo()
    with pytest.raises(PlanError, match="more than 500000 parts"):
        check_structure(b"\x3a\x00" * 5_000_000)  # 10 MB: refused behind the first of them
    check_structure(b"\x3a\xff\xff\xff\xff\x7f")  # a length beyond the end: left to the parser


def _length(body: bytes) -> bytes:
    size, out = len(body), bytearray()
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes([*out, size]) + body


@given(st.integers(0, 2**32))
def test_any_change_behind_a_valid_digest_gives_a_sound_plan_or_a_plan_error(seed):
    chance = random.Random(seed)  # noqa: S311  # draws positions; Hypothesis draws the seed, one number instead of megabytes of choices
    body = bytearray(BODY)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(40, len(body))
        kind = chance.randrange(4)
        if kind == 0:
            body[at] = chance.randrange(256)
        elif kind == 1:
            body[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del body[at : at + chance.randint(1, 3)]
        else:
            body[at:at] = bytes(chance.choices(range(256), k=chance.randint(1, 3)))
    data = bytes(body)
    try:
        plan = read_plan(data + seal(data))
    except PlanError as error:
        assert error.hint  # noqa: PT017  # the alternative is a plan, not a failure
    else:
        assert verify_plan(plan) == []
