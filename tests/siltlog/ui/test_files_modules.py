"""The modules of the page by themselves: those that are pure, and the types of all."""

import json
from pathlib import Path

import pytest
from node_modules import compiler, copied, needs_node, run

OPTIONS = {
    "noEmit": True,
    "allowJs": True,
    "checkJs": True,
    "strict": True,
    "noUnusedLocals": True,
    "noImplicitReturns": True,
    "skipLibCheck": True,
    "target": "es2024",
    "module": "esnext",
    "moduleResolution": "bundler",
    "lib": ["es2024", "dom", "dom.iterable", "dom.asynciterable"],
    "types": [],
}

pytestmark = [pytest.mark.client, pytest.mark.timeout(320), needs_node]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("node"))


def test_pure_modules_hold_in_node(page: Path) -> None:
    tests = sorted((page / "tests").glob("*.test.js"))
    assert tests
    done = run(page, "--test", *tests)
    assert done.returncode == 0, done.stdout[-6_000:]


def test_types_are_as_the_modules_say(page: Path) -> None:
    program = compiler()
    (page / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS, "files": ["app/main.js"]}))
    done = run(page, program, "-p", page)
    assert done.stdout == ""
    assert done.returncode == 0
