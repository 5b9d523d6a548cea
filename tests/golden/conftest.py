import pytest
from reference import Evaluate, Reference


@pytest.fixture(scope="session")
def reference(source_dir, tmp_path_factory):
    return Reference(source_dir / "tests" / "golden" / "model", tmp_path_factory.mktemp("reference"))


@pytest.fixture
def evaluate(espalier_bin, tmp_path):
    return Evaluate(espalier_bin, tmp_path)
