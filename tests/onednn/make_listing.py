"""Writes the listings of machine code that modules of `onednn/` hold.

    python tests/onednn/make_listing.py SOURCE FUNCTION [-DNAME=VALUE ...]

compiles a source of this folder (block_kernels.c, with -DBITS=4 say) as its head says and prints one
function, an instruction to a line.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

_JUMP = re.compile(r"^(j\w+|call)\s+([0-9a-f]+)\b.*")


def flags(source: Path) -> list[str]:
    """The compiler's options, from the head of a source; what it defines is the caller's choice."""
    head = source.read_text(encoding="utf-8").split("*/", 1)[0]
    return [word for word in head.split() if word.startswith("-") and not word.startswith("-D")]


def listing(source: Path, function: str, *defined: str) -> list[tuple[str, str]]:
    """Machine code in hexadecimal and the same in assembly language, of each instruction."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "kernels.o")
        subprocess.run(["gcc", *defined, *flags(source), source, "-o", made], check=True)
        command = ["objdump", "-M", "intel", "--insn-width=16", f"--disassemble={function}", made]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line.split("\t") for line in shown.splitlines() if line.count("\t") == 2]
    return [_row(int(at.strip(" :"), 16), code, text) for at, code, text in rows]


def _row(at: int, code: str, text: str) -> tuple[str, str]:
    text = " ".join(re.sub(r"[#<].*", "", text).replace(",", ", ").split())
    jump = _JUMP.match(text)
    if jump:  # relative to the address of the instruction itself
        text = f"{jump[1]} .{int(jump[2], 16) - at:+#x}"
    text = re.sub(r"\b[A-Z]+ (PTR|BCST)", lambda found: found[0].lower(), text)
    return code.replace(" ", ""), text


if __name__ == "__main__":
    for row in listing(Path(__file__).with_name(sys.argv[1]), *sys.argv[2:]):
        print(f'    ("{row[0]}", "{row[1]}"),')
