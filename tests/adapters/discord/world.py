"""Who and what there is on the scripted Discord."""

from __future__ import annotations

from typing import Any

TOKEN = "MTIzNDU2.canary-token.that-no-log-may-show"
BOT, APPLICATION, GUILD, BOT_ROLE = "1001", "1001", "2002", "2003"
DM, OTHER_DM, ROOM, HALL = "3001", "3003", "3002", "3004"


def user(identifier: str, username: str, global_name: str | None = None, **more: Any) -> dict[str, Any]:
    """A user object (/resources/user#user-object)."""
    return {
        "id": identifier,
        "username": username,
        "global_name": global_name,
        "discriminator": "0",
        "avatar": None,
        **more,
    }


ADA = user("4001", "ada", "Ada")
BOB = user("4002", "bob")
BOT_USER = user(BOT, "ethos", bot=True)

_VIEW_AND_READ = 1 << 10 | 1 << 16  # /topics/permissions

_ROLE = {
    "permissions": str(_VIEW_AND_READ),
    "color": 0,
    "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
    "hoist": False,
    "position": 0,
    "managed": False,
    "mentionable": True,
    "flags": 0,
}
GUILD_OBJECT: dict[str, Any] = {
    "id": GUILD,
    "name": "The house",
    "owner_id": "9",
    "unavailable": False,
    "member_count": 2,
    "large": False,
    "roles": [{"id": GUILD, "name": "@everyone", **_ROLE}, {"id": BOT_ROLE, "name": "helpers", **_ROLE}],
    "members": [
        {
            "user": BOT_USER,
            "roles": [BOT_ROLE],
            "joined_at": "2026-01-01T00:00:00+00:00",
            "deaf": False,
            "mute": False,
            "flags": 0,
        }
    ],
    "channels": [
        {"id": ROOM, "type": 0, "name": "general", "position": 0, "permission_overwrites": []},
        {"id": HALL, "type": 0, "name": "hall", "position": 1, "permission_overwrites": []},
    ],
    **{key: [] for key in ("threads", "emojis", "stickers", "features", "voice_states", "presences")},
    **{key: [] for key in ("stage_instances", "guild_scheduled_events", "soundboard_sounds")},
    **dict.fromkeys(("verification_level", "default_message_notifications", "explicit_content_filter"), 0),
    **dict.fromkeys(("mfa_level", "nsfw_level", "premium_tier", "system_channel_flags"), 0),
    "preferred_locale": "en-US",
    "afk_timeout": 60,
    "icon": None,
    "premium_progress_bar_enabled": False,
}
