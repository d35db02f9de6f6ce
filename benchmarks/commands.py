"""How long short commands take: a chat alone, a chat with a gateway that runs, the status, the version.

python -m benchmarks.commands [--runs 9] [--tree PATH]

With `--tree`, another checkout runs each command in turn with this one, so both meet the same load of the machine. Both
use this one's virtual environment, because its size counts, too. The ratio is this one to the other.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
ATTACHED = (("chat attached", ("chat",)), ("status", ("status",)))
ALONE = (("chat alone", ("chat",)), ("--version", ("--version",)))


class Tree:
    """A checkout, and data directories for its commands."""

    def __init__(self, path: Path, directory: Path) -> None:
        self.path = path
        self.home = directory
        self.home.mkdir(mode=0o700)
        (self.home / "config.yaml").write_text("web: {port: 0}\n")
        (self.home / "config.yaml").chmod(0o600)

    def start(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a command that reads what it is asked."""
        return subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", *words],
            cwd=self.path,
            env={**os.environ, "ETHOS_HOME": str(self.home), "PYTHONPATH": str(self.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def run(self, words: Sequence[str]) -> tuple[float, int]:
        """Seconds, and the exit code."""
        started_at = time.perf_counter()
        process = self.start(words)
        process.communicate(b"hi\n")
        return time.perf_counter() - started_at, process.returncode

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run a gateway."""
        process = self.start(("serve", "--no-chat"))
        try:
            deadline = time.monotonic() + 30
            while self.run(("status",))[1] != 0:
                assert process.poll() is None, "the gateway ended"
                assert time.monotonic() < deadline, "the gateway did not become healthy"
            yield
        finally:
            process.terminate()
            process.wait(20)


def measure(trees: Sequence[Tree], words: Sequence[str], runs: int) -> Mapping[Tree, float]:
    """The median of seconds in each tree."""
    seconds: dict[Tree, list[float]] = {tree: [] for tree in trees}
    for number in range(runs + 1):
        for tree in trees:
            took_s, code = tree.run(words)
            assert code == 0, f"ethos {' '.join(words)} ended with {code} in {tree.path}"
            if number:  # the first fills the caches
                seconds[tree].append(took_s)
    return {tree: statistics.median(values) for tree, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--tree", type=Path, help="Another checkout, to compare with.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        paths = [ROOT, *([options.tree.resolve()] if options.tree else [])]
        trees = [Tree(path, Path(directory, str(number))) for number, path in enumerate(paths)]
        print(f"{'seconds':>14} {'here':>7} {'there':>7} {'ratio':>7}")
        for commands in (ALONE, ATTACHED):
            if commands is ATTACHED:
                for tree in trees:
                    stack.enter_context(tree.serving())
            for name, words in commands:
                medians = list(measure(trees, words, options.runs).values())
                there = f"{medians[1]:>7.3f} {medians[0] / medians[1]:>7.2f}" if len(medians) > 1 else ""
                print(f"{name:>14} {medians[0]:>7.3f} {there}", flush=True)


if __name__ == "__main__":
    main()
