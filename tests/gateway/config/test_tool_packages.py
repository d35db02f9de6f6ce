"""`tools.packages`: which packages of tools are used, and what becomes of one that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.app.tools import made_tools, make_toolbox
from gateway.config import Config
from gateway.config.file import Loaded, load_config
from gateway.config.listing import settings_of
from gateway.config.packages import KindUnusable
from gateway.errors import ConfigError
from gateway.tools.own import CURRENT_TIME

SECRET = "canary-7c0ffee"
COUNTING = "tests.tool_packages.counting"


def load(tmp_path: Path, packages: str) -> Loaded:
    path = tmp_path / "config.yaml"
    path.write_text(f"tools:\n  packages:\n{packages}")
    path.chmod(0o600)
    return load_config(path, environment={"TOKEN": SECRET})


def test_without_packages_no_module_of_one_is_loaded(tmp_path: Path) -> None:
    assert load_config(home=tmp_path).config.tools.packages == ()
    assert make_toolbox(tmp_path, [CURRENT_TIME], Config().tools).names == ("current_time",)


def test_a_package_has_settings_of_its_own_and_all_tools_stand_by_their_names(tmp_path: Path) -> None:
    loaded = load(tmp_path, f"    - package: {COUNTING}\n      file: {tmp_path}/calls\n      token: ${{TOKEN}}\n")
    [chosen] = loaded.config.tools.packages
    assert (chosen.settings.file, chosen.settings.token.get_secret_value()) == (tmp_path / "calls", SECRET)
    assert make_toolbox(tmp_path, [CURRENT_TIME], loaded.config.tools).names == ("current_time", "keep", "post", "see")
    shown = {one.key: (one.value, one.source) for one in settings_of(loaded.config, loaded.sources)}
    assert shown["tools.packages[0].package"] == (COUNTING, "config.yaml:3")
    assert shown["tools.packages[0].token"] == ("(hidden)", "config.yaml:5, from ${TOKEN}")
    assert SECRET not in f"{loaded}{loaded.config!r}{shown}"


@pytest.mark.parametrize(
    ("packages", "problem"),
    [
        ("    - 7\n", "3:7: tools.packages[0]: 7 is no package; expected `package: …` and the package's keys"),
        ("    - token: x\n", "3:7: tools.packages[0].package: missing; expected a value here"),
        (f"    - {COUNTING}\n", "3:7: tools.packages[0].file: missing; expected a value here"),
        (
            f"    - {{package: {COUNTING}, file: x, fil: y}}\n",
            "tools.packages[0].fil: unknown key (did you mean `file`?)",
        ),
        ("      a: b\n", "3:7: tools.packages: a section is not a list; expected a list"),
    ],
)
def test_what_is_wrong_with_the_keys_is_said_with_its_place(tmp_path: Path, packages: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, packages)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("package", "fault"),
    [
        ("acme.tools", "there is no package 'acme.tools' here; expected one that is installed"),
        ("weather", "'weather' is not the name of a kind; expected an installed package with a dot in its name"),
        ("tests.tool_packages.earlier", "is for 0; expected `PLUGIN_API = 1` in it, or another version of it"),
        ("tests.gateway.config.kinds.explodes", "cannot be loaded (RuntimeError"),
        ("tests.gateway.config.kinds.pigeon", "is no package of tools; expected `Config` (a pydantic model)"),
    ],
)
def test_a_package_that_cannot_be_used_is_warned_of_and_all_others_are_used(
    tmp_path: Path, package: str, fault: str
) -> None:
    loaded = load(tmp_path, f"    - {package}\n    - {{package: {COUNTING}, file: {tmp_path}/calls}}\n")
    [warning] = loaded.warnings
    assert warning.startswith("config.yaml:3:7: tools.packages[0]")
    assert fault in warning
    assert warning.endswith("Its tools are left out")
    assert make_toolbox(tmp_path, [], loaded.config.tools).names == ("keep", "post", "see")


def test_one_that_breaks_when_its_tools_are_made_is_left_out_and_the_log_says_why(tmp_path: Path) -> None:
    broken = f"    - tests.tool_packages.doubled\n    - {{package: tests.tool_packages.failing, token: {SECRET}}}\n"
    config = load(tmp_path, f"{broken}    - {{package: {COUNTING}, file: x}}\n").config.tools
    with capture_logs() as logged:
        assert make_toolbox(tmp_path, [CURRENT_TIME], config).names == ("current_time", "keep", "post", "see")
    failed = "`tools` of tests.tool_packages.failing failed (OSError: no server takes ***)"
    assert [(line["event"], line["error"]) for line in logged] == [
        ("tools_left_out", "there is a tool current_time already; take one of the two packages out"),
        ("tools_left_out", f"{failed}; correct its keys, or ask its author"),
    ]
    with pytest.raises(KindUnusable, match="there is a tool post already"):
        made_tools(tmp_path, config.packages[2], taken=["post"])
