"""Starting a service's program, and ending it for certain."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Unpack

from .._native import Program
from ..scope import Scope
from .client import Client
from .options import ClientOptions
from .sync import SyncClient


class Spawned(Scope):
    """A program that serves an endpoint, started and watched from here.

    It is ready when its endpoint answers. It is killed when the thread that started it ends, so start it from one that lives as
    long as it should. Waiting for it blocks the calling thread alone, and hears signals, unless another thread waits for it
    already: when a handler raises, as that of Ctrl-C does, the program is killed and the wait is over. One that was not stopped
    and that nothing refers to any more issues a `ResourceWarning` and is ended.
    """

    _what = "program"

    def __init__(
        self,
        program: str | os.PathLike[str],
        endpoint: str | os.PathLike[str],
        *,
        arguments: Sequence[str | os.PathLike[str]] = (),
        environment: Mapping[str, str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        log: str | os.PathLike[str] | None = None,
        ready_within: float = 10.0,
        plain: bool = False,
        pipes: bool = False,
        end_within: float = 5.0,
        respawn: tuple[int, float] | None = None,
    ) -> None:
        """Starts it and waits until its endpoint answers, at most so many seconds.

        `environment` is what it gets beside this process's; `log` takes its output and its errors, and is quoted when it fails;
        `end_within` seconds after it was asked to end it is killed; `respawn=(most, seconds)` lets `tend` start it anew, so many
        times within so long. At `-` it speaks over its standard input and output: a socket, or with `pipes` a pipe each.

        Raises `BadArgument` where there is no such program, `PermissionDenied` where it may not be run, `AddressInUse` where
        another server answers already, `NoServer` when it ended before it answered, and `ConnectTimeout` when it did not
        answer in time and was ended.
        """
        self._endpoint = os.fspath(endpoint)
        self._program = Program(
            os.fspath(program),
            self._endpoint,
            arguments=[os.fspath(argument) for argument in arguments],
            environment=dict(environment or {}),
            directory=directory,
            log=log,
            ready_within=ready_within,
            plain=plain,
            pipes=pipes,
            end_within=end_within,
            respawn=respawn,
        )

    @property
    def endpoint(self) -> str:
        """What clients connect to."""
        return self._endpoint

    @property
    def process(self) -> int | None:
        """Its number, while it runs."""
        return self._program.process

    @property
    def exit(self) -> int | None:
        """How it ended, once it has: its code, or below zero the number of the signal that ended it.

        255 where nobody knows, because this process ignores `SIGCHLD` or waits elsewhere for all its children.
        """
        return self._program.exit

    def tend(self) -> int | None:
        """Looks whether it still runs, and starts it anew if it does not and may be: then how the one before had ended.

        Raises `NoServer` when it ended and stays so, and `Closed` when it was stopped.
        """
        return self._program.tend()

    def connect(self, **options: Unpack[ClientOptions]) -> SyncClient:
        """Tends it, then connects as `SyncClient` does. Over `-`, once each time it is started.

        Raises what `tend` and `SyncClient` raise, and `NoServer` where `-` is connected already.
        """
        self.tend()
        return SyncClient._of(self._program, options)

    async def connect_async(self, **options: Unpack[ClientOptions]) -> Client:
        """The same as `Client.connect` does, in an event loop. Should it have to be started anew, the loop waits for that."""
        self.tend()
        return await Client._of(self._program, options)

    def restart(self) -> None:
        """Ends one that does not do as it should, by force if need be, and starts it anew."""
        self._program.restart()

    def stop(self) -> int | None:
        """Asks it to end, and kills it when it does not; how it ended."""
        return self._program.stop()

    def close(self) -> None:
        """Ends it as `stop` does: what `with` does at the end of its block."""
        self.stop()

    def _is_open(self) -> bool:
        # What was never started has none, and in a child after a fork it is the parent's.
        with contextlib.suppress(AttributeError, RuntimeError):
            return self.process is not None
        return False

    def _abandon(self) -> None:
        # The handler of a signal may be in the middle of a call of it.
        with contextlib.suppress(RuntimeError):
            self.stop()
