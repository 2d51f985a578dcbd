"""What every test stands on: its own data folder, bounded threads, the real books, and the embedded model
fetched once.
"""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from core.backend.cpu.threads import bound_spinning

REPO = Path(__file__).resolve().parent.parent

pytest_plugins = ("tests.tiers", "tests.closing")

# before anything imports torch: its threads would wait for each other over tensors as small as those of tests
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
bound_spinning()
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: who looks for cycles, as closing a context does, need
    not walk through it each time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _session_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Session-wide fixtures must not reach the developer's own data folder either."""
    os.environ["TRIFORCE_HOME"] = str(tmp_path_factory.mktemp("session-home"))


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_is_heard() -> None:
    """A shell's background job ignores it, and so would every process that a test starts."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's own, empty data folder (TRIFORCE_HOME)."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("TRIFORCE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real and hostile books: TRIFORCE_TEST_DATA, else ../shared/data beside the repository,
    else skip.
    """
    named = os.environ.get("TRIFORCE_TEST_DATA")
    if named:
        assert Path(named).is_dir(), f"TRIFORCE_TEST_DATA names {named}, which is not a folder"
        return Path(named)
    beside = REPO.parent / "shared" / "data"
    if not beside.is_dir():
        pytest.skip(
            f"no test books: set TRIFORCE_TEST_DATA to a folder with books/ and hostile/ (looked in {beside})"
        )
    return beside


@pytest.fixture(scope="session")
def embedded_model_dir() -> Path:
    """The embedded model, real weights. Fetched and made once per adapter, kept between runs.

    TRIFORCE_TEST_CACHE moves the folder it is kept in.
    """
    import platformdirs

    from core.model.store.embedded import ADAPTER_SHA256, FORMAT, ensure_embedded

    kept = os.environ.get("TRIFORCE_TEST_CACHE") or platformdirs.user_cache_dir(
        "triforce-chat-tests", appauthor=False
    )
    made = hashlib.sha256(f"{ADAPTER_SHA256} {FORMAT}".encode()).hexdigest()
    return ensure_embedded(models_dir=Path(kept) / f"embedded-{made[:12]}")


@pytest.fixture(scope="session")
def put_embedded_model(embedded_model_dir: Path) -> Callable[[Path], Path]:
    """A function that gives a data folder the embedded model (linked, else copied), for tests that start
    whole processes.
    """

    def put(data_folder: Path) -> Path:
        models = data_folder / "models"
        models.mkdir(parents=True, exist_ok=True)
        target = models / embedded_model_dir.name
        try:
            target.symlink_to(embedded_model_dir, target_is_directory=True)
        except OSError:  # Windows without developer mode
            shutil.copytree(embedded_model_dir, target)
        return target

    return put


@pytest.fixture
def home_with_model(home: Path, put_embedded_model: Callable[[Path], Path]) -> Path:
    """The test's data folder, with the embedded model in it: `ensure_embedded` finds it and touches no
    network.
    """
    put_embedded_model(home)
    return home
