"""What comes with the package, and where it cannot work: it says so when it is imported."""

import importlib.metadata
import subprocess
import sys
import textwrap
import unittest


class Package(unittest.TestCase):
    def test_its_licence_comes_with_it(self):
        [licence] = [file for file in importlib.metadata.files("thalweg") or [] if file.name == "LICENSE"]
        self.assertIn("Apache License", licence.read_text())
        self.assertEqual(importlib.metadata.metadata("thalweg")["License-Expression"], "Apache-2.0")


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
