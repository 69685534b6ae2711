"""What the tests call."""

import _asyncio
import asyncio
import builtins
import contextlib
import ctypes
import fcntl
import gc
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import ClassVar

from thalweg import erlang
from thalweg.erlang import Atom, Channel, Interrupted, Pid, shared


def deaf_until(path):
    """Hears of nothing, interrupts included, until there is such a file."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
    open(path + ".begun", "w").close()
    while not os.path.exists(path):
        time.sleep(0.005)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGIO])
    return "back"


def put_in_place(number):
    """A module `anew` in the place of the one before, as after a reload."""
    module = types.ModuleType("anew")
    module.value, module.values = (lambda: number), (lambda: iter([number]))
    sys.modules["anew"] = module


def fork_and_stay():
    """A child that outlives its worker."""
    return _stays(os.fork())


def fork_unheard():
    """The same by a library's doing, of which Python hears nothing."""
    return _stays(ctypes.PyDLL(None).fork())


def _stays(child):
    if child == 0:
        time.sleep(30)
        os._exit(0)
    return child


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


class Litter:
    """What nobody refers to but itself; collected, it has its number put into a list soon, by a task or without."""

    collected: ClassVar[list[int]] = []
    tasks: ClassVar[list[asyncio.Task]] = []

    def __init__(self, number):
        self.itself, self.number, self.loop = self, number, asyncio.get_running_loop()

    def __del__(self):
        if self.number % 2:
            self.loop.call_soon(Litter.collected.append, self.number)
        else:
            Litter.tasks.append(self.loop.create_task(remember(self.number)))


async def remember(number):
    Litter.collected.append(number)


async def awaited(value):
    return value


def litter(number, threshold):
    """Leaves more at once than a task is made of, to be collected within so many allocations: also by those that
    make the task of what it returns."""
    gc.set_threshold(threshold)
    for _ in range(3):
        Litter(number)
    return awaited(number)


async def collected():
    """Everything that was left."""
    gc.set_threshold(700)
    gc.collect()
    await asyncio.gather(*Litter.tasks)
    return [Litter.collected.count(number) for number in range(1, 1 + max(Litter.collected))]


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


def fail_without_a_term():
    raise erlang.ErlangError(object())


async def fail_without_a_term_later():
    await asyncio.sleep(0)
    fail_without_a_term()


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


def begin_and_spin():
    shared.add("begun")
    spin()


def tell_and_block(pid, message, seconds):
    erlang.send(pid, message)
    time.sleep(seconds)


def block_and_tell(pid, message, seconds):
    time.sleep(seconds)
    erlang.send(pid, message)


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


async def spin_behind_another_step(_):
    """Between its two steps something else takes a while, and the second one never ends."""
    shared.add("begun")
    asyncio.get_running_loop().call_soon(time.sleep, 0.5)
    await asyncio.sleep(0)
    spin()


def spin_and_clean(pid):
    try:
        erlang.send(pid, Atom("begun"))
        spin()
    finally:
        erlang.send(pid, Atom("cleaning"))
        # Longer than it takes to hear of a caller's end.
        time.sleep(0.8)
        erlang.send(pid, Atom("cleaned"))


async def spin_later_and_clean(pid):
    spin_and_clean(pid)


async def spin_and_clean_later(pid):
    try:
        erlang.send(pid, Atom("begun"))
        spin()
    finally:
        erlang.send(pid, Atom("cleaning"))
        await asyncio.sleep(0.3)
        erlang.send(pid, Atom("cleaned"))


async def wait_and_clean(pid, seconds=0.3):
    """Cleans up over several steps, and says so."""
    try:
        erlang.send(pid, Atom("begun"))
        await asyncio.sleep(3600)
    finally:
        await erlang.acall("cleaning")
        await asyncio.sleep(seconds)
        erlang.send(pid, Atom("cleaned"))


async def bring_and_clean(pid):
    try:
        yield 1
        await asyncio.sleep(3600)
    finally:
        await asyncio.sleep(0.3)
        erlang.send(pid, Atom("cleaned"))


async def spin_in_a_later_step_and_clean(pid):
    await asyncio.sleep(0.001)
    spin_and_clean(pid)


async def spin_in_a_later_step_and_clean_later(pid):
    await asyncio.sleep(0.001)
    await spin_and_clean_later(pid)


async def one():
    return 1


heard = []


def call_within_the_next_task(word):
    """Has something called soon while the next task is being made, as a signal's handler may. False where tasks are made otherwise."""
    tasks = getattr(_asyncio, "_all_tasks", None)
    if tasks is None:
        return False
    add, loop = tasks.add, asyncio.get_event_loop()

    def instead(task):
        del tasks.add
        loop.call_soon(heard.append, word)
        add(task)

    tasks.add = instead
    return True


def what_was_heard():
    return heard


def block(seconds):
    time.sleep(seconds)
    return "unblocked"


def block_unheard(_):
    """The first interrupt comes to nothing, as one does that comes right before the call of the system."""
    hears = signal.getsignal(signal.SIGIO)
    signal.signal(signal.SIGIO, lambda _number, _frame: signal.signal(signal.SIGIO, hears))
    shared.add("begun")
    time.sleep(3600)


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


def print_for_ever():
    while True:
        print("x" * 100)


def log_for_ever():
    while True:
        with contextlib.suppress(BlockingIOError):
            logging.getLogger("sample").warning("x" * 100)


def log_many(lines):
    for _ in range(lines):
        logging.getLogger("sample").warning("x" * 100)


def print_at_once(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def log_in_a_child():
    """What a child came to that logged, and said things to Erlang that it may not say."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for _ in range(8):
                logging.warning("nobody hears a child")
            erlang.call("add", 1, 2)
        except RuntimeError:
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def log(level, words):
    logging.getLogger("sample").log(level, words)


def log_bytes(length):
    logging.getLogger("sample").warning("x" * length)


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


async def bring_nothing():
    await asyncio.sleep(3600)
    yield


async def count_later(last):
    for number in range(last):
        await asyncio.sleep(0)
        yield number


class CountsLater:
    """What can be iterated asynchronously, and is no iterator itself."""

    def __init__(self, last):
        self.last = last

    def __aiter__(self):
        return count_later(self.last)


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


def count_and_spin_and_clean(pid):
    yield 1
    spin_and_clean(pid)


def count_unheard(pid):
    """Hears of an interrupt no sooner than it is closed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    try:
        yield from itertools.count()
    finally:
        hear_and_tell(pid)


async def count_until_unwanted(pid):
    """Finds by itself that nobody wants more, before its worker's loop is told so."""
    worker = erlang._worker
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    try:
        for number in itertools.count():
            yield number
            time.sleep(0.001)
            worker.desk.take_in()
    finally:
        worker.loop.call_soon(worker._turn)
        await asyncio.sleep(0.05)
        hear_and_tell(pid)


def hear_and_tell(pid):
    """Waits for an interrupt, hears of it, and tells that it came through."""
    wait_for_interrupt()
    hear()
    erlang.send(pid, Atom("closed"))


def wait_for_interrupt():
    until = time.monotonic() + 5
    while signal.SIGIO not in signal.sigpending() and time.monotonic() < until:
        time.sleep(0.001)


def hear():
    """An interrupt that came is heard of here."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGIO})


class Hearing(Exception):
    """An interrupt that came is heard of while this is described."""

    def __str__(self):
        hear()
        return "described"


def fail_hearing(pid):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    erlang.send(pid, Atom("above"))
    wait_for_interrupt()
    raise Hearing


class HearingFuture(Future):
    """An interrupt that came is heard of when there is an outcome."""

    def set_result(self, value):
        hear()
        super().set_result(value)


def call_back_beside_another(pid, above, beside):
    """What another callback came to, while this function waits for its own, and an interrupt is heard of just then."""
    other = HearingFuture()
    erlang._worker.begin(beside, (), other)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    try:
        erlang.call(above)
    except Interrupted:
        erlang.send(pid, ("interrupted", other.result(0)))


class HearingWait(asyncio.Future):
    """An interrupt that came is heard of between a look whether it is done, and what is done then."""

    def done(self):
        is_done = super().done()
        hear()
        return is_done


waited_for = None


async def wait_for_another(pid):
    sys.modules["sample"].waited_for = HearingWait()
    erlang.send(pid, Atom("waits"))
    try:
        await waited_for
    except asyncio.CancelledError:
        erlang.send(pid, Atom("cancelled"))
        raise


def go_on_with_another(pid):
    """Resolves what another call waits for, as asyncio's locks and queues do."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    erlang.send(pid, Atom("above"))
    wait_for_interrupt()
    if not waited_for.done():
        waited_for.set_result(None)
    return "resolved"


class InterruptedBehind:
    """A worker's desk, where an interrupt comes right behind what is said, once."""

    def __init__(self, worker):
        self.worker, self.desk = worker, worker.desk
        worker.desk = self

    def say(self, *words):
        self.worker.desk = self.desk
        self.desk.say(*words)
        raise Interrupted


async def receive_and_be_interrupted(number):
    InterruptedBehind(erlang._worker)
    try:
        return await Channel(number).areceive()
    except Interrupted:
        return "interrupted"


async def receive_and_be_closed(number):
    """Closed, and not cancelled, while it waits."""
    receiving = Channel(number).areceive()
    receiving.send(None)
    receiving.close()
    return "closed"


async def not_suspended(seconds):
    """Its worker fails to take what is suspended, once."""
    worker = erlang._worker

    def fails(_job, _task):
        del worker.suspended
        raise MemoryError("not now")

    worker.suspended = fails
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        shared.add("cancelled")
        raise


async def stop_the_loop():
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)
    return "gone on"


async def end_the_loop(status):
    """As a callback may; a thread goes on."""
    threading.Thread(target=time.sleep, args=[3600]).start()
    asyncio.get_running_loop().call_soon(sys.exit, status)
    await asyncio.sleep(3600)


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


def bring_the_unknown(pid, length):
    """The first value is no term in Erlang."""
    try:
        yield [Atom(f"an atom that nobody knows {time.time_ns()}"), bytes(length)]
        yield from itertools.count()
    finally:
        erlang.send(pid, Atom("closed"))


closed = None


def what_was_closed():
    return closed


def call_back(name, *arguments):
    return erlang.call(name, *arguments)


async def call_back_later(name, *arguments):
    return await erlang.acall(name, *arguments)


def call_back_by_an_atom():
    return erlang.call(Atom("an atom that nobody knows"))


def bring_called_back(name, *arguments):
    yield erlang.call(name, *arguments)


def call_back_with_bytes(name, length):
    return erlang.call(name, bytes(length))


async def call_back_later_with_bytes(name, length):
    return await erlang.acall(name, bytes(length))


async def call_back_from_thread_with_bytes(name, length):
    return await call_back_from_thread(name, bytes(length))


async def call_back_and_sleep(name, *arguments):
    """Waits in a later step, where no turn is under way."""
    await asyncio.sleep(0.001)
    erlang.call(name, *arguments)
    await asyncio.sleep(3600)


def call_back_from_threads(name, *arguments):
    """The worker's own thread waits for those that call."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda argument: erlang.call(name, argument), arguments))


def call_back_beside_a_taker(name, times):
    """Calls back, again and again, while a thread takes in whatever comes."""
    worker, over, interval = erlang._worker, threading.Event(), sys.getswitchinterval()

    def take():
        while not over.is_set():
            worker.desk.take_in()

    thread = threading.Thread(target=take)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        return sum(erlang.call(name, 1, timeout=60) for _ in range(times))
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(interval)
        worker.loop.call_soon(worker._turn)


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


def send_the_unknown(pid):
    """No atom over there."""
    erlang.send(pid, Atom(f"an atom that nobody knows {time.time_ns()}"))


def send_and_wait_for(pid, messages, path):
    """Goes on until there is a file."""
    for message in messages:
        erlang.send(pid, message)
    wait_for(path)


def log_and_wait_for(words, path):
    logging.getLogger("sample").warning(words)
    wait_for(path)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.001)


def send_many(pid, last):
    for number in range(1, last + 1):
        send_patiently(pid, ("number", number))


def send_patiently(pid, message):
    """Tries again while too much is unread, for a while."""
    until = time.monotonic() + 10
    while True:
        try:
            return erlang.send(pid, message)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.001)


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


def receive_kind(number):
    value = Channel(number).receive()
    return type(value).__name__, value


async def receive_kind_later(number):
    value = await Channel(number).areceive()
    return type(value).__name__, value


def send_bytes(number, length):
    Channel(number).send(bytes(range(length)))


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


def capacity(events):
    """Bounds what may wait in the loop; what the bound was."""
    mailbox = asyncio.get_event_loop().mailbox
    before, mailbox.capacity = mailbox.capacity, events
    return before


called_later = 0


def count_called_later():
    """From here on: what the loop is asked to call later, until it is called."""
    loop = asyncio.get_event_loop()
    call_later = loop.call_later

    def counting(delay, called, *words):
        def counted():
            sys.modules["sample"].called_later -= 1
            called(*words)

        sys.modules["sample"].called_later += 1
        return call_later(delay, counted)

    loop.call_later = counting


def what_is_called_later():
    return called_later


def thread_name():
    return threading.current_thread() is threading.main_thread()
