"""Trips of loops: states that change places, rows that are states, conditions, numbers of trips that
pick rows; all as ONNX Runtime has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from laws.runtimes import EACH_RUNTIME
from onnx import NodeProto, helper
from support.body_cases import BOOL, F32, S64, fed, info
from support.onnx_cases import model, node, run_ort, tensor

import fqfuse


def loop(
    nodes: Sequence[NodeProto],
    states: dict[str, tuple[str, int]],
    rows: Sequence[str] = (),
    *,
    constants: dict[str, Any],
    goes: str = "going",
    row_type: int = F32,
) -> onnx.ModelProto:
    """A Loop of n trips over states [4], beginning with inputs of their names and `0`.

    Args:
        nodes: of the body, which also knows `trip`, `going`, and `x` [L, 4] from around it.
        states: state -> what a trip leaves for the next, and its type.
        rows: what is stacked of each trip.
        constants: of the body.
        goes: the condition of the next trip.
        row_type: of the rows.
    """
    ends = [node("Identity", [left], [f"{name}1"]) for name, (left, _) in states.items()]
    kept = [node("Identity", [row], [f"row{k}"]) for k, row in enumerate(rows)]
    body = helper.make_graph(
        [*nodes, *ends, *kept, node("Identity", [goes], ["on"])],
        "body",
        [
            info("trip", S64, []),
            info("going", BOOL, []),
            *(info(name, kind, None) for name, (_, kind) in states.items()),
        ],
        [
            info("on", BOOL, []),
            *(info(f"{name}1", kind, None) for name, (_, kind) in states.items()),
            *(info(f"row{k}", row_type, None) for k in range(len(rows))),
        ],
        [tensor(name, value) for name, value in constants.items()],
    )
    results = [*(f"{name}2" for name in states), *(f"stack{k}" for k in range(len(rows)))]
    whole = node(
        "Loop", ["n", "", *(f"{name}0" for name in states)], results, name="loop", body=body
    )
    return model(
        [whole],
        inputs={"n": [], "x": ["L", 4], **{f"{name}0": [4] for name in states}},
        types={"n": S64, **{f"{name}0": kind for name, (_, kind) in states.items()}},
        outputs=results,
    )


def agrees(proto: onnx.ModelProto, runtime: str, n: int, *, length: int = 3, **states: Any) -> None:
    feeds = {"n": np.array(n), "x": fed([length, 4], 7), **states}
    session = fqfuse.InferenceSession(proto, runtime, threads=1)
    for _ in range(2):
        for found, wanted in zip(session.run(None, feeds), run_ort(proto, feeds), strict=True):
            np.testing.assert_array_equal(found, wanted, strict=True)


HALF = {"half": np.float32(0.5)}
ONE, OTHER = fed([4], 1), fed([4], 2)


@EACH_RUNTIME
@pytest.mark.parametrize("n", [1, 3])
def test_states_change_places(runtime: str, n: int) -> None:
    """What one trip leaves as `a` is what it was given as `b`, and the other way round."""
    proto = loop(
        [node("Mul", ["a", "half"], ["less"])],
        {"a": ("b", F32), "b": ("less", F32), "c": ("d", F32), "d": ("c", F32)},
        ["a", "less", "d"],
        constants=HALF,
    )
    given = {"a0": ONE, "b0": OTHER, "c0": ONE, "d0": OTHER}
    agrees(proto, runtime, n, **given)


@EACH_RUNTIME
@pytest.mark.parametrize("name", ["next", "look", "row", "row b", "state b", "kept b", "input"])
def test_values_may_have_any_name(runtime: str, name: str) -> None:
    """Sums in no primitive's memory: NumPy has a part in each trip."""
    body = helper.make_graph(
        [node("Add", ["b", name], ["sum"]), node("Identity", ["sum"], ["all"])],
        "body",
        [info("b", F32, []), info(name, F32, [])],
        [info("sum", F32, []), info("all", F32, [])],
    )
    scan = node("Scan", ["b0", "x"], ["y", "rows"], name="scan", body=body, num_scan_inputs=1)
    proto = model([scan], inputs={"b0": [], "x": [5]}, outputs=["y", "rows"])
    session = fqfuse.InferenceSession(proto, runtime, threads=1)
    y, rows = session.run(None, {"b0": np.float32(0), "x": np.arange(1, 6, dtype=np.float32)})
    np.testing.assert_array_equal(y, np.float32(15))
    np.testing.assert_array_equal(rows, np.float32([1, 3, 6, 10, 15]))


@EACH_RUNTIME
@pytest.mark.parametrize("n", [1, 3])
def test_the_number_of_the_trip_picks_a_row(runtime: str, n: int) -> None:
    nodes = [
        node("Gather", ["x", "trip"], ["part"], axis=0),
        node("Add", ["a", "part"], ["sum"]),
        node("Mul", ["sum", "half"], ["less"]),
    ]
    proto = loop(nodes, {"a": ("less", F32)}, ["part"], constants=HALF)
    agrees(proto, runtime, n, length=n, a0=ONE)
    agrees(proto, runtime, n, length=n + 1, a0=ONE)


@EACH_RUNTIME
def test_a_row_that_is_not_there_is_refused(runtime: str) -> None:
    nodes = [node("Gather", ["x", "trip"], ["part"], axis=0), node("Add", ["a", "part"], ["sum"])]
    proto = loop(nodes, {"a": ("sum", F32)}, constants={})
    session = fqfuse.InferenceSession(proto, runtime, threads=1)
    feeds = {"x": fed([3, 4], 7), "a0": ONE}
    session.run(None, {**feeds, "n": np.array(3)})
    with pytest.raises(fqfuse.InvalidInput, match="Gather cannot be computed"):
        session.run(None, {**feeds, "n": np.array(4)})
    session.run(None, {**feeds, "n": np.array(3)})


@EACH_RUNTIME
@pytest.mark.parametrize("until", [1, 2, 70])
@pytest.mark.parametrize("n", [60, 2**62])
def test_a_condition_ends_it_early(runtime: str, until: int, n: int) -> None:
    nodes = [
        node("Mul", ["a", "half"], ["less"]),
        node("Add", ["trip", "one"], ["next"]),
        node("Less", ["next", "until"], ["goes"]),
        node("Cast", ["trip"], ["number"], to=F32),
    ]
    constants = {**HALF, "one": np.int64(1), "until": np.int64(until)}
    proto = loop(nodes, {"a": ("less", F32)}, ["number", "a"], constants=constants, goes="goes")
    agrees(proto, runtime, n, a0=ONE)


@EACH_RUNTIME
@pytest.mark.parametrize("holds", [True, False])
def test_a_condition_may_be_constant(runtime: str, holds: bool) -> None:
    nodes = [node("Mul", ["a", "half"], ["less"])]
    proto = loop(
        nodes, {"a": ("less", F32)}, ["a"], constants={**HALF, "goes": np.bool_(holds)}, goes="goes"
    )
    agrees(proto, runtime, 5, a0=ONE)


@EACH_RUNTIME
@pytest.mark.parametrize("n", [3])
def test_integers_and_truth_values_are_handed_on(runtime: str, n: int) -> None:
    """They lie in no primitive's memory: NumPy computes them in each trip."""
    nodes = [
        node("Add", ["a", "trip"], ["more"]),
        node("Not", ["b"], ["turned"]),
        node("Mul", ["c", "half"], ["less"]),
    ]
    states = {"a": ("more", S64), "b": ("turned", BOOL), "c": ("less", F32), "d": ("a", S64)}
    proto = loop(nodes, states, ["a", "more"], constants=HALF, row_type=S64)
    whole = np.arange(4)
    given = {"a0": whole, "b0": whole > 1, "c0": ONE, "d0": whole * 3}
    agrees(proto, runtime, n, **given)


@EACH_RUNTIME
def test_a_loop_without_end_is_refused(runtime: str) -> None:
    proto = loop([], {"a": ("a", F32)}, constants={})
    session = fqfuse.InferenceSession(proto, runtime, threads=1)
    feeds = {"n": np.array(2**62), "x": fed([3, 4], 7), "a0": ONE}
    with pytest.raises(fqfuse.InvalidInput, match="takes more than 65536 trips"):
        session.run(None, feeds)
    agrees(proto, runtime, 3, a0=ONE)


@EACH_RUNTIME
def test_rows_have_a_budget(runtime: str) -> None:
    proto = loop([], {"a": ("a", F32)}, ["a"], constants={})
    session = fqfuse.InferenceSession(
        proto, runtime, threads=1, budgets=fqfuse.Budgets(run_bytes=16 * 64)
    )
    feeds = {"x": fed([3, 4], 7), "a0": ONE}
    session.run(None, {**feeds, "n": np.array(32)})
    with pytest.raises(fqfuse.InvalidInput, match=r"the rows of \d+ trips take"):
        session.run(None, {**feeds, "n": np.array(100)})


@EACH_RUNTIME
def test_large_results_of_the_body_are_handed_on(runtime: str) -> None:
    """From 64 KiB on the last trip's would be handed out without a copy."""
    body = helper.make_graph(
        [node("Mul", ["a", "half"], ["less"]), node("Add", ["less", "part"], ["sum"])],
        "body",
        [info("a", F32, None), info("part", F32, None)],
        [info("sum", F32, None), info("less", F32, None)],
        [tensor("half", np.float32(0.5))],
    )
    scan = node("Scan", ["a0", "x"], ["y", "rows"], name="scan", body=body, num_scan_inputs=1)
    proto = model([scan], inputs={"a0": [128, 256], "x": [3, 128, 256]}, outputs=["y", "rows"])
    feeds = {"a0": fed([128, 256], 1), "x": fed([3, 128, 256], 2)}
    session = fqfuse.InferenceSession(proto, runtime, threads=1)
    held = [session.run(None, feeds) for _ in range(3)]
    for found in held:
        for one, wanted in zip(found, run_ort(proto, feeds), strict=True):
            np.testing.assert_array_equal(one, wanted, strict=True)


@EACH_RUNTIME
def test_threads_run_the_trips_of_one_session_at_once(runtime: str) -> None:
    nodes = [node("Gather", ["x", "trip"], ["part"], axis=0), node("Add", ["a", "part"], ["sum"])]
    proto = loop(nodes, {"a": ("sum", F32)}, ["sum"], constants={})
    session = fqfuse.InferenceSession(proto, runtime, threads=1)
    feeds = [{"n": np.array(100), "x": fed([100, 4], k), "a0": ONE} for k in range(8)]
    expected = [run_ort(proto, each) for each in feeds]
    with ThreadPoolExecutor(4) as pool:
        for found, wanted in zip(
            pool.map(lambda each: session.run(None, each), feeds * 4), expected * 4, strict=True
        ):
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one, other, strict=True)


@EACH_RUNTIME
@pytest.mark.parametrize("axes", [1, 2])
def test_a_number_in_a_list_may_count_the_trips(runtime: str, axes: int) -> None:
    """The number as [1], the condition as a number, and the other way round."""
    shapes = ([1], []) if axes == 1 else ([], [1])
    body = helper.make_graph(
        [
            node("Cast", ["trip"], ["number"], to=F32),
            node("Add", ["a", "number"], ["more"]),
            node("Identity", ["going"], ["on"]),
        ],
        "body",
        [info("trip", S64, shapes[0]), info("going", BOOL, shapes[1]), info("a", F32, None)],
        [info("on", BOOL, shapes[1]), info("more", F32, None)],
    )
    whole = node("Loop", ["n", "", "a0"], ["y"], name="loop", body=body)
    proto = model([whole], inputs={"n": [], "a0": [4]}, types={"n": S64})
    session = fqfuse.InferenceSession(proto, runtime, threads=1)
    (found,) = session.run(None, {"n": np.array(5), "a0": ONE})
    np.testing.assert_array_equal(found, ONE + np.float32(10))


@pytest.mark.of_3_2("3.2 stores a NaN as 0 or the largest code, later versions as the other")
def test_ranges_of_zeros_and_of_infinities_in_a_trip() -> None:
    """The kernel leaves infinities to NumPy, in the middle of a trip."""
    nodes = [
        node("DynamicQuantizeLinear", ["a"], ["q", "s", "z"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Mul", ["d", "wide"], ["more"]),
    ]
    proto = loop(nodes, {"a": ("more", F32)}, ["d"], constants={"wide": np.float32(2.0**60)})
    given = {"x": fed([3, 4], 7), "n": np.array(4)}
    plan = fqfuse.compile(proto)
    for start in (np.zeros(4, np.float32), ONE):
        feeds = {**given, "a0": start}
        with np.errstate(all="ignore"):
            found, wanted = (
                fqfuse.InferenceSession(plan, runtime, threads=1).run(None, feeds)
                for runtime in ("onednn", "numpy")
            )
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other, strict=True)


def test_a_scan_over_a_batch_is_refused() -> None:
    """That of opset 8."""
    body = helper.make_graph(
        [node("Add", ["a", "part"], ["sum"])],
        "body",
        [info("a", F32, [4]), info("part", F32, [4])],
        [info("sum", F32, [4])],
    )
    scan = node("Scan", ["", "a0", "x"], ["y"], name="scan", body=body, num_scan_inputs=1)
    proto = model([scan], inputs={"a0": [2, 4], "x": [2, 3, 4]}, opset=8)
    with pytest.raises(fqfuse.UnsupportedOp, match="Scan of opset 8") as caught:
        fqfuse.compile(proto)
    assert "opset 9" in (caught.value.hint or "")
