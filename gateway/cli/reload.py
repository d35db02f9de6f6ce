"""`ethos reload`: have the running gateway read its configuration again."""

from __future__ import annotations

import typer

from gateway.cli.options import AsJson


def reload(as_json: AsJson = False) -> None:
    """Have the running gateway read config.yaml again; on any error it goes on with the last good one."""
    from gateway.app.control import NotReached, ask
    from gateway.cli.errors import EXIT_CONFIG, EXIT_UNAVAILABLE, fail
    from gateway.cli.output import print_json, say
    from gateway.files.home import data_directory
    from gateway.files.running_gateway import running_gateway

    home = data_directory()
    if running_gateway(home) is None:
        fail(f"no gateway runs on {home}; `ethos serve` reads the configuration when it starts", EXIT_UNAVAILABLE)
    try:
        # Connections that are exchanged may take their time to end.
        answer = ask(home, {"do": "reload"}, timeout_s=180.0)
    except NotReached as error:
        fail(str(error), EXIT_UNAVAILABLE)
        return
    problems, at_once, at_restart = (answer.get(name, []) for name in ("problems", "at_once", "at_restart"))
    if as_json:
        print_json({name: value for name, value in answer.items() if name != "ok"})
        raise typer.Exit(EXIT_CONFIG if problems else 0)
    if problems:
        fail("\n".join([*problems, "nothing was taken over; the gateway goes on with the last good one"]), EXIT_CONFIG)
    for warning in answer.get("warnings", []):
        say(f"warning: {warning}")
    say(f"Taken over: {', '.join(at_once)}" if at_once else "Nothing has changed that can be taken over.")
    if at_restart:
        say(f"Waiting for a restart: {', '.join(at_restart)}")
