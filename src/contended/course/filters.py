# SPDX-License-Identifier: MIT
"""The system calls that a sandbox refuses, as a program for the kernel's filter (seccomp)."""

from __future__ import annotations

import errno
import platform
import struct

CALLS = """
    ptrace 101 117   process_vm_readv 310 270   process_vm_writev 311 271   pidfd_getfd 438 438
    kcmp 312 272   unshare 272 97   setns 308 268   mount 165 40   umount2 166 39
    pivot_root 155 41   chroot 161 51   open_tree 428 428   move_mount 429 429   fsopen 430 430
    fsmount 432 432   mount_setattr 442 442   add_key 248 217   request_key 249 218
    keyctl 250 219   bpf 321 280   perf_event_open 298 241   userfaultfd 323 282
    io_uring_setup 425 425   io_uring_enter 426 426   io_uring_register 427 427
    name_to_handle_at 303 264   open_by_handle_at 304 265   kexec_load 246 104
    init_module 175 105   finit_module 313 273   reboot 169 142   swapon 167 224   acct 163 89
    quotactl 179 60   syslog 103 116
"""
"""Names, and numbers on x86-64 and arm64.

From the kernel's tables: arch/x86/entry/syscalls/syscall_64.tbl and the generic table.
"""

SHARED = """
    socket 41 198   connect 42 203   bind 49 200   listen 50 201   accept 43 202   accept4 288 242
    shmget 29 194   shmat 30 196   shmctl 31 195   semget 64 190   semop 65 193   semctl 66 191
    semtimedop 220 192   msgget 68 186   msgsnd 69 189   msgrcv 70 188   msgctl 71 187
    mq_open 240 180   mq_unlink 241 181   memfd_create 319 279   memfd_secret 447 447
    inotify_init1 294 26   inotify_add_watch 254 27   fanotify_init 300 262
    fanotify_mark 301 263
"""
"""What namespaces make harmless and must be refused without them: all that is not a file.

Files without a folder, too: nobody would count what is in them.
"""

SIGNALS = "kill 62 129   tkill 200 130   tgkill 234 131   pidfd_send_signal 424 424 " + (
    "rt_sigqueueinfo 129 138   rt_tgsigqueueinfo 297 240"
)
"""For those who share their user with the grader."""

_CLONE = (56, 220)
_CLONE3 = (435, 435)
_SOCKETPAIR = (53, 199)
_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_NEW_NAMESPACES = 0x7E020080  # all of CLONE_NEW*: mount, cgroup, uts, ipc, user, pid, net, time

_X32 = 0x40000000  # on x86-64, calls of the x32 ABI have this bit and would pass by the list

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARGUMENT_0, _ARGUMENT_1 = 0, 4, 16, 24
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_AF_UNIX = _SOCK_STREAM = 1


def _step(code: int, k: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, k)


def program(machine: str | None = None, more: str = "") -> bytes | None:
    """The filter (`struct sock_filter[]`) for a machine as `uname -m` says it; None if unknown.

    `more` are further calls to refuse, in the form of `CALLS`.
    """
    known = _ARCHES.get(machine or platform.machine())
    if known is None:
        return None
    column, arch = known
    refuse, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    steps = [_step(_LOAD, _ARCH), _step(_EQUAL, arch, then=1), _step(_RETURN, _KILL)]
    steps.append(_step(_LOAD, _NR))
    if column == 0:
        steps += [_step(_AT_LEAST, _X32, otherwise=1), _step(_RETURN, refuse)]
    for number in map(int, f"{CALLS} {more}".split()[1 + column :: 3]):
        steps += [_step(_EQUAL, number, otherwise=1), _step(_RETURN, refuse)]
    # Its flags are behind a pointer, where a filter cannot look; the C library then uses clone().
    steps += [_step(_EQUAL, _CLONE3[column], otherwise=1), _step(_RETURN, unknown)]
    if more:
        # A pair of streams is a pipe; one of datagrams can be sent to any socket with a name.
        steps += [_step(_EQUAL, _SOCKETPAIR[column], otherwise=6)]
        steps += [_step(_LOAD, _ARGUMENT_0), _step(_EQUAL, _AF_UNIX, otherwise=3)]
        steps += [_step(_LOAD, _ARGUMENT_1), _step(_AND, 0xF), _step(_EQUAL, _SOCK_STREAM, then=1)]
        steps += [_step(_RETURN, refuse), _step(_LOAD, _NR)]
    steps += [_step(_EQUAL, _CLONE[column], otherwise=3), _step(_LOAD, _ARGUMENT_0)]
    steps += [_step(_ANY_BIT, _NEW_NAMESPACES, otherwise=1), _step(_RETURN, refuse)]
    return b"".join([*steps, _step(_RETURN, _ALLOW)])
