"""Real Dovecot and Exim on 127.0.0.1, from Debian's packages, as an unprivileged user and in a directory of their own.

Every address at `DOMAIN` is an account with the password `PASSWORD`, so each test takes new names and has the server to
itself. Exim takes mail from who has logged in, removes every `Authentication-Results` (not for accounts that begin with
`careless`), states in one of its own whether the From is that account's, and delivers to Dovecot by LMTP. It queues,
and delivers in order when it is told to (`deliver_queue`).

For XOAUTH2 a small server on loopback stands for the provider: it answers token refreshes and, for Dovecot, RFC 7662
token introspection (https://doc.dovecot.org/2.3/configuration_manual/authentication/oauth2/).
"""

from __future__ import annotations

import contextlib
import grp
import http.server
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.servers import free_port

DOMAIN = "example.test"
PASSWORD = 'pa"ss\\w0rd'
GOOD_TOKEN = "good-access-token"
AUTHSERV_ID = "mx.example.test"
INSTALL = "as root, deploy/install-test-packages (dovecot-imapd dovecot-lmtpd exim4-daemon-light openssl, switched off)"
_DOVECOT, _EXIM = Path("/usr/sbin/dovecot"), Path("/usr/sbin/exim4")
_PORTS = ("imaps", "imap_clear", "lmtp", "smtps", "smtp", "smtp_clear")
_READY_S = 60.0

_DOVECOT_CONF = """
base_dir = {root}/run
state_dir = {root}/run
log_path = {root}/dovecot.log
default_internal_user = {user}
default_internal_group = {group}
default_login_user = {user}
protocols = imap lmtp
listen = 127.0.0.1
hostname = {authserv_id}
mail_location = mdbox:{root}/mail/%n
mail_uid = {user}
mail_gid = {group}
first_valid_uid = 1
mail_fsync = never
mail_max_userip_connections = 1000
recipient_delimiter = +
auth_mechanisms = plain xoauth2
auth_failure_delay = 0
ssl = yes
ssl_cert = <{root}/server.pem
ssl_key = <{root}/server.key
disable_plaintext_auth = no
imap_idle_notify_interval = 2 mins
namespace inbox {{
  inbox = yes
  separator = /
  mailbox Sent {{
    auto = subscribe
    special_use = \\Sent
  }}
}}
passdb {{
  driver = oauth2
  mechanisms = xoauth2
  args = {root}/oauth2.conf
}}
passdb {{
  driver = static
  mechanisms = plain login
  args = {password_args}
}}
userdb {{
  driver = static
  args = uid={user} gid={group} home={root}/mail/%n allow_all_users=yes
}}
service imap-login {{
  chroot =
  service_count = 0
  process_min_avail = 1
  inet_listener imap {{
    port = {imap_clear}
  }}
  inet_listener imaps {{
    port = {imaps}
    ssl = yes
  }}
}}
service imap {{
  process_min_avail = 1
  client_limit = 1
  service_count = 100
}}
service lmtp {{
  process_min_avail = 1
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {lmtp}
  }}
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service stats {{
  chroot =
}}
service auth {{
  user = {user}
}}
service auth-worker {{
  user = {user}
}}
"""

_OAUTH2_CONF = """
introspection_mode = post
introspection_url = http://127.0.0.1:{oauth}/introspect
username_attribute = username
active_attribute = active
active_value = true
"""

_EXIM_CONF = """
exim_path = {root}/exim
spool_directory = {root}/spool
log_file_path = {root}/exim-%slog
pid_file_path = {root}/exim.pid
primary_hostname = {authserv_id}
exim_user = {user}
exim_group = {group}
never_users =
deliver_drop_privilege = true
local_interfaces = 127.0.0.1
daemon_smtp_ports = {smtps} : {smtp} : {smtp_clear}
tls_on_connect_ports = {smtps}
tls_advertise_hosts = ${{if eq{{$received_port}}{{{smtp_clear}}}{{}}{{*}}}}
tls_certificate = {root}/server.pem
tls_privatekey = {root}/server.key
auth_advertise_hosts = ${{if or{{{{eq{{$received_port}}{{{smtp_clear}}}}}{{def:tls_in_cipher}}}}{{*}}{{}}}}
host_lookup =
rfc1413_hosts =
rfc1413_query_timeout = 0s
smtp_accept_max = 200
smtp_accept_queue_per_connection = 0
message_size_limit = 40M
queue_only = true
queue_run_in_order = true
keep_environment =
acl_smtp_rcpt = rcpt
acl_smtp_data = data
acl_smtp_mail = accept

begin acl
rcpt:
  deny  message = no such user
        local_parts = nobody
  deny  local_parts = !^[A-Za-z0-9+._-]+\\$
  accept authenticated = *
         domains = {domain}
  deny  message = relay not permitted
data:
  warn   condition = ${{if match{{$recipients}}{{^careless}}{{no}}{{yes}}}}
         remove_header = Authentication-Results
  accept condition = ${{if eqi{{$authenticated_id}}{{${{address:$h_from:}}}}}}
         add_header = :at_start:{result}; dmarc=pass header.from=${{domain:${{address:$h_from:}}}}
  accept add_header = :at_start:{result}; dmarc=fail header.from=${{domain:${{address:$h_from:}}}}

begin routers
all:
  driver = manualroute
  transport = lmtp
  route_list = * 127.0.0.1
  self = send

begin transports
lmtp:
  driver = smtp
  protocol = lmtp
  port = {lmtp}
  connection_max_messages = 1
  hosts_try_fastopen =
  hosts_avoid_tls = *

begin retry
* * F,1h,1s

begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_condition = ${{if eq{{$auth3}}{{{exim_password}}}}}
  server_set_id = $auth2
login:
  driver = plaintext
  public_name = LOGIN
  server_prompts = <| Username: | Password:
  server_condition = ${{if eq{{$auth2}}{{{exim_password}}}}}
  server_set_id = $auth1
xoauth2:
  driver = plaintext
  public_name = XOAUTH2
  server_condition = ${{if match{{$auth1}}{{\\N^user=([^\\x01]+)\\x01auth=Bearer {good_token}[^\\x01]*\\x01\\x01$\\N}}}}
  server_set_id = ${{if match{{$auth1}}{{\\N^user=([^\\x01]+)\\N}}{{$1}}}}
"""


def missing_packages() -> str | None:
    """Why the servers cannot be started here, with the command that mends it."""
    parts = (_DOVECOT, _EXIM, Path("/usr/lib/dovecot/imap"), Path("/usr/lib/dovecot/lmtp"))
    if all(path.exists() for path in parts) and shutil.which("openssl"):
        return None
    return f"the mail servers are not installed: {INSTALL}"


class OAuthProvider:
    """A token endpoint (RFC 6749, section 6) and, for Dovecot, token introspection (RFC 7662).

    An access token is `GOOD_TOKEN|account`; the account is the `client_id` of whoever asks.

    Attributes:
        requests: the form of every refresh.
        answers: statuses and bodies to give instead, one for each refresh to come.
        rotate_to: the next refresh token that is handed out, as Microsoft does.
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, str]] = []
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.rotate_to: str | None = None
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                form = dict(urllib.parse.parse_qsl(self.rfile.read(length).decode()))
                status, answer = provider._answer(self.path, form)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name is the library's)
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.port: int = self._server.server_address[1]

    @property
    def token_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/token"

    def _answer(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if path.startswith("/introspect"):
            token, _, account = form.get("token", "").partition("|")
            return 200, {"active": token == GOOD_TOKEN, "username": account}
        self.requests.append(form)
        if self.answers:
            return self.answers.pop(0)
        reply: dict[str, Any] = {"access_token": f"{GOOD_TOKEN}|{form['client_id']}", "expires_in": 3600}
        if self.rotate_to is not None:
            reply["refresh_token"] = self.rotate_to
        return 200, reply

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class MailServer:
    """Both servers.

    Attributes:
        ports: by name: `imaps`, `imap_clear`, `lmtp`, `smtps`, `smtp` (STARTTLS), `smtp_clear`.
        ca_file: the certificate, which vouches for itself.
        oauth: the provider whose tokens both servers take.
    """

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ethos-mail-"))
        self.ca_file = self.root / "server.pem"
        self.oauth = OAuthProvider()
        self.ports = {name: free_port() for name in _PORTS}
        self._account = _unprivileged()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        self._write_files()
        self.start_dovecot()
        self.start_exim()

    def close(self) -> None:
        for name in list(self._processes):
            self._stop(name)
        self.oauth.close()
        shutil.rmtree(self.root)

    def start_dovecot(self) -> None:
        self._run("dovecot", [str(_DOVECOT), "-F", "-c", str(self.root / "dovecot.conf")])
        for port in ("imaps", "imap_clear", "lmtp"):
            self._wait(port)

    def stop_dovecot(self) -> None:
        self._stop("dovecot")

    def restart_dovecot(self) -> None:
        self.stop_dovecot()
        self.start_dovecot()

    def start_exim(self) -> None:
        self._run("exim", [str(self.root / "exim"), "-C", str(self.root / "exim.conf"), "-bdf"])
        for port in ("smtps", "smtp", "smtp_clear"):
            self._wait(port)

    def stop_exim(self) -> None:
        self._stop("exim")

    def deliver_queue(self) -> None:
        """Deliver what Exim has taken, in order; returns when it is in the mailboxes."""
        command = [str(self.root / "exim"), "-C", str(self.root / "exim.conf"), "-qff"]
        subprocess.run(command, check=True, timeout=_READY_S, stdout=subprocess.DEVNULL, **self._as_user())

    def order_taken(self) -> dict[str, int]:
        """Message-IDs and their places in the order in which Exim took them, by its log.

        It writes the line before it confirms the mail. Its queue keeps the order less well: it sorts by the time, which
        is one for all mails within 5 ms.
        """
        taken = re.findall(r" <= .* id=(\S+)", (self.root / "exim-mainlog").read_text(errors="replace"))
        return {f"<{message_id}>": place for place, message_id in enumerate(taken)}

    def queued(self) -> int:
        """How many mails Exim has taken and not delivered."""
        command = [str(self.root / "exim"), "-C", str(self.root / "exim.conf"), "-bpc"]
        done = subprocess.run(command, check=True, timeout=_READY_S, capture_output=True, **self._as_user())
        return int(done.stdout)

    def fill(self, account: str, contents: Sequence[bytes]) -> None:
        """Put mails into an inbox, all at once (RFC 3502 and 7888)."""
        with (
            socket.create_connection(("127.0.0.1", self.ports["imap_clear"]), _READY_S) as line,
            line.makefile("rwb") as io,
        ):
            password = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
            io.write(f'1 LOGIN {account} "{password}"\r\n2 APPEND INBOX'.encode())
            for content in contents:
                io.write(b" {%d+}\r\n%s" % (len(content), content))
            io.write(b"\r\n")
            io.flush()
            while not (answer := io.readline()).startswith(b"2 "):
                assert answer, "the server hung up"
            assert answer.startswith(b"2 OK"), answer

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.root.glob("*log")))

    # ---- one process -------------------------------------------------------------------------------------------------

    def _write_files(self) -> None:
        user, group = self._account
        values = {
            **self.ports,
            "root": self.root,
            "user": user,
            "group": group,
            "domain": DOMAIN,
            "authserv_id": AUTHSERV_ID,
            "result": f"Authentication-Results: {AUTHSERV_ID}",
            "oauth": self.oauth.port,
            "password_args": f"password={PASSWORD}",
            "exim_password": PASSWORD.replace("\\", "\\\\"),
            "good_token": GOOD_TOKEN,
        }
        for name, template in (
            ("dovecot.conf", _DOVECOT_CONF),
            ("oauth2.conf", _OAUTH2_CONF),
            ("exim.conf", _EXIM_CONF),
        ):
            (self.root / name).write_text(template.format_map(values))
        for name in ("run", "mail", "spool"):
            (self.root / name).mkdir()
        _make_certificate(self.root)
        shutil.copy(_EXIM, self.root / "exim")
        (self.root / "exim").chmod(0o755)  # without the setuid bit, so that it stays who it is
        for path in (self.root, *self.root.iterdir()):
            self._give(path)

    def _give(self, path: Path) -> None:
        if os.getuid() == 0:
            shutil.chown(path, *self._account)

    def _as_user(self) -> dict[str, Any]:
        """Tests that run as root start the servers as somebody else; Dovecot serves no mail as root."""
        user, group = self._account
        return {"user": user, "group": group, "extra_groups": ()} if os.getuid() == 0 else {}

    def _run(self, name: str, command: list[str]) -> None:
        with (self.root / f"{name}-output-log").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.root,
                start_new_session=True,
                **self._as_user(),
            )

    def _stop(self, name: str) -> None:
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_READY_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # Dovecot's sessions may outlive it, and be found again
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _wait(self, port: str) -> None:
        until = time.monotonic() + _READY_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[port]), 1.0):
                return
            dead = [name for name, process in self._processes.items() if process.poll() is not None]
            assert not dead, f"{dead} ended: {self.log()}"
            assert time.monotonic() < until, f"{port} does not answer: {self.log()}"
            threading.Event().wait(0.02)  # nothing tells when a foreign process listens


@contextlib.contextmanager
def running_mail_server() -> Iterator[MailServer]:
    server = MailServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


def _unprivileged() -> tuple[str, str]:
    account = pwd.getpwnam("nobody") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
    return account.pw_name, grp.getgrgid(account.pw_gid).gr_name


def _make_certificate(directory: Path) -> None:
    """A certificate for 127.0.0.1 that is its own authority, with what OpenSSL's strict checks want."""
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=mail.example.test "
        "-addext subjectAltName=IP:127.0.0.1,DNS:localhost -addext keyUsage=critical,digitalSignature,keyCertSign "
        "-keyout server.key -out server.pem"
    )
    subprocess.run(command.split(), cwd=directory, check=True, capture_output=True)
