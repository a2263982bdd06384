"""What oneDNN gives on CPUs without VNNI, emulated on NumPy: equal bytes with the real library under
ONEDNN_MAX_CPU_ISA, over random primitives whose pairs of products saturate.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from support.codes import emulated
from support.plan_text import parse_plan

import fqfuse
from fqfuse.errors import InvalidInput
from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Library
from fqfuse.plan.attributes import PrimitiveAttr, ZeroPoint
from fqfuse.plan.summation import ISAS, depth_blocks, summation
from fqfuse.primitives import gemm_u8s8s32, prim

TESTS = Path(__file__).parents[1]
WITHOUT = pytest.mark.parametrize("isa", ["sse41", "avx2", "avx512_core"])
KINDS = ("convolution", "depthwise", "deconvolution", "matmul")
MANY = {
    "convolution": 1200,
    "depthwise": 700,
    "deconvolution": 2200,
    "matmul": 500,
    "pooling": 1400,
    "deconvolution by gemm": 550,
}
"""How many are drawn in `make fuzz`, so that 500 run by code that is emulated: of deconvolutions seven in ten run as
`conv:any`, and without AVX-512 many convolutions by a reference.
"""


def share(count: int) -> int:
    """That many in `make fuzz`, a third in `make test-all`."""
    return count if not settings.default.derandomize else count // 3


def many(count: int) -> Any:
    """A case of `share(count)` draws, which is slow."""
    return pytest.param(share(count), marks=(pytest.mark.slow, pytest.mark.hypothesis))


def of_vnni(library: Library, amx: bool = False) -> str:
    """What bounds the library to its kernels for VNNI, and, with `amx`, for AMX. A CPU without AMX takes no other
    bound: that of AVX-512 leaves out the VNNI of AVX2.
    """
    return "AVX512_CORE_VNNI" if library.effective_isa().has_amx and not amx else "DEFAULT"


def agreement(
    library: Library,
    isa: str,
    seed: int,
    count: int,
    *kinds: str,
    script: str = "isa_cases.py",
    amx: bool = True,
) -> dict[str, Any]:
    """See `support/isa_cases.py` and the other scripts beside it. Without `amx` the library's kernels for VNNI are
    what `vnni` is held to, where the CPU has AMX.
    """
    wanted = CpuIsa[isa] if isa in CpuIsa.__members__ else CpuIsa.default
    if library.effective_isa() & wanted != wanted:
        pytest.skip(f"this CPU has no {isa}")
    if isa == "vnni" and not library.effective_isa().has_vnni:
        pytest.skip("this CPU has no VNNI")
    environment = {
        **os.environ,
        "ONEDNN_MAX_CPU_ISA": of_vnni(library, amx) if isa == "vnni" else isa.upper(),
        "PYTHONPATH": str(TESTS),
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, str(TESTS / "support" / script)]
    ran = subprocess.run(
        [*command, isa, str(seed), str(count), *kinds],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout)
    assert found["agreed"] == found["tried"], ran.stderr[-4000:]
    return found


@pytest.mark.of_3_2("what saturates without VNNI is modelled after the kernels of 3.2")
@WITHOUT
def test_random_primitives(library: Library, isa: str) -> None:
    found = agreement(library, isa, 1, 60, *KINDS)
    assert sum(found["tried"].values()) >= 40, "they ran, and were not left out"
    assert found["not exact"] >= 20, "the CPU loses bits"


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", MANY)
def test_many_random_primitives(library: Library, isa: str, kind: str) -> None:
    found = agreement(library, isa, 2, share(MANY[kind]), kind)
    assert sum(found["tried"].values()) >= share(500)
    lost = kind != "pooling" and isa != "vnni"
    assert (found["not exact"] > 0) == lost, "only products lose bits, without VNNI"


@pytest.mark.of_3_2("what saturates without VNNI is modelled after the kernels of 3.2")
@WITHOUT
def test_deconvolutions_by_gemm(library: Library, isa: str) -> None:
    """Of s8, whose weights are not halved there."""
    found = agreement(library, isa, 6, 40, "deconvolution by gemm")
    assert sum(found["tried"].values()) >= 30
    assert found["not exact"] >= 15


@pytest.mark.of_3_2("what saturates without VNNI is modelled after the kernels of 3.2")
@WITHOUT
@pytest.mark.parametrize("count", [120, many(1500)])
def test_operands_that_only_the_reference_broadcasts(
    library: Library, isa: str, count: int
) -> None:
    """Its sums are exact, where a step without them loses bits."""
    found = agreement(library, isa, 9, count, "operands")
    assert sum(found["tried"].values()) >= count * 0.7
    by_reference = sum(tried for name, tried in found["tried"].items() if "ref" in name)
    assert by_reference >= count // 5
    assert found["not exact"] >= count // 8


PROVEN = (
    "convolution",
    "convolution of groups, 3-D",
    "deconvolution",
    "deconvolution by gemm",
    "matmul",
)


@pytest.mark.of_3_2("what saturates without VNNI is modelled after the kernels of 3.2")
@WITHOUT
@pytest.mark.parametrize("count", [150, many(3000)])
def test_what_is_proven_exact_is_exact_on_the_library(
    library: Library, isa: str, count: int
) -> None:
    """By whatever implementation the library takes: with weights near what a proof lets through, and codes at
    the ends, no channel differs that the proof does not name.
    """
    found = agreement(library, isa, 8, count, *PROVEN, script="isa_proofs.py")
    assert sum(found["tried"].values()) >= count // 2
    assert found["exact"] >= count // 5
    assert found["lost"] >= count // 5, "and others differ"


@pytest.mark.of_3_2("what saturates without VNNI is modelled after the kernels of 3.2")
def test_sums_that_pass_what_f32_holds_are_named(library: Library) -> None:
    """With VNNI, where nothing saturates, the library's sums beyond 2^24 are now and then a rounding off."""
    found = agreement(library, "vnni", 11, 600, "matmul", "deconvolution", script="isa_proofs.py")
    assert found["rounded"] >= 1
    assert found["exact"] >= 400


SEVERAL_THREADS = """
import sys
import numpy as np
from fqfuse.primitives import gemm_u8s8s32
same = []
for seed in range(60):
    rng = np.random.default_rng(seed)
    m, n, k = (int(rng.choice(sizes)) for sizes in ([2, 17, 31], [2, 17], [386, 1000, 1993]))
    a, b = rng.integers(0, 256, (m, k)).astype(np.uint8), rng.integers(-128, 128, (k, n)).astype(np.int8)
    c = rng.integers(-(2**31), 2**31, (m, n)).astype(np.int32)
    terms = dict(beta=float(rng.choice([2, 0.5, -3])), ao=int(rng.choice([0, 5])), bo=int(rng.choice([-128, 127])))
    same.append(np.array_equal(gemm_u8s8s32(a, b, c, engine="onednn", **terms), gemm_u8s8s32(a, b, c, isa=sys.argv[1], **terms)))
print(all(same))
"""


@pytest.mark.of_3_2("OMP_NUM_THREADS sets its threads; on SYCL they are those of the device")
def test_large_sums_of_functions_are_those_of_one_thread(library: Library) -> None:
    """Behind the first block sums saturate; on several threads the library's wrap there, and by AMX it cuts other
    blocks.
    """
    ran = subprocess.run(
        [sys.executable, "-c", SEVERAL_THREADS, emulated()],
        env={**os.environ, "OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": of_vnni(library)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert ran.stdout.split() == ["True"]


IN_A_ROW = """
import sys
import numpy as np
from fqfuse.primitives import Binary, Eltwise, PrimitiveAttr, prim
rng = np.random.default_rng(0)
for out in ((1, 16, 1), (1, 16, 1, 1), (1, 1, 3, 1), (1, 1, 1, 3), (1, 5, 1, 1, 1), (1, 16, 3, 3)):
    for kind, low, high in (("u8", 0, 255), ("s8", -128, 127)):
        src, weights = (1, 8, *out[2:]), (out[1], 8, *(1 for _ in out[2:]))
        words = {
            "src": f"{kind}{list(src)}", "weights": f"s8{list(weights)}", "dst": f"f32{list(out)}", "row": f"f32{list(out)}"
        }
        args = {
            "src": rng.choice([low, high], src).astype(kind.replace("s8", "int8").replace("u8", "uint8")),
            "weights": rng.choice([-127, 125, 127], weights).astype(np.int8),
            "row": rng.integers(-9, 9, out).astype(np.float32),
        }
        for front in ((), (Eltwise("linear", 1.0, 0.0),)):
            attr = PrimitiveAttr(post_ops=(*front, Binary("add", "row")))
            real = prim("convolution", attr, engine="onednn", **words)
            same = np.array_equal(real.execute(args), prim("convolution", attr, isa=sys.argv[1], **words).execute(args))
            print(same and "ref" not in real.impl_info)
"""


@WITHOUT
def test_an_operand_in_a_row_is_broadcast_by_compiled_code(library: Library, isa: str) -> None:
    """As many numbers as results, along one axis: squeeze and excitation of one image, for one."""
    if library.effective_isa() & CpuIsa[isa] != CpuIsa[isa]:
        pytest.skip(f"this CPU has no {isa}")
    ran = subprocess.run(
        [sys.executable, "-c", IN_A_ROW, isa],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa.upper()},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert ran.stdout.split() == ["True"] * 24


DEPTHWISE = """
import sys
import numpy as np
from fqfuse.primitives import prim
rng = np.random.default_rng(0)
for stride in (1, 2):
    for size in (1, 3):
        width = 4 * stride + size
        tensors = dict(src="s8[1,16,5]", weights=f"s8[16,1,1,{size}]", dst=f"s32[1,16,{width}]", strides=(stride,))
        args = {
            "src": rng.choice([-128, 127], (1, 16, 5)).astype(np.int8),
            "weights": rng.choice([-127, 125, 127], (16, 1, 1, size)).astype(np.int8),
        }
        real = prim("deconvolution", engine="onednn", **tensors).execute(args)
        print(*(np.array_equal(real, prim("deconvolution", isa=isa, **tensors).execute(args)) for isa in ("vnni", sys.argv[1])))
"""


@pytest.mark.of_3_2("what saturates without VNNI is modelled after the kernels of 3.2")
@pytest.mark.usefixtures("library")
@WITHOUT
def test_a_depthwise_deconvolution_is_exact(isa: str) -> None:
    """Of s8, too: no weights are halved, and no two products are a pair."""
    ran = subprocess.run(
        [sys.executable, "-c", DEPTHWISE, isa],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa.upper()},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert ran.stdout.split() == ["True"] * 8


@pytest.mark.of_3_2("what saturates without VNNI is modelled after the kernels of 3.2")
@WITHOUT
@pytest.mark.parametrize("kind", ["gemm", "inner_product", "convolution", "matmul"])
def test_primitives_on_their_own(library: Library, isa: str, kind: str) -> None:
    """`prim(..., isa=)` and `gemm_u8s8s32(..., isa=)`."""
    found = agreement(library, isa, 4, 70, kind, script="isa_primitives.py")
    assert sum(found["tried"].values()) >= 15
    assert found["not exact"] >= 10


@pytest.mark.of_3_2("what saturates without VNNI is modelled after the kernels of 3.2")
@WITHOUT
@pytest.mark.parametrize("count", [90, many(1500)])
def test_primitives_that_the_reference_takes(library: Library, isa: str, count: int) -> None:
    """By sums behind other post-ops, operands that it alone broadcasts, and comparisons whose code cannot be
    generated: its sums are exact, where compiled code loses bits.
    """
    kinds = "whole inner_product", "whole convolution", "whole matmul"
    found = agreement(library, isa, 12, count, *kinds, script="isa_primitives.py")
    assert sum(found["tried"].values()) >= count * 0.9
    for kind in ("inner_product", "convolution", "matmul"):
        names = (name for name in found["tried"] if name.startswith(kind) and "ref" in name)
        assert sum(found["tried"][name] for name in names) >= count // 30
    assert found["not exact"] >= count // 8


@pytest.mark.slow
@pytest.mark.of_3_2("what saturates without VNNI is modelled after the kernels of 3.2")
@WITHOUT
def test_what_one_implementation_refuses_sums_as_the_next(library: Library, isa: str) -> None:
    """The reference is exact, gemm shifts where other code halves: chains that each refuses, or takes."""
    found = agreement(library, isa, 1, 1, script="isa_sums.py")
    tried = found["tried"]
    for kind in ("convolution", "matmul", "inner_product", "deconvolution"):
        by = {name: tried[name] for name in tried if name.startswith(kind)}
        others = sum(count for name, count in by.items() if "ref" in name or "conv:" in name)
        assert min(others, sum(by.values()) - others) >= 20
    assert found["not exact"] >= 100


@pytest.mark.of_3_2("what saturates without VNNI is modelled after the kernels of 3.2")
@WITHOUT
@pytest.mark.parametrize("count", [80, many(1600)])
def test_codes_beside_floats_of_16_bits(library: Library, isa: str, count: int) -> None:
    """Destinations, biases and operands of bf16: by the reference or gemm, where compiled code has none."""
    kinds = "halves inner_product", "halves convolution", "halves deconvolution", "halves matmul"
    found = agreement(library, isa, 14, count, *kinds, script="isa_primitives.py")
    # without AVX-512 the library has no inner product of these
    assert sum(found["tried"].values()) >= count * 0.75
    assert found["not exact"] >= count // 8


@pytest.mark.of_3_2("what saturates without VNNI is modelled after the kernels of 3.2")
@WITHOUT
def test_codes_beside_f16(library: Library, isa: str) -> None:
    """Operands anywhere, biases and destinations of deconvolutions: the library has them on each CPU."""
    kinds = "f16 inner_product", "f16 convolution", "f16 deconvolution", "f16 matmul"
    found = agreement(library, isa, 21, 40, *kinds, script="isa_primitives.py")
    assert sum(found["tried"].values()) >= 22
    assert found["not exact"] >= 7


def test_late_sums_of_volumes_are_exact(library: Library) -> None:
    """On AVX-512 without VNNI, where depthwise convolutions of volumes lose bits without them."""
    found = agreement(library, "avx512_core", 22, 16, "whole late sums", script="isa_primitives.py")
    assert {name.split(" ")[-1] for name in found["tried"]} == {"ref:any"}
    assert sum(found["tried"].values()) == 16
    assert found["not exact"] == 0


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", ["gemm", "inner_product"])
def test_many_primitives_on_their_own(library: Library, isa: str, kind: str) -> None:
    """AMX cuts the functions' sums in other blocks, which factors apply to: see `primitives/test_gemm.py`."""
    count = share(700)
    found = agreement(library, isa, 5, count, kind, script="isa_primitives.py", amx=kind != "gemm")
    assert sum(found["tried"].values()) >= count * 6 // 7
    assert found["not exact"] >= count * 4 // 7 or isa == "vnni"


@pytest.mark.of_3_2("what saturates without VNNI is modelled after the kernels of 3.2")
@WITHOUT
def test_random_recurrent_layers(library: Library, isa: str) -> None:
    """LSTM with and without projection, and GRU: as primitives, and as steps of plans. One in six has
    products that are cut. A code next to the library's is one that exp or tanh took over a tie. Results
    and hidden states in f32 are to the bit what the codes stand for; cells have a bound.
    """
    found = agreement(library, isa, 3, 60, script="isa_layers.py")
    assert found["not exact"] >= 50, "the CPU loses bits"
    assert found["steps"] >= 15
    assert found["numbers"] >= 15
    assert found["apart"] <= found["codes"] / 10_000


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("isa", ISAS)
def test_many_random_recurrent_layers(library: Library, isa: str) -> None:
    """As many of LSTM as of GRU. The library's own for AMX are passed over as wrong."""
    count = share(1000)
    found = agreement(library, isa, 1000, count, script="isa_layers.py", amx=False)
    assert found["tried"] == count
    assert found["not exact"] >= count * 9 // 10 or isa == "vnni"
    assert found["apart"] <= found["codes"] / 10_000


@WITHOUT
@pytest.mark.parametrize("count", [60, many(1000)])
def test_layers_quantized_at_run_time(library: Library, isa: str, count: int) -> None:
    """DynamicQuantizeLSTM by the library's matmul. Some seeds have what runs on NumPy."""
    found = agreement(library, isa, 20, count, script="isa_dynamic.py")
    assert found["tried"] >= count // 6
    assert found["not exact"] >= found["tried"] * 0.9


PAIR = """
plan pairs target=onednn-v3
  in %x : DTYPE[1,2,1,1]
  const @w : s8[1,2,1,1] = fill(127)
  #0 %y : s32[1,1,1,1] = convolution<Conv>(src=%x, weights=@w) ; conv
  out %y
"""


@pytest.mark.parametrize(
    ("dtype", "code", "sums"),
    [
        # two products of 255 and 127; on s8 weights of 63.5, half to even, taken twice
        ("u8", 255, {"vnni": 64770, "avx512_core": 32767, "avx2": 32767, "sse41": 32767}),
        ("s8", 127, {"vnni": 32258, "avx512_core": 32512, "avx2": 32512, "sse41": 32512}),
    ],
)
def test_a_session_answers_as_that_cpu_would(dtype: str, code: int, sums: dict[str, int]) -> None:
    plan = parse_plan(PAIR.replace("DTYPE", dtype))
    x = np.full((1, 2, 1, 1), code, dtype={"u8": np.uint8, "s8": np.int8}[dtype])
    for isa in ISAS:
        with fqfuse.InferenceSession(plan, isa=isa) as session:
            assert session.run(None, {"x": x})[0].item() == sums[isa]
            assert session.backend == "numpy"
            assert session.backend_reason.startswith("NumPy emulates oneDNN 3.2")
    with fqfuse.InferenceSession(plan, "numpy") as session:
        assert session.run(None, {"x": x})[0].item() == sums["vnni"]


def test_an_instruction_set_that_is_none_is_refused() -> None:
    plan = parse_plan(PAIR.replace("DTYPE", "u8"))
    with pytest.raises(InvalidInput, match="choose one of: vnni, avx512_core, avx2, sse41"):
        fqfuse.InferenceSession(plan, "numpy", isa="avx")
    with pytest.raises(InvalidInput, match="ONEDNN_MAX_CPU_ISA=AVX2"):
        fqfuse.InferenceSession(plan, "onednn", isa="avx2")


def test_a_primitive_of_its_own_answers_as_that_cpu_would() -> None:
    tensors = {"src": "u8[1,2]", "weights": "s8[2,1]", "dst": "s32[1,1]"}
    pair = {"src": np.full((1, 2), 255, np.uint8), "weights": np.full((2, 1), 127, np.int8)}
    found = [prim("matmul", isa=isa, **tensors).execute(pair).item() for isa in (None, *ISAS)]
    assert found == [64770, 64770, 32767, 32767, 32767]
    assert gemm_u8s8s32(pair["src"], pair["weights"], isa="avx2").item() == 32767
    for call in (
        lambda **words: prim("matmul", **tensors, **words),
        lambda **words: gemm_u8s8s32(pair["src"], pair["weights"], **words),
    ):
        with pytest.raises(InvalidInput, match="choose one of: vnni, avx512_core, avx2, sse41"):
            call(isa="neon")
        with pytest.raises(InvalidInput, match="ONEDNN_MAX_CPU_ISA=AVX2"):
            call(isa="avx2", engine="onednn")


def test_the_emulation_survives_pickling() -> None:
    plan = parse_plan(PAIR.replace("DTYPE", "u8"))
    stored = pickle.dumps(fqfuse.InferenceSession(plan, "numpy", isa="avx2"))
    session = pickle.loads(stored)  # noqa: S301  (our own)
    assert session.run(None, {"x": np.full((1, 2, 1, 1), 255, np.uint8)})[0].item() == 32767


def test_gemm_cuts_deep_products() -> None:
    assert depth_blocks(256, 384) == [(0, 256)]
    assert depth_blocks(257, 384) == [(0, 129), (129, 257)]
    assert depth_blocks(767, 384) == [(0, 384), (384, 767)]
    assert depth_blocks(1030, 384) == [(0, 384), (384, 768), (768, 1030)]
    assert depth_blocks(0, 384) == []
    assert depth_blocks(384, 768, 384) == [(0, 384)]
    assert depth_blocks(385, 768, 384) == [(0, 193), (193, 385)]


@pytest.mark.parametrize(
    ("isa", "exact"), [("avx512_core", False), ("avx2", True), ("sse41", True)]
)
def test_weights_with_a_zero_point(isa: str, exact: bool) -> None:
    """s8 by s8 with an offset on either side is gemm's reference without AVX-512, which is exact."""
    rows = np.full((2, 24), 127, np.int8)
    attr = PrimitiveAttr(zero_points={"weights": ZeroPoint((20,))})
    tensors = {"src": "s8[2,24]", "weights": "s8[24,2]", "dst": "s32[2,2]"}
    args = {"src": rows, "weights": np.ascontiguousarray(rows.T)}
    there = prim("matmul", attr, isa=isa, **tensors).execute(args)
    assert bool((there == 24 * 127 * 107).all()) == exact


def test_with_vnni_every_summation_is_exact() -> None:
    for kind in ("convolution", "deconvolution", "matmul", "rnn"):
        law = summation("vnni", kind, signed=True)
        assert (law.pairs, law.halved, law.shift) == (None, False, 0)
