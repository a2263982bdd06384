"""Runs a program in a terminal of its own."""

from __future__ import annotations

import os
import re
import struct
import subprocess

import pytest

termios = pytest.importorskip("termios", reason="terminals of this kind are POSIX")
import fcntl  # noqa: E402
import pty  # noqa: E402

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def in_terminal(width: int, *command: object) -> tuple[int, str]:
    """Runs a command in a terminal; (exit code, everything that it showed)."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    clean = {
        key: value
        for key, value in os.environ.items()
        if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    }
    environment = {**clean, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        list(map(str, command)), stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            chunk = os.read(master, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(master)
    return process.wait(timeout=60), shown.decode().replace("\r\n", "\n")
