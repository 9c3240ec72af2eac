"""What to say if a framework is not installed."""

from __future__ import annotations


def missing(module: str, error: ImportError) -> ImportError:
    """The error that names the extra."""
    extra = module.replace("_", "-")
    return ImportError(
        f"brig.integrations.{module} can't be used: {error} (hint: pip install 'brig-sandbox[{extra}]')",
        name=error.name,
        path=error.path,
    )
