"""Functions of this program that the code in the sandbox may call."""

import asyncio

import brig


def price(item: str) -> float:
    """The price of an item.

    Args:
        item: its name
    """
    prices = {"apple": 0.5, "pear": 0.75}
    if item not in prices:
        raise brig.ToolError(f"there is no {item}")
    return prices[item]


async def stock(item: str, minimum: int = 1) -> bool:
    """Whether there is enough of an item."""
    await asyncio.sleep(0)
    return len(item) >= minimum


CODE = """
print(price('apple'), stock('apple', minimum=3))
try:
    price('plum')
except Exception as error:
    print(error)
"""


async def main() -> None:
    """Async functions run in this event loop."""
    async with brig.AsyncSandbox(tools=[price, stock]) as box:
        result = await box.run(CODE, check=True)
        print(result.stdout, end="")
        calls = result.to_dict()["tools"]
        assert [one["tool"] for one in calls] == ["price", "stock", "price"]


asyncio.run(main())
