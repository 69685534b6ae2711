"""Tests of CPython that do not apply to our loop, each with its reason: by module and name of the method."""

_POPEN = "puts a mock in the place of subprocess.Popen, which our loop does not call: it starts programs natively"
_HANDLE = "asks for a class private to asyncio; our handles need no lock, since the interpreter's is held where they are looked at"

SKIPS: dict[tuple[str, str], str] = {
    ("test_subprocess", "test_popen_error"): _POPEN,
    ("test_subprocess", "test_popen_error_with_stdin_pipe"): _POPEN,
    ("test_subprocess", "test_create_subprocess_fails_with_inactive_watcher"): (
        "asks a child watcher, which our loop has no need of: the kernel tells it of a child's end by a descriptor"
    ),
    ("test_ssl", "test_remote_shutdown_receives_trailing_data_on_slow_socket"): (
        "replaces the socket inside asyncio's own transport, by private names that ours does not have"
    ),
    ("test_events", "test_call_soon_threadsafe_handle_block_check_cancelled"): _HANDLE,
    ("test_events", "test_call_soon_threadsafe_handle_block_cancellation"): _HANDLE,
    ("test_events", "test_call_soon_threadsafe_handle_cancel_same_thread"): _HANDLE,
    ("test_events", "test_call_soon_threadsafe_handle_cancel_other_thread"): _HANDLE,
}
