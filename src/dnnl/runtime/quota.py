"""The share of the machine that a control group of Linux leaves to this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def cpu_quota(root: Path = Path("/")) -> float | None:
    """How many cpus the process may keep busy on average, the least of its group and those above
    it; None without a limit.

    A group that has used its share of a period (0.1 s, usually) is stopped until the next one, all
    threads of it.
    """
    shares = [share for group in _groups(root) if (share := _share(group)) is not None]
    return min(shares, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """The folders of the process's group and of those above it, in version 1 or 2."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounts = ("", "unified")
        elif "cpu" in controllers.split(","):
            mounts = (controllers, "cpu")
        else:
            continue
        # A container sees its own group as the root of the mount, whatever its name is outside.
        inside = PurePosixPath(path.lstrip("/"))
        for mount in mounts:
            for part in (inside, *inside.parents):
                if ".." not in part.parts:
                    yield root / "sys/fs/cgroup" / mount / part


def _share(group: Path) -> float | None:
    quota, period = [*_text(group / "cpu.max").split(), "max", ""][:2]
    if quota == "max":
        quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
    try:
        share = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return share if share > 0 else None  # -1 is no limit


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
