# SPDX-License-Identifier: MIT
"""The running kernel as anybody may see it: release, configuration, symbols, types, what it hides.

Nothing here needs root, and nothing is changed. Every path starts at a `root`, "/" but in tests.
"""

import ctypes
import gzip
import platform
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from contended.errors import ContendedError, UsageError
from contended.measure.btf import VMLINUX, Btf, Member

_READ_ALL = 3  # of syslog(2)


@dataclass(frozen=True)
class Running:
    """A kernel; of what it does not show, `types` and `config` are None and `symbols` is empty."""

    release: str
    architecture: str
    types: Btf | None
    config: dict[str, str] | None
    symbols: frozenset[str]
    file_systems: frozenset[str]
    log: str
    settings: dict[str, str]
    notes: tuple[str, ...]

    @property
    def version(self) -> tuple[int, int] | None:
        """The release's first two numbers; a vendor's kernel may hold much from later ones."""
        return version(self.release)

    def members(self, struct: str) -> dict[str, Member] | None:
        """A struct's members by name, none if there is no such struct; None without types."""
        if self.types is None:
            return None
        try:
            return {m.name: m for m in self.types.struct(struct)}
        except UsageError:
            return {}

    def has(self, function: str) -> bool | None:
        """Whether there is such a function, not inlined everywhere; None if that is hidden."""
        return function in self.symbols if self.symbols else None

    def setting(self, name: str) -> str:
        """A setting of /sys/kernel; empty if there is none."""
        return self.settings.get(name, "")

    def set(self, *options: str) -> bool | None:
        """Whether any of these is y or m in the configuration; None if that cannot be read."""
        if self.config is None:
            return None
        return any(self.config.get(option) in ("y", "m") for option in options)


def version(release: str) -> tuple[int, int] | None:
    """The last "major.minor" in a text like "6.1.0-28-amd64" or "3.14 or 3.15"; None of none."""
    found = re.findall(r"(?<![\d.])(\d+)\.(\d+)", release)
    return (int(found[-1][0]), int(found[-1][1])) if found else None


def read(root: Path = Path("/"), architecture: str = "") -> Running:
    """Look at the kernel now; takes about half a second, most of it for the types."""
    release = _text(root / "proc/sys/kernel/osrelease").strip() or platform.release()
    architecture = architecture or platform.machine()
    config, symbols = _config(root, release), parse_symbols(_text(root / "proc/kallsyms"))
    notes, types = [], None
    try:
        types = Btf(root / VMLINUX.relative_to("/"))
    except ContendedError as error:
        notes.append(f"{error}: where its members lie is not known")
    if config is None:
        notes.append("the configuration can be read neither in /proc/config.gz nor in /boot")
    if not symbols:
        notes.append("/proc/kallsyms names no function: which there are is not known")
    notes += said(
        architecture,
        _text(root / "proc/self/mounts"),
        _text(root / "sys/kernel/security/lockdown"),
        _text(root / "sys/kernel/realtime"),
    )
    systems = frozenset(line.split()[-1] for line in _lines(root / "proc/filesystems"))
    names = ("rcu_expedited", "rcu_normal", "realtime")
    settings = {name: _text(root / "sys/kernel" / name).strip() for name in names}
    log = _kernel_log() if root == Path("/") else _text(root / "var/log/dmesg")
    return Running(
        release, architecture, types, config, symbols, systems, log, settings, tuple(notes)
    )


def said(architecture: str, mounts: str, lockdown: str, realtime: str) -> list[str]:
    """A line for each thing about a machine that limits what can be found out on it."""
    lines = []
    if not architecture.endswith("64") and architecture != "s390x":
        lines.append(f"{architecture}: 32 bits, where members lie elsewhere than in the chapters")
    elif architecture not in ("x86_64", "amd64"):
        lines.append(f"{architecture}: models and controls work here; the kernel lab is x86-64's")
    for line in mounts.splitlines():
        _, place, _, options, *_ = [*line.split(), *[""] * 4]
        if place == "/proc" and (found := re.search(r"hidepid=([1-9]|[a-z]+)", options)):
            lines.append(f"{found[0]} hides other users' processes: the load is seen, not whose")
    if found := re.search(r"\[(integrity|confidentiality)\]", lockdown):
        refused = "kprobes and bpftrace" if found[1] == "confidentiality" else "unsigned modules"
        lines.append(f"lockdown ({found[1]}): {refused} are refused, to root as well")
    if realtime.strip() == "1":
        lines.append("a real-time kernel: locks sleep, and grace periods are not expedited")
    return lines


def parse_symbols(text: str) -> frozenset[str]:
    """The functions' names in the form of /proc/kallsyms, without what a compiler adds to them."""
    return frozenset(re.findall(r"^\S+ [tTwW] ([\w$]+)", text, re.M))


def parse_config(text: str) -> dict[str, str]:
    """What is set in a kernel's configuration; what is not is not there."""
    return dict(re.findall(r"^(CONFIG_\w+)=(.*)$", text, re.M))


def _config(root: Path, release: str) -> dict[str, str] | None:
    places = ("proc/config.gz", f"boot/config-{release}", f"lib/modules/{release}/config")
    for place in places:
        try:
            data = (root / place).read_bytes()
            text = gzip.decompress(data) if place.endswith(".gz") else data
        except (OSError, EOFError, zlib.error):
            continue
        if found := parse_config(text.decode(errors="replace")):
            return found
    return None


def _kernel_log() -> str:
    """What the kernel has said since boot, where anybody may read it and as far as it is kept."""
    syslog = getattr(ctypes.CDLL(None), "klogctl", None)
    kept = ctypes.create_string_buffer(1 << 22)
    length = syslog(_READ_ALL, kept, len(kept)) if syslog else 0
    return kept.raw[: max(length, 0)].decode(errors="replace")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _lines(path: Path) -> list[str]:
    return [line for line in _text(path).splitlines() if line.strip()]
