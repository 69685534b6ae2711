"""Signals that come while somebody looks before sleeping: they are heard then, and not with whatever comes next."""

import asyncio
import os
import random
import signal
import socket
import sys
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any

import thalweg
from service_support import Background, Place, types, waiting
from thalweg.service import SyncClient

# A wait that no signal ends lasts as long. A signal that is handled only then was noticed because the wait ended.
WAIT_SECONDS = 30
BRIEF_SECONDS = 3


def answer_then_signal(sock: socket.socket, parent: int) -> None:
    """A peer that answers at once, so that the client looks for the answer; asked by a number, it sends a signal so many
    microseconds later, and nothing else.
    """
    while asked := sock.recv(1):
        if asked == b"p":
            sock.send(b"a")
            continue
        until = time.perf_counter() + asked[0] * 1e-6
        while time.perf_counter() < until:
            pass
        os.kill(parent, signal.SIGUSR1)


class InALoop(unittest.TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.hear: Callable[[], object] = list
        before = signal.signal(signal.SIGUSR1, lambda *_: self.hear())
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        self.ours, theirs = socket.socketpair()
        self.addCleanup(self.ours.close)
        parent = os.getpid()
        self.peer = os.fork()
        if self.peer == 0:
            try:
                self.ours.close()
                answer_then_signal(theirs, parent)
            finally:
                os._exit(0)
        self.addCleanup(os.waitpid, self.peer, 0)
        self.addCleanup(self.ours.shutdown, socket.SHUT_RDWR)
        theirs.close()
        self.ours.setblocking(False)

    async def is_missed(self, microseconds: int) -> bool:
        """Whether a signal that the peer sends in place of an answer is heard only when something else wakes the loop."""
        loop = asyncio.get_running_loop()
        for _ in range(200):
            self.ours.send(b"p")
            await loop.sock_recv(self.ours, 1)
        heard: asyncio.Future[None] = loop.create_future()
        self.hear = lambda: heard.done() or heard.set_result(None)
        began = time.perf_counter()
        self.ours.send(bytes([microseconds]))
        # Nothing else wakes the loop until then.
        await asyncio.wait([heard], timeout=WAIT_SECONDS)
        return time.perf_counter() - began > WAIT_SECONDS / 2

    def test_a_loop_hears_what_comes_while_it_looks(self) -> None:
        async def main() -> list[bool]:
            return [await self.is_missed(5 * step) for _ in range(5) for step in range(1, 9)]

        self.assertEqual(sum(thalweg.run(main(), debug=False)), 0)


class Wakes(unittest.TestCase):
    """Whom the interpreter writes signals to: a loop that runs, unless somebody else has them."""

    def setUp(self) -> None:
        self.loop = thalweg.new_event_loop()
        self.addCleanup(self.loop.close)
        self.addCleanup(signal.set_wakeup_fd, signal.set_wakeup_fd(-1))

    def told(self) -> int:
        """The descriptor that is written to."""
        told = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(told)
        return told

    async def now(self) -> int:
        return self.told()

    def test_a_loop_is_while_it_runs(self) -> None:
        self.assertEqual(self.loop.run_until_complete(self.now()), self.loop._csock.fileno())
        self.assertEqual(self.told(), -1)

    def test_a_loop_still_is_when_its_last_handler_goes(self) -> None:
        async def main() -> int:
            self.loop.add_signal_handler(signal.SIGUSR1, int)
            self.assertTrue(self.loop.remove_signal_handler(signal.SIGUSR1))
            self.assertFalse(self.loop.remove_signal_handler(signal.SIGUSR1))
            return self.told()

        self.assertEqual(self.loop.run_until_complete(main()), self.loop._csock.fileno())
        self.assertEqual(self.told(), -1)

    def test_one_that_is_interrupted_as_it_begins_or_ends_is_not(self) -> None:
        def interrupt(_frame: object = None, event: str = "c_return", called: Any = signal.set_wakeup_fd) -> None:
            if event == "c_return" and called is signal.set_wakeup_fd:
                sys.setprofile(None)
                raise KeyboardInterrupt

        sys.setprofile(interrupt)
        try:
            self.assertRaises(KeyboardInterrupt, self.loop.run_forever)
        finally:
            sys.setprofile(None)
        self.assertEqual(self.told(), -1)
        # What another thread handed over in the last turn.
        self.loop._handed.append((interrupt, ()))
        self.assertRaises(KeyboardInterrupt, self.loop.run_until_complete, self.now())
        self.assertEqual(self.told(), -1)

    def test_handlers_that_stay_are_told_when_it_runs_no_more(self) -> None:
        self.loop.add_signal_handler(signal.SIGUSR1, int)
        self.loop.run_until_complete(self.now())
        self.assertEqual(self.told(), self.loop._csock.fileno())

    def test_whoever_was_there_first_stays(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            signal.set_wakeup_fd(ours.fileno())
            self.assertEqual(self.loop.run_until_complete(self.now()), ours.fileno())
            self.assertEqual(self.told(), ours.fileno())
            signal.set_wakeup_fd(-1)

    def test_a_loop_that_refuses_to_run_again_still_is(self) -> None:
        async def main() -> int:
            self.assertRaises(RuntimeError, self.loop.run_forever)
            return self.told()

        self.assertEqual(self.loop.run_until_complete(main()), self.loop._csock.fileno())

    def test_one_in_another_thread_is_not(self) -> None:
        told: list[int] = []
        thread = threading.Thread(target=lambda: told.append(thalweg.run(asyncio.sleep(0, 7))))
        thread.start()
        thread.join()
        self.assertEqual((told, self.told()), ([7], -1))


class Heard(Exception):
    """What the handler of a signal ends a wait with."""


class InAWait(Place):
    """Where nothing but the end of a sleep is between a last look at signals and the sleep, one may come; no more than that."""

    ROUNDS = 24
    MISSED_MAX = 8

    def setUp(self) -> None:
        super().setUp()
        self.waits = False
        before = signal.signal(signal.SIGALRM, self.hear)
        self.addCleanup(signal.signal, signal.SIGALRM, before)

    def hear(self, *_: object) -> None:
        if self.waits:
            raise Heard

    def is_missed(self, wait: Callable[[], object]) -> bool:
        """Whether a signal that comes early in a wait is heard only when that is over by itself."""
        began = time.perf_counter()
        try:
            self.waits = True
            signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-6, 100e-6))
            wait()
        except Heard:
            pass
        finally:
            self.waits = False
        return time.perf_counter() - began > BRIEF_SECONDS / 2

    def test_a_client_hears_what_comes_while_it_looks(self) -> None:
        for kind in ("sock", "shm"):
            endpoint = self.endpoint(kind)
            with self.subTest(kind=kind), Background(endpoint), SyncClient(endpoint) as client:
                quick = types.encode_request(waiting(0))
                slow = types.encode_request(waiting(1000 * BRIEF_SECONDS))
                missed = 0
                for _ in range(self.ROUNDS):
                    for _ in range(30):
                        client.call(quick)
                    missed += self.is_missed(lambda: client.call(slow))
                self.assertLessEqual(missed, self.MISSED_MAX)

    def test_a_cursor_hears_what_comes_while_it_looks(self) -> None:
        with thalweg.open(durability="memory") as store:
            cursor = store.log("log").cursor(tail=True)
            cursor.next()
            missed = sum(self.is_missed(lambda: cursor.wait(BRIEF_SECONDS)) for _ in range(self.ROUNDS))
            self.assertLessEqual(missed, self.MISSED_MAX)


if __name__ == "__main__":
    unittest.main()
