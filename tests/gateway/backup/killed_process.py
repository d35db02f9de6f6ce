"""The `ethos` command, which kills itself with SIGKILL at the Nth thing that it does to the disk.

Arguments: N (0 only counts, and prints how many there were), then the command's own.

Python's audit events are the steps: a file is opened, renamed, linked or removed, a directory made, a database opened.
"""

import os
import signal
import sys

STEPS = {
    "open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.utime", "os.symlink", "os.truncate",
    "shutil.rmtree", "shutil.copytree", "shutil.copyfile", "sqlite3.connect", "fcntl.flock",
}  # fmt: skip
number = int(sys.argv[1])
sys.argv = ["ethos", *sys.argv[2:]]
seen: list[str] = []
is_counting = False


def hook(event: str, _arguments: tuple[object, ...]) -> None:
    if is_counting and event in STEPS:
        seen.append(event)
        if len(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)


from gateway.cli import main  # noqa: E402

sys.addaudithook(hook)
is_counting = True
try:
    main()
except SystemExit as end:
    code = end.code
is_counting = False
sys.stdout.write(f"{len(seen)}\n")
sys.exit(code)
