"""Names that transformers makes when they are looked up, so that the map cannot say that a release lacks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matrix.api_map.view import View

PACKAGE: Final = "transformers"
# Since release 5, `_LazyModule.__getattr__` falls back from a name with such an ending to another class of the model.
ENDINGS: Final = ("Tokenizer", "TokenizerFast", "ImageProcessor", "ImageProcessorFast")
SINCE: Final = "transformers.TokenizersBackend"  # came with this fallback
ALIASES: Final = "transformers.utils.import_utils._LegacyModuleAliasFinder"  # serves modules under former names
ALIAS: Final = "alias"


def may_be_made(path: str, view: View) -> bool:
    """Tell if a name that a release does not state may be there all the same."""
    name = path.partition("(")[0]
    parts = name.split(".")
    if parts[0] != PACKAGE or len(parts) == 1:
        return False
    if parts[1].endswith(ENDINGS) and is_there(SINCE, view):
        return True
    modules = [".".join(parts[:count]) for count in range(2, len(parts))]
    if any(row.detail == ALIAS for module in modules for row in view.rows(module, "")):
        return True
    is_module = bool(parts[2:]) and parts[1].islower()
    return is_module and not view.has_module(".".join(parts[:2])) and is_there(ALIASES, view)


def is_there(path: str, view: View) -> bool:
    return view.find(path)[0] is not None
