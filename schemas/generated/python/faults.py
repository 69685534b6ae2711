"""What a server answers with when it will not.

Where the package thalweg is installed it is that package's, so that there is one to be caught.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final


class Refused(Exception):
    """The server answered with its error."""

    code: Final = "REFUSED"
    retry: Final = "never"


def _share() -> None:
    try:
        shared = import_module("thalweg.faults")
    except ImportError:
        return
    globals().update(Refused=shared.Refused)


_share()
