"""What goes wrong with peers."""

from __future__ import annotations


class PeerError(Exception):
    """A peer is not there, or refuses what it is asked for."""
