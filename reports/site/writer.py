"""Writes the files of the site: pages from templates, and data as scripts that register themselves.

Browsers refuse ``fetch`` and ES modules on pages that they open from a folder, because such pages have no origin. So
the site uses classic deferred scripts, and each data file is a script that calls ``ftm.register``. Both work in the
same way from a folder and from a host, and the policy allows nothing else.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cases.space.plural import counted
from matrix.errors import UserError
from reports.results.verdict_style import look
from reports.site.safe_text import safe, safe_data

if TYPE_CHECKING:
    from collections.abc import Mapping

TEMPLATES: Final = Path(__file__).parent / "templates"
STATIC: Final = Path(__file__).parent / "static"
# Pages get no header of a host, so the policy is in the page. Nothing is inline, and nothing is fetched.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"
)
UNSAFE: Final = re.compile(r"[^A-Za-z0-9._+-]+")
CODE: Final = re.compile("`([^`]*)`")
LONGEST_NAME: Final = 120
JAVASCRIPT_LINES: Final = {ord(char): f"\\u{ord(char):04x}" for char in "\u2028\u2029"}


def file_name(name: str) -> str:
    """Return a name for a file: as it is if it is short and plain, else with a digest that keeps it unique."""
    plain = UNSAFE.sub("_", name).strip(".")[:LONGEST_NAME]
    if plain == name != "":
        return plain
    return f"{plain}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def finalized(value: Any) -> Any:
    """Make every text safe that a template prints."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else safe(value)


class SiteWriter:
    """Writes below one folder, and counts the files and bytes that it wrote."""

    def __init__(self, folder: Path, common: Mapping[str, Any]) -> None:
        self.folder = folder
        self.files = 0
        self.bytes = 0
        self.largest: tuple[int, str] = (0, "")
        self.environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=finalized,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.globals.update(common, policy=POLICY, look=look, counted=counted, file_name=file_name)
        self.environment.filters.update(breakable=breakable, code=inline_code)

    def page(self, path: str, template: str, **values: Any) -> None:
        """Render a page; ``root`` is the relative path from it to the folder of the site."""
        root = "../" * path.count("/")
        text = self.environment.get_template(template).render(root=root, path=path, **values)
        self.text(path, text)

    def data(self, name: str, value: Any) -> None:
        """Write ``data/NAME.js``, which registers the value under its name."""
        content = json.dumps(safe_data(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        self.text(f"data/{name}.js", f"ftm.register({json.dumps(name)},{content.translate(JAVASCRIPT_LINES)});\n")

    def text(self, path: str, text: str) -> None:
        self.content(path, text.encode("utf-8", "replace"))

    def content(self, path: str, content: bytes) -> None:
        target = self.folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        except OSError as error:
            raise UserError(f"{target}: cannot write the site ({error.strerror}); choose another folder") from None
        self.files += 1
        self.bytes += len(content)
        self.largest = max(self.largest, (len(content), path))

    def static(self) -> None:
        for path in sorted(STATIC.rglob("*.*")):
            self.content(f"assets/{path.relative_to(STATIC).as_posix()}", path.read_bytes())


def breakable(text: str) -> Markup:
    """Let a name wrap after its separators, so that narrow columns stay narrow."""
    return Markup("<wbr>").join(re.split(r"(?<=[-_+.=])", safe(text)))


def inline_code(text: str) -> Markup:
    """Return a text with the parts between backticks as code."""
    *parts, last = CODE.split(safe(text))
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return Markup("").join(Markup("{}<code>{}</code>").format(plain, inner) for plain, inner in pairs) + last
