"""A bug in fqfuse: exit code 3, one message, where the graph was saved, and a traceback only on
request.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fqfuse.cli.errors import exit_code_of
from fqfuse.errors import InternalError, InvalidInput


def raising(error: BaseException):
    def action() -> None:
        raise error

    return action


def test_an_internal_error_names_the_saved_graph(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FQFUSE_TRACEBACK", raising=False)
    assert (
        exit_code_of(raising(InternalError("a value has no producer", "graph.txt")), as_json=False)
        == 3
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "internal error: a value has no producer",
        "  saved: graph.txt",
        "  fix:   this is a bug in fqfuse: run the command again with FQFUSE_TRACEBACK=1, and report what it prints",
    ]


def test_an_unexpected_exception_names_its_place(
    call, monkeypatch: pytest.MonkeyPatch, plan: Path
) -> None:
    monkeypatch.setattr("fqfuse.report.text.steps_part", None)
    result = call("inspect", plan, "--steps")
    assert result.exit_code == 3
    assert result.stdout == ""
    first, second, third = result.stderr.splitlines()
    assert first == "internal error: TypeError: 'NoneType' object is not callable"
    assert second.startswith("  where: fqfuse.report.text, line ")
    assert "FQFUSE_TRACEBACK=1" in third


@pytest.mark.parametrize(
    ("error", "code"),
    [(InternalError("broken"), 3), (ValueError("odd"), 3), (InvalidInput("no"), 2)],
    ids=str,
)
def test_a_traceback_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    monkeypatch.setenv("FQFUSE_TRACEBACK", "1")
    assert exit_code_of(raising(error), as_json=False) == code
    assert capsys.readouterr().err.startswith("Traceback (most recent call last):")
    monkeypatch.setenv("FQFUSE_TRACEBACK", "0")
    assert exit_code_of(raising(error), as_json=False) == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_bug_as_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(raising(InternalError("broken", "graph.txt")), as_json=True) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 3
    assert document["error"]["kind"] == "InternalError"
    assert document["error"]["saved"] == "graph.txt"


def test_what_is_neither_bug_nor_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(raising(KeyboardInterrupt()), as_json=False) == 130
    assert capsys.readouterr().err == "error: interrupted\n"
    assert exit_code_of(raising(MemoryError("Unable to allocate 3 TiB")), as_json=False) == 2
    assert "Unable to allocate 3 TiB" in capsys.readouterr().err
    assert exit_code_of(lambda: 1, as_json=False) == 1
    assert exit_code_of(lambda: None, as_json=False) == 0
    with pytest.raises(SystemExit):
        exit_code_of(raising(SystemExit(5)), as_json=False)
