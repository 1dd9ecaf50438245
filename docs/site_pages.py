"""Choose, order and adapt the pages of the documentation's site, as hooks of mkdocs.

Each page keeps the path that it has in the repository, so that links between pages, and from pages
to code, are the same in both. The site consists of README.md, the pages of `docs`, and all files
that these link to.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
LINK: Final = re.compile(r"(?<=\]\()([^)#\s:]+)")
TITLED_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#\s:]+\.md)\)")
GROUP: Final = re.compile(r"^- ([\w -]+): ", re.MULTILINE)
TRANSITION: Final = re.compile(r"^ +(\S+) --> ([^\s:]+)(?:: (.+))?$", re.MULTILINE)
FENCE: Final = re.compile(r"^(```(\w*)).*\n", re.MULTILINE)
DIAGRAM: Final = re.compile(r"```mermaid\nstateDiagram-v2\n(.+?)```\n", re.DOTALL)
ABOUT: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def on_config(config: MkDocsConfig) -> None:
    """Derive the navigation from docs/README.md."""
    config.nav = navigation()


def navigation() -> list[Any]:
    """Return the pages in the order of docs/README.md, in the format of mkdocs' `nav`."""
    text = (ROOT / "docs" / "README.md").read_text("utf-8")
    start, *sections = re.split(r"^\*\*(.+)\*\*$", text, flags=re.MULTILINE)
    nav: list[Any] = [{"Fieldpost": "README.md"}, *_entries("docs", start)]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        _, *groups = GROUP.split(body)
        parts = zip(groups[::2], groups[1::2], strict=True)
        entries = [{name: _entries("docs", part)} for name, part in parts]
        nav.append({title: entries or _entries("docs", body)})
    return [*nav, {"Project": list(ABOUT)}]


def _entries(folder: str, text: str) -> list[dict[str, Any]]:
    """Return an entry for each link; one to a README.md includes the pages of its folder."""
    entries: list[dict[str, Any]] = []
    for title, path in _links(folder, text):
        inside = f"{path.parent}/"
        inner = [
            {name: str(page)}
            for name, page in _links(inside, (ROOT / path).read_text("utf-8"))
            if path.name == "README.md" and str(page).startswith(inside)
        ]
        entries.append({title: [str(path), *inner] if inner else str(path)})
    return entries


def _links(folder: str, text: str) -> list[tuple[str, Path]]:
    """Return the title and the path of each linked page."""
    return [
        (title, (ROOT / folder / link).resolve().relative_to(ROOT))
        for title, link in TITLED_LINK.findall(text)
    ]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of `docs` by those of the site, with their paths in the repository."""
    pages = [ROOT / name for name in ("README.md", *ABOUT)]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    chosen: dict[str, File] = {}
    while pages:
        path = pages.pop()
        name = path.relative_to(ROOT).as_posix()
        if name in chosen:
            continue
        if path.is_dir():
            chosen[name] = File.generated(config, f"{name}/README.md", content=_listing(path))
            pages += path.iterdir()
            continue
        chosen[name] = File(name, str(ROOT), config.site_dir, config.use_directory_urls)
        if path.suffix == ".md":
            targets = [
                (path.parent / link).resolve() for link in LINK.findall(path.read_text("utf-8"))
            ]
            pages += [
                target for target in targets if target.exists() and target.is_relative_to(ROOT)
            ]
    theme = [file for file in files if file.src_dir != config.docs_dir]
    return Files([*theme, *chosen.values()])


def _listing(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    links = "\n".join(f"- [{name}]({name})" for name in names)
    return f"# {folder.relative_to(ROOT)}\n\n{links}\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Name the index of a folder that is linked to, and show state diagrams as tables."""
    folder = (ROOT / page.file.src_uri).parent

    def index(link: re.Match[str]) -> str:
        return f"{link[0].rstrip('/')}/README.md" if (folder / link[0]).is_dir() else link[0]

    text = DIAGRAM.sub(table, LINK.sub(index, markdown))
    return FENCE.sub(lambda fence: f"{fence[1]}\n" if fence[2] else f"{fence[1]}\n\n", text)


def table(diagram: re.Match[str]) -> str:
    """Show the transitions as a table, because a browser needs a script of 3 MB for a diagram."""
    rows = [
        f"| {' | '.join('' if cell == '[*]' else cell for cell in cells)} |"
        for cells in TRANSITION.findall(diagram[1])
    ]
    return "\n".join(["| state | next state | event |", "| --- | --- | --- |", *rows, ""])
