"""Gives up all that a program must not have, and becomes that program.

    python -I launch.py '{"limits": {…}, "landlock": {…}}' PROGRAM ARGUMENT…

Runs as a program of its own, and imports the standard library alone: it is started for each piece of foreign code. It
sets the limits; with `landlock` it also closes the files and the sockets of the machine. Exit code 125 with one line
on the standard error says that it could not, and then nothing of the program has run.

Landlock: https://docs.kernel.org/userspace-api/landlock.html; the filter of system calls: seccomp(2).
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import resource
import struct
import sys
from pathlib import Path
from typing import Any

CANNOT = 125
"""Exit code: the sandbox could not be closed."""

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SIGKILL = 9
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, read a directory
_READ_OF_FILE = 1 << 0 | 1 << 2
_WRITE_OF_FILE = 1 << 1 | 1 << 14  # write, truncate
_MAKE_DEVICE = 1 << 6 | 1 << 11
_SCOPE_SOCKETS_AND_SIGNALS = 3
_SCOPE_ABI = 6  # from which on signals to others are Landlock's business
_NET_ABI = 4

# Numbers of system calls by machine; `clone3` hides its flags from a filter, so it does not exist: libraries then call
# `clone`. io_uring opens sockets without `socket`; who leaves the process group would outlive it.
_ARCHITECTURES = {
    "x86_64": (0xC000003E, {
        "socket": 41, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "unshare": 272, "setns": 308,
        "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "bpf": 321, "perf_event_open": 298,
        "userfaultfd": 323, "io_uring_setup": 425, "keyctl": 250, "add_key": 248, "request_key": 249, "clone": 56,
        "clone3": 435, "kill": 62, "tkill": 200, "tgkill": 234, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297,
        "pidfd_send_signal": 424, "pidfd_getfd": 438, "kexec_load": 246, "init_module": 175, "finit_module": 313,
        "open_by_handle_at": 304, "fsopen": 430, "fsmount": 432, "move_mount": 429, "open_tree": 428, "setpgid": 109,
        "setsid": 112,
    }),
    "aarch64": (0xC00000B7, {
        "socket": 198, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "unshare": 97, "setns": 268,
        "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "bpf": 280, "perf_event_open": 241,
        "userfaultfd": 282, "io_uring_setup": 425, "keyctl": 219, "add_key": 217, "request_key": 218, "clone": 220,
        "clone3": 435, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240,
        "pidfd_send_signal": 424, "pidfd_getfd": 438, "kexec_load": 104, "init_module": 105, "finit_module": 273,
        "open_by_handle_at": 265, "fsopen": 430, "fsmount": 432, "move_mount": 429, "open_tree": 428, "setpgid": 154,
        "setsid": 157,
    }),
}  # fmt: skip
_SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW*, clone(2); that of time has no place among clone's flags
_X32 = 0x40000000  # x86's other way to number the same calls
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

_libc = ctypes.CDLL(None, use_errno=True)


class Unable(Exception):
    """The sandbox cannot be closed here; the text says which part."""


def set_limits(limits: dict[str, int]) -> None:
    """Limits of the kernel: `cpu_s`, `memory_bytes`, `file_bytes`, `processes` beyond those that run now."""
    for kind, value in (
        (resource.RLIMIT_CPU, limits["cpu_s"]),
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NPROC, limits["processes"] + _own_threads()),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 256),
    ):
        highest = resource.getrlimit(kind)[1]
        most = value if highest == resource.RLIM_INFINITY else min(value, highest)
        resource.setrlimit(kind, (most, most))


def _own_threads() -> int:
    """How many threads of this user there are, as the kernel counts them for its limit."""
    count = 0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if place.stat().st_uid == os.getuid():
                count += sum(1 for _ in (place / "task").iterdir())
        except OSError:  # it has ended meanwhile, or is not ours to look at
            continue
    return count


def landlock_version() -> int:
    """Of the kernel's Landlock; 0 where there is none, or it is switched off."""
    version: int = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(0, version)


def close_files(readable: list[str], writable: list[str], *, network: bool) -> int:
    """Leave only these files and directories, and TCP only if `network`; which version of Landlock did so.

    Raises:
        Unable: the kernel has no Landlock.
    """
    version = landlock_version()
    if not version:
        raise Unable("this kernel has no Landlock, or it is switched off")
    bits = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    handled = (1 << bits) - 1
    closed = 3 if version >= _NET_ABI and not network else 0
    scoped = _SCOPE_SOCKETS_AND_SIGNALS if version >= _SCOPE_ABI else 0
    attributes = struct.pack("QQQ", handled, closed, scoped)
    size = 24 if version >= _SCOPE_ABI else 16 if version >= _NET_ABI else 8
    rules = _checked(
        "landlock_create_ruleset", _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
    )
    for places, rights in ((readable, _READ), (writable, handled & ~_MAKE_DEVICE)):
        for place in places:
            _allow(rules, place, rights & handled)
    _checked("landlock_restrict_self", _libc.syscall(_RESTRICT_SELF, rules, ctypes.c_uint32(0)))
    os.close(rules)
    return version


def _allow(rules: int, place: str, rights: int) -> None:
    try:
        opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # a directory that this system does not have
    try:
        if not Path(place).is_dir():
            rights &= _READ_OF_FILE | _WRITE_OF_FILE
        rule = struct.pack("=Qi", rights, opened)
        added = _libc.syscall(_ADD_RULE, rules, _RULE_PATH_BENEATH, rule, ctypes.c_uint32(0))
        _checked("landlock_add_rule", added)
    finally:
        os.close(opened)


def refuse_calls(*, network: bool, signals: bool) -> None:
    """Refuse system calls that lead out: sockets unless `network`, other processes, new namespaces.

    Args:
        network: sockets are let be.
        signals: Landlock keeps signals inside, so their calls are let be.

    Raises:
        Unable: the numbers of this machine's calls are not known.
    """
    known = _ARCHITECTURES.get(platform.machine())
    if known is None:
        raise Unable(f"no filter of system calls for {platform.machine()}")
    architecture, numbers = known
    let_be = {*(("socket",) if network else ()), *(_SIGNALS if signals else ())}
    refused = [number for name, number in numbers.items() if name not in {"clone", "clone3", *let_be}]
    filters = [
        (_LOAD, 0, 0, 4),  # the architecture
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),
        (_LOAD, 0, 0, 0),  # the number
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
        (_EQUAL, 0, 1, numbers["clone3"]),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
    ]
    for number in refused:
        filters += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | errno.EPERM)]
    filters += [
        (_EQUAL, 0, 3, numbers["clone"]),
        (_LOAD, 0, 0, 16),  # the low half of its first argument, the flags
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in filters))
    whole = struct.pack("HxxxxxxP", len(filters), ctypes.addressof(program))
    _control("seccomp", _PR_SET_SECCOMP, 2, whole)


def _control(what: str, option: int, *values: int | bytes) -> None:
    """prctl(2)."""
    arguments = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in values]
    nothing = [ctypes.c_ulong(0)] * (4 - len(arguments))
    _checked(what, _libc.prctl(option, *arguments, *nothing))


def _checked(what: str, result: int) -> int:
    if result < 0:
        raise Unable(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def close(plan: dict[str, Any]) -> None:
    """Give up what the plan does not leave; see `gateway.sandbox.tiers`.

    Raises:
        Unable: something could not be given up.
    """
    _control("death of the parent", _PR_SET_PDEATHSIG, _SIGKILL)
    if plan.get("parent", os.getppid()) != os.getppid():
        raise Unable("the process that started this has ended")
    _control("no_new_privs", _PR_SET_NO_NEW_PRIVS, 1)
    set_limits(plan["limits"])
    landlock = plan.get("landlock")
    if landlock is not None:
        version = close_files(landlock["readable"], landlock["writable"], network=landlock["network"])
        refuse_calls(network=landlock["network"], signals=version >= _SCOPE_ABI)


def main(arguments: list[str]) -> None:
    """Become the program; does not come back."""
    plan, command = json.loads(arguments[0]), arguments[1:]
    try:
        close(plan)
        os.environ.pop("PWD", None)  # bubblewrap's
        os.execvp(command[0], command)  # noqa: S606 (what this program is for)
    except FileNotFoundError:
        sys.stderr.write(f"sandbox: there is no program {command[0]} in it\n")
        sys.stderr.flush()
        os._exit(CANNOT)
    except (Unable, OSError, ValueError) as error:
        sys.stderr.write(f"sandbox: {error}\n")
        sys.stderr.flush()
        os._exit(CANNOT)


if __name__ == "__main__":
    main(sys.argv[1:])
