"""Sequences and optionals at their edges give what ONNX Runtime gives, and end where it ends: sizes of 0, single
texts, numbers of 32 bits, places and sizes that there are not, old opsets, names that the import likes itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from support.judge import ort_session

from fqfuse import InferenceSession
from fqfuse.errors import InvalidInput, InvalidModel

BACKENDS = ("numpy", "onednn")


def model(text: str, opset: int = 18) -> onnx.ModelProto:
    """A model in ONNX's own text form."""
    version = 8 if opset < 18 else 9
    return parser.parse_model(f'<ir_version: {version}, opset_import: ["": {opset}]> g {text}')


def f32(*shape: int) -> Any:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def alike(mine: Any, theirs: Any) -> bool:
    if isinstance(theirs, list) or theirs is None:
        return type(mine) is type(theirs) and (
            theirs is None or (len(mine) == len(theirs) and all(map(alike, mine, theirs)))
        )
    same_type = isinstance(mine, np.ndarray) and mine.dtype == theirs.dtype
    return same_type and mine.shape == theirs.shape and mine.tolist() == theirs.tolist()


def agrees(proto: onnx.ModelProto, *runs: dict[str, Any]) -> None:
    """Both backends answer as ONNX Runtime does, or refuse where it does."""
    judge = ort_session(proto, optimized=True)
    sessions = [InferenceSession(proto, backend) for backend in BACKENDS]
    for feeds in runs:
        try:
            wanted = judge.run(None, feeds)
        except Exception:  # noqa: BLE001 - ONNX Runtime's own: it refuses the feeds
            for session in sessions:
                with pytest.raises(InvalidInput):
                    session.run(None, feeds)
            continue
        for session in sessions:
            assert alike(session.run(None, feeds), wanted)


@pytest.mark.parametrize("told", ["static", "open"])
@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (2, 0, 3), (0, 2, 3), (0, 0), (1, 2, 3)])
def test_tensors_without_elements_are_joined(shape, told):
    sizes = shape if told == "static" else ("a", "b", "c")[: len(shape)]
    listed = ",".join(map(str, sizes))
    for axis in range(len(shape)):
        proto = model(
            f"""(seq(float[{listed}]) s) => (float[] y, float[] z) {{
                y = ConcatFromSequence<axis={axis}>(s)
                z = ConcatFromSequence<axis={axis}, new_axis=1>(s)
            }}"""
        )
        agrees(proto, {"s": [f32(*shape), f32(*shape)]}, {"s": [f32(*shape)]})


def test_rows_of_known_sizes_are_joined_to_a_known_type():
    proto = model("(seq(float[1,3,8]) s) => (float[] y) { y = ConcatFromSequence<axis=1>(s) }")
    (value,) = InferenceSession(proto, "numpy").plan.outputs
    assert InferenceSession(proto, "numpy").plan.type(value).shape == (1, "3*s_length", 8)


@pytest.mark.parametrize("shape", ["", "[2]", "[N]"])
def test_single_texts_go_through_lists(shape):
    proto = model(
        f"""(seq(string{shape}) s, int64 p) => (seq(string{shape}) o, string{shape} y) {{
            o = Identity(s)
            y = SequenceAt(s, p)
        }}"""
    )
    texts = ["one", "zwei"]
    given = [np.asarray(text if not shape else [text, text], object) for text in texts]
    agrees(proto, {"s": given, "p": np.asarray(1)}, {"s": given, "p": np.asarray(-2)})


PLACES = """(seq(float[N]) s, float[M] x, {type} p) => (seq(float[]) a, seq(float[]) b, float[] c) {{
    a = SequenceInsert(s, x, p)
    b = SequenceErase(s, p)
    c = SequenceAt(s, p)
}}"""


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("place", range(-4, 4))
def test_places_of_both_integer_types_are_taken(bits, place):
    given = np.asarray(place, f"int{bits}")
    feeds = {"s": [f32(1), f32(0), f32(3)], "x": f32(2), "p": given}
    agrees(model(PLACES.format(type=f"int{bits}")), feeds)


@pytest.mark.parametrize("place", range(-5, 6))
def test_nothing_is_inserted_where_there_is_no_place(place):
    proto = model(
        "(seq(float[N]) s, float[M] x, int64 p) => (seq(float[]) a) { a = SequenceInsert(s, x, p) }"
    )
    lists = [[f32(1), f32(0), f32(3)], [f32(4)], []]
    agrees(proto, *({"s": s, "x": f32(2), "p": np.asarray(place)} for s in lists))


LENGTHS = """(seq(float[N]) s, float[M] x, int64 p) => (int64 a) {{
    t = {op}
    a = SequenceLength(t)
}}"""


@pytest.mark.parametrize("op", ["SequenceInsert(s, x, p)", "SequenceErase(s, p)"])
def test_a_place_that_there_is_not_is_refused_where_the_length_alone_is_read(op):
    proto = model(LENGTHS.format(op=op))
    for place in range(-4, 5):
        lists = [[f32(1), f32(0), f32(3)], [f32(4)], []]
        agrees(proto, *({"s": s, "x": f32(2), "p": np.asarray(place)} for s in lists))


READS = {
    "all": "(seq(float[]) y) { y = SequenceInsert(s, x, p) }",
    "at the end": "(seq(float[]) y) { y = SequenceInsert(s, x) }",
    "number": "(int64 y) { t = SequenceInsert(s, x)  y = SequenceLength(t) }",
    "one": "(float[] y) { t = SequenceInsert(s, x)  y = SequenceAt(t, p) }",
    "joined": "(float[] y) { t = SequenceInsert(s, x)  y = ConcatFromSequence<axis = 0>(t) }",
    "fewer": "(int64 y) { t = SequenceInsert(s, x)  u = SequenceErase(t, p)  y = SequenceLength(u) }",
}


@pytest.mark.parametrize("own", range(3))
@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize("read", READS)
def test_tensors_of_two_ranks_in_a_list_are_refused_whatever_is_read(read, rank, own):
    """A list has one rank (docs/operators.md); nothing of a tensor of another one may come out as a number."""
    sizes = [f"[{','.join('ab'[:n])}]" if n else "" for n in (rank, own)]
    proto = model(
        f"(seq(float{sizes[0]}) s, float{sizes[1]} x, int64 p) => " + READS[read],
    )
    feeds = [
        {"s": [f32(*[2] * rank)] * count, "x": f32(*[2] * own), "p": np.asarray(place)}
        for count in range(3)
        for place in (0, -1)
    ]
    if read == "joined":
        if not own:
            with pytest.raises(InvalidModel, match="axis 0"):
                InferenceSession(proto)
            return
        feeds = [
            fed for fed in feeds if fed["s"]
        ]  # joined scalars have no axis, with others or alone
    agrees(proto, *(fed for fed in feeds if rank == own or not fed["s"]))
    if rank == own:
        return
    for session in (InferenceSession(proto, backend) for backend in BACKENDS):
        for fed in feeds:
            if fed["s"]:
                with pytest.raises(InvalidInput):
                    session.run(None, fed)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(
    "sizes", [[1, 3], [4], [0, 4], [-1, 5], [5, -1], [2, -1, 3], [1, 1], [2, 3]]
)
def test_sizes_of_pieces_add_up_and_are_sizes(bits, sizes):
    proto = model(
        f"(float[N,2] x, int{bits}[k] sizes) => (seq(float[]) a) {{ a = SplitToSequence(x, sizes) }}"
    )
    agrees(proto, {"x": f32(4, 2), "sizes": np.asarray(sizes, f"int{bits}")})


def test_an_optional_of_nothing_has_no_sizes():
    proto = model(
        """(optional(float[N]) z, float[N] x) => (float[] y) {
            there = OptionalHasElement(z)
            y = If(there)<
                then_branch = graph () => (float[] a) { e = OptionalGetElement(z)  a = Add(e, x) },
                else_branch = graph () => (float[] b) { b = Neg(x) }
            >
        }"""
    )
    agrees(proto, {"z": None, "x": f32(3)}, {"z": f32(2), "x": f32(2)})


@pytest.mark.parametrize("opset", [11, 12, 13, 18])
def test_pieces_of_open_sizes_in_old_opsets(opset):
    proto = model(
        """(float[N,3] x, int64 k, int64[q] ks, int64 p) => (float[] y, float[] z) {
            s = SplitToSequence<axis=0>(x, k)
            y = ConcatFromSequence<axis=1>(s)
            t = SplitToSequence<axis=0>(x, ks)
            z = SequenceAt(t, p)
        }""",
        opset,
    )
    feeds = {"x": f32(4, 3), "k": np.asarray(2), "ks": np.asarray([1, 3]), "p": np.asarray(-1)}
    agrees(proto, feeds)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "(float[N] x, int64[N] z) => (seq(float[]) y) { y = SequenceConstruct(x, z) }",
            "f32 and s64",
        ),
        (
            "(seq(float[N]) s, int64[N] z) => (seq(float[]) y) { y = SequenceInsert(s, z) }",
            "tensor of s64",
        ),
        (
            "(seq(float[N]) s) => (seq(float[]) y) { y = SequenceConstruct(s, s) }",
            "'s' into a sequence",
        ),
        (
            "(seq(float[N]) s) => (seq(float[]) y) { y = SequenceInsert(s, s) }",
            "'s' into a sequence",
        ),
        (
            "(float[N] x) => (float[] y) { o = Optional(x) q = Optional(o) y = OptionalGetElement(q) }",
            "an optional itself",
        ),
    ],
)
def test_what_is_no_sequence_of_tensors_of_one_type_is_refused(text, told):
    with pytest.raises(InvalidModel, match=told):
        InferenceSession(model(text))


@pytest.mark.parametrize("held", ["(seq(float[N]) s,", "(float[N] p,"])
@pytest.mark.parametrize("own", ["s.data", "s.sizes", "s.rows", "list.0", "list.1", "e.place"])
def test_bodies_may_have_the_names_that_the_import_likes(held, own):
    made = "" if "seq" in held else "s = SequenceConstruct(p, p)"
    proto = model(
        f"""{held} int64 trips, float[N] x) => (seq(float[]) o) {{
            {made}
            on = Constant<value = bool {{1}}>()
            none = SequenceEmpty()
            o = Loop(trips, on, none)<
                body = graph (int64 i, bool go, seq(float[]) list) => (bool goes, seq(float[]) longer) {{
                    goes = Identity(go)
                    own = Neg(x)
                    e = SequenceAt(s, i)
                    sum = Add(own, e)
                    more = SequenceInsert(list, sum)
                    longer = SequenceInsert(more, own)
                }}
            >
        }}"""
    )
    (loop,) = (node for node in proto.graph.node if node.op_type == "Loop")
    for node in loop.attribute[0].g.node:
        node.input[:] = [own if name == "own" else name for name in node.input]
        node.output[:] = [own if name == "own" else name for name in node.output]
    first = {"p": f32(2)} if made else {"s": [f32(2), f32(2)]}
    agrees(proto, *({**first, "x": f32(2), "trips": np.asarray(count)} for count in (2, 0)))
