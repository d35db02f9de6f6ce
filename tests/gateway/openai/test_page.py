"""The examples of `docs/openai.md` do what the page says, in the order in which they stand there."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
import yaml

from gateway.web.openai.asked import _HARMLESS, _REFUSED
from tests.gateway.way.conftest import House

from .conftest import TALKS, WAIT_S, base_of, key_of, sessions_of, texts_of

PAGE = (Path(__file__).parents[3] / "docs" / "openai.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


async def run(*command: str, **environment: str) -> str:
    """What a program prints, which must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={"PATH": "/usr/bin:/bin", "NO_PROXY": "localhost,127.0.0.1", **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(WAIT_S):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


@pytest.mark.slow
async def test_every_example_of_the_page_succeeds(house: House, tmp_path: Path) -> None:
    async with house.served() as gateway:
        ada = await gateway.identities.resolve("mail:ada@example.org", "Ada")
        key = await key_of(gateway, *TALKS, user=ada)

        def real(text: str) -> str:
            return text.replace("http://localhost:8420/v1", base_of(gateway)).replace("ethos_…", key)

        llm_home = tmp_path / "llm"
        llm_home.mkdir()
        (llm_home / "extra-openai-models.yaml").write_text(
            real(next(one for one in blocks("yaml") if "model_id" in one))
        )
        (tmp_path / "llm.sh").write_text(f'#!/bin/sh\nexec {sys.executable} -m llm "$@"\n')
        (tmp_path / "llm.sh").chmod(0o700)
        (tmp_path / "llm.sh").rename(tmp_path / "llm-program")
        script = "\n".join(["set -eu", f'llm() {{ "{tmp_path}/llm-program" "$@"; }}', *blocks("sh")])
        said = await run("bash", "-c", real(script), LLM_USER_PATH=str(llm_home))
        assert '"id": "ethos"' in said
        assert "data: [DONE]" in said
        assert said.count("Ada") >= 2
        programs = blocks("python")
        assert len(programs) == 2
        for program in programs:
            assert "Ada" in await run(sys.executable, "-c", real(program))
        talks = [await texts_of(gateway, one) for one in await sessions_of(gateway)]
        assert [len(texts) for texts in talks if texts[0].startswith("What is my name?")][-2:] == [4, 4]
        assert {one.session.user_id for one in await sessions_of(gateway)} == {ada}


def test_the_page_names_all_that_is_refused() -> None:
    refused = PAGE.split("| refused with 400", 1)[0].rpartition("| `tools`")[2]
    assert {*_REFUSED} - {"tools"} == {name for name in _REFUSED if f"`{name}`" in refused}
    assert set(_HARMLESS) <= set(_REFUSED)


def test_what_the_page_shows_of_other_programs_can_be_read() -> None:
    found = [yaml.safe_load(block) for block in blocks("yaml")]
    assert [sorted(one if isinstance(one, dict) else one[0]) for one in found] == [
        ["api_base", "api_key_name", "model_id", "model_name"],
        ["web"],
        ["endpoints"],
    ]
