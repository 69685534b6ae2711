"""The policy that makes every loop of asyncio's one of ours."""

import asyncio

from ._event_loop import EventLoop


class EventLoopPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes every loop that asyncio makes one of ours."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """A new loop of ours."""
        return EventLoop()
