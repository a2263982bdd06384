"""The browser of this machine, if there is one, for tests of what a page does."""

from __future__ import annotations

import os
import shutil


def chromium() -> str | None:
    """The path of a Chromium; None where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


def launch_options() -> dict[str, object]:
    """How playwright starts it; Chromium refuses its sandbox to root, as containers have it."""
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return {"executable_path": chromium(), "args": arguments}
