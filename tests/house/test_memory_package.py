"""The package of `docs/memory-providers.md` is built, installed, configured, used in chats, and put under suites."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from gateway import protocols
from gateway.app.gateway import Gateway
from gateway.config import Config
from gateway.config.file import load_config
from gateway.config.memory_kinds import PACKAGES, load_memory_kind
from gateway.testing import memory as suites
from tests.scenarios.process import Ethos
from tests.servers import postgres

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "memory-providers.md").read_text(encoding="utf-8")
# Each block of code begins with the name of its file.
_BLOCK = re.compile(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = dict(_BLOCK.findall(PAGE))
YAML = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
# What stands first in the rows of the first table, but for the package of the page.
CHOICES = [
    choice
    for choice in re.findall(
        r"^\| `(.+?)` \|", PAGE.partition("| `provider` | where")[2].partition("\n\n")[0], re.MULTILINE
    )
    if "acme" not in choice
]
ACME = "web: {port: 0}\nmemory:\n  provider: {kind: acme_memory.provider, url: '${ACME_URL}', table: notes}\n"
BY_HAND = "web: {port: 0}\nmemory:\n  provider: {erasure: by_hand}\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, in a directory of their own."""
    directory = tmp_path_factory.mktemp("acme")
    for name, code in {**BLOCKS, "src/acme_memory/__init__.py": ""}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def installed(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed, from its wheel; both without a network."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    build = "import hatchling.build as b, sys; b.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, wheels], check=True, cwd=project, capture_output=True)
    [wheel] = wheels.iterdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", site, wheel], check=True, cwd=project)
    return site


@pytest.fixture
def database(postgres_server: postgres.PostgresServer) -> str:
    """The address of a database of its own."""
    name = f"t{uuid4().hex[:12]}"
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return postgres_server.url(name)


@pytest.fixture
def environment(installed: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)])}


@pytest.fixture
def ethos(tmp_path: Path, environment: dict[str, str]) -> Iterator[Ethos]:
    runner = Ethos(tmp_path / "home", environment)
    runner.environment["ETHOS_HOME"] = str(runner.home)
    yield runner
    runner.close()


def markdown_files(home: Path) -> list[Path]:
    return [*home.rglob("USER.md"), *home.rglob("MEMORY.md")]


def configured(provider: str, home: Path) -> Config:
    """The configuration with this choice; no server answers at its addresses."""
    (home / "config.yaml").write_text(f"memory:\n  provider: {provider}\n")
    environment = {"MEMORY_URL": "postgresql://127.0.0.1:9/x", "DAV_PASSWORD": "p"}
    return load_config(home / "config.yaml", environment=environment).config


# ---- the page -------------------------------------------------------------------------------------------------------


def test_the_page_shows_every_file_of_the_package() -> None:
    modules = {"dictionary", "tables", "postgres", "editable", "provider"}
    others = {"my_gateway.py", "test_acme_memory.py", "pyproject.toml"}
    assert set(BLOCKS) == {f"src/acme_memory/{name}.py" for name in modules} | others
    assert PAGE.count("```python\n") + PAGE.count("```toml\n") == len(BLOCKS), "a block does not name its file"


def test_the_providers_of_the_page_are_as_short_as_it_says() -> None:
    def lines(name: str) -> int:
        return sum(
            bool(line.strip()) for line in BLOCKS[f"src/acme_memory/{name}.py"].partition("\nclass ")[2].split("\n")
        )

    assert lines("dictionary") <= 25
    assert lines("postgres") <= 45


def test_the_page_names_all_that_the_contract_has_and_every_suite() -> None:
    """What is not on the page, nobody who follows it will use."""
    first = inspect.getsource(protocols).partition("# ---- memory ---")[0].count("\n")
    small = {
        name: one
        for name, one in vars(protocols).items()
        if getattr(one, "_is_runtime_protocol", False) and inspect.getsourcelines(one)[1] > first
    }
    methods = {method for one in small.values() for method in vars(one) if not method.startswith("_")}
    lent = {field.name for field in dataclasses.fields(protocols.MemoryServices)}
    suited = {name for name in vars(suites) if name.endswith("Suite")}
    assert len(small) > 6
    assert suited
    assert not [
        name for name in {*small, *methods, *lent, *suited} - {"MemorySuite", "AsyncSuite"} if f"`{name}`" not in PAGE
    ]


@pytest.mark.parametrize("kind", PACKAGES.known())
def test_the_page_has_every_kind_with_all_its_keys(kind: str) -> None:
    part = PAGE.partition(f"\n### `{kind}`\n")[2].partition("\n### ")[0]
    assert part
    assert [key for key in load_memory_kind(kind).config.model_fields if f"`{key}`" not in part] == []


@pytest.mark.parametrize("provider", CHOICES)
def test_a_choice_of_the_page_can_be_configured(provider: str, tmp_path: Path) -> None:
    assert configured(provider, tmp_path).memory.provider.kind in provider


def test_the_page_has_a_choice_for_every_kind() -> None:
    assert {kind for kind in PACKAGES.known() for choice in CHOICES if kind in choice} == {*PACKAGES.known()}


@pytest.mark.parametrize("kind", PACKAGES.known())
async def test_the_table_of_the_page_says_what_each_kind_can(kind: str, tmp_path: Path) -> None:
    table = PAGE.partition("<!-- abilities:start -->")[2].partition("<!-- abilities:end -->")[0].strip().split("\n")
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    column = head.index(f"`{kind}`")
    said = {re.findall(r"\(`(\w+)`\)", row[0])[-1]: row[column] for row in rows}
    assert len(said) == 6
    [choice] = [choice for choice in CHOICES if kind in choice]
    gateway = Gateway(tmp_path, configured(choice, tmp_path), only=(), is_served=False)
    async with gateway.at_rest():
        memory = gateway.memory_provider
        assert said == {name: "yes" if isinstance(memory, getattr(protocols, name)) else "no" for name in said}


# ---- the package ----------------------------------------------------------------------------------------------------


def test_its_types_are_those_of_the_contract(project: Path, tmp_path: Path) -> None:
    """Strictly: what `provider` returns is a memory with all the abilities that the page gives it."""
    (tmp_path / "check.py").write_text(
        "from acme_memory.dictionary import DictionaryMemory\n"
        "from acme_memory.provider import Config, provider\n"
        "from gateway.protocols import ChecksMemory, EditableMemory, ErasableMemory, ExportableMemory\n"
        "from gateway.protocols import MemoryProvider, MemoryServices, OpensMemory\n"
        "def check(config: Config, services: MemoryServices) -> MemoryProvider:\n"
        "    made = provider(config, services)\n"
        "    one: EditableMemory = made\n"
        "    two: ErasableMemory = made\n"
        "    three: ExportableMemory = made\n"
        "    four: ChecksMemory = made\n"
        "    five: OpensMemory = made\n"
        "    return made\n"
        "smallest: MemoryProvider = DictionaryMemory()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", tmp_path / "cache",
         "check.py", project / "my_gateway.py", project / "test_acme_memory.py"],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": f"{ROOT}{os.pathsep}{project / 'src'}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_passes_the_suites_and_the_hammer_where_it_is_installed(
    project: Path, environment: dict[str, str], database: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project, env={**environment, "ACME_URL": database}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 80
    assert "skipped" not in done.stdout


def test_the_suite_finds_a_memory_that_applies_a_turn_twice(
    project: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """So the one of the page does not pass for nothing."""
    code = (project / "test_acme_memory.py").read_text()
    code = code.replace("return DictionaryMemory()", "return Forgetful()").replace(
        "class TestDictionary",
        "class Forgetful(DictionaryMemory):\n"
        "    async def sync(self, scope, updates):\n"
        "        self._applied.clear()\n"
        "        return await super().sync(scope, updates)\n\n\n"
        "class TestDictionary",
    )
    (tmp_path / "test_forgetful.py").write_text(code)
    (tmp_path / "pyproject.toml").write_text(BLOCKS["pyproject.toml"])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "TestDictionary"],
        cwd=tmp_path, env={**environment, "ACME_URL": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    failed = set(re.findall(r"^FAILED .*::(\w+)", done.stdout, re.MULTILINE))
    assert "test_a_turn_is_applied_once_however_often_it_comes" in failed


# ---- in a gateway ---------------------------------------------------------------------------------------------------


def test_a_chat_remembers_in_the_package_that_the_configuration_names(ethos: Ethos, database: str) -> None:
    ethos.environment["ACME_URL"] = database
    ethos.configure(ACME)
    told = ethos.run("chat", stdin="remember that my cat is called Mia")
    assert told.returncode == 0, told.stderr
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT name, content FROM notes").fetchall()
    assert [(name.split("/")[-1], "Mia" in content) for name, content in rows] == [("USER.md", True)]
    assert markdown_files(ethos.home) == []
    assert "Mia" in ethos.run("chat", stdin="what do you know about me?").stdout
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE notes SET content = replace(content, 'Mia', 'Tom')")
    assert "Tom" in ethos.run("chat", stdin="what do you know about me?").stdout


def test_a_key_that_it_does_not_have_is_reported_as_the_page_shows(ethos: Ethos) -> None:
    ethos.environment["MEMORY_URL"] = "postgresql://127.0.0.1/x"
    [shown] = [body for body in YAML if "kind: acme_memory.provider" in body]
    ethos.configure(shown.replace("table:", "tabel:"))
    done = ethos.run("config", "check")
    assert done.returncode == 78
    [line] = re.findall(r"^config\.yaml:.*tabel.*$", PAGE, re.MULTILINE)
    assert line in done.stdout + done.stderr


def test_a_value_that_its_config_refuses_is_named_with_its_line_and_no_secret_is_shown(ethos: Ethos) -> None:
    ethos.environment["ACME_URL"] = "postgresql://u:hunter2@127.0.0.1/x"
    ethos.configure(ACME.replace("notes", "'no;tes'"))
    done = ethos.run("config", "check")
    assert "config.yaml:3:69: memory.provider.table: not the name of a table; expected letters" in done.stdout
    ethos.configure(ACME)
    shown = ethos.run("config", "show")
    assert "acme_memory.provider" in shown.stdout
    assert "hunter2" not in shown.stdout + done.stdout + done.stderr


def test_a_program_gives_its_own_memory_to_the_gateway(ethos: Ethos, project: Path) -> None:
    ethos.configure(BY_HAND)
    with subprocess.Popen(
        [sys.executable, project / "my_gateway.py"],
        env=ethos.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        try:
            lines = []
            for line in program.stdout:
                lines.append(line)
                if "serving" in line:
                    break
            assert "serving" in lines[-1], "".join(lines)
            ethos.run("chat", stdin="remember that my cat is called Mia")
            assert "Mia" in ethos.run("chat", stdin="what do you know about me?").stdout
        finally:
            program.send_signal(signal.SIGTERM)
        program.stdout.read()
    assert program.returncode == 0
    assert markdown_files(ethos.home) == []
    assert "Mia" not in ethos.run("chat", stdin="what do you know about me?").stdout


def test_a_memory_that_cannot_erase_is_refused_unless_the_operator_does_it(ethos: Ethos, project: Path) -> None:
    ethos.configure("web: {port: 0}\n")
    done = subprocess.run(
        [sys.executable, project / "my_gateway.py"], env=ethos.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "DictionaryMemory cannot erase a person" in done.stderr
    assert "erasure: by_hand" in done.stderr


def test_what_files_know_is_copied_into_it(ethos: Ethos, database: str) -> None:
    ethos.configure("web: {port: 0}\n")
    ethos.run("chat", stdin="remember that my cat is called Mia")
    assert len(markdown_files(ethos.home)) == 1
    target = f"{{kind: acme_memory.provider, url: '{database}', table: notes}}"
    copied = ethos.run("memory", "copy", "--from", "markdown", "--to", target)
    assert copied.returncode == 0, copied.stdout + copied.stderr
    for path in markdown_files(ethos.home):
        path.unlink()
    ethos.environment["ACME_URL"] = database
    ethos.configure(ACME)
    assert "Mia" in ethos.run("chat", stdin="what do you know about me?").stdout


def test_a_chat_is_answered_while_its_server_is_away_and_what_it_noted_comes_later(ethos: Ethos) -> None:
    if postgres.MISSING:
        pytest.skip(postgres.MISSING)
    with postgres.postgres_server() as server:
        ethos.environment["ACME_URL"] = server.url()
        ethos.configure(ACME)
        ethos.run("chat", stdin="remember that my cat is called Mia")
        server.process.stop()
        told = ethos.run("chat", stdin="remember that my dog is called Rex")
        assert told.returncode == 0, told.stderr
        assert "I could not read my memory just now" in told.stdout.strip().split("\n")[-1]
        doctor = ethos.run("doctor")
        assert "look at `memory.provider.url`, and whether the server runs" in doctor.stdout
        server.process.start()
        answer = ethos.run("chat", stdin="what do you know about me?").stdout
        assert "Mia" in answer
        assert "Rex" in answer
        with psycopg.connect(server.url()) as connection:
            [[content]] = connection.execute("SELECT content FROM notes").fetchall()
        assert content.count("Rex") == content.count("Mia") == 1
