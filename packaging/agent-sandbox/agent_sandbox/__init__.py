"""Another name of `brig.agent_sandbox`: the same modules and classes, not copies."""

import importlib
import pkgutil
import sys

import brig.agent_sandbox
from brig.agent_sandbox import *  # noqa: F403
from brig.agent_sandbox import __author__, __version__

for _module in pkgutil.walk_packages(brig.agent_sandbox.__path__, "brig.agent_sandbox."):
    sys.modules[_module.name.removeprefix("brig.")] = importlib.import_module(_module.name)
    _parent, _, _name = _module.name.removeprefix("brig.").rpartition(".")
    if _parent == __name__:
        globals()[_name] = sys.modules[f"{__name__}.{_name}"]

__all__ = [*brig.agent_sandbox.__all__, "__author__", "__version__"]
