"""Holds who may import whom, and what each kind of installation needs at import, read from the source."""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parents[2]
FRONT = "siltlog"
ROOMS = ("infra", "ingest", "consumers", "pipelines")
IMPORTING = ("import_module", "__import__")
TOP_LEVEL = re.compile(rf"(?<![\w./])(?:{'|'.join(ROOMS)})\b")
"""What stands in the text of whoever imports a room under its own name."""
MAY_IMPORT = {
    "infra": {"infra"},
    "ingest": {"infra", "ingest"},
    "consumers": {"infra", "consumers"},
    "pipelines": {"infra", "pipelines"},
    FRONT: {*ROOMS, FRONT},
}
INNER = {
    "infra": {
        "arrow": set(),
        "json": set(),
        "kafka": {"arrow", "store"},
        "listing": set(),
        "process": set(),
        "store": set(),
        "table": {"arrow", "settings", "store"},
        "redis": {"process"},
        "metrics": {"store"},
        "deploy": set(),
        "tracing": set(),
        "security": {"metrics", "store"},
        "http": {"metrics", "security"},
        "peers": {"client", "cluster", "http", "security"},
        "grpc": {"http", "security"},
        "settings": {"process", "redis", "security"},
        "client": {"arrow", "settings"},
        "cluster": {"store"},
        "sql": set(),
    },
    "ingest": {
        "records": set(),
        "wal": set(),
        "journal": {"wal"},
        "producers": {"records"},
        "log": {"journal", "producers", "records", "wal"},
        "flush": {"log", "records"},
        "ownership": {"flush", "journal", "log", "producers", "records", "wal"},
        "topics": {"log", "producers"},
        "publish": {"log", "producers", "records", "topics"},
        "library": set(),
    },
    "consumers": {
        "reading": set(),
        "kafka": {"groups", "reading"},
        "keeping": {"reading"},
        "groups": {"keeping", "reading"},
        "dead_letters": {"groups", "reading"},
        "push": {"groups", "reading"},
        "searching": {"reading"},
        "sql": {"reading"},
        "remote": {"reading"},
        "library": set(),
    },
    "pipelines": {
        "sql": set(),
        "spark": {"sql"},
        "compaction": {"spark"},
        "setup": {"compaction", "spark"},
        "replay": {"compaction", "spark"},
        "export": {"replay"},
        "retention": {"replay"},
        "erasure": {"replay", "retention"},
        "audit": set(),
        "catalog": set(),
        "backup": {"audit"},
        "schedule": {"compaction", "spark"},
    },
    FRONT: {
        "openapi": set(),
        "server": {"openapi", "ui"},
        "ui": set(),
        "demo": set(),
        "doctor": {"server"},
        "spark": set(),
        "testing": set(),
        "cli": {"demo", "doctor", "server"},
    },
}
"""Room -> inner room -> the inner rooms beside it that it may import. What lies at the top of a room either imports
none of them, and all may import it, or joins them, and none of them imports it."""
NEED_GRPC = "siltlog.infra.grpc"
"""What is imported where gRPC is asked for: the server starts without it."""
EDGE = ("http", "publish.callers", "publish.exchange", "publish.fast", "publish.reply", "publish.traced")
"""How the modules end that translate requests into values; no other of `ingest` reaches a web framework."""
NEED_SQL = {"siltlog.infra.sql.dialect", "siltlog.infra.sql.files", "siltlog.consumers.sql.child"}
"""What is imported in the process of a query, or where DuckDB is asked for: the server starts without it."""
MODULES_MAX = 17
"""A folder has so many, its `__init__` not counted: past that it wants inner rooms."""

# pytest loads the plugin, so pytest is there.
OUTSIDE_EXTRAS = {"siltlog.pytest_plugin": {"pytest"}}
# Of what `opening` imports where traces are on, once it has seen that OpenTelemetry is there.
OUTSIDE_EXTRAS |= {
    f"siltlog.infra.tracing.{name}": {"opentelemetry"}
    for name in ("context", "draw", "processing", "provider", "sending", "serving")
}
# What `make native` builds: it goes on without.
OUTSIDE_EXTRAS["siltlog.infra.kafka.native"] = {"siltlog_native"}
# Of the standard library, whichever version this runs on: `compression` came with Python 3.14.
STANDARD = sys.stdlib_module_names | {"compression"}


class Import(NamedTuple):
    target: str  # module as written; for `from a import b` both `a` and `a.b`
    line: int
    eager: bool  # runs when the importing module is imported
    typing: bool  # under `if TYPE_CHECKING`: never runs


class Tree:
    """The modules below `top`, under the names they are imported by, and their imports."""

    def __init__(self, top: Path) -> None:
        self.paths = dict(_modules(top))
        self.imports = {name: _imports(name, path) for name, path in self.paths.items()}

    def ours(self, found: Import) -> bool:
        return found.target.split(".")[0] == FRONT

    def closure(self, roots: Iterable[str]) -> set[str]:
        """Every module of ours that importing the roots runs, the packages above each included."""
        seen: set[str] = set()
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self.paths:
                continue
            seen.add(name)
            parts = name.split(".")
            waiting += [".".join(parts[:end]) for end in range(1, len(parts))]
            waiting += [found.target for found in self.imports[name] if found.eager and self.ours(found)]
        return seen

    def foreign(self, name: str, *, eager_only: bool) -> Iterator[tuple[str, int]]:
        """Top-level names of the third-party packages that a module imports, with the line."""
        for found in self.imports[name]:
            package = found.target.split(".")[0]
            wanted = found.eager or not (eager_only or found.typing)
            if wanted and package != FRONT and package not in STANDARD:
                yield package, found.line


def _modules(top: Path) -> Iterator[tuple[str, Path]]:
    for folder, prefix in ((FRONT, FRONT), *((room, f"{FRONT}.{room}") for room in ROOMS)):
        links = {top / folder / room for room in ROOMS} if folder == FRONT else set()
        for path in sorted((top / folder).rglob("*.py")):
            if links.isdisjoint(path.parents):
                parts = path.relative_to(top / folder).with_suffix("").parts
                yield ".".join([prefix, *(parts[:-1] if parts[-1] == "__init__" else parts)]), path


def _imports(name: str, path: Path) -> list[Import]:
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found: list[Import] = []
    # An expression, as most of a module is, imports by a call alone.
    calls = any(name in path.read_text("utf-8") for name in IMPORTING)

    def visit(node: ast.AST, eager: bool, typing: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, eager, typing) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            targets = (base, *(f"{base}.{alias.name}" for alias in node.names))
            found.extend(Import(target, node.lineno, eager, typing) for target in targets)
        elif isinstance(node, ast.Call) and _called(node) in IMPORTING:
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    found.append(Import(argument.value, node.lineno, eager, typing))
        inner_eager = eager and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        guard = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for field, value in ast.iter_fields(node):
            under_guard = guard and field == "body"
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and (calls or not isinstance(child, ast.expr)):
                    visit(child, inner_eager and not under_guard, typing or under_guard)

    visit(parsed(path), True, False)
    return found


def _called(call: ast.Call) -> str:
    """The last name of what is called; empty where it has none."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else FRONT


def layering_problems(tree: Tree) -> list[str]:
    problems = []
    for name, imports in tree.imports.items():
        allowed = MAY_IMPORT[room_of(name)]
        for found in imports:
            if found.target.split(".")[0] in ROOMS:
                problems.append(f"{name}:{found.line} imports {found.target} as a top-level package")
            # `from siltlog import x` names the front door too, but only runs its lazy `__init__`.
            elif tree.ours(found) and found.target != FRONT and room_of(found.target) not in allowed:
                problems.append(f"{name}:{found.line} imports {found.target}")
    return problems


def inner_room_of(module: str) -> str:
    """The inner room that a module lies in; empty for what lies at the top of its room."""
    parts = module.split(".")[2 if room_of(module) != FRONT else 1 :]
    return parts[0] if parts and parts[0] in INNER[room_of(module)] else ""


def inner_folders(tree: Tree) -> set[tuple[str, str]]:
    """The inner rooms there are: folders right below a room."""
    tops = {FRONT: TOP / FRONT, **{room: TOP / room for room in ROOMS}}
    found = {(room_of(name), path.relative_to(tops[room_of(name)]).parts) for name, path in tree.paths.items()}
    return {(room, parts[0]) for room, parts in found if len(parts) > 1}


def inner_problems(tree: Tree) -> list[str]:
    problems = []
    joins = {
        name
        for name, imports in tree.imports.items()
        if not inner_room_of(name) and any(_within(name, found) and inner_room_of(found.target) for found in imports)
    }
    for name, imports in tree.imports.items():
        inner = inner_room_of(name)
        if not inner:
            continue
        for found in imports:
            if not _within(name, found) or found.target not in tree.paths:
                continue
            other = inner_room_of(found.target)
            if other not in {"", inner, *INNER[room_of(name)][inner]} or found.target in joins:
                problems.append(f"{name}:{found.line} imports {found.target}")
    return problems


def _within(name: str, found: Import) -> bool:
    """Whether a module is imported by another of the same room; a package above both does not count."""
    return (
        found.target.split(".")[0] == FRONT
        and room_of(found.target) == room_of(name)
        and found.target not in (FRONT, f"{FRONT}.{room_of(name)}")
    )


def install_problems(tree: Tree, roots: Iterable[str], packages: set[str]) -> list[str]:
    """Packages beyond `packages` that importing the roots would need."""
    return [
        f"{name}:{line} imports {package}"
        for name in sorted(tree.closure(roots))
        for package, line in tree.foreign(name, eager_only=True)
        if package not in packages | OUTSIDE_EXTRAS.get(name, set())
    ]


def import_names(*extras: str) -> set[str]:
    """What an installation with these extras can import: the requirements of the project and theirs in turn."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
    options = project["optional-dependencies"]
    waiting = [Requirement(text) for text in project["dependencies"]]
    waiting += [Requirement(text) for extra in extras for text in options[extra]]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        name, chosen = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if (name, chosen) in seen:
            continue
        seen.add((name, chosen))
        if name == project["name"]:
            waiting += [Requirement(text) for extra in chosen for text in options[extra]]
            continue
        try:
            theirs = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:
            continue  # for another platform
        waiting += [
            each for each in theirs
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in (*chosen, ""))
        ]  # fmt: skip
    distributions = {name for name, _ in seen}
    return {
        top
        for top, providers in packages_distributions().items()
        if distributions & {canonicalize_name(provider) for provider in providers}
    }


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(TOP)


def test_rooms_import_only_what_they_may(tree: Tree) -> None:
    assert {room_of(name) for name in tree.paths} == {FRONT, *ROOMS}
    assert layering_problems(tree) == []


def test_inner_rooms_import_only_what_they_may(tree: Tree) -> None:
    assert inner_folders(tree) == {(room, inner) for room, inners in INNER.items() for inner in inners}
    assert inner_problems(tree) == []


def test_what_inner_rooms_may_import_has_no_circle() -> None:
    for inners in INNER.values():
        TopologicalSorter(inners).prepare()


def test_the_core_knows_no_web_framework(tree: Tree) -> None:
    core = [
        name
        for name in tree.paths
        if room_of(name) == "ingest" and inner_room_of(name) not in ("", "library") and not name.endswith(EDGE)
    ]
    for name in tree.closure(core) - {FRONT}:
        web = {package for package, _ in tree.foreign(name, eager_only=False)} & {"starlette", "uvicorn", "httptools"}
        assert not web, f"{name} imports {web}"


OWNED = {
    "siltlog.ingest.log.topic": ("topic",),
    "siltlog.ingest.log.partition": ("partition", "log"),
    "siltlog.ingest.log.log": ("log",),
    "siltlog.ingest.log.topic_logs": ("topic_logs", "topics"),
    "siltlog.ingest.log.admission": ("admission",),
    "siltlog.ingest.log.group_commit": ("group_commit",),
    "siltlog.ingest.flush.flusher": ("flusher",),
    "siltlog.ingest.flush.retries": ("retries",),
    "siltlog.ingest.publish.exchange": ("exchange",),
    "siltlog.ingest.publish.fast": ("fast", "publishes"),
    "siltlog.ingest.wal.wal": ("wal",),
    "siltlog.infra.http.draining": ("draining",),
    "siltlog.infra.http.door": ("door",),
    "siltlog.infra.http.memory": ("in_flight", "held", "memory"),
    "siltlog.infra.http.streams": ("streams",),
    "siltlog.infra.security.origins": ("origins",),
    "siltlog.infra.http.connection.connections": ("connections",),
    "siltlog.infra.http.connection.crowd": ("crowd",),
    "siltlog.infra.http.connection.web_socket": ("socket",),
}
"""Modules whose classes alone change their fields, and the names that their objects go by elsewhere: there one may look
at them."""
ASSEMBLIES = ("assembly", "server.wiring", "server.protocols", "server.drain")
"""How the modules end that join components: all that a component needs is an argument of its constructor."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def fields_of(path: Path) -> set[str]:
    """What the constructors of a module's classes assign to `self`."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            found |= {target.attr for target in _assigned(node) if ast.unparse(target.value) == "self"}
    return found


def _assigned(node: ast.AST) -> Iterator[ast.Attribute]:
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each


@cache
def assigned_in(path: Path) -> list[ast.Attribute]:
    return list(_assigned(parsed(path)))


def assigned_through_another(path: Path, fields: set[str], owners: tuple[str, ...]) -> list[str]:
    return [
        f"{path.name}:{target.lineno} {ast.unparse(target)}"
        for target in assigned_in(path)
        if target.attr in fields and ast.unparse(target.value).split(".")[-1].lstrip("_") in owners
    ]


def test_a_component_changes_by_its_own_methods_alone(tree: Tree) -> None:
    fields = {name: fields_of(tree.paths[name]) for name in OWNED}
    assert {"availability", "open_commit", "offsets", "state_offset"} <= set().union(*fields.values())
    # What the WAL keeps of a topic has fields of the same names, and is no topic; the client has logs of its own.
    others = [
        path
        for name, path in tree.paths.items()
        if room_of(name) in ("infra", "ingest", "consumers", FRONT) and name != "siltlog.ingest.log.state"
    ]
    found = [
        hit
        for name, owners in OWNED.items()
        for path in others
        for hit in assigned_through_another(path, fields[name], owners)
    ]
    assert found == []


def test_an_assembly_sets_nothing_afterwards(tree: Tree) -> None:
    joins = {name: path for name, path in tree.paths.items() if name.endswith(ASSEMBLIES)}
    assert {"siltlog.consumers.assembly", "siltlog.server.wiring"} <= joins.keys()
    found = [
        f"{path.name}:{target.lineno} {ast.unparse(target)}"
        for path in joins.values()
        for target in assigned_in(path)
        if ast.unparse(target.value) != "self"
    ]
    assert found == []


def test_no_folder_is_a_hall(tree: Tree) -> None:
    counts = Counter(path.parent.relative_to(TOP).as_posix() for path in tree.paths.values() if path.stem != "__init__")
    assert {folder: count for folder, count in counts.items() if count > MODULES_MAX} == {}


def test_nobody_imports_a_room_as_a_top_level_package() -> None:
    found = []
    for folder in ("tests", "benchmarks", "notebooks", "docs"):
        for path in sorted((TOP / folder).rglob("*.py")):
            imports = _imports("outside", path) if TOP_LEVEL.search(path.read_text("utf-8")) else []
            if {each.target.split(".")[0] for each in imports} & set(ROOMS):
                found.append(str(path.relative_to(TOP)))
    assert found == []


def base_modules(tree: Tree) -> set[str]:
    """Where publishing and consuming live: the client, what `siltlog` re-exports, the command line's core, fakes."""
    roots = {FRONT, "siltlog.cli.main", "siltlog.pytest_plugin", "siltlog.testing"}
    client = ("siltlog.infra.client", "siltlog.ingest.library", "siltlog.consumers.library")
    roots |= {name for name in tree.paths if name.startswith(client)}
    # The lazy names of the front door: modules that its source names, in strings or for the type checker.
    source = tree.paths[FRONT].read_text("utf-8")
    roots |= set(re.findall(r"siltlog\.(?:infra\.client|ingest|consumers)[\w.]*", source)) & set(tree.paths)
    return roots


def test_the_base_install_needs_no_server_and_no_spark(tree: Tree) -> None:
    base = import_names()
    assert {"click", "msgspec", "pyarrow"} <= base
    assert base.isdisjoint({"pyspark", "pydantic", "redis", "deltalake", "uvicorn", "boto3"})
    assert install_problems(tree, base_modules(tree), base) == []


def test_the_public_names_live_in_modules_of_the_base_install(tree: Tree) -> None:
    import siltlog

    lived_in = {getattr(getattr(siltlog, name), "__module__", FRONT) for name in siltlog.__all__}
    assert install_problems(tree, lived_in, import_names()) == []


def test_the_server_needs_no_spark(tree: Tree) -> None:
    server = import_names("server")
    assert "pyspark" not in server
    rooms = {name for name in tree.paths if room_of(name) in ("infra", "ingest", "consumers")}
    grpc = {name for name in tree.paths if name.startswith((NEED_GRPC, "siltlog.server.grpc"))}
    assert install_problems(tree, {*(rooms - NEED_SQL - grpc), "siltlog.server.wiring"}, server) == []
    assert install_problems(tree, rooms - grpc, import_names("sql")) == []
    assert install_problems(tree, grpc, import_names("grpc")) == []


def test_every_import_is_a_declared_dependency(tree: Tree) -> None:
    declared = import_names("async", "server", "otel", "sql", "grpc", "spark", "demo", "notebook")
    undeclared = [
        f"{name}:{line} imports {package}"
        for name in sorted(tree.paths)
        for package, line in tree.foreign(name, eager_only=False)
        if package not in declared | OUTSIDE_EXTRAS.get(name, set())
    ]
    assert undeclared == []


def test_what_must_not_be_is_found(tmp_path: Path) -> None:
    for package in (FRONT, "infra/client", *ROOMS):
        folder = tmp_path / package
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
    for room in ROOMS:
        (tmp_path / FRONT / room).symlink_to(f"../{room}")
    sources = {
        "infra/door.py": "from siltlog.ingest import wal\nfrom ..consumers import view\nfrom siltlog import server\n",
        "infra/redis_store.py": "import redis\n",
        "infra/client/core.py": "from siltlog.infra import redis_store\n",
        "infra/client/lazy.py": (
            "from typing import TYPE_CHECKING\nimport msgspec\nif TYPE_CHECKING:\n    import redis\n"
            "def connect():\n    import pyspark\n    from siltlog.infra import redis_store\n"
        ),
        "ingest/wal.py": "class Wal:\n    import siltlog.pipelines.plan\ndef f():\n    import consumers.view\n",
        "consumers/view.py": "import importlib\nimportlib.import_module('siltlog.ingest.wal')\n",
        "pipelines/plan.py": "import siltlog.infra.door, pyspark\n",
        "siltlog/server.py": "from siltlog.ingest import wal\nfrom . import consumers\n",
    }
    for path, source in sources.items():
        (tmp_path / path).write_text(source, "utf-8")
    tree = Tree(tmp_path)

    assert sorted(layering_problems(tree)) == [
        "siltlog.consumers.view:2 imports siltlog.ingest.wal",
        "siltlog.infra.door:1 imports siltlog.ingest",
        "siltlog.infra.door:1 imports siltlog.ingest.wal",
        "siltlog.infra.door:2 imports siltlog.consumers",
        "siltlog.infra.door:2 imports siltlog.consumers.view",
        "siltlog.infra.door:3 imports siltlog.server",
        "siltlog.ingest.wal:2 imports siltlog.pipelines.plan",
        "siltlog.ingest.wal:4 imports consumers.view as a top-level package",
    ]
    base = {"msgspec"}
    assert install_problems(tree, ["siltlog.infra.client.core"], base) == ["siltlog.infra.redis_store:1 imports redis"]
    assert install_problems(tree, ["siltlog.infra.client.lazy"], base) == []
    # By way of ingest, whose class body imports the plan.
    assert install_problems(tree, ["siltlog.server"], base) == ["siltlog.pipelines.plan:1 imports pyspark"]
    lazily = {package for package, _ in tree.foreign("siltlog.infra.client.lazy", eager_only=False)}
    assert lazily == {"msgspec", "pyspark"}
