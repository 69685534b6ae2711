"""The examples of the README, run one after the other in an empty directory."""

import importlib.util
import os
import re
import tempfile
import unittest
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


class Readme(unittest.TestCase):
    def test_its_examples_do_what_they_say(self):
        examples = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(examples), 5)
        if importlib.util.find_spec("numpy") is None:
            # An extra of the package; where it is not installed, everything else does without it.
            examples = [example for example in examples if "import numpy" not in example]
        before = Path.cwd()
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            try:
                names = {}
                for example in examples:
                    exec(compile(example, "README.md", "exec"), names)
            finally:
                os.chdir(before)
        self.assertTrue(names["store"].closed)
