"""How much memory a process takes to get from a file to results on the NumPy runtime."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto
from support.onnx_cases import model, node

from fqfuse import InferenceSession, save_plan
from fqfuse import compile as compile_model
from fqfuse.frontend import graph_from_onnx
from fqfuse.frontend.importer import Importer

LAYERS, CHANNELS, IMAGE = 8, 512, 7

OPENING = """
import gc
import sys
from pathlib import Path
import numpy as np
from fqfuse import InferenceSession

tiny, path, threads = sys.argv[1:]


def megabytes(key):  # not getrusage: its maximum begins with the parent's
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields[key].split()[0]) / 1024


def opened(path):
    session = InferenceSession(path, "numpy", int(threads))
    shape = session.get_inputs()[0].shape
    for _ in range(3):
        session.run(None, {"x": np.ones(shape, np.float32)})
    return session


opened(tiny)  # modules, ONNX's schemas: what any model takes once
gc.collect()
gc.disable()  # whether it comes in time is chance: memory has to go with its last reference
before = megabytes("VmRSS")
session = opened(path)
bound = next(iter(session._executor._bound))
print(megabytes("VmHWM") - before, (bound.arena_bytes + int(threads) * bound.local_bytes) / 2**20)
"""


def chain(layers: int, channels: int) -> onnx.ModelProto:
    """QuantizeLinear, DequantizeLinear and a 3x3 convolution with s8 weights, so many times."""
    draw = np.random.default_rng(0)
    constants: dict[str, object] = {
        "scale": np.float32(0.02),
        "zero": np.uint8(128),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
    }
    nodes, value = [], "x"
    for index in range(layers):
        constants[f"w{index}"] = draw.integers(-127, 128, (channels, channels, 3, 3)).astype(
            np.int8
        )
        nodes += [
            node("QuantizeLinear", [value, "scale", "zero"], [f"q{index}"]),
            node("DequantizeLinear", [f"q{index}", "scale", "zero"], [f"d{index}"]),
            node("DequantizeLinear", [f"w{index}", "ws", "wz"], [f"f{index}"]),
            node("Conv", [f"d{index}", f"f{index}"], [f"y{index}"], pads=[1, 1, 1, 1]),
        ]
        value = f"y{index}"
    return model(
        nodes, inputs={"x": [1, channels, IMAGE, IMAGE]}, outputs=[value], constants=constants
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    onnx.save(chain(1, 4), folder / "tiny.onnx")
    onnx.save(chain(LAYERS, CHANNELS), folder / "model.onnx")
    save_plan(compile_model(folder / "model.onnx"), folder / "plan.onnx")
    return folder


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(),
    reason="the peak of resident memory is read from Linux's /proc",
)
@pytest.mark.parametrize("name", ["model.onnx", "plan.onnx"])
def test_peak_is_three_plans_and_the_activations(files: Path, name: str) -> None:
    command = [sys.executable, "-c", OPENING, str(files / "tiny.onnx"), str(files / name), "2"]
    done = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    peak, activations = map(float, done.stdout.split())
    plan = (files / "plan.onnx").stat().st_size / 2**20
    # Weights in the plan and packed for the kernels are two plans' sizes; the third is for what
    # reading a file takes in passing.
    assert plan > 16
    assert 2 * plan < peak < 3 * plan + activations


def packed_chain(layers: int, size: int) -> onnx.ModelProto:
    """Products with weights of 4 bits in blocks of 32, so many times."""
    draw = np.random.default_rng(0)
    constants: dict[str, object] = {}
    nodes, value = [], "x"
    for index in range(layers):
        codes = draw.integers(0, 256, (size, size // 32, 16)).astype(np.uint8)
        constants |= {f"w{index}": codes, f"s{index}": np.full(size * size // 32, 0.01, np.float32)}
        given = [value, f"w{index}", f"s{index}"]
        sizes = {"K": size, "N": size, "bits": 4, "block_size": 32}
        nodes.append(node("MatMulNBits", given, [f"y{index}"], domain="com.microsoft", **sizes))
        value = f"y{index}"
    return model(
        nodes,
        inputs={"x": [1, size]},
        outputs=[value],
        constants=constants,
        domains={"com.microsoft": 1},
    )


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(),
    reason="the peak of resident memory is read from Linux's /proc",
)
@pytest.mark.parametrize("name", ["model.onnx", "plan.onnx"])
def test_weights_of_4_bits_are_in_memory_once(tmp_path: Path, name: str) -> None:
    onnx.save(packed_chain(1, 64), tmp_path / "tiny.onnx")
    onnx.save(packed_chain(8, 2048), tmp_path / "model.onnx")
    save_plan(compile_model(tmp_path / "model.onnx"), tmp_path / "plan.onnx")
    command = [
        sys.executable,
        "-c",
        OPENING,
        str(tmp_path / "tiny.onnx"),
        str(tmp_path / name),
        "1",
    ]
    done = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    peak, activations = map(float, done.stdout.split())
    size = (tmp_path / name).stat().st_size / 2**20
    assert size > 16
    assert peak < 1.2 * size + activations


COMPILING = """
import gc
import sys
from pathlib import Path

import fqfuse

tiny, path = sys.argv[1:]


def megabytes(key):
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields[key].split()[0]) / 1024


fqfuse.compile(tiny)
gc.collect()
gc.disable()
before = megabytes("VmRSS")
plan = fqfuse.compile(path)
print(megabytes("VmHWM") - before)
"""


def quantized_from_floats(width: int, words: int) -> onnx.ModelProto:
    """A table and two products whose f32 weights have QuantizeLinear behind them, as ONNX Runtime's
    AddQDQPairToWeight writes them; what is looked up has another scale than the table.
    """
    draw = np.random.default_rng(0)
    constants: dict[str, object] = {
        "s": np.float32(0.02),
        "t": np.float32(0.025),
        "z": np.int8(0),
        "table": draw.standard_normal((words, width), np.float32),
        "w0": draw.standard_normal((width, width), np.float32),
        "w1": draw.standard_normal((width, width), np.float32),
    }

    def pair(value: str, scale: str) -> list[onnx.NodeProto]:
        return [
            node("QuantizeLinear", [value, scale, "z"], [f"{value}_q"]),
            node("DequantizeLinear", [f"{value}_q", scale, "z"], [f"{value}_d"]),
        ]

    nodes = [*pair("table", "s"), node("Gather", ["table_d", "ids"], ["x0"])]
    for index in range(2):
        nodes += [*pair(f"x{index}", "t"), *pair(f"w{index}", "s")]
        nodes.append(node("MatMul", [f"x{index}_d", f"w{index}_d"], [f"x{index + 1}"]))
    types = {"ids": onnx.TensorProto.INT64}
    inputs = {"ids": [1, 4]}
    return model(nodes, inputs=inputs, outputs=["x2"], constants=constants, types=types)


def quantized_at_run_time(width: int, words: int) -> onnx.ModelProto:
    """A table of codes and products whose sources become codes by their ranges, as
    `quantize_dynamic` of ONNX Runtime writes them. What an import computes has less bytes than its
    budget allows: the weights in f32, each by itself.
    """
    draw = np.random.default_rng(0)
    constants: dict[str, object] = {"s": np.float32(0.02), "z": np.int8(0)}
    products = 16
    for name, rows in (("table", words), *((f"w{index}", width) for index in range(products))):
        constants[name] = draw.integers(-127, 128, (rows, width), np.int8)
    nodes = [
        node("DequantizeLinear", ["table", "s", "z"], ["table_d"]),
        node("Gather", ["table_d", "ids"], ["x0"]),
    ]
    for index in range(products):
        x, *parts = (f"x{index}{part}" for part in ("", "_q", "_s", "_z"))
        nodes += [
            node("DynamicQuantizeLinear", [x], parts),
            node("MatMulInteger", [parts[0], f"w{index}", parts[2], "z"], [f"{x}_sum"]),
            node("Cast", [f"{x}_sum"], [f"{x}_real"], to=onnx.TensorProto.FLOAT),
            node("Mul", [parts[1], "s"], [f"{x}_scale"]),
            node("Mul", [f"{x}_real", f"{x}_scale"], [f"x{index + 1}"]),
        ]
    types = {"ids": onnx.TensorProto.INT64}
    return model(
        nodes, inputs={"ids": [1, 4]}, outputs=[f"x{products}"], constants=constants, types=types
    )


def of_halves(width: int, words: int, dtype: npt.DTypeLike = np.float16) -> onnx.ModelProto:
    """A table and products of half floats: weights as products read them, as a Gemm reads them the
    other way around, and behind a Transpose.
    """
    draw = np.random.default_rng(0)
    shapes = {"table": (words, width)} | {f"w{index}": (width, width) for index in range(12)}
    constants = {n: draw.standard_normal(s, np.float32).astype(dtype) for n, s in shapes.items()}
    nodes = [node("Gather", ["table", "ids"], ["x0"])]
    for index in range(12):
        x, w, y = f"x{index}", f"w{index}", f"x{index + 1}"
        if index % 3 == 0:
            nodes.append(node("Gemm", [x, w], [y], transB=1))
        elif index % 3 == 1:
            nodes += [node("Transpose", [w], [f"{w}_t"]), node("MatMul", [x, f"{w}_t"], [y])]
        else:
            nodes.append(node("MatMul", [x, w], [y]))
    types = {"ids": onnx.TensorProto.INT64}
    return model(nodes, inputs={"ids": [4]}, outputs=["x12"], constants=constants, types=types)


def of_short_halves(width: int, words: int) -> onnx.ModelProto:
    """The same in bf16."""
    return of_halves(width, words, ml_dtypes.bfloat16)


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(),
    reason="the peak of resident memory is read from Linux's /proc",
)
@pytest.mark.parametrize(
    ("build", "width", "words"),
    [
        (quantized_from_floats, 1536, 12288),
        (quantized_at_run_time, 2000, 2000),
        (of_halves, 1536, 6144),
        (of_short_halves, 1536, 6144),
    ],
)
def test_compiling_takes_little_more_than_the_model(
    tmp_path: Path, build: Callable[[int, int], onnx.ModelProto], width: int, words: int
) -> None:
    onnx.save(build(8, 8), tmp_path / "tiny.onnx")
    onnx.save(build(width, words), tmp_path / "model.onnx")
    paths = [str(tmp_path / name) for name in ("tiny.onnx", "model.onnx")]
    command = [sys.executable, "-c", COMPILING, *paths]
    done = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    size = (tmp_path / "model.onnx").stat().st_size / 2**20
    assert size > 64
    # Each of the weights goes when its codes are there, no f32 form of the table comes between its
    # two forms in codes, none of the weights is decoded to see whether a zero point is constant, and
    # half floats are widened one tensor at a time.
    assert size < float(done.stdout) < 1.3 * size


def test_codes_are_made_anew_piece_by_piece() -> None:
    draw = np.random.default_rng(1)
    scales = np.linspace(0.01, 0.05, 1100).astype(np.float32)
    table = draw.integers(-128, 128, (700, 1100), np.int64).astype(np.int8)
    for scale in (scales, np.float32(0.013)):
        axis = {"axis": 1} if scale.ndim else {}
        constants = {"q": table, "s": scale, "z": np.zeros(scale.shape, np.int8)}
        constants |= {"t": np.float32(0.02), "u": np.uint8(100)}
        nodes = [
            node("DequantizeLinear", ["q", "s", "z"], ["d"], **axis),
            node("QuantizeLinear", ["d", "t", "u"], ["c"]),
            node("Gather", ["c", "ids"], ["y"]),
        ]
        types = {"ids": onnx.TensorProto.INT64}
        proto = model(nodes, inputs={"ids": [2]}, constants=constants, types=types)
        plan = compile_model(proto)
        assert [step.op for step in plan.steps] == ["Gather"]
        ids = np.int64([699, 0])
        (found,) = InferenceSession(plan, "numpy").run(None, {"ids": ids})
        real = table[ids].astype(np.float32) * scale
        wanted = np.clip(np.rint(real / np.float32(0.02)) + 100, 0, 255).astype(np.uint8)
        np.testing.assert_array_equal(found, wanted)


def test_an_import_leaves_nothing_to_the_collector(files: Path) -> None:
    def importers_and_models() -> list[object]:
        return [
            thing for thing in gc.get_objects() if isinstance(thing, (Importer, onnx.GraphProto))
        ]

    gc.collect()
    gc.disable()
    try:
        others = importers_and_models()  # what other tests' modules hold
        graph = graph_from_onnx(files / "tiny.onnx")
        left = [
            thing for thing in importers_and_models() if not any(thing is other for other in others)
        ]
        assert graph
        # a cycle would keep the model's own copy of the weights until the collector happens to run
        assert not left
    finally:
        gc.enable()


SAVING = """
import sys
from pathlib import Path
import fqfuse

tiny, path, to = sys.argv[1:]


def megabytes(key):  # not getrusage: its maximum begins with the parent's
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields[key].split()[0]) / 1024


fqfuse.save_plan(fqfuse.compile(tiny), to)
before = megabytes("VmRSS")
fqfuse.save_plan(fqfuse.compile(path), to)
print(megabytes("VmHWM") - before)
"""


def table_of_codes(rows: int) -> onnx.ModelProto:
    """A large table of s8 codes whose rows are read in the u8 codes of what is behind it, as ONNX
    Runtime's static quantization writes an embedding, and a small product.
    """
    draw = np.random.default_rng(0)
    constants = {
        "t": draw.integers(-127, 128, (rows, 256)).astype(np.int8),
        "w": draw.integers(-127, 128, (256, 8)).astype(np.int8),
        "ts": np.float32(0.02),
        "tz": np.int8(3),
        "s": np.float32(0.02),
        "z": np.uint8(128),
    }
    nodes = [
        node("DequantizeLinear", ["t", "ts", "tz"], ["table"]),
        node("Gather", ["table", "ids"], ["word"]),
        node("QuantizeLinear", ["word", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ts", "tz"], ["f"]),
        node("MatMul", ["d", "f"], ["y"]),
    ]
    return model(
        nodes,
        inputs={"ids": [1, 4]},
        types={"ids": TensorProto.INT64},
        outputs=["y"],
        constants=constants,
    )


def halves(size: int) -> onnx.ModelProto:
    """Products with f16 weights."""
    draw = np.random.default_rng(0)
    weights = {f"w{i}": draw.normal(size=(size, size)).astype(np.float16) for i in range(12)}
    nodes = [node("MatMul", [f"y{i}" if i else "x", f"w{i}"], [f"y{i + 1}"]) for i in range(12)]
    return model(
        nodes,
        inputs={"x": [1, size]},
        types={"x": TensorProto.FLOAT16},
        outputs=["y12"],
        constants=weights,
    )


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(),
    reason="the peak of resident memory is read from Linux's /proc",
)
@pytest.mark.parametrize(
    ("made", "share"),
    [
        (lambda large: chain(LAYERS if large else 1, CHANNELS if large else 4), 1.0),
        # its codes are written over those that they were made of
        (lambda large: table_of_codes(100_000 if large else 2000), 1.0),
        # computed in f32, which takes twice the memory
        (lambda large: halves(1024 if large else 8), 2.0),
    ],
    ids=["s8 weights", "table", "half floats"],
)
def test_compiling_and_saving_takes_the_constants_once(tmp_path: Path, made, share) -> None:
    onnx.save(made(False), tmp_path / "tiny.onnx")
    onnx.save(made(True), tmp_path / "model.onnx")
    files = [str(tmp_path / name) for name in ("tiny.onnx", "model.onnx", "plan.onnx")]
    command = [sys.executable, "-c", SAVING, *files]
    done = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    size = (tmp_path / "model.onnx").stat().st_size / 2**20
    assert size > 16
    # 0.3 of the file for what is in passing: one weight in another form, a piece of a table in f32
    assert float(done.stdout) < (share + 0.3) * size
