"""Tests of CPython that do not apply to our loop, each with its reason: by module and name of the method."""

_POPEN = "puts a mock in the place of subprocess.Popen, which our loop does not call: it starts programs natively"

SKIPS: dict[tuple[str, str], str] = {
    ("test_subprocess", "test_popen_error"): _POPEN,
    ("test_subprocess", "test_popen_error_with_stdin_pipe"): _POPEN,
    ("test_subprocess", "test_create_subprocess_fails_with_inactive_watcher"): (
        "asks a child watcher, which our loop has no need of: the kernel tells it of a child's end by a descriptor"
    ),
}
