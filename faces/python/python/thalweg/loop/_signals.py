"""Signals that wake a loop that sleeps, whichever way they are handled.

A signal that comes between a loop's last look at signals and its sleep ends no sleep. So while a loop runs in the main thread the
interpreter writes every signal to the pipe that wakes the loop (`signal.set_wakeup_fd`), as asyncio has it do for
`add_signal_handler`. Another descriptor that was set there before stays.
"""

import os
import signal

_heard_at = -1
"""Where signals are written because of us; -1 for nowhere."""


def hear(descriptor: int) -> bool:
    """Has signals written there, if no other descriptor gets them and this is the main thread. Returns whether they are, for `leave`."""
    global _heard_at
    try:
        before = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    except ValueError:
        return False
    if before not in (-1, descriptor) and _back(before):
        return False
    _heard_at = descriptor
    return True


def leave(descriptor: int) -> None:
    """Has them written nowhere any more, unless another descriptor gets them by now."""
    global _heard_at
    _heard_at = -1
    now = signal.set_wakeup_fd(-1)
    if now not in (-1, descriptor):
        _back(now)


def _back(descriptor: int) -> bool:
    """Has them written to the descriptor that was set before. Returns whether there still is one."""
    try:
        # Whether warnings of a full pipe were asked for cannot be found out, so there are no more than before.
        signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    except (OSError, ValueError):
        return False
    return True


def _forked() -> None:
    """In a child: its signals are none of its parent's loop's."""
    if _heard_at != -1:
        leave(_heard_at)


os.register_at_fork(after_in_child=_forked)
