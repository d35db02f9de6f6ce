"""Make the data directory of the newest schema: people talk to a real gateway, and one is killed.

`python -m tests.released [DIRECTORY]`; without a directory, here. What stands in `LEFT` are the rows that only a killed
process leaves, or that other people and channels would.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from gateway.app.gateway import Gateway
from gateway.config.file import load_config
from gateway.errors import ModelUnavailable, PermanentSendError
from gateway.files.atomic import make_private_directory
from gateway.store.sqlite.schema import migrations
from gateway.store.sqlite.search import register_functions
from tests.fake_channel import FakeChannel
from tests.released import HERE
from tests.scripted_model import ScriptedModel, call

CONFIG = "channels:\n  fake: {kind: tests.fake_channel}\n"
KEPT = ("config.yaml", "identity-map.json", "USER.md", "MEMORY.md", "memory-archive.md")
LEFT = (
    "INSERT INTO erasures VALUES ('er_0123456789abcdef', 1)",
    "INSERT INTO erased_events VALUES (x'01', x'02')",
    "INSERT INTO workers VALUES ('w1', 'north', '0.1', 'abc', 'turns', 0, 1763000000000, 1763000000000, 0)",
    "INSERT INTO leases VALUES ('channel:chat', 'w1', 1, 1763000006000)",
    "INSERT INTO adapter_notes (channel, key, text) VALUES ('fake', 'read until', '17')",
    """INSERT INTO turn_steps (turn_id, steps, saved_at)
        SELECT turn_id, '{}', 1 FROM inbox WHERE state = 'done' ORDER BY lane, seq LIMIT 1""",
    """INSERT INTO tool_calls (turn_id, call_id, user_id, personality_id, session_id, tool, effect, arguments, state,
        result, began_at, ended_at)
        SELECT turn_id, 'call_a', user_id, 'assistant', session_id, 'send_mail', 'act', '{}', 'waiting', NULL, 1, 2
        FROM messages ORDER BY id LIMIT 1""",
    """INSERT INTO approvals (id, turn_id, call_id, user_id, personality_id, session_id, channel, conversation, tool,
        pin, arguments, destination, sources, approver, is_destructive, state, asked_at, expires_at)
        SELECT 2, turn_id, 'call_a', user_id, 'assistant', session_id, 'fake', 'c1', 'send_mail',
        'ab12', '{}', '', '[]', 'owner', 0, 'waiting', 1, 2 FROM messages ORDER BY id LIMIT 1""",
    """INSERT INTO grants (user_id, personality_id, tool, pin, destination, scope, session_id, granted_at, granted_by)
        SELECT user_id, 'assistant', 'send_mail', 'ab12', '{"to":"ada"}', 'always', '', 1, user_id
        FROM messages ORDER BY id LIMIT 1""",
    """INSERT INTO schedules (key, user_id, personality_id, channel, conversation, sender, display_name, is_direct,
        mode, text, rule, zone, missed, state, next_at, turn_id, sources, failures, created_at)
        SELECT 't_1/c1', user_id, 'assistant', 'fake', 'c1', '1', 'Person 1', 1, 'say', 'Water the plants',
        '{"rule": "once", "at": "2126-01-01T08:00:00+00:00", "wall": null}', 'UTC', 'late', 'active', 4922928000000,
        turn_id, '[]', 0, 1 FROM messages ORDER BY id LIMIT 1""",
    """INSERT INTO occurrences (schedule_id, due_at, outcome, begun_at, turn_id, note, is_by_hand)
        VALUES (1, 1, 'skipped', 2, '', 'was missed', 0)""",
    """INSERT INTO mcp_tools (server, name, tool, definition, pin, accepted, is_there)
        VALUES ('notes', 'read', 'notes__read', '{"name": "read", "description": "", "schema": "{}"}', 'a',
        '{"name": "read", "description": "Reads.", "schema": "{}"}', 1)""",
    """INSERT INTO trusted_skills (personality_id, name, files, trusted_at)
        VALUES ('', 'packing', '{"SKILL.md": "ab12"}', 1)""",
    """INSERT INTO open_questions (lane, user_id, turn_id, wanted, answers, asked_at, expires_at)
        SELECT 1, user_id, turn_id, '{"server": "s", "tool": "s__a", "pin": "p", "arguments": "{}", "points": []}',
        '[]', 1, 2 FROM messages ORDER BY id LIMIT 1""",
    "INSERT INTO mcp_eras (server, era) VALUES ('notes', 'legacy')",
    "INSERT INTO mcp_sign_ins (state, server, user_id, sealed, until_at) VALUES ('ab12', 'notes', 'u_gone', 'ab12', 1)",
    "INSERT INTO mcp_tokens (server, user_id, sealed) VALUES ('notes', 'u_gone', 'ab12')",
    "INSERT INTO person_settings (user_id, key, value, set_at) VALUES ('u_1', 'voice', 'always', 1)",
    """INSERT INTO reservations
        (owner, day, user_id, personality_id, turn_id, model, input_tokens, output_tokens, input_usd, usd)
        SELECT '17-dead', '2026-11-21', user_id, 'assistant', turn_id, 'scripted', 10, 100, 0.001, 0.01
        FROM messages ORDER BY id LIMIT 1""",
    """INSERT INTO memory_proposals
        (id, turn_id, personality_id, user_id, author_id, place, store, updates, sources, proposed_at)
        SELECT 1, turn_id, personality_id, user_id, user_id, 'per-personality', 'user', '[["add", "Likes spam."]]',
        '["quoted mail"]', 1 FROM messages ORDER BY id LIMIT 1""",
    "INSERT INTO account_ranks (account, rank, via, set_at) VALUES ('fake:1', 'owner', 'code', 1)",
    """INSERT INTO admissions (channel, account, label, via, admitted_at)
        VALUES ('fake', 'fake:2', 'Ada', 'c', 1)""",
    """INSERT INTO access_requests (channel, account, label, conversation, seed, state, times,
        first_at, asked_at, expires_at, told_at)
        VALUES ('fake', 'fake:7', 'Eve', 'c7', 'ab', 'waiting', 1, 1, 1, 2, 1)""",
    "INSERT INTO held_messages (lane, seq, channel, account) SELECT lane, max(seq), 'fake', 'fake:7' FROM inbox",
    "INSERT INTO owner_code (only_row, code_hash, expires_at) VALUES (1, 'ab12', 2)",
    "INSERT INTO owner_chats (account, channel, conversation, used) VALUES ('fake:1', 'fake', 'c1', 1)",
    """INSERT INTO sign_ins (id, hash, browser, created_at, last_seen_at, user_id)
        VALUES ('0123456789ab', x'ab12', 'Firefox/140', 1, 2, 'u_1')""",
    """INSERT INTO logins (user_id, name, name_key, password, seed, last_step, changed_at)
        VALUES ('u_1', 'Ada', 'ada', 'scrypt$15$8$3$ab$cd', 'ab12', 7, 1)""",
    "INSERT INTO recovery_codes (user_id, hash) VALUES ('u_1', 'ab12')",
    "INSERT INTO invitations (user_id, hash, seed, expires_at) VALUES ('u_1', 'ab12', 'cd34', 2)",
    """INSERT INTO ingest_jobs
        (turn_id, user_id, personality_id, session_id, channel, speaker, facts, attempts, due_at, error)
        SELECT turn_id, user_id, 'assistant', session_id, 'fake', 'Ada', NULL, 2, 1, 'ModelUnavailable: down'
        FROM messages ORDER BY id LIMIT 1""",
    """INSERT INTO turns_since_consolidation (user_id, turns)
        SELECT user_id, 7 FROM messages ORDER BY id LIMIT 1""",
    """INSERT INTO api_keys (id, name, hash, scopes, created_at)
        VALUES ('0123456789ab', 'backup', x'ab12', 'memory:read', 1)""",
    """INSERT INTO idempotent_requests
        (caller, key, request_hash, owner, created_at, status, headers, body)
        VALUES ('', 'k', x'ab12', 'o', 1, 200, '[]', x'7b7d')""",
    """INSERT INTO talks (message, session_id, asked, answered, ending, wishes, asked_at)
        SELECT 'm_1', session_id, x'ab12', x'cd34', x'ef56', x'0789', 1 FROM messages ORDER BY id LIMIT 1""",
    """INSERT INTO link_requests (id, code_hash, state, starter, starter_is, begun_at)
        VALUES ('r_1', 'ab12', 'open', 'fake:1', '["Person 1", ["fake", "c1", null]]', 1)""",
    "INSERT INTO link_tries (turn_id, account, tried_at) VALUES ('t_1', 'fake:2', 1)",
    """INSERT INTO user_links
        (id, survivor, absorbed, accounts, parties, linked_by, linked_at, state, undone_at)
        VALUES ('l_1', 'u_1', 'u_2', '[["fake:9", "hand"]]', '[]', 'code', 1, 'undone', 2)""",
    """INSERT INTO documents (path, content, version, sha256, position, archive, modified_at)
        VALUES ('MEMORY.md', x'4120666163742e0a', 1, 'ab12', 1, x'', 1)""",
    """INSERT INTO blobs (id, number, data, media_type, size_bytes, until)
        VALUES ('upload/1', 0, x'', 'text/plain', 1, 9), ('upload/1', 1, x'61', NULL, NULL, 9)""",
    """INSERT INTO accounts (key, user_id, label, first_seen_at, via)
        VALUES ('fake:1', 'u_1', 'Ada', 1, 'first-contact')""",
    "INSERT INTO owner_tries (turn_id, account, tried_at) VALUES ('t_1', 'fake:2', 1)",
    """INSERT INTO erasure_codes (user_id, code, channel, conversation, ends_at, tries)
        VALUES ('u_1', 'ab12', 'fake', 'c1', 2, 1)""",
    "INSERT INTO sign_in_failures (address, failures, last_at) VALUES ('127.0.0.1', 2, 1)",
    "INSERT INTO settings (name, value) VALUES ('secret', 'ab12')",
    "INSERT INTO erased_events_key (only_row, key) VALUES (1, x'ab12') ON CONFLICT DO NOTHING",
    "INSERT INTO tombstones (id, erased_at, key, digests) VALUES ('er_0123456789abcdef', 1, 'ab12', 'cd34')",
    """UPDATE outbox SET state = 'sending', ended_at = NULL, attempts = 1
        WHERE (lane, seq) = (SELECT lane, seq FROM outbox ORDER BY created_at DESC, seq DESC LIMIT 1)""",
)


async def talk(home: Path) -> None:
    """Memory of both kinds, a tool, a reply that failed, and a message that waits for its model."""
    model = ScriptedModel(
        [call("update_memory", '{"action": "add", "store": "user", "content": "Is called Ada."}')],
        "I will remember it, Ada.",
        [call("update_memory", '{"action": "add", "store": "memory", "content": "The engine is ready."}')],
        "Noted. The engine is ready.",
        "This one does not arrive.",
        "Grüße, 世界",
        [ModelUnavailable("the model is down")],
    )
    stop = asyncio.Event()
    async with Gateway(home, load_config(home=home).config, is_served=False, model=lambda _name: model) as gateway:
        running = asyncio.create_task(gateway.run(stop))
        channel = gateway.adapters[0]
        assert isinstance(channel, FakeChannel)
        await channel.ask("My name is Ada", user="1")
        await channel.ask("The analytical engine is ready", user="2", conversation="c2")
        channel.failures.append(PermanentSendError("blocked by the user"))
        await channel.say("Say something", user="2", conversation="c3")
        await channel.until(lambda: channel.attempts == 3)
        await channel.ask("Hello, world", user="1")
        await channel.ask("Are you there?", user="1", conversation="c4")  # answered with the word that it waits
        stop.set()
        await running


def release(home: Path, target: Path) -> None:
    """Write what is kept of a data directory."""
    (target / "home").mkdir(parents=True)
    for path in sorted(home.rglob("*")):
        if path.is_file() and (path.name in KEPT or path.name.endswith(".applied")):
            place = target / "home" / path.relative_to(home)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(b"" if path.name.endswith(".applied") else path.read_bytes())
    with closing(sqlite3.connect(home / "ethos.sqlite")) as connection:
        register_functions(connection)
        (target / "ethos.sql").write_text("\n".join(dump(connection)) + "\n", encoding="utf-8")


def dump(connection: sqlite3.Connection) -> Iterator[str]:
    """The statements that make the database: its tables and the rows, and then what depends on them."""
    made = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
    ).fetchall()
    hidden = [name for _, name, _ in made if name.startswith("search_") and name != "search_progress"]
    shown = [one for one in made if one[1] not in hidden and not one[1].startswith("sqlite_")]
    tables = [name for kind, name, sql in shown if kind == "table" and "VIRTUAL" not in sql]
    yield "BEGIN;"
    yield from (f"{sql};" for kind, name, sql in shown if name in tables)
    for table in tables:
        columns = [column[1] for column in connection.execute(f"PRAGMA table_info({table})")]
        for row in connection.execute(f"SELECT {', '.join(columns)} FROM {table}"):  # noqa: S608 (names of our own)
            values = [connection.execute("SELECT quote(?)", (value,)).fetchone()[0] for value in row]
            yield f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(values)});"  # noqa: S608 (as above)
    yield from (f"{sql};" for kind, name, sql in shown if name not in tables and kind != "index")
    yield from (f"{sql};" for kind, name, sql in shown if kind == "index")
    yield "INSERT INTO search (search, rank) VALUES ('pgsz', 1000);"
    yield "INSERT INTO search (search) VALUES ('rebuild');"
    for pragma in ("application_id", "user_version"):
        yield f"PRAGMA {pragma} = {connection.execute(f'PRAGMA {pragma}').fetchone()[0]};"
    yield "COMMIT;"


def main() -> None:
    """Make it, unless it is there."""
    version = migrations()[-1].version
    target = Path(*sys.argv[1:2] or [HERE]) / f"{version:04}"
    if target.exists():
        sys.exit(f"{target} is there, and a release is never changed")
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        make_private_directory(home)
        (home / "config.yaml").write_text(CONFIG)
        asyncio.run(talk(home))
        with closing(sqlite3.connect(home / "ethos.sqlite")) as connection:
            for statement in LEFT:
                connection.execute(statement)
            connection.commit()
        release(home, target)


if __name__ == "__main__":
    main()
