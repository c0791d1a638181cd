"""The sizes of this machine's caches, as far as the system tells."""

from __future__ import annotations

from pathlib import Path

from dnnl.runtime.backend import CacheSizes

FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 2**10, "M": 2**20}
_LINE = 64


def cache_sizes(folder: Path = FOLDER) -> CacheSizes | None:
    """The sizes that Linux has in ``folder``; None where it, or one of them, is missing.

    A cache of 0 ways is what Linux calls a fully associative one.
    """
    levels: dict[str, Path] = {}
    try:
        for index in sorted(folder.glob("index*")):
            if _text(index, "type") in ("Data", "Unified"):
                levels.setdefault(_text(index, "level"), index)
        l1, l2, l3 = levels["1"], levels["2"], levels.get("3")
        ways = int(_text(l1, "ways_of_associativity")) or _size(l1) // _LINE
        sizes = CacheSizes(_size(l1), ways, _size(l2), 0 if l3 is None else _size(l3))
        return sizes if min(sizes[:3]) > 0 else None
    except (OSError, KeyError, ValueError):
        return None


def _text(index: Path, name: str) -> str:
    return (index / name).read_text().strip()


def _size(index: Path) -> int:
    """The bytes of a cache, which are spelled like 48K."""
    text = _text(index, "size")
    return int(text.rstrip("KM")) * _UNITS.get(text[-1:], 1)
