"""What `thalweg codegen --runtime thalweg` writes: code without a runtime of its own, on this package's."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[3]

PROGRAM = '''
from made import echo_client, echo_server, echo_types as types
from thalweg.messagepack import DecodeError


class Transport:
    """Answers a stream with what it was given."""

    def __init__(self, *frames):
        self.frames = frames

    def stream(self, request, *, deadline=None, credit=None):
        return iter(self.frames)


def heard(*values):
    client = echo_client.EchoSyncClient(Transport(*(types.encode_response(value) for value in values)))
    return list(client.count(types.EchoCount(first=1, last=2)))


items, end = [types.EchoCountItem(value=1), types.EchoCountItem(value=2)], types.EchoCountResponse(count=2)
assert heard(*items, end) == [*items, end]
try:
    heard(*items)
except DecodeError as error:
    assert "without its response" in str(error), error
else:
    raise AssertionError("a stream without its end")
assert echo_server.service and echo_server.service_sync
'''


class Generated(unittest.TestCase):
    def test_what_has_no_runtime_of_its_own_has_all_of_it_here(self):
        with tempfile.TemporaryDirectory() as place:
            command = [os.environ["THALWEG_PROGRAM"], "codegen", "--lang", "python", "--client", "--server"]
            command += ["--schema", str(ROOT / "schemas/echo.jsonc"), "--out", f"{place}/made", "--runtime", "thalweg"]
            subprocess.run(command, check=True, capture_output=True)
            names = {path.name for path in Path(place, "made").glob("*.py")}
            self.assertEqual(names, {"__init__.py", "echo_client.py", "echo_server.py", "echo_types.py"})
            ran = subprocess.run([sys.executable, "-c", PROGRAM], cwd=place, capture_output=True, text=True, check=False)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
