"""Forks of a process whose loop runs: the child's signals and descriptors are its own, the parent's its parent's."""

import asyncio
import os
import signal
import socket
import unittest

import thalweg
from support import status_of_child


def heard_at() -> int:
    """Where signals are written."""
    descriptor = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    return descriptor


class Signals(unittest.TestCase):
    def test_a_childs_loop_hears_its_own_and_its_parent_none_of_them(self) -> None:
        async def main() -> int:
            loop = asyncio.get_running_loop()
            told = 0
            heard = asyncio.Event()

            def tell() -> None:
                nonlocal told
                told += 1
                heard.set()

            loop.add_signal_handler(signal.SIGUSR1, tell)

            def child() -> None:
                self.assertEqual(heard_at(), -1)
                asyncio._set_running_loop(None)
                os.kill(os.getpid(), signal.SIGUSR1)

                async def inner() -> None:
                    own = asyncio.get_running_loop()
                    self.assertEqual(heard_at(), own._csock.fileno())
                    came = asyncio.Event()
                    own.add_signal_handler(signal.SIGUSR2, came.set)
                    os.kill(os.getpid(), signal.SIGUSR2)
                    await asyncio.wait_for(came.wait(), 60)

                thalweg.run(inner())

            self.assertEqual(status_of_child(child), 0)
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.wait_for(heard.wait(), 60)
            return told

        self.assertEqual(thalweg.run(main()), 1)

    def test_where_somebody_left_a_descriptor_that_is_closed_a_loop_runs_and_leaves_none(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        signal.set_wakeup_fd(ours.fileno())
        ours.close()
        theirs.close()
        thalweg.run(asyncio.sleep(0))
        self.assertEqual(signal.set_wakeup_fd(-1), -1)

    def test_a_handler_that_is_refused_leaves_the_loop_hearing(self) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            with self.assertRaises(RuntimeError):
                loop.add_signal_handler(signal.SIGKILL, print)
            self.assertEqual(heard_at(), loop._csock.fileno())

        thalweg.run(main())
        self.assertEqual(signal.set_wakeup_fd(-1), -1)


class Descriptors(unittest.TestCase):
    def test_a_child_that_goes_on_in_its_parents_loop_takes_nothing_of_its_parents(self) -> None:
        loop = thalweg.new_event_loop()
        self.addCleanup(loop.close)
        pairs = [socket.socketpair() for _ in range(2)]
        for ours, theirs in pairs:
            self.addCleanup(ours.close)
            self.addCleanup(theirs.close)
            ours.setblocking(False)
            theirs.send(b"for the parent")
        parent, heard = os.getpid(), []

        def read(sock: socket.socket) -> None:
            heard.append(sock.recv(100))
            if len(heard) == 1:
                child = os.fork()
                if child:
                    self.assertEqual(os.waitpid(child, 0)[1], 0)
            elif os.getpid() == parent:
                loop.stop()

        for ours, _ in pairs:
            loop.add_reader(ours, read, ours)
        try:
            loop.run_forever()
        except RuntimeError as error:
            if os.getpid() != parent:
                os._exit(0 if "belongs to the process that made it" in str(error) else 3)
            raise
        finally:
            if os.getpid() != parent:
                os._exit(4)
        self.assertEqual(heard, [b"for the parent"] * 2)


if __name__ == "__main__":
    unittest.main()
