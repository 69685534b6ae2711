"""uvicorn with an ASGI application: in our loop, and as a program that is told to use it."""

import asyncio
import signal
import sys

import pytest
import uvicorn
import websockets

pytestmark = pytest.mark.anyio


class Application:
    """Echoes bodies and words, and notes how it was started and stopped."""

    def __init__(self) -> None:
        self.life: list[str] = []

    async def __call__(self, scope, receive, send) -> None:
        await getattr(self, scope["type"])(scope, receive, send)

    async def lifespan(self, scope, receive, send) -> None:
        for word in ("startup", "shutdown"):
            assert (await receive())["type"] == f"lifespan.{word}"
            self.life.append(word)
            await send({"type": f"lifespan.{word}.complete"})

    async def http(self, scope, receive, send) -> None:
        loop = f"{type(asyncio.get_running_loop()).__module__}.{type(asyncio.get_running_loop()).__name__}"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-loop", loop.encode())]})
        more = True
        while more:
            message = await receive()
            more = message.get("more_body", False)
            await send({"type": "http.response.body", "body": message["body"], "more_body": more})

    async def websocket(self, scope, receive, send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"].upper()})


application = Application()
"""For uvicorn as a program."""


class Served:
    """The application in uvicorn, in the loop that is running."""

    def __init__(self) -> None:
        self.application = Application()
        config = uvicorn.Config(self.application, port=0, lifespan="on", log_level="warning", http="h11")
        self.server = uvicorn.Server(config)

    async def __aenter__(self) -> "Served":
        self.task = asyncio.ensure_future(self.server.serve())
        while not self.server.started:
            assert not self.task.done(), self.task
            await asyncio.sleep(0.001)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.should_exit = True
        await self.task


async def ask(port: int, body: bytes) -> tuple[bytes, bytes]:
    """Headers and body of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    head = await reader.readuntil(b"\r\n\r\n")
    content = b""
    while size := int(await reader.readline(), 16):
        content += await reader.readexactly(size)
        assert await reader.readline() == b"\r\n"
    writer.close()
    await writer.wait_closed()
    return head, content


async def test_requests_are_answered_between_startup_and_shutdown(payload):
    async with Served() as served:
        assert served.application.life == ["startup"]
        head, body = await ask(served.port, payload)
        assert b"200 OK" in head and body == payload
        answers = await asyncio.gather(*(ask(served.port, b"%d" % number) for number in range(100)))
        assert [body for _, body in answers] == [b"%d" % number for number in range(100)]
    assert served.application.life == ["startup", "shutdown"]


async def test_websockets_talk_to_the_application():
    async with Served() as served:
        async with websockets.connect(f"ws://127.0.0.1:{served.port}/") as connection:
            for word in ("one", "two"):
                await connection.send(word)
                assert await connection.recv() == word.upper()


SERVED = "from thalweg import asgi; asgi.serve('test_uvicorn:application', port=0, http='h11')"
BY_NAME = ["--loop", "thalweg:new_event_loop", "--port", "0", "--http", "h11", "test_uvicorn:application"]


@pytest.mark.parametrize("words", [["-m", "uvicorn", *BY_NAME], ["-c", SERVED]], ids=["its own program", "ours"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_uvicorn_as_a_program_runs_in_our_loop(words, number):
    program = await asyncio.create_subprocess_exec(
        sys.executable, *words, stderr=asyncio.subprocess.PIPE, cwd=sys.path[0] or None
    )
    try:
        async with asyncio.timeout(60):
            while b"running on" not in (line := await program.stderr.readline()):
                assert line, "it ended"
            port = int(line.rsplit(b":", 1)[1].split(b" ")[0])
            head, body = await ask(port, b"through a program")
        assert b"x-loop: thalweg.loop._event_loop.EventLoop" in head and body == b"through a program"
    finally:
        program.send_signal(number)
        _, said = await program.communicate()
    assert program.returncode in ((0, -number) if number == signal.SIGTERM else (0,))
    assert b"Traceback" not in said, said
