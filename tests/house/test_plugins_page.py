"""The package of `docs/plugins.md` is built, installed, found, checked, and called in a chat."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel, call

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
[YAML] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed, from its wheel; both without a network."""
    project, wheels, site = (tmp_path_factory.mktemp(name) for name in ("lamp", "wheels", "site"))
    for name, code in {**BLOCKS, "src/acme_lamp/__init__.py": ""}.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    build = "import hatchling.build as b, sys; b.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, wheels], check=True, cwd=project, capture_output=True)
    [wheel] = wheels.iterdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", site, wheel], check=True, cwd=project)
    return site


def ethos(home: Path, site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ETHOS_HOME": str(home), "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    command = [sys.executable, "-m", "gateway.cli", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_it_is_found_when_installed_and_used_when_named(tmp_path: Path, site: Path) -> None:
    alone = ethos(tmp_path, site, "plugins")
    assert "acme_lamp.tools  tools  installed, and not used; name it in `tools.packages`" in alone.stdout
    (tmp_path / "config.yaml").write_text(YAML)
    assert "acme_lamp.tools  tools  used" in ethos(tmp_path, site, "plugins").stdout
    without = ethos(tmp_path, ROOT, "plugins")
    assert "left out: there is no package 'acme_lamp.tools' here; expected one that is installed" in without.stdout
    assert ethos(tmp_path, ROOT, "plugins", "--json").stdout.startswith("[")


def test_packages_of_other_sorts_stand_in_the_list(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "channels: {door: {kind: tests.fake_channel, enabled: false}}\n"
        "memory: {provider: tests.small_memories}\n"
        "web: {search: {kind: acme_search.service}}\n"
        "speech: {listen: {kind: acme_ears.service}}\n"
    )
    listed = ethos(tmp_path, ROOT, "plugins").stdout
    assert "tests.fake_channel    channel door  switched off" in listed
    assert "tests.small_memories  memory        used" in listed
    assert "acme_search.service   web search    left out: there is no package 'acme_search.service' here" in listed
    assert "acme_ears.service     speech        left out: there is no package 'acme_ears.service' here" in listed


def test_the_check_says_what_the_page_says(tmp_path: Path, site: Path) -> None:
    checked = ethos(tmp_path, site, "plugins", "check", "acme_lamp.tools")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"prints `{checked.stdout.strip()}`" in PAGE
    missing = ethos(tmp_path, site, "plugins", "check", "acme_lamp.tool")
    assert missing.returncode == 78
    assert "there is no package 'acme_lamp.tool' here" in missing.stderr
    wanting = ethos(tmp_path, ROOT, "plugins", "check", "tests.tool_packages.counting")
    assert "needs file; put it into `tools.packages` with these keys first" in wanting.stderr


async def test_its_tools_are_called_in_a_chat(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(site))
    looks = call("lamp_state", "{}", id="c1")
    model = ScriptedModel([looks], "It is off.", [call("lamp_switch", '{"state": "on"}', id="c2")], "I will.", "Done.")
    packages = [{"package": "acme_lamp.tools", "room": "hall"}]
    async with House(tmp_path / "home").gateway(model, tools={"packages": packages}) as (gateway, channel):
        assert await channel.ask("the lamp?") == "It is off."
        assert model.requests[1].messages[-1].text == "off"
        assert "waits for" in await channel.ask("switch it on")
        [waiting] = await gateway.store.approvals.approvals()
        assert (waiting.tool, waiting.destination) == ("lamp_switch", '{"state":"on"}')
        await settled(gateway)
        assert not (gateway.home / "tools").exists()


def test_what_a_package_may_import_is_what_the_page_says() -> None:
    imported = set(re.findall(r"^from (gateway\S*) import", BLOCKS["src/acme_lamp/tools.py"], re.MULTILINE))
    assert imported == {"gateway.tools.contract"}
