"""What every cross-folder test needs: the root of the tree and the program under test."""
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def source_dir():
    return ROOT


@pytest.fixture(scope="session")
def espalier_bin():
    """The release binary; ESPALIER_BIN names another one. Missing is a failure, not a skip."""
    path = Path(os.environ.get("ESPALIER_BIN", ROOT / "build" / "release" / "espalier"))
    assert path.is_file(), f"{path} does not exist: run ./dev build, or set ESPALIER_BIN"
    return path
