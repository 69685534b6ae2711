"""How many of CPython's tests `loop_cpython/run.py` says ran: neither one more nor one less, wherever a skip stands."""

import io
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent / "loop_cpython"))

import run


class Sample(unittest.TestCase):
    """Not collected: what it has are no names of tests."""

    def runs(self) -> None:
        run.ran = True

    def runs_without_a_loop(self) -> None:
        pass

    def fails(self) -> None:
        run.ran = True
        self.fail("by request")

    def skips_itself_late(self) -> None:
        run.ran = True
        self.skipTest("by request")

    @unittest.skip("by request")
    def is_skipped(self) -> None:
        pass

    def skips_parts_of_itself(self) -> None:
        run.ran = True
        for part in range(3):
            with self.subTest(part=part):
                self.skipTest("by request")


def counted(suite: unittest.TestSuite) -> tuple[int, int]:
    """How many ran, and in how many of them our loop did."""
    result = unittest.TextTestRunner(stream=io.StringIO(), resultclass=run.Result).run(suite)
    assert isinstance(result, run.Result)
    return result.ran, result.ours


class Counted(unittest.TestCase):
    def test_what_ran_is_counted_and_what_was_skipped_is_not(self) -> None:
        for name, wanted in (
            ("runs", (1, 1)),
            ("runs_without_a_loop", (1, 0)),
            ("fails", (1, 1)),
            ("skips_itself_late", (0, 0)),
            ("is_skipped", (0, 0)),
            ("skips_parts_of_itself", (1, 1)),
        ):
            with self.subTest(name):
                self.assertEqual(counted(unittest.TestSuite([Sample(name)])), wanted)

    def test_a_skipped_module_is_no_test(self) -> None:
        suite = unittest.TestSuite([Sample("runs"), Sample("runs")])
        refuse = mock.Mock(side_effect=unittest.SkipTest("by request"))
        with mock.patch.object(sys.modules[__name__], "setUpModule", refuse, create=True):
            self.assertEqual(counted(suite), (0, 0))

    def test_a_test_that_is_stopped_without_a_start_is_no_test(self) -> None:
        # As CPython 3.12.1 does it.
        result = run.Result(unittest.runner._WritelnDecorator(io.StringIO()), True, 0)
        ran, skipped = Sample("runs"), Sample("is_skipped")
        ran.run(result)
        result.addSkip(skipped, "by request")
        result.stopTest(skipped)
        self.assertEqual((result.ran, result.ours), (1, 1))


if __name__ == "__main__":
    unittest.main()
