"""Fetches what the chat page is made with from npm, and writes it beside the page.

    python tools/vendor_web.py

`LIBRARIES` says which versions. What is kept is as its authors published it, but for imports, which
name files here instead of packages, and for pointers to source maps. `vendor.json` has the hash of
each archive and of each file that is kept.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "src" / "streamwell" / "server" / "web" / "vendor"
TESTS = ROOT / "tests" / "web" / "vendor"

#: Imports of packages, and the files that they are here.
_IMPORTS = {
    "preact": "./preact.js",
    "preact/hooks": "./preact-hooks.js",
    "@preact/signals-core": "./signals-core.js",
}
_IMPORT = re.compile(r'(from\s*)"([@a-z][^"]*)"')
_SOURCE_MAP = re.compile(r"\n?//# sourceMappingURL=\S+\s*$")


@dataclass(frozen=True)
class Library:
    """A package of npm, and which of its files are kept under which names."""

    name: str
    version: str
    licence: str
    files: dict[str, str]
    folder: Path = PAGE


LIBRARIES = (
    Library(
        "preact",
        "11.2.0",
        "MIT",
        {
            "dist/preact.mjs": "preact.js",
            "hooks/dist/hooks.mjs": "preact-hooks.js",
            "LICENSE": "preact.LICENSE",
        },
    ),
    Library("htm", "3.1.1", "Apache-2.0", {"dist/htm.mjs": "htm.js", "LICENSE": "htm.LICENSE"}),
    Library(
        "@preact/signals",
        "2.11.4",
        "MIT",
        {"dist/signals.mjs": "signals.js", "LICENSE": "signals.LICENSE"},
    ),
    Library(
        "@preact/signals-core",
        "1.14.5",
        "MIT",
        {"dist/signals-core.mjs": "signals-core.js", "LICENSE": "signals-core.LICENSE"},
    ),
    Library(
        "marked",
        "18.2.1",
        "MIT",
        {"lib/marked.esm.js": "marked.js", "LICENSE": "marked.LICENSE"},
    ),
    Library(
        "dompurify",
        "3.4.18",
        "Apache-2.0 or MPL-2.0; used under Apache-2.0",
        {"dist/purify.es.mjs": "purify.js", "LICENSE": "purify.LICENSE"},
    ),
    Library(
        "@highlightjs/cdn-assets",
        "11.12.0",
        "BSD-3-Clause",
        {"es/highlight.min.js": "highlight.js", "LICENSE": "highlight.LICENSE"},
    ),
    Library(
        "katex",
        "0.19.1",
        "MIT",
        {
            "dist/katex.min.js": "katex.js",
            "dist/katex.min.css": "katex.css",
            "dist/fonts/*.woff2": "fonts/",
            "LICENSE": "katex.LICENSE",
        },
    ),
    Library(
        "axe-core",
        "4.14.1",
        "MPL-2.0; for tests, not in the package",
        {"axe.min.js": "axe.js", "LICENSE": "axe.LICENSE"},
        TESTS,
    ),
)


def fetch(library: Library) -> bytes:
    """The archive that npm has of it."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", f"{library.name}@{library.version}"]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        return (Path(folder) / done.stdout.strip().splitlines()[-1]).read_bytes()


def as_kept(name: str, content: bytes) -> bytes:
    """A file with its imports changed, if it is a script, and without pointers to source maps."""
    if name.endswith(".css"):  # other formats of fonts are not kept
        text = re.sub(r',url\([^)]*\) format\("(?:woff|truetype)"\)', "", content.decode())
        return text.encode()
    if not name.endswith(".js"):
        return content
    text = _SOURCE_MAP.sub("\n", content.decode())
    text = _IMPORT.sub(lambda m: f'{m[1]}"{_IMPORTS.get(m[2], m[2])}"', text)
    return text.encode()


def keep(library: Library) -> dict[str, object]:
    """Write the files of a library, and say what was written."""
    archive = fetch(library)
    hashes = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members.getmembers():
            path = Path(*Path(member.name).parts[1:])
            for pattern, name in library.files.items():
                if path.match(pattern) and path.parent == Path(pattern).parent:
                    kept = f"{name}{path.name}" if name.endswith("/") else name
                    content = as_kept(kept, members.extractfile(member).read())
                    target = library.folder / kept
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content)
                    hashes[kept] = hashlib.sha256(content).hexdigest()
    return {
        "name": library.name,
        "version": library.version,
        "licence": library.licence,
        "archive_sha256": hashlib.sha256(archive).hexdigest(),
        "files": dict(sorted(hashes.items())),
    }


def main() -> None:
    """Fetch all of them."""
    for folder in (PAGE, TESTS):
        kept = [keep(library) for library in LIBRARIES if library.folder == folder]
        text = json.dumps(kept, indent=2, ensure_ascii=False)
        (folder / "vendor.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
