"""`ethos doctor --repair`: at rest and beside a gateway that runs, one finding or all that need no question."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.gateway.cli.commands.conftest import Ethos
from tests.gateway.cli.commands.test_commands_doctor import change
from tests.gateway.cli.commands.test_commands_status import left


def test_each_finding_names_its_repair_and_all_that_can_be_undone_are_done_at_once(ethos: Ethos, home: Path) -> None:
    (home / "users").chmod(0o755)
    left(home, "http://127.0.0.1:1/")
    answer = ethos("doctor")
    assert "`ethos doctor --repair open-directories`: Takes the rights of all other users away" in answer.out
    answer = ethos("doctor", "--repair", "all")
    assert answer.code == 0
    assert "✓ Other users may not look into them any more." in answer.out
    assert "✓ It is cleared away." in answer.out
    found = {finding["id"] for finding in ethos("doctor", "--json").value}
    assert not found & {"open-directories", "dead-gateway"}
    assert ethos("doctor", "--repair", "all").out == "Nothing was done.\n"


def test_what_cannot_be_undone_waits_for_a_yes(ethos: Ethos, home: Path) -> None:
    token = home / "web-token"
    token.write_text("short")
    token.chmod(0o600)
    assert ethos("doctor", "--repair", "all").out == "Nothing was done.\n"
    assert ethos("doctor", "--repair", "web-token").code != 0, "there is nobody to ask"
    assert token.exists()
    answer = ethos("doctor", "--repair", "web-token", "--yes", "--json")
    assert [one["id"] for one in answer.value] == ["web-token"]
    assert not token.exists()


def test_dead_messages_are_tried_again_by_a_gateway_that_is_put_together_for_it(ethos: Ethos, home: Path) -> None:
    change(home, "UPDATE inbox SET state = 'dead', error = 'boom'")
    dead = [one["id"] for one in ethos("doctor", "--json").value if one["id"].startswith("dead-inbox-")]
    assert dead
    for finding in dead:
        assert "will be tried again, now." in ethos("doctor", "--repair", finding, "--yes").out
    assert not [one for one in ethos("doctor", "--json").value if one["id"].startswith("dead-inbox-")]


def test_a_finding_that_is_not_there_or_has_no_repair_is_said_so(ethos: Ethos, home: Path) -> None:
    answer = ethos("doctor", "--repair", "nonsense")
    assert answer.code != 0
    assert "there is no finding 'nonsense' now; `ethos doctor` shows those that there are" in answer.err
    (home / "config.yaml").write_text("personality: nobody\n")
    [wrong] = [one["id"] for one in ethos("doctor", "--json").value if one["level"] == "problem"][:1]
    assert f"{wrong} has no repair; what to do: " in ethos("doctor", "--repair", wrong).err


def test_a_gateway_that_runs_is_asked_to_repair_what_is_its_own(
    ethos: Ethos, home: Path, serving: subprocess.Popen[str]
) -> None:
    assert serving.poll() is None
    place = home.parent / "backups"
    place.mkdir()
    (home / "run" / "last-backup.json").write_text(
        f'{{"at": "2026-01-01T00:00:00+00:00", "file": "{place}/old.tar.gz"}}'
    )
    assert "Saved as " in ethos("doctor", "--repair", "backup").out
    assert len(list(place.iterdir())) == 1
    assert "backup" not in {one["id"] for one in ethos("doctor", "--json").value}


def test_all_dead_letters_of_a_queue_are_retried_or_dropped_at_once(ethos: Ethos, home: Path) -> None:
    change(home, "UPDATE inbox SET state = 'dead', error = 'boom'")
    count = ethos("deliveries", "retry", "inbox", "--all", "--json").value["amount"]
    assert count > 0
    assert ethos("deliveries", "list", "inbox", "--dead", "--json").value == []
    assert ethos("deliveries", "drop", "inbox", "--all", "waiting").out == f"{count} are dropped.\n"
    assert ethos("deliveries", "drop", "inbox", "--all", "waiting").out == "0 are dropped.\n"
    for wrong in (("retry", "inbox"), ("drop", "inbox", "t_1", "--channel", "x"), ("retry", "inbox", "t_1", "--all")):
        answer = ethos("deliveries", *wrong)
        assert answer.code == 2
        assert "name one by its id, or all of them with --all" in answer.err
