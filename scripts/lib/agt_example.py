"""Runs a program of AGT on the engine of the tests, or on native in place of containers.

Arguments: native or docker, and the program. BRIG_TEST_DOCKER and BRIG_TEST_IMAGE name the engine: it has no image of
the name that the program asks for.
"""

import os
import runpy
import sys

import brig.agent_sandbox
from brig.agent_sandbox import BrigSandboxProvider, DockerSandboxProvider


class Native(BrigSandboxProvider):
    """Takes what a provider of containers takes."""

    def __init__(self, image=None, docker_url=None, runtime=None, tools=None):
        # A user without a control group can't have these limits, and says so.
        waived = {} if os.geteuid() == 0 else {"waive": ["cpu", "memory"]}
        super().__init__("native", tools=tools, options=waived)


class Engine(DockerSandboxProvider):
    """Containers of the image of the tests."""

    def __init__(self, image=None, **given):
        socket = os.environ["BRIG_TEST_DOCKER"]
        super().__init__(image=os.environ["BRIG_TEST_IMAGE"], docker_url=f"unix://{socket}", **given)


backend, program = sys.argv[1:]
brig.agent_sandbox.DockerSandboxProvider = Native if backend == "native" else Engine
runpy.run_path(program, run_name="__main__")
