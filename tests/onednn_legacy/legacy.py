"""The other side of `legacy_worker.py`: finds its interpreter, starts it, and has it run steps of
`onednn-v2` plans on oneDNN 2.6.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onednn_legacy.legacy_worker import receive, send

from fqfuse.plan.arguments import AT_RUN_TIME
from fqfuse.plan.attributes import Binary, Eltwise, PostOp, Prelu, Sum
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.numerics import NumericsProfile
from fqfuse.runtime.numpy_runtime import run_step, with_numbers

ROOT = Path(__file__).parents[2]
VARIABLE = "FQFUSE_ONEDNN_2_PYTHON"
HOW = (
    f"install the wheel onednn-cpu-gomp==2022.2.1 and numpy into .venv-onednn2 at the repository's root (`make .venv-onednn2/.ready`), or "
    f"into an environment of your own, and set {VARIABLE} to its interpreter; the wheel exists for Linux on x86_64"
)
REFERENCE = NumericsProfile("oneDNN 2.6, reference code", fma=False)
"""The float order of the implementations in plain C++, which the library takes for mixed types and
for prelu.
"""


def interpreter() -> Path | None:
    """The interpreter of an environment with oneDNN 2.6, if there is one."""
    given = os.environ.get(VARIABLE)
    found = Path(given).absolute() if given else ROOT / ".venv-onednn2" / "bin" / "python"
    return found if given or found.is_file() else None


@dataclass(frozen=True)
class Answer:
    """What the library did: the status of the call that refused, or 0 with the destination and the
    implementation's name.
    """

    status: int
    call: str = ""
    implementation: str = ""
    dst: np.ndarray | None = None

    @property
    def is_reference(self) -> bool:
        """True for an implementation in plain C++, which has no fused multiply-add."""
        return self.implementation.startswith(("ref", "simple"))


class Legacy:
    """oneDNN 2.6 behind a pipe. A request that kills the process fails its own test only: the next
    one starts another.

    With `vnni_at_most` it is held to its kernels for AVX-512 VNNI on a CPU with AMX: their order of
    roundings is what `onednn-v2` promises, and they refuse what the others for AMX take and get
    wrong (docs/contributing/isa.md).
    """

    def __init__(self, python: Path, threads: int = 1, *, vnni_at_most: bool = True) -> None:
        self.command = [str(python), "-I", str(Path(__file__).with_name("legacy_worker.py"))]
        self.environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self.process: subprocess.Popen[bytes] | None = None
        self.hello = self._start()
        # asked, not told beforehand: the bound would take AVX2's VNNI from a CPU without AVX-512
        if vnni_at_most and self.hello.get("amx"):
            self.close()
            self.environment["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_VNNI"
            self.hello = self._start()

    def _start(self) -> dict[str, Any]:
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment
        )
        message = receive(self.process.stdout)
        assert message is not None, f"{self.command} says nothing: {HOW}"
        return message[0]

    def close(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait(timeout=60)
            self.process = None

    def ask(self, case: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Answer:
        """One primitive."""
        if self.process is None:
            self._start()
        send(self.process.stdin, case, arrays)
        message = receive(self.process.stdout)
        if message is None:
            status = self.process.wait(timeout=60)
            self.process = None
            raise AssertionError(f"the library took its process down (status {status}) with {case}")
        header, found = message
        return Answer(**header, dst=found.get("dst"))

    def run(
        self, plan: Plan, step: Step, live: Mapping[str, np.ndarray], shape: tuple[int, ...]
    ) -> Answer:
        """One step of a plan, whose destination has that shape."""
        return self.ask(*_Translation(plan, step, {**plan.constants, **live}, shape).request())

    def compare(
        self, plan: Plan, step: Step, live: Mapping[str, np.ndarray], *, lsb: int = 0
    ) -> Answer:
        """NumPy and oneDNN 2.6 on the same inputs: equal bytes, or at most `lsb` apart."""
        (first,) = run_step(plan, step, live)
        answer = self.run(plan, step, live, first.shape)
        assert answer.dst is not None, f"{answer.call} refuses with status {answer.status}: {step}"
        mine = run_step(plan, step, live, profile=REFERENCE)[0] if answer.is_reference else first
        assert answer.dst.dtype == mine.dtype
        if lsb:
            apart = np.abs(mine.astype(np.int64) - answer.dst.astype(np.int64)).max(initial=0)
            assert apart <= lsb, f"{apart} LSB apart, by {answer.implementation}: {step}"
        else:
            np.testing.assert_array_equal(
                mine, answer.dst, err_msg=f"by {answer.implementation}: {step}"
            )
            if not answer.is_reference:  # whose relu gives -0 for negative numbers
                np.testing.assert_array_equal(
                    mine.view(np.uint8),
                    answer.dst.view(np.uint8),
                    err_msg=f"by {answer.implementation}: {step}",
                )
        return answer


class _Translation:
    """A step as the worker wants it. Nothing is converted: 2.6 takes the attributes of `onednn-v2`
    as they are.
    """

    def __init__(
        self, plan: Plan, step: Step, data: Mapping[str, np.ndarray], shape: tuple[int, ...]
    ) -> None:
        self.plan, self.step, self.data, self.shape = plan, step, data, shape
        self.dst = plan.type(step.output).dtype
        self.arrays: dict[str, np.ndarray] = {}

    def request(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        case = {
            "primitive": self.step.primitive,
            "dst": self.dst.value,
            "shape": self.shape,
            "attr": self.attributes(),
            "layouts": {"operand": "last"},
            **getattr(self, "_" + self.step.primitive)(),
        }
        return case, {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}

    # -- pieces ------------------------------------------------------------------------------------

    def arg(self, role: str) -> np.ndarray | None:
        name = self.step.arg(role)
        return None if name is None else self.data[name]

    def wide(self, array: np.ndarray) -> np.ndarray:
        """With leading dimensions of 1, up to the destination's rank."""
        return array.reshape((1,) * (len(self.shape) - array.ndim) + array.shape)

    def ints(self, name: str, default: tuple[int, ...]) -> list[int]:
        return [int(value) for value in self.step.params.get(name) or default]

    def attributes(self) -> dict[str, Any]:
        """The attributes; `run_time`: those that are given when the primitive is executed."""
        attr = with_numbers(self.step, self.data).attr
        output = attr.output_scales
        return {
            "run_time": [
                argument
                for role, (_, argument) in AT_RUN_TIME.items()
                if self.step.arg(role) is not None  # zero points
            ],
            "output_scales": None if output is None else [output.mask, output.values],
            "scales": {role: [scale.mask, scale.values] for role, scale in attr.scales.items()},
            "zero_points": {
                role: [zero.mask, zero.values] for role, zero in attr.zero_points.items()
            },
            "post_ops": [self.post_op(index, op) for index, op in enumerate(attr.post_ops)],
        }

    def post_op(self, index: int, op: PostOp) -> list[Any]:
        match op:
            case Eltwise(algorithm, alpha, beta, scale):
                return ["eltwise", algorithm, alpha, beta, scale]
            case Sum(operand, scale, zero_point, dtype):
                self.arrays["old"] = self.data[operand].view(self.dst.numpy)
                return ["sum", scale, zero_point, "" if dtype is None else dtype.value]
            case Binary(algorithm, operand, None):
                self.arrays[f"post_op{index}"] = self.wide(self.data[operand])
                return ["binary", algorithm]
            case Prelu(operand, mask):
                self.arrays[f"post_op{index}"] = self.wide(self.data[operand])
                return ["prelu", mask]
        raise AssertionError(f"no such post-op on onednn-v2: {op}")

    # -- primitives --------------------------------------------------------------------------------

    def _window(self, spatial: int) -> dict[str, list[int]]:
        pads = self.ints("pads", (0,) * (2 * spatial))
        return {
            "strides": self.ints("strides", (1,) * spatial),
            "dilations": [d - 1 for d in self.ints("dilations", (1,) * spatial)],
            "padding_l": pads[:spatial],
            "padding_r": pads[spatial:],
        }

    def _convolution(self) -> dict[str, Any]:
        return self._product("convolution")

    def _deconvolution(self) -> dict[str, Any]:
        return {**self._product("deconvolution"), "primitive": "convolution"}

    def _product(self, name: str) -> dict[str, Any]:
        x, w, bias = self.arg("src"), self.arg("weights"), self.arg("bias")
        groups = self.step.params.get("group", 1)
        w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
        if name == "deconvolution":  # ONNX [IC, OC/g, k...] -> [g, OC/g, IC/g, k...]
            w = np.swapaxes(w, 1, 2)
        self.arrays |= {"src": x, "weights": w[0] if groups == 1 else w}
        if bias is not None:
            self.arrays["bias"] = bias
        return {"algorithm": f"{name}_direct", **self._window(x.ndim - 2)}

    def _matmul(self) -> dict[str, Any]:
        self.arrays |= {"src": self.arg("src"), "weights": self.arg("weights")}
        if (bias := self.arg("bias")) is not None:
            self.arrays["bias"] = self.wide(bias)
        return {"layouts": {"src": "plain", "dst": "plain", "operand": "plain"}}

    def _pooling(self) -> dict[str, Any]:
        x = self.arrays["src"] = self.arg("src")
        window = {**self._window(x.ndim - 2), "kernel": self.ints("kernel_shape", x.shape[2:])}
        include = "include" if self.step.params.get("count_include_pad") else "exclude"
        kind = "pooling_max" if "Max" in self.step.op else f"pooling_avg_{include}_padding"
        return {"algorithm": kind, **window, "layouts": {"src": "last", "operand": "last"}}

    def _binary(self) -> dict[str, Any]:
        self.arrays |= {role: self.wide(self.arg(role)) for role in ("src_0", "src_1")}
        return {
            "algorithm": f"binary_{self.step.params['algorithm']}",
            "layouts": {"src_0": "last", "src_1": "last", "operand": "last"},
        }

    def _eltwise(self) -> dict[str, Any]:
        self.arrays["src"] = self.arg("src")
        ends = {name: self.step.params.get(name, 0.0) for name in ("alpha", "beta")}
        return {
            "algorithm": f"eltwise_{self.step.params['algorithm']}",
            **ends,
            "layouts": {"src": "last", "operand": "last"},
        }

    def _reorder(self) -> dict[str, Any]:
        self.arrays["src"] = self.arg("src")
        layout = self.step.params.get("layout", "plain")
        return {"layouts": {"src": layout, "dst": layout}}

    def _concat(self) -> dict[str, Any]:
        sources = [self.data[value] for role, value in self.step.args if role.startswith("src_")]
        self.arrays |= {f"concat{index}": array for index, array in enumerate(sources)}
        layouts = {f"concat{index}": "last" for index in range(len(sources))}
        return {
            "axis": self.step.params["axis"] % len(self.shape),
            "layouts": {**layouts, "dst": "last"},
        }

    def _softmax(self) -> dict[str, Any]:
        x = self.arrays["src"] = self.arg("src")
        kind = "softmax_log" if self.step.op == "LogSoftmax" else "softmax_accurate"
        return {
            "algorithm": kind,
            "axis": self.step.params.get("axis", -1) % x.ndim,
            "layouts": {"src": "plain", "dst": "plain"},
        }

    def _resampling(self) -> dict[str, Any]:
        self.arrays["src"] = self.arg("src")
        return {
            "algorithm": f"resampling_{self.step.params['mode']}",
            "layouts": {"src": "last", "dst": "last", "operand": "last"},
        }

    def _reduction(self) -> dict[str, Any]:
        self.arrays["src"] = self.arg("src")
        kind = self.step.op.removeprefix("Reduce").lower()
        return {
            "algorithm": f"reduction_{kind}",
            "layouts": {"src": "plain", "dst": "plain", "operand": "plain"},
        }
