"""Certificates that nobody trusts who was not told to."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers import give


@dataclass(frozen=True)
class Certificate:
    """A certificate that signs itself, for 127.0.0.1, and its key."""

    file: Path
    key: Path


def self_signed(directory: Path) -> Certificate:
    """Make one for a server that has this directory."""
    made = Certificate(directory / "cert.pem", directory / "key.pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", made.key, "-out", made.file),
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    made.key.chmod(0o600)
    give(made.file)
    give(made.key)
    return made
