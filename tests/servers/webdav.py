"""Servers with WebDAV: wsgidav from PyPI, and Debian's Apache with mod_dav."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.servers import INSTALL, Process, accepts, directory, free_port, other_user
from tests.servers.certificates import self_signed

APACHE = Path("/usr/sbin/apache2")
_MODULES = Path("/usr/lib/apache2/modules")
MISSING_APACHE = None if APACHE.exists() and _MODULES.exists() else f"Apache is missing: {INSTALL}"
USER, PASSWORD = "ada", "pa:ss wörd"

_CONF = """
ServerRoot {root}
ServerName 127.0.0.1
Listen 127.0.0.1:{port}
PidFile {root}/pid
ErrorLog {root}/error.log
{modules}
{server}
DocumentRoot {root}/files
DavLockDB {root}/locks
<Directory {root}/files>
    Dav On
    AuthType Basic
    AuthName notes
    AuthUserFile {root}/users
    Require valid-user
    {settings}
</Directory>
"""
_LOADED = [
    "mpm_event",
    "authn_core",
    "authn_file",
    "auth_basic",
    "authz_core",
    "authz_user",
    "dav",
    "dav_fs",
    "mime",
    "ssl",
    "headers",
    "filter",
    "deflate",
]


@dataclass(frozen=True)
class WebdavServer:
    """One that runs; `files` is the folder that it serves."""

    url: str
    files: Path
    process: Process
    has_locks: bool
    ca_file: Path | None = None


@contextlib.contextmanager
def apache(settings: str = "", server: str = "", *, has_tls: bool = False) -> Iterator[WebdavServer]:
    """Apache with one user; `settings` are for its folder, `server` for all of it."""
    with directory() as root:
        port = free_port()
        files = root / "files"
        files.mkdir()
        root.chmod(0o755)
        files.chmod(0o777)
        digest = base64.b64encode(hashlib.sha1(PASSWORD.encode()).digest()).decode()
        (root / "users").write_text(f"{USER}:{{SHA}}{digest}\n")
        modules = "\n".join(
            f"LoadModule {name}_module {_MODULES}/mod_{name}.so"
            for name in _LOADED
            if (_MODULES / f"mod_{name}.so").exists()
        )
        made = self_signed(root) if has_tls else None
        if made is not None:
            server += f"\nSSLEngine on\nSSLCertificateFile {made.file}\nSSLCertificateKeyFile {made.key}\n"
        mime = root / "mime.types"
        mime.write_text("text/markdown md\n")
        conf = root / "apache.conf"
        text = _CONF.format(root=root, port=port, modules=modules, settings=settings, server=server)
        conf.write_text(text + f"TypesConfig {mime}\n")
        command = [APACHE, "-d", root, "-f", conf, "-DFOREGROUND"]
        process = Process(command, root=root, is_ready=lambda: accepts(port), user=other_user())
        process.start()
        try:
            scheme = "https" if made else "http"
            ca_file = made.file if made else None
            yield WebdavServer(f"{scheme}://127.0.0.1:{port}", files, process, has_locks=False, ca_file=ca_file)
        finally:
            process.stop()


@contextlib.contextmanager
def wsgidav() -> Iterator[WebdavServer]:
    """wsgidav without users."""
    with directory() as root:
        port = free_port()
        files = root / "files"
        files.mkdir()
        root.chmod(0o755)
        files.chmod(0o777)
        command = [
            *(sys.executable, "-m", "wsgidav.server.server_cli", "--host", "127.0.0.1", "--port", str(port)),
            *("--root", str(files), "--auth", "anonymous", "--server", "cheroot", "--quiet"),
        ]
        process = Process(command, root=root, is_ready=lambda: accepts(port))
        process.start()
        try:
            yield WebdavServer(f"http://127.0.0.1:{port}", files, process, has_locks=True)
        finally:
            process.stop()
