"""`from ethos import Ethos`, from a wheel, from an editable install and from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import ethos
from gateway.sdk import client, errors
from gateway.sdk.models import chat

from .conftest import ROOT

# Without the site module no .pth file of the environment counts, so nothing of this checkout is found by accident.
PROGRAM = """
import sys
sys.path.append(sys.argv[2])
if sys.argv[3] == "editable":
    import site
    site.addsitedir(sys.argv[1])
else:
    sys.path.insert(0, sys.argv[1])
import ethos, gateway
from gateway.sdk.client import Ethos
from gateway.sdk.models.chat import ChatMessage
assert ethos.Ethos is Ethos and ethos.ChatMessage is ChatMessage
ethos.Ethos(api_key="key", base_url="http://localhost:1").close()
print(ethos.__file__)
print(gateway.__file__)
print(*sys.path, sep="\\n")
"""


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_it_is_imported_where_it_is_installed(tmp_path: Path, kind: str) -> None:
    """Built as pip does it, without a network; the wheel has the module once, and brings no other name."""
    subprocess.run(
        [sys.executable, "-c", f"import hatchling.build as b, sys; b.build_{kind}(sys.argv[1])", tmp_path / "built"],
        check=True,
        cwd=ROOT,
        capture_output=True,
    )
    [wheel] = (tmp_path / "built").iterdir()
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(site)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, site, sysconfig.get_path("purelib"), kind],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    ethos_file, gateway_file, *paths = done.stdout.split("\n")
    if kind == "wheel":
        assert Path(ethos_file) == site / "ethos" / "__init__.py"
        assert Path(gateway_file) == site / "gateway" / "__init__.py"
        ours = {name.split("/")[0] for name in names if not name.startswith("ethos_gateway-")}
        assert ours == {"adapters", "ethos", "gateway"}
        assert [name for name in names if name.endswith("ethos/__init__.py")] == ["ethos/__init__.py"]
        assert {"ethos/py.typed", "gateway/py.typed"} <= set(names)
    else:
        assert Path(ethos_file) == ROOT / "gateway" / "sdk" / "src" / "ethos" / "__init__.py"
        added = [Path(path) for path in paths if path.startswith(f"{ROOT}{os.sep}") and ".venv" not in path]
        assert [one.name for path in added for one in path.iterdir() if one.name != "__pycache__"] == ["ethos"]


def test_it_is_the_very_client_that_the_gateway_has() -> None:
    assert ethos.Ethos is client.Ethos
    assert ethos.NotFoundError is errors.NotFoundError
    assert ethos.Preview is chat.Preview
    assert all(hasattr(ethos, name) for name in ethos.__all__)


def test_every_error_of_the_sdk_is_offered() -> None:
    found = {name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, ethos.EthosError)}
    assert found <= set(ethos.__all__)
