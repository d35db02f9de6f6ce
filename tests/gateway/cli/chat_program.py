"""`ethos chat` without a configuration: `python -m tests.gateway.cli.chat_program <directory> [options] [words]`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from gateway.cli.chat import chat


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--conversation", default="main")
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--patience", type=float, default=0.0)
    options = parser.parse_args()
    return asyncio.run(
        chat(
            options.directory / "state" / "chat.sock",
            state_dir=options.directory / "terminal",
            conversation=options.conversation,
            words=" ".join(options.words) or None,
            is_interactive=sys.stdin.isatty() and sys.stdout.isatty(),
            is_by_lines=options.lines,
            timeout_s=options.timeout,
            patience_s=options.patience,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
