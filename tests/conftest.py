"""Fixtures and settings of all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell leaves it for what it runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real measurements, which is not part of the repository."""
    folder = Path(os.environ.get("PERSEUS_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no measured profiles at {folder}; set PERSEUS_SHARED_DATA to their folder")
    return folder
