"""A plugin for pytest that runs AGT's own tests, as they are in its source distributions, on the alias package.

BRIG_AGT_BACKEND is `native` or `docker`; BRIG_TEST_DOCKER and BRIG_TEST_IMAGE name the engine. Tests that are left out
are listed in BRIG_AGT_LEFT_OUT, one in a line, with the reason: FILE, FILE::CLASS or FILE::CLASS::TEST, behind `observed:`
if it is only left out where the memory limit can't be enforced. Those that were used are appended to BRIG_AGT_USED: the
list must have no others.
"""

import functools
import importlib
import os
import platform
import sys
import types

backend = os.environ["BRIG_AGT_BACKEND"]
image = os.environ.get("BRIG_TEST_IMAGE", "")
used = set()


def pytest_configure(config):
    import agent_sandbox.docker_sandbox_provider as under_test
    from brig.agent_sandbox import BrigSandboxProvider, IsolationRuntime

    # They replace it to look at rules for other systems, and at those for this one.
    for name in ("_hardening", "docker_provider.provider"):
        importlib.import_module(f"agent_sandbox.{name}").platform = platform
    # They make their policies of plain objects where it is missing; the one that is installed may be older.
    sys.modules["agent_os"] = None
    # They only ask it whether it is there.
    os.environ["AGT_NONO_INTEGRATION"] = "1"
    sys.modules["nono_py"] = types.ModuleType("nono_py")
    # They only ask it whether there is an engine.
    docker = types.ModuleType("docker")
    docker.from_env = lambda: types.SimpleNamespace(ping=lambda: True)
    sys.modules["docker"] = docker

    if backend == "native":

        class Native(BrigSandboxProvider):
            """What they expect of containers, of the other backend."""

            runtime = IsolationRuntime.RUNC

            def __init__(self, image):
                super().__init__("native")

        under_test.DockerSandboxProvider = Native


@functools.cache
def observed():
    """Whether native can only observe the memory limit, so that one that is asked for is refused."""
    import brig

    native = brig.doctor().backends[0]
    strengths = {control.name: control.strength for control in native.controls}
    return backend == "native" and strengths.get("memory") != "enforced"


def left_out():
    """Which tests are left out, and why."""
    found = {}
    with open(os.environ["BRIG_AGT_LEFT_OUT"], encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                name, _, reason = line.partition(" ")
                only, colon, rest = name.partition(":")
                if colon and only == "observed":
                    name = rest
                    if not observed():
                        continue
                found[name] = reason.strip()
    return found


def pytest_ignore_collect(collection_path):
    """Whole files are not even loaded."""
    if collection_path.name in left_out():
        used.add(collection_path.name)
        return True


def pytest_collection_modifyitems(config, items):
    listed, kept, dropped = left_out(), [], []
    for item in items:
        if hasattr(item.module, "_TEST_IMAGE") and image:
            item.module._TEST_IMAGE = image
        parts = item.nodeid.split("::")
        file = parts[0].rpartition("/")[2]
        last = parts[-1].partition("[")[0]
        names = ["::".join([file, *parts[1:at]]) for at in range(1, len(parts))]
        names.append("::".join([file, *parts[1:-1], last]))
        reasons = [name for name in names if name in listed]
        (dropped if reasons else kept).append(item)
        used.update(reasons)
    items[:] = kept
    config.hook.pytest_deselected(items=dropped)


def pytest_sessionfinish():
    with open(os.environ["BRIG_AGT_USED"], "a", encoding="utf-8") as out:
        out.writelines(f"{name}\n" for name in sorted(used))
