"""Who may import whom. Read from the source, so that a lazy import inside a function counts too."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions

import pytest

from tests.support.source_tree import REPO, imports, modules, path_of, tree_of

NO_TORCH = (
    "core.request",
    "core.config",
    "core.stats",
    "core.events",
    "core.errors",
    "core.paths",
    "core.documents",
    "core.sandbox",
    "core.planning.planner",
    "core.model.shapes",
    "core.model.store.catalogue",
    "core.model.store.download",
    "core.model.store.model_folder",
    "core.model.store.hub",
    "core.model.store.embedded",
)
OPTIONAL = ("flash_attn", "rapidocr", "triton", "webview")  # used when somebody installed them
# that other libraries want to be set: of threads, timers, Gradio's blocks, a loader of modules, an EPUB
FIELDS_OF_LIBRARIES = ("daemon", "value", "head", "config", "exec_module", "main_loop", "toc", "spine")
LONGEST_FILE = 450  # lines; a longer one is a drawer
MOST_IN_ROOT = 10  # modules of core
# what of the devices a model knows: their protocol, who has the other part of it, the layout of codes, how
# numbers get there, and the C library's heap
PROTOCOLS = (
    "core.backend.base",
    "core.backend.ranks",
    "core.backend.shared.quantized",
    "core.backend.shared.transfer",
    "core.backend.shared.heap",
)
# the retrieval cache is also named by what refreshes and measures it
CONCRETE_CACHES = ("core.cache.full", "core.cache.offloaded", "core.cache.streaming")
CONCRETE_BACKENDS = ("core.backend.cpu.backend", "core.backend.cuda.backend")
TORCH_CUDA = ("core.backend.cuda.backend", "core.backend.cuda.streams", "core.hardware.child")


def within(module: str, *packages: str) -> bool:
    """Whether the module is one of the packages or lies in one."""
    return any(module == package or module.startswith(package + ".") for package in packages)


def offenders(importers: list[str], *forbidden: str, allowed: tuple[str, ...] = ()) -> list[str]:
    """`importer -> imported` for every forbidden import."""
    # `from core.cache import base` names the package too
    packages = {name.rpartition(".")[0] for name in allowed}
    return sorted(
        f"{module} -> {name}"
        for module in importers
        for name in imports(module)
        if within(name, *forbidden) and not within(name, *allowed) and name not in packages
    )


def test_core_knows_nothing_of_the_app():
    """core runs without gradio installed and without the app beside it."""
    assert (
        offenders(modules("core"), "app", "gradio", "installer", "launcher", "benchmarks", "tests", "tools")
        == []
    )


def test_only_the_app_imports_gradio():
    """A command without a page must not load it: that costs seconds."""
    users = {line.split(" ")[0] for line in offenders(modules("app", "core", "installer"), "gradio")}
    assert all(within(user, "app") for user in users)


@pytest.mark.parametrize(
    ("package", "forbidden", "allowed"),
    [
        (
            "core.backend",
            ("core.cache", "core.model", "core.decoding", "core.engine", "core.conversation.session"),
            (),
        ),
        ("core.cache", ("core.model", "core.decoding", "core.engine", "core.conversation.session"), ()),
        ("core.model", ("core.cache", "core.backend"), ("core.cache.base", "core.cache.whole", *PROTOCOLS)),
        ("core.model", ("core.documents",), ()),
        (
            "core.sandbox",
            ("core",),
            ("core.errors", "core.events", "core.paths", "core.sandbox", "core.text.packing"),
        ),
        ("core.model", ("core.decoding", "core.engine", "core.conversation.session", "core.worker"), ()),
        (
            "core.decoding",
            ("core.engine", "core.conversation.session", "core.worker", "core.documents", "core.text"),
            ("core.text.words",),
        ),
        (
            "core.documents",
            ("core.model", "core.cache", "core.backend", "core.decoding", "core.engine", "core.text"),
            ("core.text.words", "core.text.packing"),
        ),
        (
            "core.engine",
            ("core.conversation.session", "core.worker", "core.documents", "core.text"),
            ("core.text.words",),
        ),
        ("core.text", ("core.documents", "core.model", "core.conversation", "core.planning"), ()),
        ("core.conversation.session", ("core.worker",), ()),
    ],
)
def test_imports_point_one_way(package: str, forbidden: tuple[str, ...], allowed: tuple[str, ...]):
    """launcher -> app -> session -> engine -> decoding -> model -> the protocols of cache and backend."""
    importers = [module for module in modules("core") if within(module, package)]
    assert importers or not path_of(package).exists()
    assert offenders(importers, *forbidden, allowed=allowed) == []


@pytest.mark.parametrize("package", ["core", "app"])
def test_floors_import_one_another_in_one_direction(package: str):
    """Floors are the folders and the root's modules; a ring of floors is one floor. Types count too."""

    def floor(name: str) -> str:
        return ".".join(name.split(".")[:2])

    below: dict[str, set[str]] = {}
    for module in modules(package):
        found = {floor(name) for name in imports(module, typing=True) if within(name, package)}
        below.setdefault(floor(module), set()).update(found - {floor(module), package})
    tuple(TopologicalSorter(below).static_order())  # CycleError names the ring


def test_modules_of_the_app_import_one_another_in_one_direction():
    """A circle of fourteen files stood here: no one of them could be read, or changed, alone."""
    inside = modules("app")
    below = {one: {name for name in imports(one, typing=True) if name in inside} - {one} for one in inside}
    tuple(TopologicalSorter(below).static_order())  # CycleError names the ring


def test_no_service_knows_how_the_desk_is_put_together():
    """Each is given what it needs: who holds everything may change anything."""
    services = [module for module in modules("app/desk") if module != "app.desk.assembly"]
    known = {
        one: imports(one, typing=True) & {"app.desk.assembly", "app.web", "app.server"} for one in services
    }
    assert {one: names for one, names in known.items() if names} == {}


def test_nothing_assigns_the_fields_of_another_object():
    """A state that anybody may change has no rules; a thread is told that it may be left, and no more."""
    found = []
    for module in modules("app"):
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                owner = ast.unparse(node.value)
                if owner not in ("self", "given") and node.attr not in FIELDS_OF_LIBRARIES:
                    found.append(f"{module}:{node.lineno} {owner}.{node.attr}")
    assert found == []


def test_the_root_of_core_stays_small():
    """Values that every floor may know, the engine and its doors; all else has a folder."""
    root = sorted(path.stem for path in (REPO / "core").glob("[!_]*.py"))
    assert len(root) <= MOST_IN_ROOT, root


def test_nothing_in_core_needs_training():
    """It is a tool beside the runtime: an answer must not load it."""
    assert (
        offenders(
            [module for module in modules("core") if not within(module, "core.training")], "core.training"
        )
        == []
    )


def test_only_the_assembly_picks_caches_and_backends():
    """Anywhere else it would be a second place that decides what runs; the self-test tries each by itself."""
    elsewhere = [module for module in modules("core") if not within(module, "core.assembly", "core.selftest")]
    assert offenders(elsewhere, *CONCRETE_CACHES, *CONCRETE_BACKENDS) == []


def test_torch_cuda_has_two_homes():
    """`torch.cuda` elsewhere would be a path that no machine without a GPU ever runs."""
    found = []
    for module in modules("core", "app"):
        if module in TORCH_CUDA:
            continue
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.cuda":
                found.append(f"{module}:{node.lineno}")
        found += offenders([module], "torch.cuda")
    assert found == []


def test_core_does_not_print():
    """What core has to say goes by events and logging; stdout belongs to the command."""
    found = [
        f"{module}:{node.lineno}"
        for module in modules("core")
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert found == []


def test_documents_config_planner_stats_and_events_load_without_torch():
    """Reading a book or planning for another machine must work where torch is missing or broken."""
    wanted = [module for module in modules("core") if within(module, *NO_TORCH)]
    script = """
import importlib, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "gradio"):
            raise ImportError(name + " is not needed here")

sys.meta_path.insert(0, Blocked())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
    said = subprocess.run(
        [sys.executable, "-c", script, *wanted], cwd=REPO, capture_output=True, text=True, timeout=120
    )
    assert said.returncode == 0, said.stderr


def test_the_launcher_needs_the_standard_library_only():
    """It runs before anything is installed, and its first file on Pythons that are too old for the rest."""
    known = {*sys.stdlib_module_names, "installer"}
    used = {name.split(".")[0] for module in modules("installer") for name in imports(module)} | imports(
        "launcher"
    )
    assert {name.split(".")[0] for name in used} - known == set()
    modern = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef, ast.Match)
    assert [node.lineno for node in ast.walk(tree_of("launcher")) if isinstance(node, modern)] == []
    annotated = [
        node.name
        for node in ast.walk(tree_of("launcher"))
        if isinstance(node, ast.FunctionDef) and node.returns
    ]
    assert annotated == []


def test_no_file_becomes_a_drawer():
    """Files stay readable in one go."""
    files = modules("core", "app", "installer")
    lengths = {name: len(path_of(name).read_text(encoding="utf-8").splitlines()) for name in files}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_every_imported_package_is_required():
    """What is only there because another package pulls it in vanishes with that package's next release."""
    text = (REPO / "requirements.txt").read_text(encoding="utf-8").splitlines()
    required = {
        re.split(r"[<>=!~\[; ]", line)[0].lower().replace("_", "-")
        for line in text
        if line and not line.startswith("#")
    }
    installed = packages_distributions()
    missing = set()
    for module in modules("core", "app"):
        for name in {name.split(".")[0] for name in imports(module)} - {
            *sys.stdlib_module_names,
            "core",
            "app",
            "installer",
            *OPTIONAL,
        }:
            if not required & {owner.lower().replace("_", "-") for owner in installed.get(name, [name])}:
                missing.add(f"{module} -> {name}")
    assert missing == set()


def test_no_test_module_imports_another():
    """What several use lies in tests/support. One drives the tests of others with faults put back."""
    drivers = {"tests.backend.test_faults_put_back"}
    found = {
        f"{module} -> {name}"
        for module in modules("tests")
        if module not in drivers
        for name in imports(module)
        if re.search(r"^tests\..*\b(test_\w+|conftest)$", name) and path_of(name).is_file()
    }
    assert found == set()


def test_no_public_name_stands_in_two_modules():
    """What is searched for by its name is found once. A program's `main` is called by its module's."""
    homes: dict[str, list[str]] = {}
    for module in modules("app", "core", "benchmarks", "installer", "tools"):
        for node in tree_of(module).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    assert {name: where for name, where in homes.items() if len(where) > 1 and name != "main"} == {}
