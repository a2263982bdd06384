"""Writes the listings of machine code that lie in `onednn/listings/`.

    python tests/onednn/make_listing.py [NAME ...]

compiles the source of each listing (block_kernels.c with -DBITS=4 for block_kernels_4; all of them
without a name) as its head says, and prints the digests that `onednn/machine_code.py` holds.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / "onednn" / "listings"

_HEAD = """\
# {source}{defined}, by gcc {version}: see tests/onednn/make_listing.py
# Of each function: its name, and if rdi is the address of a work, what that holds, in words of 64 bits. Then, line
# by line, the offset, the machine code, and the same in Intel syntax; jumps name an offset.
"""
_JUMP = re.compile(r"^(j\w+|call)\s+([0-9a-f]+)\b.*")
_MEMBER = re.compile(r"(\w+)\)?(?:\[[^\]]*\])?$")


def listing(name: str) -> str:
    """The text of one listing."""
    source, defined = source_of(name)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "kernels.o")
        subprocess.run(["gcc", *defined, *_flags(source), source, "-o", made], check=True)
        command = ["objdump", "-M", "intel", "--insn-width=16", "-d", made]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "[rip" in shown:
        raise SystemExit(
            f"{name}: a constant lies outside of the code, which is all that is mapped"
        )
    head = _HEAD.format(
        source=source.name, defined="".join(f" {d}" for d in defined), version=compiler()
    )
    return head + "".join(_lines(shown, source.read_text(encoding="utf-8")))


def source_of(name: str) -> tuple[Path, list[str]]:
    """The source of a listing, and what is defined: `x_4` is x.c for codes of 4 bits."""
    stem, bits = re.fullmatch(r"(\w+?)(?:_(\d+))?", name).groups()
    (source,) = (path for path in HERE.glob(f"{stem}.*") if path.suffix in (".c", ".s"))
    return source, [f"-DBITS={bits}"] if bits else []


def compiler() -> str:
    """The version of gcc: what it makes of a source differs from one to the next."""
    command = ["gcc", "-dumpfullversion"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _flags(source: Path) -> list[str]:
    """The compiler's options, from the head of a source."""
    head = source.read_text(encoding="utf-8").split("*/", 1)[0]
    return [word for word in head.split() if word.startswith("-") and not word.startswith("-D")]


def _lines(shown: str, source: str) -> list[str]:
    """What objdump shows, by functions."""
    found = []
    for line in shown.splitlines():
        if function := re.fullmatch(r"([0-9a-f]+) <(\w+)>:", line):
            start = int(function[1], 16)
            found.append("\n" + " ".join([function[2], *_members(source, function[2])]) + "\n")
        elif line.count("\t") == 2:
            at, code, text = line.split("\t")
            found.append(_line(int(at.strip(" :"), 16) - start, code, _plain(text, start)))
    return found


def _line(at: int, code: str, text: str) -> str:
    return f"{at:6x}  {code.replace(' ', ''):<22}  {text}\n"


def _plain(text: str, start: int) -> str:
    text = " ".join(re.sub(r"[#<].*", "", text).replace(",", ", ").split())
    if jump := _JUMP.match(text):
        text = f"{jump[1]} {int(jump[2], 16) - start:#x}"
    return re.sub(r"\b[A-Z]+ (PTR|BCST)", lambda found: found[0].lower(), text)


def _members(source: str, function: str) -> list[str]:
    """The members of the structure at the address that a function of a C source takes."""
    taken = re.search(rf"^(?:void|int) {function}\((\w+) \*\w+\)", source, flags=re.MULTILINE)
    if taken is None:
        return []
    body = re.search(rf"typedef struct \{{([^}}]*)\}} {taken[1]};", source)[1]
    found = []
    for members in filter(None, map(str.strip, body.split(";"))):
        first, *others = members.split(",")
        assert "*" in first or first.startswith("int64_t"), "no word of 64 bits"
        found += [_MEMBER.search(member.strip())[1] for member in (first, *others)]
    return found


if __name__ == "__main__":
    for each in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.txt")):
        made = listing(each).encode("ascii")
        (FOLDER / f"{each}.txt").write_bytes(made)
        print(f'"{each}": "{hashlib.sha256(made).hexdigest()}",')
