"""Libraries as their users have them, on our loop: every test is run by anyio's own runner, which is given our loops."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import thalweg
from thalweg.loop import EventLoop

@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"loop_factory": thalweg.new_event_loop}), id="ours"),
        pytest.param(("asyncio", {"loop_factory": thalweg.new_event_loop, "debug": True}), id="ours, debug"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(autouse=True)
async def ours(anyio_backend: object) -> None:
    """Every test runs in a loop of ours."""
    assert type(asyncio.get_running_loop()) is EventLoop


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def payload() -> bytes:
    """More than any socket takes at once."""
    return os.urandom(1 << 20) * 3
