"""`ethos schedules`, without a running gateway: made, listed, shown, changed, paused, resumed, run, removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.gateway.cli.commands.conftest import Ethos

TODAY = datetime.now(UTC).date()
MONDAY = TODAY + timedelta(days=105 - TODAY.weekday())
WEEKLY = ("--every-days", 7, "--time-of-day", "18:00", "--first-day", MONDAY, "--zone", "UTC")


@pytest.fixture
def home(home: Path) -> Path:
    """In which the people of the channel are members."""
    (home / "config.yaml").write_text("web: {port: 0}\nchannels:\n  fake: {kind: tests.fake_channel, role: member}\n")
    return home


def made(ethos: Ethos, *options: object, text: str = "Water the plants", user: str = "fake:1") -> int:
    answer = ethos("schedules", "add", text, *(options or WEEKLY), "--user", user, "--json")
    assert answer.code == 0, answer.err
    number: int = answer.value["id"]
    return number


def test_where_there_is_none_it_says_so(ethos: Ethos, home: Path) -> None:
    assert home.exists()
    assert ethos("schedules", "list").out == "There are no schedules; `ethos schedules add` makes one.\n"
    assert ethos("schedules", "list", "--json").value == []
    for words in (("show", 3), ("change", 3, "--text", "x"), ("pause", 3), ("resume", 3), ("run", 3), ("remove", 3)):
        answer = ethos("schedules", *words)
        assert (answer.code, answer.out) == (1, ""), words
        assert "there is no schedule 3; `ethos schedules list` shows those that there are" in answer.err


def test_one_is_made_and_shown_with_its_next_times(ethos: Ethos, home: Path) -> None:
    assert home.exists()
    answer = ethos("schedules", "add", "Water the plants", *WEEKLY, "--user", "fake:1")
    assert answer.out.startswith("Schedule 1: every week on Monday at 18:00 (UTC), to fake. Next: ")
    assert f"{MONDAY} 1" in answer.out
    header, row = ethos("schedules", "list").out.splitlines()
    assert header.split() == ["number", "person", "when", "next", "state", "mode", "text"]
    assert row.split()[:3] == ["1", "Person", "1"]
    assert row.endswith("active  say   Water the plants")
    shown = ethos("schedules", "show", 1).out
    assert "Schedule 1 of Person 1: every week on Monday at 18:00 (UTC)" in shown
    assert "mode: say, by assistant; text: Water the plants" in shown
    assert "to: fake, c1; missed: late" in shown
    assert f" Next: {MONDAY} 18:00 UTC, " in shown
    value = ethos("schedules", "show", 1, "--json").value
    assert (value["mode"], value["history"], value["next"][0]) == ("say", [], f"{MONDAY}T18:00:00+00:00")


def test_it_is_changed_paused_resumed_run_once_and_removed(ethos: Ethos, home: Path) -> None:
    assert home.exists()
    number = made(ethos, "--cron", "0 8 * * 1-5", "--zone", "Europe/Berlin", "--mode", "do")
    changed = ethos("schedules", "change", number, "--cron", "30 8 * * *", "--missed", "each").out
    assert changed.startswith(f"Schedule {number}: every day at 08:30 (Europe/Berlin), to fake. Next: ")
    assert ethos("schedules", "show", number, "--json").value["missed"] == "each"
    assert ethos("schedules", "pause", number).out == f"Schedule {number} is paused.\n"
    assert [one["id"] for one in ethos("schedules", "list", "--state", "paused", "--json").value] == [number]
    assert ethos("schedules", "list", "--state", "active", "--json").value == []
    assert ethos("schedules", "resume", number).out.startswith(f"Schedule {number} goes on. Next: ")
    ran = f"Schedule {number} is done once: now, or when the gateway runs again."
    assert ethos("schedules", "run", number).out.startswith(ran)
    assert ethos("schedules", "remove", number, "--json").value == {"removed": number}
    assert ethos("schedules", "list", "--json").value == []


def test_times_are_those_of_the_clock_that_the_rule_speaks_of(
    ethos: Ethos, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert home.exists()
    monkeypatch.setenv("TZ", "America/New_York")
    number = made(ethos, *WEEKLY[:-1], "Asia/Tokyo")
    assert f"  {MONDAY} 18:00 JST  active" in ethos("schedules", "list").out
    assert f" Next: {MONDAY} 18:00 JST, " in ethos("schedules", "show", number).out


def test_a_change_says_what_is_to_be_different_and_a_list_of_some_does_not_say_that_there_are_none(
    ethos: Ethos, home: Path
) -> None:
    assert home.exists()
    number = made(ethos)
    answer = ethos("schedules", "change", number)
    assert (answer.code, "say what is to be different" in answer.err) == (1, True)
    assert ethos("schedules", "list", "--state", "failing").out.startswith("There are none of these;")


def test_each_person_has_their_own(ethos: Ethos, home: Path) -> None:
    assert home.exists()
    first, second = made(ethos), made(ethos, user="fake:2", text="Feed the cat")
    assert [one["text"] for one in ethos("schedules", "list", "--json").value] == ["Water the plants", "Feed the cat"]
    assert [one["id"] for one in ethos("schedules", "list", "--user", "fake:2", "--json").value] == [second]
    assert ethos("schedules", "list", "--user", "fake:9").code == 1
    assert first != second


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--at: give exactly one of --at, --in-minutes, --every-minutes, --cron, --every-days"),
        (("--in-minutes", 5, "--cron", "0 8 * * *"), "exactly one of"),
        (("--cron", "* * * * *"), "more often"),
        (("--at", "yesterday"), "no date and time"),
        (("--at", "2020-01-01T08:00"), "is past"),
        (("--every-days", 1), "ethos: --time-of-day: --every-days needs it, such as 08:00"),
        (
            ("--at", "2027-01-01T08:00Z"),
            "--at: '2027-01-01T08:00Z' has an offset; give the time on the wall clock, and its zone in --zone",
        ),
        (("--in-minutes", 5, "--zone", "Europe/Berln"), "did you mean Europe/Berlin"),
        (("--in-minutes", 5, "--to", "mail"), "only fake:1"),
        (("--in-minutes", 5, "--personality", "pirate"), "pirate"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_made(
    ethos: Ethos, home: Path, options: tuple[object, ...], words: str
) -> None:
    assert home.exists()
    answer = ethos("schedules", "add", "Tea", *options, "--user", "fake:1")
    assert (answer.code, answer.out) == (1, ""), answer
    assert words in answer.err
    assert ethos("schedules", "list", "--json").value == []
