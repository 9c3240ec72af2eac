"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import brig


def skipped(why: str) -> None:
    """Reports a skip, as all tests of the project do."""
    path = os.environ.get("BRIG_TEST_SKIPS")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"the Python package: {why}\n")


@pytest.fixture
def box() -> Iterator[brig.Sandbox]:
    with brig.Sandbox(backend="native") as box:
        yield box


@pytest.fixture
def engine() -> dict[str, str]:
    """Options for the test engine."""
    socket, image = os.environ.get("BRIG_TEST_DOCKER"), os.environ.get("BRIG_TEST_IMAGE")
    if not socket or not image:
        why = "containers: BRIG_TEST_DOCKER and BRIG_TEST_IMAGE name no engine"
        skipped(why)
        pytest.skip(why)
    return {"docker_host": f"unix://{socket}", "image": image}
