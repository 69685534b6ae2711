"""ASGI applications that the tests serve."""

import asyncio

from thalweg import erlang

started = 0


def _start(*headers):
    return {"type": "http.response.start", "status": 200, "headers": headers}


BADLY = {
    "/body-first": [{"type": "http.response.body", "body": b"first", "more_body": True}, _start()],
    "/two-starts": [_start(), {"type": "http.response.body", "body": b"first", "more_body": True}, _start()],
    "/value": [_start((b"x-mine", b"a\r\nx-other: b"))],
    "/name": [_start((b"x-mine: a\nx-other", b"b"))],
    "/no-name": [_start((b"", b"b"))],
    "/no-text": [_start((b"X-\xe9", b"\xe9"))],
    "/longer": [
        _start((b"Content-Length", b"5")),
        {"type": "http.response.body", "body": b"first", "more_body": True},
    ],
    "/shorter": [_start((b"content-length", b"100"))],
    "/two-lengths": [_start((b"content-length", b"6"), (b"content-length", b"7"))],
    "/no-length": [_start((b"content-length", b"six"))],
    "/chunked": [_start((b"Transfer-Encoding", b"chunked"))],
    "/own-date": [_start((b"Date", b"mine"))],
    "/closes": [_start((b"Connection", b"x-other, Close"))],
}
"""What applications say that they should not, or need not, by paths."""


async def app(scope, receive, send):
    global started
    if scope["type"] == "lifespan":
        await receive()
        started += 1
        await send({"type": "lifespan.startup.complete"})
        await receive()
        return
    if scope["path"] in ASKED:
        return await ASKED[scope["path"]](scope, receive, send)
    body = (await receive())["body"]
    if scope["path"] == "/fail":
        raise ValueError("badly")
    if scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"one", b"two"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})
        return
    if scope["path"] == "/endless":
        await send(_start())
        while True:
            await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
    if scope["path"] in BADLY:
        for message in BADLY[scope["path"]]:
            await send(message)
        await send({"type": "http.response.body", "body": b"behind"})
        return
    names = dict(scope["headers"])
    words = f"{scope['method']} {scope['path']} {scope['query_string'].decode()} {body.decode()} {started}".encode()
    headers = [(b"content-length", str(len(words)).encode()), (b"x-seen", names.get(b"x-mine", b"-"))]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": words})


async def _say(send, words):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(words))]})
    await send({"type": "http.response.body", "body": words})


async def _told(scope, _receive, send):
    """What was asked for, before anything is received."""
    host = dict(scope["headers"]).get(b"host", b"-")
    await _say(send, b" ".join([scope["path"].encode(), scope["raw_path"], scope["query_string"], host]))


async def _count(_scope, receive, send):
    """How long the body was, and its longest piece; or that the client was gone."""
    total = longest = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return await _say(send, b"gone")
        total, longest = total + len(message["body"]), max(longest, len(message["body"]))
        if not message["more_body"]:
            return await _say(send, b"%d %d" % (total, longest))


async def _count_later(scope, receive, send):
    first = await receive()
    await erlang.acall("gate")
    total = len(first["body"])
    while first["more_body"]:
        first = await receive()
        total += len(first["body"])
    await _say(send, b"%d" % total)


async def _impatient(_scope, receive, send):
    """Gives up each wait for a piece, and misses none."""
    total, is_more = 0, True
    while is_more:
        try:
            message = await asyncio.wait_for(receive(), 0.01)
        except TimeoutError:
            continue
        total, is_more = total + len(message["body"]), message["more_body"]
    await _say(send, b"%d" % total)


async def _together(_scope, receive, send):
    """Several wait for pieces at once."""
    messages = await asyncio.gather(*(receive() for _ in range(4)))
    await _say(send, b"%d" % sum(len(message["body"]) for message in messages))


raised = None


async def _say_more(scope, receive, send):
    """Goes on behind its last part."""
    global raised
    await _say(send, b"whole")
    for _ in range(40):
        try:
            await send({"type": "http.response.body", "body": b"more"})
        except RuntimeError as error:
            raised = str(error)


async def _fail_behind(scope, receive, send):
    await send(_start())
    await send({"type": "http.response.body", "body": b"whole"})
    raise ValueError("behind")


async def _half(scope, receive, send):
    await send(_start())
    await send({"type": "http.response.body", "body": b"half", "more_body": True})


async def _large(scope, receive, send):
    await send(_start())
    await send({"type": "http.response.body", "body": bytes(17 << 20)})


async def _until_gone(scope, receive, send):
    """Waits, with a part of its answer or without any, for its client to go."""
    if scope["query_string"]:
        await send(_start())
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
    heard = asyncio.ensure_future(_gone(receive))
    # It waits to hear of that before anybody is told so.
    await asyncio.sleep(0)
    await erlang.acall("listens")
    await erlang.acall("gone", await heard)


async def _slowly(scope, receive, send):
    """Answers after a while, in parts, unless it hears that its client is gone."""
    hears = asyncio.ensure_future(_gone(receive))
    await asyncio.sleep(0.3)
    await send(_start())
    for words in (b"late", b"later"):
        await send({"type": "http.response.body", "body": b"gone" if hears.done() else words, "more_body": True})
        await asyncio.sleep(0.1)
    hears.cancel()
    await send({"type": "http.response.body"})


async def _gone(receive):
    while (message := await receive())["type"] == "http.request":
        pass
    return message["type"]


async def _status(scope, receive, send):
    """The status that is asked for, with a body that may not be its."""
    headers = [(b"Content-Length", b"4")] if scope["path"] == "/status-of-length" else []
    await send({"type": "http.response.start", "status": int(scope["query_string"]), "headers": headers})
    await send({"type": "http.response.body", "body": b"body"})


async def _ends(scope, receive, send):
    await _say(send, f"{scope['client']} {scope['server']}".encode())


def what_was_raised():
    return raised


ASKED = {
    "/told": _told,
    "*": _told,
    "/count": _count,
    "/count-later": _count_later,
    "/impatient": _impatient,
    "/together": _together,
    "/say-more": _say_more,
    "/fail-behind": _fail_behind,
    "/half": _half,
    "/large": _large,
    "/until-gone": _until_gone,
    "/slowly": _slowly,
    "/status": _status,
    "/status-of-length": _status,
    "/ends": _ends,
}
"""Those that see to everything by themselves, by paths."""


async def without_lifespan(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


def _living(shut_down):
    """An application that does something when it is to shut down."""

    async def application(scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            assert (await receive())["type"] == "lifespan.shutdown"
            await shut_down(send)
            return
        await send(_start())
        await send({"type": "http.response.body"})

    return application


async def _leave(send):
    await erlang.acall("left")
    await send({"type": "lifespan.shutdown.complete"})


async def _fail(send):
    await send({"type": "lifespan.shutdown.failed", "message": "not so soon"})


async def _raise(send):
    raise ValueError("badly")


async def _stay(send):
    await asyncio.sleep(3600)


leaves, fails, raises, stays = map(_living, (_leave, _fail, _raise, _stay))


async def cleans(scope, receive, send):
    """Amid an answer, in one way or another, until that is given up. Sees to its end then, and says so; and so when it shuts down."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await erlang.acall("said", "shut down")
        return await send({"type": "lifespan.shutdown.complete"})
    try:
        await send(_start())
        if scope["path"] == "/sleeps":
            await asyncio.sleep(3600)
        while scope["path"] == "/sends":
            await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
    finally:
        await asyncio.sleep(0.3)
        await erlang.acall("said", "cleaned")


async def runner_of_large_parts(name, scope, body):
    yield 200, []
    yield bytes(17 << 20)


async def runner(name, scope, body):
    yield 299, [(b"x-runner", name.encode())]
    yield b"mine"
