"""Runs a module of CPython's own `test.test_asyncio` with our loop in place of asyncio's.

    python run.py test_streams [--verbose] [TEST ...]

Prints one line of JSON: how many tests ran, in how many of them our loop did, what failed, and what was skipped and why.
Tests that never make a loop, or make one of their own that only pretends, run too and count apart.
"""

import asyncio
import asyncio.unix_events
import faulthandler
import json
import signal
import sys
import unittest
from typing import Any

from skips import SKIPS

from thalweg.loop import EventLoop

SECONDS_MAX = 900
"""No module takes a quarter of that."""

ran = False
"""Whether our loop ran in the test at hand."""


class Observed(EventLoop):
    """Our loop, which says when it runs. Takes the selector that some tests choose, and needs none."""

    def __init__(self, selector: Any = None) -> None:
        super().__init__()
        if selector is not None:
            selector.close()

    def _run_once(self) -> None:
        global ran
        ran = True
        super()._run_once()


# A shell that runs this behind itself has it ignore interrupts, and tests that interrupt themselves would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)


def substitute() -> None:
    """Makes every way to a loop lead to ours."""
    asyncio.unix_events._UnixDefaultEventLoopPolicy._loop_factory = Observed
    asyncio.SelectorEventLoop = asyncio.unix_events.SelectorEventLoop = Observed
    if hasattr(asyncio, "EventLoop"):
        asyncio.EventLoop = asyncio.unix_events.EventLoop = Observed


class Result(unittest.TextTestResult):
    """Counts the tests that ran, and those in which our loop did.

    A skipped test did not run, whatever skipped it: it is started or not, depending on where the skip stands and on the
    version of CPython, is stopped without a start in some, and a module that is skipped as a whole is no test at all.
    """

    ran = 0
    ours = 0
    at_hand: unittest.TestCase | None = None

    def startTest(self, test: unittest.TestCase) -> None:
        global ran
        ran = False
        self.at_hand = test
        super().startTest(test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        # What is skipped may be only a part of the test at hand.
        if test is self.at_hand:
            self.at_hand = None
        super().addSkip(test, reason)

    def stopTest(self, test: unittest.TestCase) -> None:
        if test is self.at_hand:
            self.ran += 1
            self.ours += ran
            self.at_hand = None
        super().stopTest(test)


def each(suite: unittest.TestSuite) -> Any:
    """The tests of a suite, one by one."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


def skip(test: unittest.TestCase, reason: str) -> None:
    """Makes a test say why it does not run."""

    def skipped(*_: Any, **__: Any) -> None:
        raise unittest.SkipTest(reason)

    setattr(test, test._testMethodName, skipped)


def main(module: str, *words: str) -> None:
    """Runs one module, or tests of it."""
    # A test that hangs says where.
    faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
    substitute()
    only = [word for word in words if not word.startswith("-")]
    full = f"test.test_asyncio.{module}"
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromNames([f"{full}.{name}" for name in only] or [full])
    for test in each(suite):
        name = test.id().removeprefix(full + ".")
        reason = SKIPS.get((module, name.rpartition(".")[2]))
        if reason is not None and not only:
            skip(test, reason)
    verbosity = 2 if "--verbose" in words else 0
    runner = unittest.TextTestRunner(resultclass=Result, verbosity=verbosity, warnings="default")
    result = runner.run(suite)
    assert isinstance(result, Result)
    summary = {
        "module": module,
        "ran": result.ran,
        "ours": result.ours,
        "failed": sorted(str(test) for test, _ in result.failures + result.errors),
        "skipped": {str(test): reason for test, reason in result.skipped},
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main(*sys.argv[1:])
