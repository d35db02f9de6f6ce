"""How soon `ethos serve` is healthy, and how much memory it takes, with terminal and web.

python -m benchmarks.start [--runs 5]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no VmRSS")


def start_once() -> tuple[float, float]:
    """Seconds until `/health` says ok, and resident megabytes then."""
    port = free_port()
    with tempfile.TemporaryDirectory() as home:
        Path(home, "config.yaml").write_text(f"web: {{port: {port}}}\n")
        started_at = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "serve", "--no-chat"],
            env={**os.environ, "ETHOS_HOME": home},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while True:
                with contextlib.suppress(urllib.error.URLError, ConnectionError):
                    answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).read()
                    if json.loads(answer)["status"] == "ok":
                        break
                assert process.poll() is None, "the gateway ended"
                assert time.perf_counter() - started_at < 30, "the gateway did not become healthy"
                time.sleep(0.005)
            return time.perf_counter() - started_at, resident_mb(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = [start_once() for _ in range(parser.parse_args().runs)]
    print(f"{'':>10} {'best':>8} {'median':>8} {'worst':>8}")
    for name, values in (("healthy s", [run[0] for run in runs]), ("MB", [run[1] for run in runs])):
        print(f"{name:>10} {min(values):>8.2f} {statistics.median(values):>8.2f} {max(values):>8.2f}")


if __name__ == "__main__":
    main()
