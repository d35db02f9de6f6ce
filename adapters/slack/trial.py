"""What an installation's login says of itself, in words for people."""

from __future__ import annotations

from adapters.slack.client import SlackClient
from gateway.errors import AdapterAuthFailed, AdapterNotReady
from gateway.protocols import Trial


async def try_login(client: SlackClient, *, is_socket_mode: bool) -> Trial:
    """Ask for the app, its scopes, and in Socket Mode for a ticket that is not used. Raises as `connect`.

    No WebSocket is opened: Slack would send events over it that belong to the channel.
    """
    try:
        app = await client.open()
        problems = list(scope_problems(client))
        if is_socket_mode:
            try:
                await client.socket_url()
            except AdapterAuthFailed as error:
                problems.append(str(error))
            except AdapterNotReady as error:
                problems.append(f"{error}. Socket Mode must be on: see Socket Mode on the app's page.")
        hints = () if is_socket_mode else ("Slack sends its requests to this gateway; that way is not tried here.",)
        return Trial(
            account=f"@{app.name} in the workspace {client.workspace}",
            address=client.workspace_url,
            problems=tuple(problems),
            hints=hints,
        )
    finally:
        await client.close()


def scope_problems(client: SlackClient) -> tuple[str, ...]:
    """A line about the scopes that the app lacks, if it lacks any."""
    missing = ", ".join(f"`{scope}`" for scope in client.missing_scopes)
    advice = "paste the manifest of the page on Slack again under App Manifest, and reinstall the app"
    return (f"the app lacks the scopes {missing}: {advice}",) if missing else ()
