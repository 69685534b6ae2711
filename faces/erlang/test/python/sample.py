"""What the tests call."""

import asyncio
import builtins
import fcntl
import itertools
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

from thalweg import erlang
from thalweg.erlang import Atom, Channel, Interrupted, Pid, shared


def echo(value):
    return value


def kind(value):
    return type(value).__name__


def add(left, right=0, *, factor=1):
    return (left + right) * factor


async def double(value):
    await asyncio.sleep(0)
    return value * 2


async def sleep(seconds):
    await asyncio.sleep(seconds)
    return "awake"


async def sleep_until_cancelled(word):
    try:
        await erlang.acall("thalweg:shared", "add", "begun", 1)
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        asyncio.get_running_loop().create_task(tell(word))
        raise


async def tell(word):
    await erlang.acall("tell", word)


async def raise_later(kind, steps):
    for _ in range(steps):
        await asyncio.sleep(0)
    raise vars(builtins)[kind]("later")


async def no_value_later():
    await asyncio.sleep(0)
    return object()


async def cancel_itself():
    asyncio.current_task().cancel()
    await asyncio.sleep(3600)


def future_of(value):
    future = asyncio.get_event_loop().create_future()
    asyncio.get_event_loop().call_soon(future.set_result, value)
    return future


whose = ContextVar("whose", default=None)


async def who_runs(number, steps):
    """Whether it is one task from its first step on, and what an earlier one left in its context."""
    task, before = asyncio.current_task(), whose.get()
    whose.set(number)
    for _ in range(steps):
        await asyncio.sleep(0)
    return task is not None and task is asyncio.current_task(), before, whose.get()


def fail(words):
    raise ValueError(words)


async def fail_later(words):
    await asyncio.sleep(0)
    raise LookupError(words)


def no_value():
    return object()


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


async def receive_for(number, seconds):
    try:
        return await asyncio.wait_for(Channel(number).areceive(), seconds)
    except TimeoutError:
        return "given up"


async def receive_in_thread_for(number, seconds):
    try:
        return await asyncio.to_thread(erlang.call, "thalweg:channel", "read", number, None, timeout=seconds)
    except TimeoutError:
        return "given up"


def spin():
    """Never returns, but in machine code."""
    while True:
        pass


def spin_and_catch(_):
    tester = shared.get("tester")
    try:
        shared.add("begun")
        spin()
    except Interrupted:
        erlang.send(tester, Atom("interrupted"))
        raise


async def spin_later_and_catch(argument):
    spin_and_catch(argument)


async def spin_in_a_later_step(argument):
    await asyncio.sleep(0.001)
    spin_and_catch(argument)


async def one():
    return 1


def block(seconds):
    time.sleep(seconds)
    return "unblocked"


def block_in(what):
    """Waits for what never comes, in one call of the system."""
    shared.add("begun")
    match what:
        case "recv":
            ours, _theirs = socket.socketpair()
            ours.recv(1)
        case "read":
            ours, _theirs = os.pipe()
            os.read(ours, 1)
        case "flock":
            with tempfile.NamedTemporaryFile() as file, open(file.name) as other:
                fcntl.flock(file, fcntl.LOCK_EX)
                fcntl.flock(other, fcntl.LOCK_EX)
        case "waitpid":
            subprocess.run(["sleep", "3600"])


def read_input(program):
    """What a program that was started here finds in its standard input, what it complains of, and what is found here."""
    ran = subprocess.run(program, capture_output=True, text=True, timeout=60)
    return ran.returncode, ran.stdout, ran.stderr, os.read(0, 1)


def die(status):
    os._exit(status)


def write(words):
    print(words, flush=True)
    print(words + " as an error", file=sys.stderr, flush=True)


def log(level, words):
    logging.getLogger("sample").log(level, words)


def log_badly():
    logging.getLogger("sample").warning("nothing to fill in", 1)
    return "fine"


def count(first, last):
    yield from range(first, last + 1)


def small_and_large(length, last):
    for number in range(last):
        yield [number] * length if number % 2 else number


def count_and_fail(last):
    yield from range(last)
    raise ValueError("no more")


async def count_later(last):
    for number in range(last):
        await asyncio.sleep(0)
        yield number


def count_for_ever(name):
    number = 0
    try:
        while True:
            number += 1
            yield number
    finally:
        sys.modules["sample"].closed = name


def count_and_spin(name):
    """Brings a value, and never comes to the next one."""
    try:
        yield 1
        spin()
    finally:
        sys.modules["sample"].closed = name


def count_slowly_and_block(last):
    """Each value takes a while to make, and the one beyond the last for ever."""
    for number in range(last):
        yield number
        time.sleep(0.01)
    time.sleep(3600)


def count_the_unknown(name):
    """The second value is no term in Erlang."""
    try:
        yield 1
        yield Atom(f"an atom that nobody knows {time.time_ns()}")
        yield from itertools.count(2)
    finally:
        sys.modules["sample"].closed = name


closed = None


def what_was_closed():
    return closed


def call_back(name, *arguments):
    return erlang.call(name, *arguments)


async def call_back_later(name, *arguments):
    return await erlang.acall(name, *arguments)


async def call_back_and_sleep(name, *arguments):
    """Waits in a later step, where no turn is under way."""
    await asyncio.sleep(0.001)
    erlang.call(name, *arguments)
    await asyncio.sleep(3600)


def call_back_from_threads(name, *arguments):
    """The worker's own thread waits for those that call."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda argument: erlang.call(name, argument), arguments))


async def call_back_from_thread(name, *arguments):
    return await asyncio.get_running_loop().run_in_executor(None, lambda: erlang.call(name, *arguments))


def call_back_patiently(name, seconds):
    try:
        return erlang.call(name, timeout=seconds)
    except TimeoutError:
        return "timeout"


def caught(name, *arguments):
    try:
        return erlang.call(name, *arguments)
    except erlang.ErlangError as error:
        return ("caught", error.reason)


def factorial(number):
    """By way of Erlang, as deep as it takes."""
    return 1 if number == 0 else number * erlang.call("factorial", number - 1)


def send(pid, message):
    assert isinstance(pid, Pid)
    erlang.send(pid, message)


def send_to(target, message, checked):
    erlang.send(target, message, checked=checked)


def add_often(name, times):
    for _ in range(times):
        shared.add(name)


def fill(number, value):
    written = 0
    try:
        while True:
            Channel(number).send(value)
            written += 1
    except BlockingIOError:
        return written


def receive(number):
    return Channel(number).receive()


async def pass_on(source, target):
    passed = 0
    while True:
        try:
            await Channel(target).asend(await Channel(source).areceive())
            passed += 1
        except EOFError:
            Channel(target)
            return passed


def listen(pid):
    """A number in the loop's mailbox, whose events go to a process."""
    mailbox = asyncio.get_event_loop().mailbox
    return mailbox.register(lambda kind, payload: erlang.send(pid, ("event", int(kind), payload)))


def thread_name():
    return threading.current_thread() is threading.main_thread()
