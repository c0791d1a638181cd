"""Options of a whole run: modes, time limits, the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dnnl.language.values import flag, integer, text
from dnnl.tools.engines import checked

MODES = "CLIRPFSB"
PEERS = ("onednn", "onednn-openmp", "torch")
"""The libraries that cases can be compared with: oneDNN is the newest build that starts."""
_FAST_MS = 10
_MS = (10, 60_000)


@dataclass(frozen=True)
class Settings:
    """The options of the run as they are when a case is made.

    ``mode`` is a letter of MODES (F became P with modifiers), ``modifiers`` out of P and M.
    """

    mode: str = "C"
    modifiers: str = ""
    fix_times: int = 0
    max_ms: int = 3000
    repeats: int = 1
    start: int = 0
    engine: str = "cpu"
    canonical: bool = False
    verbose: int = 0
    check_ref_impl: bool = False
    summary: frozenset[str] = frozenset({"failures", "impl"})
    impl: str = ""
    skip_impl: str = ""
    peer: str = ""

    def repro(self) -> str:
        """The settings that a repro line needs, each followed by a space."""
        plain = Settings()
        texts = [
            f"--{name}={value} "
            for name, value, default in (
                ("mode", self.mode, plain.mode),
                ("mode-modifier", self.modifiers, plain.modifiers),
                ("fix-times-per-prb", self.fix_times, plain.fix_times),
                ("max-ms-per-prb", self.max_ms, plain.max_ms),
                ("peer", self.peer, plain.peer),
                ("engine", self.engine, plain.engine),
                ("global-impl", self.impl, plain.impl),
                ("global-skip-impl", self.skip_impl, plain.skip_impl),
            )
            if value != default
        ]
        return "".join(texts)


def _mode(settings: Settings, value: str) -> Settings:
    mode = value.upper()
    if len(mode) != 1 or mode not in MODES:
        raise ValueError(f"expected one of the letters {MODES}")
    if mode == "F":
        return replace(settings, mode="P", modifiers="PM", max_ms=_FAST_MS)
    if mode == "R":
        return replace(settings, mode=mode, modifiers=_joined(settings.modifiers, "M"))
    return replace(settings, mode=mode)


def _modifiers(settings: Settings, value: str) -> Settings:
    given = value.upper()
    if set(given) - set("PM"):
        raise ValueError("expected letters out of P and M")
    return replace(settings, modifiers=_joined(settings.modifiers, given))


def _joined(first: str, second: str) -> str:
    return "".join(letter for letter in "PM" if letter in first + second)


def _summary(settings: Settings, value: str) -> Settings:
    shown = set(settings.summary)
    for part in value.split("+"):
        name = part.removeprefix("no-")
        if name not in ("failures", "impl", "impl-csv"):
            raise ValueError("expected [no-]failures, [no-]impl or [no-]impl-csv")
        (shown.discard if part.startswith("no-") else shown.add)(name)
    return replace(settings, summary=frozenset(shown))


def _engine(settings: Settings, value: str) -> Settings:
    return replace(settings, engine=checked(value))


def _max_ms(settings: Settings, value: str) -> Settings:
    low, high = _MS
    return replace(settings, max_ms=min(max(integer(value), low), high))


def _field(name: str, parse: Callable[[str], Any]) -> Callable[[Settings, str], Settings]:
    def change(settings: Settings, value: str) -> Settings:
        changed: Settings = replace(settings, **{name: parse(value)})
        return changed

    return change


def _nothing(settings: Settings, _: str) -> Settings:
    return settings


def _peers(value: str) -> str:
    names = value.split(",") if value else []
    if not set(names) <= set(PEERS) or len(set(names)) < len(names):
        raise ValueError(f"expected {', '.join(PEERS)}, or several with commas between them")
    return value


def _on(value: str) -> bool:
    return bool(flag(value))


GLOBALS: dict[str, Callable[[Settings, str], Settings]] = {
    "mode": _mode,
    "mode-modifier": _modifiers,
    "fix-times-per-prb": _field("fix_times", integer),
    "max-ms-per-prb": _max_ms,
    "repeats-per-prb": _field("repeats", integer),
    "start": _field("start", integer),
    "engine": _engine,
    "canonical": _field("canonical", _on),
    "verbose": _field("verbose", integer),
    "check-ref-impl": _field("check_ref_impl", _on),
    "summary": _summary,
    "peer": _field("peer", _peers),
    "global-impl": _field("impl", text),
    "global-skip-impl": _field("skip_impl", text),
    # What follows steers parts of benchdnn that have no counterpart here.
    **dict.fromkeys(
        (
            "allow-enum-tags-only", "attr-same-pd-check", "cold-cache", "fast-ref", "mem-check",
            "cpu-isa-hints", "buffer-prefix", "num-streams", "stream-kind", "execution-mode",
            "memory-kind",
        ),
        _nothing,
    ),
}  # fmt: skip
"""How each global option changes the settings."""

DEFAULTS = {
    "mode": "C", "mode-modifier": "", "fix-times-per-prb": "0", "max-ms-per-prb": "3000",
    "repeats-per-prb": "1", "start": "0", "engine": "cpu", "canonical": "false", "verbose": "0",
    "check-ref-impl": "false", "summary": "failures+impl+no-impl-csv",
}  # fmt: skip
"""What an empty value means."""
