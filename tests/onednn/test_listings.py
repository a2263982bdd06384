"""The listings of machine code: the text is the code, the code is what their sources are compiled
to, and nothing is run but what the package's digests stand for.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.machine_code import Lines, listed
from support.onnx_cases import model, node

import fqfuse
from fqfuse.errors import BackendUnavailable
from fqfuse.onednn import kernels, machine_code
from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Library
from fqfuse.onednn.machine_code import FOLDER, LISTINGS, functions, mapped

MAKER = Path(__file__).with_name("make_listing.py")
ALL = list(listed())
IDS = [f"{name}.{function}" for name, function, _ in ALL]
EVERYTHING = CpuIsa.avx512_core_amx


def needs_tools(*tools: str) -> None:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def assembled(lines: Lines, folder: Path) -> bytes:
    """The machine code of the text alone."""
    source, made, code = folder / "f.s", folder / "f.o", folder / "f.bin"
    text = [
        re.sub(r"^(j\w+) (0x[0-9a-f]+)$", lambda jump, at=at: f"{jump[1]} .+({jump[2]}-{at})", each)
        for at, _, each in lines
    ]
    source.write_text("\n".join([".intel_syntax noprefix", *text, ""]))
    subprocess.run(["as", "--64", source, "-o", made], check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", made, code], check=True)
    return code.read_bytes()


def test_every_listing_has_a_digest() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.txt" for name in LISTINGS}
    assert len(ALL) == 27


@pytest.mark.parametrize(("name", "function", "lines"), ALL, ids=IDS)
def test_the_text_is_the_code(name: str, function: str, lines: Lines, tmp_path: Path) -> None:
    needs_tools("as", "objcopy")
    _, code = functions(name)[function]
    assert assembled(lines, tmp_path) == code
    assert b"".join(bytes.fromhex(part) for _, part, _ in lines) == code
    offset = 0
    for at, part, _ in lines:
        assert at == offset
        offset += len(part) // 2


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_is_what_its_source_is_compiled_to(name: str) -> None:
    """Line by line, with what the works hold."""
    needs_tools("gcc", "objdump")
    sys.path.insert(0, str(MAKER.parent))
    try:
        import make_listing
    finally:
        sys.path.remove(str(MAKER.parent))
    text = (FOLDER / f"{name}.txt").read_text(encoding="ascii")
    version = re.match(r"# \S+(?: -D\S+)*, by gcc (\S+):", text)[1]
    if make_listing.compiler() != version:
        pytest.skip(f"gcc {version} made the listing, {make_listing.compiler()} is installed")
    assert make_listing.listing(name) == text


# -- what is run -----------------------------------------------------------------------------------


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The listings in another folder, of which nothing is mapped yet."""
    folder = Path(shutil.copytree(FOLDER, tmp_path / "listings"))
    monkeypatch.setattr(machine_code, "FOLDER", folder)
    monkeypatch.setattr(machine_code, "_mapped", machine_code._mapped.__wrapped__)
    return folder


def flipped(path: Path) -> None:
    """Another instruction, of the same length: `ret` becomes `nop`."""
    data = path.read_bytes()
    at = data.rindex(b"  c3  ")
    path.write_bytes(data[:at] + b"  90  " + data[at + 6 :])


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


@pytest.mark.parametrize("name", LISTINGS)
@pytest.mark.parametrize("change", [flipped, longer, Path.unlink])
def test_a_changed_listing_is_refused(
    copied: Path, name: str, change, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_code, "_executable", lambda _: pytest.fail("it was mapped"))
    path = copied / f"{name}.txt"
    change(path)
    with pytest.raises(BackendUnavailable) as refused:
        machine_code._mapped(name)
    assert refused.value.where == str(path)
    assert "machine code" in refused.value.what
    assert "install fqfuse again" in refused.value.hint


@pytest.mark.parametrize("backend", ["onednn", "auto"])
def test_a_session_says_so(library: Library, copied: Path, backend: str) -> None:
    """It does not run the model in another way: an installation that was changed is not ours."""
    if mapped("lstm_kernel", library.effective_isa()) is None:
        pytest.skip("the CPU lacks AVX-512, or the system refuses memory for code")
    constants = {name: np.ones((1, 4 * 16, 16), np.float32) for name in "wr"}
    layer = node("LSTM", ["x", "w", "r"], ["y"], hidden_size=16)
    proto = model([layer], inputs={"x": [2, 1, 16]}, constants=constants)
    x = np.zeros((2, 1, 16), np.float32)
    fqfuse.InferenceSession(proto, backend).run(None, {"x": x})
    flipped(copied / "lstm_kernel.txt")
    with pytest.raises(BackendUnavailable, match="machine code that belongs to fqfuse was changed"):
        fqfuse.InferenceSession(proto, backend).run(None, {"x": x})


def test_listings_are_read_when_they_are_needed() -> None:
    code = """
import pathlib, sys
read = pathlib.Path.read_bytes
opened = []
pathlib.Path.read_bytes = lambda self: opened.append(self) or read(self)
import fqfuse, fqfuse.runtime.lowering.executor
from fqfuse.onednn import machine_code
assert "fqfuse.onednn.coded_kernels" in sys.modules
assert not opened, opened
machine_code.functions("lookup_kernel")
assert [path.name for path in opened] == ["lookup_kernel.txt"]
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", LISTINGS)
def test_not_for_other_cpus(name: str) -> None:
    needs, _ = LISTINGS[name]
    for isa in (CpuIsa.default, CpuIsa.avx2, CpuIsa.avx2_vnni):
        assert (mapped(name, isa) is None) == (needs != CpuIsa.default)
    if needs == CpuIsa.avx512_core_vnni:
        assert mapped(name, CpuIsa.avx512_core) is None


@pytest.mark.parametrize("where", [("sys.platform", "darwin"), ("platform.machine", "aarch64")])
def test_not_on_other_systems(where: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    place, value = where
    module, _, attribute = place.partition(".")
    told = (lambda: value) if attribute == "machine" else value
    monkeypatch.setattr(getattr(machine_code, module), attribute, told)
    for name in LISTINGS:
        assert mapped(name, EVERYTHING) is None


@pytest.mark.usefixtures("copied")
def test_not_where_the_system_refuses_memory_for_code(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        @staticmethod
        def mprotect(*_: object) -> int:
            return -1

    monkeypatch.setattr(machine_code.ctypes, "CDLL", lambda _: Refusing)
    for name in LISTINGS:
        assert mapped(name, EVERYTHING) is None


# -- works -----------------------------------------------------------------------------------------


def test_a_work_takes_its_members_and_no_other_name(library: Library) -> None:
    found = kernels.kernels(library, "recurrent_kernel")
    if found is None:
        pytest.skip("the CPU lacks AVX-512 and VNNI, or the system refuses memory for code")
    work = found.work("quantize", x=3, count=1 << 40)
    assert (work.x, work.count, work.codes) == (3, 1 << 40, 0)
    with pytest.raises(AttributeError):
        found.work("quantize", weights=1)
    with pytest.raises(AttributeError):
        work.weights = 1
    with pytest.raises(TypeError, match="lstm_steps takes another work"):
        found.call("lstm_steps", work)
