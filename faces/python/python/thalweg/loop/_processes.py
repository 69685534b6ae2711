"""Subprocesses: started natively, their end told by a descriptor.

What only a fork can give (a function to call in the child, another user, descriptors to pass on) is left to
`subprocess`, and so are arguments, pipes and everything else that its users know.
"""

import contextlib
import inspect
import os
import subprocess
import sys
import warnings
from asyncio import base_subprocess
from typing import Any

from .._native import _spawn

# How `subprocess` hands over what was asked for; the order is its own business.
_POPEN: Any = subprocess.Popen
# What asyncio says of a status that it cannot have.
_UNKNOWN = 255
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_NAMES = list(inspect.signature(_POPEN._execute_child).parameters)[1:]


def _by_fork(given: dict[str, Any]) -> bool:
    """Whether only a fork gives what was asked for."""
    asks = (given["preexec_fn"], given["gid"], given["gids"], given["uid"])
    return bool(given["pass_fds"]) or given["umask"] >= 0 or any(word is not None for word in asks)


class Process(_POPEN):  # type: ignore[misc]
    """A `subprocess.Popen` that is started natively, with a descriptor of its end."""

    pid: int
    returncode: int | None
    end: int | None = None

    def _execute_child(self, *words: Any) -> None:
        given = dict(zip(_NAMES, words, strict=True))
        if _by_fork(given):
            super()._execute_child(*words)
            self._open_end()
            return
        args, executable, cwd = given["args"], given["executable"], given["cwd"]
        args = [args] if isinstance(args, str | bytes | os.PathLike) else list(args)
        if given["shell"]:
            args = [executable or "/bin/sh", "-c", *args]
        executable = args[0] if executable is None else executable
        sys.audit("subprocess.Popen", executable, args, cwd, given["env"])
        _spawn(
            self,
            _paths(os.fsencode(executable), given["env"]),
            [os.fsencode(word) for word in args],
            _environment(given["env"]),
            None if cwd is None else os.fsencode(cwd),
            (given["p2cread"], given["c2pwrite"], given["errwrite"]),
            given["close_fds"],
            given["restore_signals"],
            given["start_new_session"],
            None if given["process_group"] < 0 else given["process_group"],
            (executable, cwd),
        )
        pipes = [given[name] for name in _PIPES]
        if max(pipes) >= 0 or hasattr(self, "_devnull"):
            self._close_pipe_fds(*pipes)

    def _open_end(self) -> None:
        """Asks for a descriptor of its end. A program for which there is none is killed, since its end would go unnoticed."""
        try:
            self.end = os.pidfd_open(self.pid)
        except OSError:
            self.kill()
            self.wait()
            raise

    def ended(self) -> int:
        """The exit status, once the descriptor says that there is one. The program is let go of when it is known: what interrupts
        this in between, and calls it again, finds it."""
        if self.end is not None:
            if self.returncode is None:
                self.returncode = self._status(self.end)
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, self.end, os.WEXITED)
        return _UNKNOWN if self.returncode is None else self.returncode

    def _status(self, end: int) -> int:
        try:
            found = os.waitid(os.P_PIDFD, end, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            found = None
        if found is None:
            warnings.warn(f"the exit status of process {self.pid} was collected elsewhere", stacklevel=1)
            return _UNKNOWN
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def close_end(self) -> None:
        """Closes the descriptor."""
        end, self.end = self.end, None
        if end is not None:
            os.close(end)

    def __del__(self, *words: Any, **more: Any) -> None:
        self.close_end()
        super().__del__(*words, **more)


def _paths(executable: bytes, environment: Any) -> list[bytes]:
    if os.path.dirname(executable):
        return [executable]
    return [os.path.join(os.fsencode(directory), executable) for directory in os.get_exec_path(environment)]


def _environment(environment: Any) -> list[bytes] | None:
    if environment is None:
        return None
    rows = []
    for name, value in environment.items():
        name = os.fsencode(name)
        if b"=" in name:
            raise ValueError("illegal environment variable name")
        rows.append(name + b"=" + os.fsencode(value))
    return rows


class ProcessTransport(base_subprocess.BaseSubprocessTransport):
    """A subprocess as asyncio sees it."""

    _loop: Any
    _proc: Any

    def _start(
        self, args: Any, shell: bool, stdin: Any, stdout: Any, stderr: Any, bufsize: int, **kwargs: Any
    ) -> None:
        self._proc = Process(
            args,
            shell=shell,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            universal_newlines=False,
            bufsize=bufsize,
            **kwargs,
        )
        self._loop._add_reader(self._proc.end, self._ended, self._loop, self._proc)

    def _ended(self, loop: Any, process: Process) -> None:
        # After what its pipes brought in this turn. It is watched until it was told: an interrupt may come between any two steps.
        loop.call_soon(self._tell_end, loop, process, process.ended())

    def _tell_end(self, loop: Any, process: Process, status: int) -> None:
        if self._returncode is None:
            self._process_exited(status)
        if process.end is not None:
            loop._remove_reader(process.end)
            process.close_end()
