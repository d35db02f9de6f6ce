"""The rules of the house: who may import whom, what may be named where, and how large a room may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACT = {"gateway.messages", "gateway.protocols", "gateway.errors"}
# From the top to the bottom: a room imports only itself and what stands behind it here, and the contract.
ROOMS = (
    "testing", "cli", "app", "web", "services", "ops", "traces", "store", "pipeline", "agent", "schedules",
    "approvals", "mcp", "tools", "memory", "people", "cluster", "sandbox", "config", "sdk", "domain", "files",
    "runtime",
)  # fmt: skip
PLATFORMS = ("telegram", "slack", "discord")


@cache
def modules(package: str) -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(name: str, path: Path) -> set[str]:
    """All modules of ours that the file imports, at its top or inside a function."""
    known = {**modules("gateway"), **modules("adapters")}
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute"
            base = node.module or ""
            found |= {f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names}
    return found


def test_the_top_of_the_gateway_holds_the_contract_and_the_rooms() -> None:
    entries = {path.name for path in (ROOT / "gateway").iterdir() if path.name not in ("__pycache__", "py.typed")}
    assert entries == {"DESIGN.md", "__init__.py", "messages.py", "protocols.py", "errors.py", *ROOMS}


@pytest.mark.parametrize(("name", "path"), modules("gateway").items(), ids=str)
def test_a_room_imports_only_the_rooms_below_it(name: str, path: Path) -> None:
    room = name.split(".")[1] if name.count(".") else None
    below = set(ROOMS[ROOMS.index(room) :]) if room in ROOMS else set()
    for other in imports(name, path):
        package, _, rest = other.partition(".")
        if package == "adapters":
            assert name == "gateway.config.channel_kinds", f"{name} imports {other}: one module does"
        elif package == "gateway" and rest and other not in CONTRACT:
            assert rest.split(".")[0] in below, f"{name} imports {other}, which is above it"


@pytest.mark.parametrize("name", sorted(CONTRACT))
def test_the_contract_imports_the_standard_library_and_itself_only(name: str) -> None:
    for other in imports(name, modules("gateway")[name]):
        assert other in CONTRACT or other.split(".")[0] in sys.stdlib_module_names, f"{name} imports {other}"


@pytest.mark.parametrize(("name", "path"), modules("adapters").items(), ids=str)
def test_an_adapter_imports_of_us_the_contract_and_its_own_files_only(name: str, path: Path) -> None:
    own = ".".join(name.split(".")[:2])
    for other in imports(name, path):
        if other.split(".")[0] in ("gateway", "adapters"):
            assert other in CONTRACT or other == own or other.startswith(f"{own}."), f"{name} imports {other}"


@pytest.mark.parametrize(("name", "path"), modules("gateway/sdk").items(), ids=str)
def test_the_sdk_knows_nothing_of_the_server(name: str, path: Path) -> None:
    """But how to wait, and how to find and reach a gateway on this machine."""
    allowed = {"gateway.errors", "gateway.runtime.backoff", "gateway.files.unix_socket"}
    if name == "gateway.sdk.address":
        allowed |= {"gateway.files.home", "gateway.files.running_gateway"}
    for other in imports(name, path):
        if other.split(".")[0] in ("gateway", "adapters"):
            assert other in allowed or other.startswith("gateway.sdk"), f"{name} imports {other}"
    if name.startswith("gateway.sdk.models"):
        foreign_ones = {other.split(".")[0] for other in imports(name, path)} - set(sys.stdlib_module_names)
        assert foreign_ones <= {"gateway", "pydantic"}, name


@pytest.mark.parametrize("path", sorted((ROOT / "gateway").rglob("*")), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_platform_is_named_in_the_core(path: Path) -> None:
    if path.suffix in (".py", ".sql", ".html", ".js", ".css", ".md") and path.name != "DESIGN.md":
        text = path.read_text(encoding="utf-8").lower()
        assert not [platform for platform in PLATFORMS if platform in text]


@pytest.mark.parametrize(
    "path",
    [*modules("gateway").values(), *modules("adapters").values()],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_rooms_are_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 650, "a module has 650 lines at most; give a part of it a room of its own"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= 50, f"{node.name} has {lines} lines; 50 is the most"


def test_nine_rooms_in_ten_have_400_lines_or_less() -> None:
    sizes = [
        path.read_text(encoding="utf-8").count("\n")
        for tree in ("gateway", "adapters")
        for path in modules(tree).values()
    ]
    large = [size for size in sizes if size > 400]
    assert len(large) * 10 <= len(sizes)


def foreign(package: str) -> set[str]:
    """The libraries that a package imports, at the top of its files or inside a function."""
    found: set[str] = set()
    for name, path in modules(package).items():
        found |= {other.split(".")[0] for other in imports(name, path)}
    return found - set(sys.stdlib_module_names) - {"gateway", "adapters"}


def test_what_is_not_configured_is_not_loaded() -> None:
    """Imports of channels and models that are not configured cost nothing."""
    models = {
        "fastapi",
        "aiohttp",
        "genai_prices",
        "lxml",
        "mcp",
        "mcp_types",
        "trafilatura",
        "yarl",
        "httpx",
        "httpx_sse",
        "prompt_toolkit",
        "keyring",
        "jinja2",
    }
    always = foreign("gateway") - models
    kinds = [path.name for path in (ROOT / "adapters").iterdir() if path.is_dir()]
    channels = set().union(*(foreign(f"adapters/{kind}") for kind in kinds)) - always
    assert channels >= {
        "telegram", "telegramify_markdown", "slack_bolt", "slack_sdk", "discord", "aiohttp",
        "aioimaplib", "aiosmtplib", "authres", "bs4", "markdownify", "mailparser_reply", "idna",
    }  # fmt: skip
    asked = sorted(models | channels | {"prometheus_client", "opentelemetry"})
    program = (
        "import sys, gateway.app.gateway, gateway.cli, gateway.cli.running; "
        f"print([name for name in {asked!r} if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert loaded.stdout.strip() == "[]"


def test_what_nobody_has_asked_for_is_not_loaded(tmp_path: Path) -> None:
    """A gateway that has taken its doors has loaded nothing of the pages and of the API but what answers the chat."""
    program = (
        "import asyncio, pathlib, sys\n"
        "from gateway.app.gateway import Gateway\n"
        "from gateway.config.file import load_config\n"
        "async def start(home):\n"
        "    home.joinpath('config.yaml').write_text('web: {port: 0}\\nmcp: {serve: true}')\n"
        "    async with Gateway(home, load_config(home=home).config) as gateway:\n"
        "        print(*(name for name in sys.modules if '.' not in name or name.startswith('gateway.')))\n"
        "asyncio.run(start(pathlib.Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split())
    assert "gateway.web.server" in loaded
    commands = ("", ".approvals", ".memory", ".pairing", ".personal", ".schedules", ".tools", ".usage")
    door = {f"gateway.services{name}" for name in ("", ".caller", ".chat", ".stream", ".uploads")}
    door |= {f"gateway.services.commands{name}" for name in commands}
    door |= {f"gateway.web.api.{name}" for name in ("direct_chat", "events", "idempotency", "problems")}
    door |= {"gateway.web.dashboard.page"}
    door |= {"gateway.sdk", *(f"gateway.sdk.models{name}" for name in ("", ".chat", ".names", ".schema", ".system"))}
    rooms = ("gateway.services.", "gateway.sdk", "gateway.web.api.", "gateway.web.dashboard.", "gateway.web.mcp.")
    behind = {name for name in loaded - door if name.startswith(rooms)}
    assert behind == {"gateway.web.dashboard.pages"}, "load it with the first request"
    memories = {name for name in loaded if name.startswith("gateway.memory.kinds.")}
    assert memories == {"gateway.memory.kinds.markdown"}, "load a kind of memory where it is chosen"
    assert not loaded & {"psycopg", "psycopg_pool", "redis", "httpx", "mcp", "mcp_types", "cronsim"}


def test_no_registry_no_machine_and_no_secret_is_named_in_what_is_committed() -> None:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    needles = (
        "pypi" + ".org",
        "python" + "hosted",
        "registry.npm" + "js",
        "deb." + "debian",
        "/ro" + "ot/",
        "/wo" + "rk/",
    )
    for name in listed.splitlines():
        path = ROOT / name
        if path.is_file() and path.suffix not in (".png", ".gif", ".ico", ".woff2"):
            text = path.read_text(encoding="utf-8", errors="replace")
            assert not [needle for needle in needles if needle in text], name


# What they compare with are the times of files, which the wall clock gives them.
WALL_CLOCK = {
    "gateway.files.atomic",
    "gateway.people.identity.disk",
    "gateway.memory.read_cache",
    "gateway.memory.webdav.known",
    "gateway.store.clock",
}


def test_no_wait_is_measured_by_the_clock_on_the_wall_which_may_jump() -> None:
    found = {
        name
        for name, path in modules("gateway").items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in ("time", "time_ns")
        and isinstance(node.value, ast.Name)
        and node.value.id == "time"
    }
    assert found == WALL_CLOCK
