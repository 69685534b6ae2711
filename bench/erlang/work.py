"""What the benchmark calls."""


async def one(value):
    return value


def numbers(count):
    return iter(range(count))
