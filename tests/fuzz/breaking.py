"""A kind whose cases break, to see that each way of breaking is told from the others."""

from __future__ import annotations

import ctypes
import os
import time

from hypothesis import strategies as st

from tests.fuzz.kind import PASSED, Kind, Outcome, State, failed


def _run(text: str) -> Outcome:
    match text.split(":"):
        case ["crash"]:
            ctypes.string_at(0)
        case ["exit"]:
            os._exit(3)
        case ["hang"]:
            time.sleep(60)
        case ["raise"]:
            raise LookupError("nothing")
        case ["print"]:
            print("to nobody")
        case ["large", number] if int(number) > 99:
            return failed("too large", f"{number} is more than 99")
        case ["refuse"]:
            return Outcome(State.REFUSED, "a rule")
    return PASSED


def _cases() -> st.SearchStrategy[str]:
    return st.integers(0, 5000).map("large:{}".format)


KIND = Kind("breaking", "cases that break", _cases, _run, __name__, timeout=2.0)
