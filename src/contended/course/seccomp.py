# SPDX-License-Identifier: MIT
"""The system calls that a sandbox refuses, as a filter that bubblewrap hands to the kernel.

Namespaces keep a submission away from the machine's files, network and processes. What is left is
the kernel itself, so the calls that a solution never needs, and that have let others out of such
boxes before, answer "not permitted": tracing, new namespaces, mounts, keys, BPF, io_uring. It is a
list of refusals and not of permissions: Python, gcc and the sanitizers use too many calls to list.
"""

from __future__ import annotations

import errno
import platform
import struct

# From the kernel's tables: arch/x86/entry/syscalls/syscall_64.tbl and the generic table.
_CALLS: dict[str, tuple[int, int]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
}
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_NEW_NAMESPACES = 0x7E020080
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWTIME."""

_X32 = 0x40000000
"""On x86-64, calls of the x32 ABI have this bit and would otherwise pass by the list."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARGUMENT_0 = 0, 4, 16
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def _step(code: int, k: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, k)


def program(machine: str | None = None) -> bytes | None:
    """The filter as the kernel takes it (`struct sock_filter[]`).

    Args:
        machine: As `uname -m` says it; None: this one.

    Returns:
        None for a machine whose calls' numbers are not known here.
    """
    known = _ARCHES.get(machine or platform.machine())
    if known is None:
        return None
    column, arch = known
    refuse, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    steps = [
        _step(_LOAD, _ARCH),
        _step(_EQUAL, arch, then=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NR),
    ]
    if column == 0:
        steps += [_step(_AT_LEAST, _X32, otherwise=1), _step(_RETURN, refuse)]
    for numbers in _CALLS.values():
        steps += [_step(_EQUAL, numbers[column], otherwise=1), _step(_RETURN, refuse)]
    # Its flags are behind a pointer, where a filter cannot look; the C library then uses clone().
    steps += [_step(_EQUAL, _CLONE3[column], otherwise=1), _step(_RETURN, unknown)]
    steps += [
        _step(_EQUAL, _CLONE[column], otherwise=3),
        _step(_LOAD, _ARGUMENT_0),
        _step(_ANY_BIT, _NEW_NAMESPACES, otherwise=1),
        _step(_RETURN, refuse),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(steps)
