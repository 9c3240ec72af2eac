"""Checks of mounts and variables, with AGT's names and messages. Brig's own are stricter, and come after."""

from __future__ import annotations

import logging
import os
import re

logger = logging.getLogger(__name__)

PROTECTED_PATHS_UNIX = frozenset(
    ("/", "/etc", "/proc", "/sys", "/usr", "/var", "/boot", "/dev", "/sbin", "/bin", "/lib")
)
BLOCKED_ENV_VARS = frozenset(
    "LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT LD_DEBUG LD_PROFILE LD_SHOW_AUXV LD_DYNAMIC_WEAK BASH_ENV ENV "
    "PYTHONSTARTUP PYTHONPATH PYTHONHOME NODE_OPTIONS RUBYOPT PERL5LIB PERL5OPT JAVA_TOOL_OPTIONS "
    "_JAVA_OPTIONS".split()
)
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}")


def is_protected_path(path: str) -> bool:
    """Whether it is a system directory, also by another name of it."""
    return path.rstrip("/") in PROTECTED_PATHS_UNIX or os.path.realpath(path) in PROTECTED_PATHS_UNIX


def validate_mount_path(path: str, label: str) -> None:
    """Refuses system directories."""
    if is_protected_path(path):
        raise ValueError(f"Cannot mount protected system directory '{path}' as {label}")


def sanitize_env_vars(env_vars: dict[str, str]) -> dict[str, str]:
    """Without the variables that change what programs load when they start."""
    blocked = [name for name in env_vars if name.upper() in BLOCKED_ENV_VARS]
    if blocked:
        logger.warning("Blocked dangerous environment variables: %s", blocked)
    return {name: value for name, value in env_vars.items() if name not in blocked}


def validate_resource_name(value: str, label: str) -> None:
    """Refuses what is not a name, also one with a line break at its end."""
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"Invalid {label} '{value}': must match [a-zA-Z0-9][a-zA-Z0-9_.-]{{0,127}}"
        )
