"""`/export`: all that is the person's, legible, and not a word of anybody else (rows 26 and 28)."""

from __future__ import annotations

import json
import stat
import zipfile
from pathlib import Path

import pytest

from gateway.errors import FileError
from gateway.ops.privacy.export import Exporter
from gateway.ops.privacy.memory import PersonalMemory
from gateway.sandbox.workspace import Workspaces
from tests.gateway.privacy.conftest import account, add_login, add_traces, canary, quiet, say, talk, user_ids
from tests.gateway.way.conftest import House

PEOPLE = ("ada", "ben")


def contents(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


async def test_a_person_gets_everything_and_nothing_of_others(house: House) -> None:
    """By the channel, as a file: sessions, memory, accounts, usage, traces, and what was said in a group by them."""
    async with house.gateway(fake={"max_attachment_bytes": 1 << 20}) as (gateway, channel):
        for person in PEOPLE:
            await talk(channel, person)
        await quiet(gateway)
        known = await user_ids(gateway)
        sessions = {each.user_id: each.id for each in await gateway.store.sessions.list_sessions()}
        ids = {person: known[account(person)] for person in PEOPLE}
        await add_traces(house.home, [(person, ids[person], sessions[ids[person]]) for person in PEOPLE])
        for person in PEOPLE:
            workspace = Workspaces(house.home).of_person(ids[person])
            workspace.write("notes/tea.txt", f"{canary(person)}file".encode(), is_own=True)
            await gateway.store.person_settings.put(ids[person], "test", f"{canary(person)}chosen")
            await add_login(gateway, ids[person], f"{canary(person)}login")
        answer = await say(channel, "/export", "ada")
        assert "README.md" in answer
        (attachment,) = channel.sent[-1].attachments
        files = contents(Path(attachment.ref))
    assert attachment.media_type == "application/zip"
    assert attachment.size_bytes == Path(attachment.ref).stat().st_size
    assert stat.S_IMODE(Path(attachment.ref).stat().st_mode) == 0o600
    everything = "\n".join(files.values())
    for word in ("one", "two", "three", "four", "user", "persona", "thread", "hidden"):
        assert f"{canary('ada')}{word}" in everything, word
    for word in (canary("ben"), account("ben"), ids["ben"]):
        assert word not in everything
    assert "kanarieadaone" in files["memory/USER.md"]
    assert [each["value"] for each in json.loads(files["settings.json"])] == ["kanarieadachosen"]
    sign_in = json.loads(files["sign-in.json"])
    assert [each["name"] for each in sign_in["passwords"]] == ["kanarieadalogin"]
    assert [each["browser"] for each in sign_in["browsers"]] == ["kanarieadalogin"]
    assert not [word for word in ("a-hash", "a-seed", "a-recovery-hash") if word in everything]
    assert files["files/notes/tea.txt"] == "kanarieadafile"
    assert [each["account"] for each in json.loads(files["accounts.json"])["accounts"]] == [f"fake:{account('ada')}"]
    assert json.loads(files["usage.json"])[0]["input_tokens"] > 0
    assert any(each["content"].find("kanarieadaone") >= 0 for each in json.loads(files["memory/history.json"]))
    received = [each["text"] for each in json.loads(files["messages.json"])]
    assert "/search kanarieadatwo" in received
    marked = [text for name, text in files.items() if name.startswith("sessions/") and name.endswith(".md")]
    assert any("## You" in text and "kanarieadatwo" in text for text in marked)
    assert any("A conversation of several" in text and "kanarieadathree" in text for text in marked)


async def test_where_the_channel_takes_no_files_the_operator_finds_it(house: House) -> None:
    """The answer names the place below the data directory."""
    async with house.gateway() as (_gateway, channel):
        await say(channel, "Hello", "ada")
        answer = await say(channel, "/export", "ada")
        (path,) = house.home.glob("exports/*/*.zip")
        assert f"`{path.relative_to(house.home)}`" in answer
        assert not channel.sent[-1].attachments
        assert "README.md" in contents(path)
        assert "direct chat" in await say(channel, "/export", "ada", group="table")


async def test_an_export_never_takes_the_place_of_a_file(house: House) -> None:
    """A name that is taken is refused, and nothing half written stays behind."""
    async with house.gateway() as (gateway, channel):
        await say(channel, "Hello", "ada")
        ids = await user_ids(gateway)
        taken = house.home / "mine.zip"
        taken.write_bytes(b"mine")
        exporter = Exporter(
            home=house.home,
            store=gateway.store,
            identities=gateway.identities,
            memory=PersonalMemory(provider=gateway.memory_provider, kind="markdown"),
            workspaces=gateway.workspaces,
            kinds={"fake": "fake"},
        )
        with pytest.raises(FileError, match="is there already"):
            await exporter.write(ids[account("ada")], taken)
        with pytest.raises(FileError, match="could not be written"):
            await exporter.write(ids[account("ada")], house.home / "nowhere" / "x.zip")
        assert taken.read_bytes() == b"mine"
        assert not list(house.home.glob(".*.unfinished"))


async def test_no_secret_is_in_an_export(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of models, the token of the web server and what else the directory hides stay where they are."""
    monkeypatch.setenv("EXPORT_KEY", "sk-kanarie-secret")
    models = {"far": {"provider": "openai", "model": "m", "api_key": "${EXPORT_KEY}"}}
    async with house.gateway(models=models) as (_gateway, channel):
        (house.home / "web-token").write_text("token-kanarie-secret")
        await say(channel, "Hello", "ada")
        await say(channel, "/export", "ada")
    (path,) = house.home.glob("exports/*/*.zip")
    assert "kanarie-secret" not in "\n".join(contents(path).values())
