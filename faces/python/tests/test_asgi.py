"""ASGI applications that are asked for one answer, in whichever loop runs."""

import asyncio
import signal
import sys
import unittest
from typing import Any
from unittest import mock

import thalweg
from thalweg import asgi

started = 0
ended: list[str] = []
patience: Any = None


async def app(scope: Any, receive: Any, send: Any) -> None:
    global started
    if scope["type"] == "lifespan":
        await receive()
        started += 1
        await send({"type": "lifespan.startup.complete"})
        return
    body = (await receive())["body"]
    if scope["path"] == "/fail":
        raise ValueError("badly")
    await send({"type": "http.response.start", "status": 201, "headers": [(b"x-method", scope["method"].encode())]})
    if scope["path"] == "/for-ever":
        try:
            while True:
                await send({"type": "http.response.body", "body": b"part", "more_body": True})
        finally:
            ended.append(scope["path"])
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b"!"})
    await receive()
    ended.append(scope["path"])


async def refuses(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "not today"})


class Patience:
    """Has no database at first."""

    def __init__(self) -> None:
        self.tried = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        self.tried += 1
        if self.tried < 3:
            await refuses(scope, receive, send)
        else:
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()


async def says_more(scope: Any, receive: Any, send: Any) -> None:
    await app(scope | {"path": "/"}, receive, send)
    for _ in range(40):
        try:
            await send({"type": "http.response.body", "body": b"more"})
        except RuntimeError as raised:
            ended.append(str(raised))


def says(*types: str) -> Any:
    """An application that sends messages of these types, and notes what is said of those that are refused."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        for number, type in enumerate(types):
            more = number + 1 < len(types)
            try:
                await send({"type": type, "status": 200 + number, "body": b"%d" % number, "more_body": more})
            except RuntimeError as raised:
                ended.append(str(raised))

    return application


async def fails_behind(scope: Any, receive: Any, send: Any) -> None:
    await app(scope | {"path": "/"}, receive, send)
    raise ValueError("behind")


async def lives(scope: Any, receive: Any, send: Any) -> None:
    global started
    if scope["type"] == "lifespan":
        await receive()
        started += 1
        await send({"type": "lifespan.startup.complete"})
        ended.append((await receive())["type"])
        await send({"type": "lifespan.shutdown.complete"})
        return
    await app(scope, receive, send)


async def gives_up(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        raise OSError("no way")
    await app(scope, receive, send)


async def stays(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
    await app(scope, receive, send)


def scope(path: str) -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": path, "headers": []}


async def parts(name: str, of: dict[str, Any]) -> list[Any]:
    return [part async for part in asgi.respond(name, of, b"body")]


async def until_ended(path: str) -> None:
    while path not in ended:
        await asyncio.sleep(0)


class Asgi(unittest.TestCase):
    def setUp(self) -> None:
        ended.clear()
        asgi._started.clear()

    def test_applications_shut_down(self) -> None:
        async def main() -> None:
            for name in ("lives", "gives_up", "stays", "app"):
                await parts(f"test_asgi:{name}", scope("/"))
            wrong = await asgi.shut_down(0.05)
            self.assertEqual(
                wrong, ["test_asgi:gives_up: OSError: no way", "test_asgi:stays has not shut down within 0.05 s"]
            )
            self.assertIn("lifespan.shutdown", ended)
            await until_ended("cancelled")
            # No application is left, and one that is asked again starts again.
            self.assertEqual(await asgi.shut_down(), [])
            before = started
            await parts("test_asgi:lives", scope("/"))
            self.assertEqual(started, before + 1)
            self.assertEqual(await asgi.shut_down(), [])

        thalweg.run(main())

    def test_an_answer_is_had_whole(self) -> None:
        async def main() -> None:
            self.assertEqual(await asgi.run(app, scope("/"), b"body"), (201, [(b"x-method", b"POST")], b"body!"))
            # What it does behind its answer it may do.
            await until_ended("/")

        thalweg.run(main())
        asyncio.run(main())

    def test_what_it_raises_is_raised(self) -> None:
        with self.assertRaisesRegex(ValueError, "badly"):
            thalweg.run(asgi.run(app, scope("/fail")))

    def test_what_it_says_behind_its_last_part_is_refused(self) -> None:
        async def main() -> None:
            whole = (201, [(b"x-method", b"POST")], b"body!")
            self.assertEqual(await asgi.run(says_more, scope("/"), b"body"), whole)
            words = "http.response.body behind the last part of an answer"
            await until_ended(words)
            self.assertEqual(ended, ["/"] + [words] * 40)

        thalweg.run(main())

    def test_what_is_out_of_turn_is_refused_and_the_answer_goes_on(self) -> None:
        start, body, trailers = "http.response.start", "http.response.body", "http.response.trailers"
        for types, refused, answer in [
            ((start, start, body), f"{start} where {body} is expected", (200, b"2")),
            ((body, start, body), f"{body} where {start} is expected", (201, b"2")),
            ((trailers, start, body), f"{trailers} where {start} is expected", (201, b"2")),
            ((start, body, trailers, body), f"{trailers} where {body} is expected", (200, b"13")),
        ]:
            with self.subTest(types=types):
                ended.clear()
                status, _, whole = thalweg.run(asgi.run(says(*types), scope("/")))
                self.assertEqual((ended, (status, whole)), ([refused], answer))

    def test_one_that_returns_without_an_answer_is_named_in_the_log(self) -> None:
        async def silent(_scope: Any, _receive: Any, _send: Any) -> None:
            pass

        with self.assertLogs("thalweg.asgi", "ERROR") as logs:
            self.assertEqual(thalweg.run(asgi.run(silent, scope("/"))), (500, [], b""))
        self.assertIn("returned without an answer", logs.output[0])
        self.assertIn("silent", logs.output[0])

    def test_one_that_leaves_when_its_client_is_gone_amid_the_request_is_not(self) -> None:
        async def leaves(_scope: Any, receive: Any, _send: Any) -> None:
            while (message := await receive())["type"] != "http.disconnect":
                ended.append(message["body"])

        async def reads(*_: Any) -> Any:
            return None if ended else (b"half", True)

        with mock.patch.object(asgi.erlang, "acall", reads), self.assertNoLogs("thalweg.asgi"):
            self.assertEqual(thalweg.run(asgi.run(leaves, scope("/"), mock.Mock(asgi.erlang.Pid))), (500, [], b""))
        self.assertEqual(ended, [b"half"])

    def test_what_it_raises_behind_its_answer_is_logged(self) -> None:
        async def main() -> None:
            with self.assertLogs("thalweg.asgi", "ERROR") as logs:
                answer = await asgi.run(fails_behind, scope("/"), b"body")
                self.assertEqual(answer, (201, [(b"x-method", b"POST")], b"body!"))
                while not logs.records:
                    await asyncio.sleep(0)
            self.assertIn("ValueError: behind", logs.output[0])
            self.assertEqual(asgi._background, set())

        thalweg.run(main())

    def test_a_body_that_is_there_is_read_once(self) -> None:
        async def main() -> None:
            for given in (b"body", "body"):
                body = asgi.Body(given)
                self.assertFalse(body.is_read)
                self.assertEqual(await body.read(), (b"body", False))
                self.assertTrue(body.is_read)
                self.assertEqual(await body.read(), (b"", False))

        thalweg.run(main())

    def test_by_name_it_starts_up_once_and_its_scope_is_filled_in(self) -> None:
        async def main() -> None:
            before = started
            for _ in range(3):
                answer = await parts(f"{__name__}:app", {"path": "/", "headers": [("X", "1")]})
                self.assertEqual(answer, [(201, [(b"x-method", b"GET")]), b"body", b"!"])
            self.assertEqual(started, before + 1)

        thalweg.run(main())

    def test_one_that_does_not_start_says_why(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "not today"):
            thalweg.run(parts(f"{__name__}:refuses", {}))

    def test_one_that_did_not_start_tries_again_and_what_nobody_waited_for_is_told_at_the_end(self) -> None:
        global patience
        patience = Patience()

        async def main() -> None:
            async def ask() -> list[Any]:
                return [part async for part in asgi.respond(f"{__name__}:patience", {"type": "http", "path": "/"}, b"")]

            with self.assertRaisesRegex(RuntimeError, "not today"):
                await ask()
            given_up = asyncio.create_task(ask())
            await asyncio.sleep(0)
            given_up.cancel()
            self.assertEqual(await asgi.shut_down(60), [f"{__name__}:patience: it did not start: not today"])
            self.assertEqual((await ask())[0][0], 201)
            self.assertEqual(patience.tried, 3)
            self.assertEqual(await asgi.shut_down(60), [])

        thalweg.run(main())

    def test_one_that_is_left_half_way_is_cancelled_however_far_it_is_ahead(self) -> None:
        async def main() -> None:
            answer = asgi.respond(f"{__name__}:app", {"path": "/for-ever"}, b"")
            self.assertEqual(await anext(answer), (201, [(b"x-method", b"GET")]))
            self.assertEqual(await anext(answer), b"part")
            await answer.aclose()
            await until_ended("/for-ever")
            await asyncio.sleep(0)
            left = asyncio.all_tasks() - {asyncio.current_task()} - asgi._background
            self.assertEqual(left, set())

        thalweg.run(main())



served: list[Any] = []


async def once(application: Any, **options: Any) -> None:
    """A runner that asks once."""
    loop = type(asyncio.get_running_loop())
    served.append((application, loop, options, await asgi.run(application, scope("/"), b"body")))


class Serving(unittest.TestCase):
    def test_any_runner_serves_in_a_loop_of_ours_with_its_options(self) -> None:
        served.clear()
        asgi.serve(app, runner=once, port=1)
        asgi.serve(f"{__name__}:app", runner=f"{__name__}:once", port=1)
        whole = (201, [(b"x-method", b"POST")], b"body!")
        self.assertEqual(served, [(app, thalweg.loop.EventLoop, {"port": 1}, whole)] * 2)

    def test_what_a_runner_raises_is_raised_and_what_is_not_there_is_named(self) -> None:
        async def fails(_: Any) -> None:
            raise ZeroDivisionError

        self.assertRaises(ZeroDivisionError, asgi.serve, app, runner=fails)
        self.assertRaisesRegex(AttributeError, "nobody", asgi.serve, f"{__name__}:nobody", runner=once)
        self.assertRaisesRegex(ModuleNotFoundError, "nowhere", asgi.serve, app, runner="nowhere:runner")

    def test_without_uvicorn_it_says_what_is_missing_and_how_to_install_it(self) -> None:
        with mock.patch.dict(sys.modules, {"uvicorn": None}):
            with self.assertRaisesRegex(ModuleNotFoundError, "pip install uvicorn") as refused:
                asgi.serve(app)
        self.assertEqual(refused.exception.name, "uvicorn")

    def test_what_would_take_other_processes_is_refused_with_how_to_have_it(self) -> None:
        for words in ({"workers": 3}, {"reload": True}):
            with self.subTest(words=words), self.assertRaisesRegex(ValueError, "--loop thalweg:new_event_loop"):
                asgi.serve(app, **words)

    def test_an_interrupt_that_a_runner_ended_by_is_its_ordinary_end_and_any_other_is_raised(self) -> None:
        async def ends(_: Any) -> None:
            signal.raise_signal(signal.SIGINT)

        async def waits(_: Any) -> None:
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)

        asgi.serve(app, runner=ends)
        self.assertRaises(KeyboardInterrupt, asgi.serve, app, runner=waits)


if __name__ == "__main__":
    unittest.main()
