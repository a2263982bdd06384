"""CPUs without VNNI: the proof that weights cannot saturate, and sessions that rely on it, under
ONEDNN_MAX_CPU_ISA.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fqfuse
from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Library
from fqfuse.onednn.saturation import LARGEST, _any_two_fit, _columns_fit, pairs_fit

TESTS = str(Path(__file__).parents[1])  # for `support`

DATA = Path(fqfuse.__file__).parent / "models" / "data"

SCRIPT = """
import sys
import numpy as np
import fqfuse
from support.steps_compared import compare_steps
from support.versions import unexplained
folder, backend, exact = sys.argv[1:]
plan = fqfuse.compile(f"{folder}/digits_fakequantize.onnx")
session = fqfuse.InferenceSession(plan, backend, 2, exact=exact == "True")
images = np.load(f"{folder}/digits_test.npz")["images"][:100]
print(len(unexplained(compare_steps(plan, session._executor, {"image": images}))), "differences")
for placement in session.placement():
    print(placement.step.primitive, placement.step.params.get("group", 1), placement.runtime, placement.reason)
print(session.backend_reason)
"""


def run(isa: str, backend: str, *, exact: bool = True) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": TESTS, "ONEDNN_MAX_CPU_ISA": isa}
    command = [sys.executable, "-c", SCRIPT, str(DATA), backend, str(exact)]
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=300
    ).stdout.splitlines()


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("backend", ["auto", "onednn"])
@pytest.mark.parametrize("isa", ["AVX2", "AVX512_CORE"])
def test_both_names_are_exact_without_vnni(isa: str, backend: str) -> None:
    lines = run(isa, backend)
    assert lines[0] == "0 differences"
    assert not any(
        line.startswith(("convolution", "matmul")) and " numpy " in line for line in lines
    )
    assert lines[-1].endswith("products of codes that may saturate are computed in f32")


@pytest.mark.usefixtures("library")
def test_the_librarys_own_kernels_saturate_where_they_are_asked_for() -> None:
    lines = run("AVX2", "onednn", exact=False)
    assert lines[0] != "0 differences"
    assert not any(" numpy " in line for line in lines)
    assert lines[-1].endswith("int8 products may saturate")


def test_a_cpu_with_vnni_is_exact(library: Library) -> None:
    if not library.effective_isa().has_vnni:
        pytest.skip("this CPU has no VNNI")
    for backend in ("onednn", "auto"):
        first, *lines = run("DEFAULT", backend)
        assert first == "0 differences"
        assert not any(" numpy " in line for line in lines)


@pytest.mark.parametrize(
    ("count", "least"), [(60, 5), pytest.param(800, 50, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("isa", ["sse41", "avx2", "avx512_core"])
def test_auto_runs_what_few_codes_prove_exact(
    library: Library, isa: str, count: int, least: int
) -> None:
    """Random products with random weights, full range, behind a step that stores few codes: the
    library's bytes are the exact ones, and what stands in front is what lets it run them.
    """
    wanted = CpuIsa[isa]
    if library.effective_isa() & wanted != wanted:
        pytest.skip(f"this CPU has no {isa}")
    kinds = ("convolution", "depthwise", "deconvolution", "matmul")
    ran = subprocess.run(
        [sys.executable, f"{TESTS}/support/proven_cases.py", isa, "5", str(count), *kinds],
        env={
            **os.environ,
            "PYTHONPATH": TESTS,
            "ONEDNN_MAX_CPU_ISA": isa.upper(),
            "OPENBLAS_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout)
    assert found["same"] == found["tried"], ran.stderr[-4000:]
    assert found["by its codes"] >= least


FIXED = """
import json, sys
import numpy as np
import fqfuse
from fqfuse.accuracy.remedy import fixed
from fqfuse.accuracy.simulation import samples_for, subject_of
from support.screen_networks import NETWORKS
subject = subject_of(NETWORKS[sys.argv[1]](), sys.argv[2])
plans, (feeds,) = (subject.plan, fixed(subject).plan), samples_for(subject).feeds
shares = []
for plan in plans:
    session = fqfuse.InferenceSession(plan, "auto", 2)
    here, exact = session.run(None, feeds), fqfuse.InferenceSession(plan, "numpy").run(None, feeds)
    assert all(map(np.array_equal, here, exact))
    other = fqfuse.InferenceSession(plan, "auto", 2, exact=False)
    other.run(None, feeds)
    both = zip(session.placement(), other.placement(), strict=True)
    kinds = ("convolution", "matmul")
    shares.append(np.mean([a.implementation == b.implementation for a, b in both if a.step.primitive in kinds]))
print(json.dumps(shares))
"""


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("network", "least"),
    [pytest.param("resnet50-ort", 0.95, marks=pytest.mark.slow), ("bert-dynamic", 0.8)],
)
def test_auto_runs_what_simulate_has_fixed(network: str, least: float) -> None:
    """By the library's own int8 kernels, on AVX2: hardly a product before, and then nearly all; exactly."""
    environment = {**os.environ, "PYTHONPATH": TESTS, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    ran = subprocess.run(
        [sys.executable, "-c", FIXED, network, "avx2"],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    before, after = json.loads(ran.stdout)
    assert after >= least > before


@pytest.mark.parametrize(
    ("pair", "fits"),
    [
        ((64, 64), True),
        ((127, 1), True),
        ((127, 2), False),
        ((-128, 0), True),
        ((-128, -1), False),
        ((127, -128), True),
    ],
)
def test_pairs(pair: tuple[int, int], fits: bool) -> None:
    weights = np.zeros((4, 6, 3, 3), np.int8)
    weights[2, 2:4, 1, 1] = pair
    assert pairs_fit(weights, 1) is fits
    # The worst data for the pair, as the instruction adds it up.
    worst = max(
        abs(sum(255 * w for w in pair if w > 0)), abs(sum(255 * w for w in pair if w < 0)) - 1
    )
    assert (worst <= 32767) is fits


def test_neighbours_across_a_pair_do_not_count() -> None:
    weights = np.zeros((1, 4), np.int8)
    weights[0, 1:3] = 127
    assert pairs_fit(weights, 1)
    assert not pairs_fit(weights[:, 1:], 1)
    assert pairs_fit(weights[:, 1:2], 1)  # an odd last one stands alone


def test_blocks_of_a_product_tell_which_neighbours_are_pairs() -> None:
    weights = np.zeros((4, 3), np.int8)
    weights[1:3, 1] = 127
    assert _columns_fit(weights, 255, [(0, 4)])
    assert not _columns_fit(weights, 255, [(0, 1), (1, 4)])
    assert not _columns_fit(weights, 255, None)
    weights[2, 1] = 1
    weights[3, 1] = 127  # not beside the other
    assert _columns_fit(weights, 255, None)


@pytest.mark.parametrize(
    ("least", "most", "largest", "fits"),
    [
        (-64, 64, LARGEST, True),
        (-64, 65, LARGEST, False),
        (-65, 64, LARGEST, False),
        (-128, 127, 127, True),
        (-128, 127, 128, True),
        (-128, 127, 129, False),
        (0, 127, 130, False),
    ],
)
def test_any_two_weights(least: int, most: int, largest: int, fits: bool) -> None:
    assert _any_two_fit(least, most, largest) is fits


def test_no_weights_at_all() -> None:
    assert pairs_fit(np.zeros((0, 3), np.int8), 1)


AFFINE = """
import numpy as np, onnx, fqfuse
from onnx import helper, numpy_helper
nodes = [helper.make_node("DequantizeLinear", ["x", "s"], ["d"]), helper.make_node("GlobalMaxPool", ["d"], ["p"]),
         helper.make_node("Mul", ["p", "k"], ["m"]), helper.make_node("QuantizeLinear", ["m", "s", "z"], ["y"])]
constants = {"s": np.float32(0.5), "k": np.linspace(-1.5, 1.5, 42, dtype=np.float32).reshape(1, 42, 1, 1), "z": np.int8(0)}
graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", onnx.TensorProto.INT8, [1, 42, 6, 6])],
                          [helper.make_empty_tensor_value_info("y")],
                          [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
plan = fqfuse.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
feeds = {"x": np.random.default_rng(0).integers(-128, 128, (1, 42, 6, 6)).astype(np.int8)}
results = [fqfuse.InferenceSession(plan, backend, 1).run(None, feeds)[0] for backend in ("numpy", "onednn")]
print(np.array_equal(*results), np.unique(results[0]).size > 10)
"""


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("isa", ["SSE41", "AVX2", "AVX512_CORE"])
def test_factors_of_signed_codes_are_no_weights_that_are_halved(isa: str) -> None:
    """A factor for each channel runs as a depthwise convolution: its own weights must not be what
    the CPU rounds.
    """
    environment = {**os.environ, "PYTHONPATH": TESTS, "ONEDNN_MAX_CPU_ISA": isa}
    ran = subprocess.run(
        [sys.executable, "-c", AFFINE],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.stdout.split() == ["True", "True"]


HALVED = '''
import json
from dataclasses import replace
import numpy as np
import fqfuse
from support.plan_text import parse_plan
TEXT = """
plan layer target=onednn-v3
  in %x : s8[1,16,5,5]
  const @w : s8[16,16,3,3] = fill(1)
  #0 %y : s32[1,16,3,3] = convolution<Conv>(src=%x, weights=@w){kernel_shape=[3,3]} ; layer
  out %y
"""
rng = np.random.default_rng(0)
x = rng.integers(-128, 128, (1, 16, 5, 5)).astype(np.int8)
w = rng.integers(-128, 128, (16, 16, 3, 3)).astype(np.int8)
taps = np.lib.stride_tricks.sliding_window_view(x[0].astype(int), (3, 3), (1, 2))
plan = parse_plan(TEXT)
for weights in (w & -2, w):
    exact = np.einsum("chwij,ocij->ohw", taps, weights.astype(int))
    found = []
    for exact_sums in (True, False):
        layer = replace(plan, constants={"w": weights})
        session = fqfuse.InferenceSession(layer, "onednn", 1, exact=exact_sums)
        found += [session.placement()[0].runtime, bool((session.run(None, {"x": x})[0] == exact).all())]
    print(json.dumps(found))
'''


SHIFTED = """
import json
from dataclasses import replace
import numpy as np
import fqfuse
from support.plan_text import parse_plan
TEXT = '''
plan layer target=onednn-v3
  in %x : s8[8,64]
  const @w : s8[64,16] = fill(1)
  #0 %y : s32[8,16] = matmul<MatMul>(src=%x, weights=@w) ; layer
  out %y
'''
rng = np.random.default_rng(0)
x = rng.integers(100, 128, (8, 64)).astype(np.int8)
plan = parse_plan(TEXT)
for most in (64, 128):
    weights = rng.integers(most - 40, most, (64, 16)).astype(np.int8)
    exact = x.astype(int) @ weights.astype(int)
    found = []
    for exact_sums in (True, False):
        layer = replace(plan, constants={"w": weights})
        session = fqfuse.InferenceSession(layer, "onednn", 1, exact=exact_sums)
        found += [session.placement()[0].runtime, bool((session.run(None, {"x": x})[0] == exact).all())]
    print(json.dumps(found))
"""


@pytest.mark.parametrize("isa", ["SSE41", "AVX2", "AVX512_CORE"])
def test_a_matrix_product_of_signed_codes_runs_where_its_pairs_fit(
    library: Library, isa: str
) -> None:
    """Behind the shift by 128 its codes are u8, and weights of 7 bits are exact; others saturate by the
    library's own kernels, and are computed in f32.
    """
    wanted = CpuIsa[isa.lower()]
    if library.effective_isa() & wanted != wanted:
        pytest.skip(f"this CPU has no {isa}")
    ran = subprocess.run(
        [sys.executable, "-c", SHIFTED],
        env={**os.environ, "PYTHONPATH": TESTS, "ONEDNN_MAX_CPU_ISA": isa},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    few, many = map(json.loads, ran.stdout.splitlines())
    assert few == ["onednn", True, "onednn", True]
    assert many == ["onednn", True, "onednn", False]


@pytest.mark.parametrize("isa", ["SSE41", "AVX2", "AVX512_CORE"])
def test_even_weights_lose_nothing_when_they_are_halved(library: Library, isa: str) -> None:
    """Of a convolution of s8, by the library's own kernels; odd ones lose their last bit."""
    wanted = CpuIsa[isa.lower()]
    if library.effective_isa() & wanted != wanted:
        pytest.skip(f"this CPU has no {isa}")
    ran = subprocess.run(
        [sys.executable, "-c", HALVED],
        env={**os.environ, "PYTHONPATH": TESTS, "ONEDNN_MAX_CPU_ISA": isa},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    even, odd = map(json.loads, ran.stdout.splitlines())
    assert even == ["onednn", True, "onednn", True]
    assert odd == ["onednn", True, "onednn", False]


RECURRENT = '''
import json
import numpy as np
import fqfuse
from support.plan_text import parse_plan
TEXT = """
plan layer target=onednn-v3
  in %x : u8[3,2,4]
  const @w : s8[1,6,4] = fill(WEIGHT)
  const @r : s8[1,6,2] = fill(WEIGHT)
  #0 %y : u8[3,1,2,2] = rnn<GRU>(src=%x, w=@w, r=@r) rnn_data_qparams([127,128]:0) rnn_weights_qparams([4096]:0) ; layer
  out %y
"""
x = np.random.default_rng(0).integers(0, 256, (3, 2, 4)).astype(np.uint8)
x[0] = 255
for weight in (63, 127):
    plan = parse_plan(TEXT.replace("WEIGHT", str(weight)))
    codes, places = {}, {}
    for backend, exact in (("numpy", True), ("auto", True), ("onednn", False)):
        session = fqfuse.InferenceSession(plan, backend, 1, exact=exact)
        codes[backend] = session.run(None, {"x": x})[0].astype(int)
        (placed,) = session.placement()
        places[backend] = placed.runtime
    off = [int(np.abs(codes[name] - codes["numpy"]).max()) for name in ("auto", "onednn")]
    print(json.dumps([weight, places["auto"], *off]))
'''


@pytest.mark.parametrize("isa", ["AVX2", "AVX512_CORE"])
def test_a_recurrent_layer_whose_weights_may_saturate_runs_on_numpy(
    library: Library, isa: str
) -> None:
    """With weights of 7 bits, as recommended, it is exact on oneDNN; where inexact results will do, others run there, too."""
    wanted = CpuIsa[isa.lower()]
    if library.effective_isa() & wanted != wanted:
        pytest.skip(f"this CPU has no {isa}")
    ran = subprocess.run(
        [sys.executable, "-c", RECURRENT],
        env={**os.environ, "PYTHONPATH": TESTS, "ONEDNN_MAX_CPU_ISA": isa},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    recommended, larger = map(json.loads, ran.stdout.splitlines())
    assert recommended == [63, "onednn", 0, 0]
    assert larger[:3] == [127, "numpy", 0]
    assert larger[3] > 1, "what the library gives there"


RESNET = """
import json
import fqfuse
from fqfuse.accuracy.remedy import fixed
from fqfuse.accuracy.simulation import samples_for, subject_of
from support.screen_networks import NETWORKS
import sys
subject = subject_of(NETWORKS[sys.argv[1]](), "avx2")
(feeds,) = samples_for(subject).feeds
for plan in (subject.plan, fixed(subject).plan):
    asked = (("numpy", True), ("auto", True), ("onednn", False))
    sessions = [fqfuse.InferenceSession(plan, backend, 2, exact=exact) for backend, exact in asked]
    values = [session.run_steps(feeds) for session in sessions]
    differ = [sum(found[name].tobytes() != values[0][name].tobytes() for name in found) for found in values[1:]]
    both = zip(sessions[1].placement(), sessions[2].placement(), strict=True)
    in_f32 = sum(exact.implementation != other.implementation for exact, other in both)
    print(json.dumps([len(plan.steps), in_f32, *differ]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50-ort", "resnet50-nncf", "resnet50-qoperator"])
@pytest.mark.parametrize("isa", ["AVX2", "AVX512_CORE"])
def test_auto_runs_a_network_with_7_bits_on_onednn(library: Library, isa: str, name: str) -> None:
    """By the library's own int8 kernels, whose numbers are the exact ones."""
    wanted = CpuIsa[isa.lower()]
    if library.effective_isa() & wanted != wanted:
        pytest.skip(f"this CPU has no {isa}")
    ran = subprocess.run(
        [sys.executable, "-c", RESNET, name],
        env={**os.environ, "PYTHONPATH": TESTS, "ONEDNN_MAX_CPU_ISA": isa},
        check=True,
        capture_output=True,
        text=True,
        timeout=900,
    )
    before, after = map(json.loads, ran.stdout.splitlines())
    steps, in_f32, *differ = after
    assert in_f32 <= 0.05 * steps
    assert differ == [0, 0]
    assert before[1] > 0.5 * before[0], "most layers may saturate before"
    assert before[2] == 0
    assert before[3] > 0, "and do, where the library runs them all"
