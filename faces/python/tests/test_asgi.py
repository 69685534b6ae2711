"""ASGI applications that are asked for one answer, in whichever loop runs."""

import asyncio
import unittest
from typing import Any

import thalweg
from thalweg import asgi

started = 0
ended: list[str] = []


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


if __name__ == "__main__":
    unittest.main()
