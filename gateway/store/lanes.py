"""The lanes: what becomes of a conversation inside of the transactions of others; `claims.py` has who answers it.

A lane is a row, so that its lock makes one order of all that happens in a conversation. `due_at` is the time of all
waiting: of a message that is next, of a retry, of a parked message, and of a claim whose worker is gone.

`order_at` decides who is next of those that are due, as in start-time fair queueing (P. Goyal, H. Vin and H. Cheng,
1996): a lane gets the lowest number of those that wait or run, and a second more than the highest of its sender's other
lanes. So a person with a thousand messages delays another by one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from gateway.errors import ClaimLost
from gateway.messages import ConversationRef
from gateway.store.engine import Connection, Row, require
from gateway.store.queue_rows import Place, lane_key

_NEXT_IN_ORDER = """
    (SELECT max(tag) FROM (
        SELECT coalesce(min(order_at), now_ms()) AS tag FROM lanes WHERE order_at < now_ms()
        UNION ALL
        SELECT max(own.order_at) + 1000 FROM lanes AS own
        WHERE own.channel = {channel} AND own.sender = {sender} AND own.order_at IS NOT NULL
        AND (own.claim IS NOT NULL OR own.due_at - own.waiting_since < 500)
    ) AS tags)
"""  # what is put off keeps its time as its number, and counts for nobody until then
_ARRIVED = f"""
    INSERT INTO lanes (channel, conversation, thread, sender, needs_channel, last_seq, due_at, waiting_since, order_at)
    VALUES (?1, ?2, ?3, ?4, ?5, 1, now_ms(), now_ms(), {_NEXT_IN_ORDER.format(channel="?1", sender="?4")})
    ON CONFLICT (channel, conversation, thread) DO UPDATE SET last_seq = lanes.last_seq + 1,
        due_at = coalesce(lanes.due_at, excluded.due_at),
        waiting_since = CASE WHEN lanes.due_at IS NULL THEN excluded.waiting_since ELSE lanes.waiting_since END,
        order_at = CASE WHEN lanes.due_at IS NULL THEN excluded.order_at ELSE lanes.order_at END,
        sender = CASE WHEN lanes.due_at IS NULL THEN excluded.sender ELSE lanes.sender END,
        needs_channel = CASE WHEN lanes.due_at IS NULL THEN excluded.needs_channel ELSE lanes.needs_channel END
    RETURNING id, last_seq
"""  # noqa: S608 (names of ours)
_SETTLED = f"""
    UPDATE lanes SET claim = NULL, worker = NULL,
        (due_at, waiting_since, sender, needs_channel, order_at) = (
            SELECT now_ms(), now_ms(), head.sender, head.needs_channel,
                   {_NEXT_IN_ORDER.format(channel="head.channel", sender="head.sender")}
            FROM inbox AS head WHERE head.lane = lanes.id AND head.ended_at IS NULL ORDER BY head.seq LIMIT 1
        )
    WHERE id = ? RETURNING due_at
"""  # noqa: S608 (names of ours)
_IDLE = """
    UPDATE lanes SET due_at = NULL, waiting_since = NULL, order_at = NULL, sender = NULL, needs_channel = NULL
    WHERE id = ?1 AND claim IS NULL AND NOT EXISTS (SELECT 1 FROM inbox WHERE lane = ?1 AND ended_at IS NULL)
"""
_PUT_OFF = """
    UPDATE lanes SET claim = NULL, worker = NULL, waiting_since = now_ms(),
        due_at = now_ms() + CASE WHEN stop_seq > ?2 THEN 0 ELSE ?3 END,
        order_at = CASE WHEN stop_seq > ?2 OR ?3 = 0 THEN order_at ELSE now_ms() + ?3 END
    WHERE id = ?1 AND claim = ?4
"""
_HELD = "SELECT stop_seq FROM lanes WHERE id = ? AND claim = ? "
HASTEN = """
    UPDATE lanes SET due_at = now_ms(), waiting_since = now_ms(),
                     order_at = CASE WHEN order_at > now_ms() THEN now_ms() ELSE order_at END
    WHERE id = ? AND claim IS NULL AND due_at > now_ms()
"""
"""What waits in a lane, by its id, for a time to come is due now."""
_STOP = """
    UPDATE lanes SET stop_seq = coalesce(stop_seq, ?2)
    WHERE id = ?1 AND EXISTS (
        SELECT 1 FROM inbox WHERE lane = ?1 AND seq < ?2 AND ended_at IS NULL AND coalesce(asks, '') <> 'stop'
    )
    RETURNING stop_seq
"""


def arrive(
    connection: Connection, conversation: ConversationRef, sender: str, *, needs_channel: bool
) -> Callable[[], Place]:
    """A message comes in: its lane is due, unless it is claimed or waits for a time. Gives its place when asked."""
    asked = connection.execute(_ARRIVED, (*lane_key(conversation), sender, needs_channel))
    return lambda: Place(*asked.fetchone())


def hold(connection: Connection, lane: int, claim: str) -> Callable[[], Row]:
    """Lock a lane for what its turn commits; what gives the row with its `stop_seq`, to be asked before the commit.

    That raises ClaimLost where the claim is not this one any more.
    """
    asked = connection.execute(_HELD + connection.dialect.locked, (lane, claim))

    def held() -> Row:
        row: Row | None = asked.fetchone()
        if row is None:
            raise ClaimLost("the conversation is no longer claimed by who answered here; nothing of that was committed")
        return row

    return held


def hold_at_once(connection: Connection, lane: int, claim: str) -> None:
    """The same where nothing is read before the commit; refuses it also where somebody said stop."""
    require(connection, f"{_HELD} AND stop_seq IS NULL {connection.dialect.locked}", (lane, claim))


def settle(connection: Connection, lane: int) -> Callable[[], bool]:
    """Release a lane: due now where an unfinished message is left, which is told when asked, else idle.

    In a statement of its own, after the lane was locked: so it sees what was accepted while the lock was waited for.
    """
    asked = connection.execute(_SETTLED, (lane,))

    def has_more() -> bool:
        row = asked.fetchone()
        return row is not None and row["due_at"] is not None

    return has_more


def put_off(connection: Connection, lane: int, seq: int, claim: str, after_s: float) -> bool:
    """Release a lane for some seconds, none where its message is to be stopped; False: the claim is another's."""
    return bool(connection.execute(_PUT_OFF, (lane, seq, round(after_s * 1000), claim)).rowcount)


def hasten(connection: Connection, place: Place) -> bool:
    """A `/retry` at this place: what waits in its lane for a time is due now; whether anything was."""
    return bool(connection.execute(HASTEN, (place.lane,)).rowcount)


def stop(connection: Connection, place: Place) -> bool:
    """A `/stop` at this place: the turn that runs in its lane, or is the next, is to end; True: another has said so."""
    row = connection.execute(_STOP, tuple(place)).fetchone()
    if row is None:
        return False
    hasten(connection, place)
    return bool(row["stop_seq"] != place.seq)


def rest(connection: Connection, lane: int) -> None:
    """A lane in which nothing is open is idle, unless it is claimed."""
    connection.execute(_IDLE, (lane,))


def waken(connection: Connection, lanes: Collection[int]) -> None:
    """Rows of the inbox are open again: lanes that are not claimed are due where they have any, else idle."""
    for lane in lanes:
        if connection.execute("SELECT 1 FROM lanes WHERE id = ? AND claim IS NULL", (lane,)).fetchone() is not None:
            settle(connection, lane)
