"""Where the package cannot work it says so when it is imported."""

import subprocess
import sys
import textwrap
import unittest


class Importing(unittest.TestCase):
    def said(self, program: str) -> str:
        """The last line of errors of a program that fails."""
        ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 1, ran.stderr)
        [*_, last] = [line for line in ran.stderr.splitlines() if "Error" in line]
        return last

    def test_without_the_interpreters_lock(self):
        said = self.said("import sys; sys._is_gil_enabled = lambda: False; import thalweg")
        self.assertEqual(
            said, "ImportError: thalweg needs the interpreter's lock: start Python without PYTHON_GIL=0 and -X gil=0"
        )

    def test_in_a_subinterpreter(self):
        said = self.said(
            """
            try:
                import _interpreters as interpreters
                made = interpreters.create("legacy")
            except ImportError:
                import _xxsubinterpreters as interpreters
                made = interpreters.create(isolated=False)
            try:
                failed = interpreters.run_string(made, "import thalweg")
            except interpreters.RunFailedError as error:
                raise SystemExit(str(error))
            raise SystemExit(failed.formatted if failed else 0)
            """
        )
        self.assertIn("thalweg works in the main interpreter alone: this is a subinterpreter", said)
