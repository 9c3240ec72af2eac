"""Work on a sandbox that is the same with and without async: a generator of steps, and the two that drive it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from .._core import Core, Step

if TYPE_CHECKING:
    from .._async import AsyncSandbox
    from .._sandbox import Sandbox

T = TypeVar("T")

Steps = Generator[Step[Any], Any, T]
"""Yields what is to be done, is sent the answers, and returns the result."""


def core(box: Sandbox | AsyncSandbox) -> Core:
    """What both kinds of sandboxes are made of."""
    return box._core


def drive(steps: Steps[T]) -> T:
    """Does it in this thread."""
    try:
        step = next(steps)
        while True:
            try:
                answer = step.wait()
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def adrive(steps: Steps[T]) -> T:
    """Does it in this task. Cancelling the task ends what runs."""
    from .._async import _take

    try:
        step = next(steps)
        while True:
            try:
                answer = await _take(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()
