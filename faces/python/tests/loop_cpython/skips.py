"""Tests of CPython that do not apply, each with its reason: by module and by test, or test method."""

SKIPS: dict[tuple[str, str], str] = {}
