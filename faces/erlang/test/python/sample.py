"""What the tests call."""

import asyncio
import builtins
import logging
import os
import sys
import threading
import time
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


def block(seconds):
    time.sleep(seconds)
    return "unblocked"


def die(status):
    os._exit(status)


def write(words):
    print(words, flush=True)
    print(words + " as an error", file=sys.stderr, flush=True)


def log(level, words):
    logging.getLogger("sample").log(level, words)


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


closed = None


def what_was_closed():
    return closed


def call_back(name, *arguments):
    return erlang.call(name, *arguments)


async def call_back_later(name, *arguments):
    return await erlang.acall(name, *arguments)


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
