"""Signals that wake a loop that sleeps, whoever handles them.

A signal that comes between a loop's last look at signals and its sleep ends no sleep. So while a loop runs in the main thread the
interpreter writes every signal to the pipe that wakes the loop (`signal.set_wakeup_fd`), as asyncio has it do for
`add_signal_handler`. Whoever else hears of signals that way keeps it.
"""

import signal


def hear(descriptor: int) -> bool:
    """Has signals written there, if nobody else hears of them and this is the main thread: whether they are, for `leave`."""
    try:
        before = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    except ValueError:
        return False
    if before not in (-1, descriptor):
        signal.set_wakeup_fd(before)
        return False
    return True


def leave(descriptor: int) -> None:
    """Has them written nowhere any more, unless somebody else hears of them by now."""
    now = signal.set_wakeup_fd(-1)
    if now not in (-1, descriptor):
        signal.set_wakeup_fd(now)
