"""The site builds without a warning, contains every page, and loads nothing from another host."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from doc_pages import DOCS, ROOT, links_of

import vista

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
NOT_LOADED = {"canonical", "prev", "next", "alternate"}  # values of rel that name a page


class Requests(HTMLParser):
    """Collects the addresses that a browser loads to show a page; links that a reader may follow are not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in LOADED and values.get("rel") not in NOT_LOADED:
            self.found.append(values.get(LOADED[tag]) or "")


def external_requests(html: str) -> list[str]:
    parser = Requests()
    parser.feed(html)
    return [address for address in parser.found if urlsplit(address).netloc]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("mkdocs", "material", "mkdocstrings_handlers"):
        pytest.importorskip(package, reason="needs vista-distill[docs]")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("")
        folder = name.parent if name.name in ("index", "README") else name
        assert (site / folder / "index.html").is_file(), f"{page.name} is not on the site"


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    found = {str(page.relative_to(site)): external_requests(page.read_text(encoding="utf-8")) for page in pages}
    assert {name: addresses for name, addresses in found.items() if addresses} == {}
    for style in site.rglob("*.css"):
        addresses = re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s]+)", style.read_text(encoding="utf-8"))
        assert [address for address in addresses if urlsplit(address).netloc] == [], style


def test_a_request_to_another_host_is_noticed() -> None:
    html = '<a href="https://x.org/"></a><script src="a.js"></script><script src="https://x.org/a.js"></script>'
    assert external_requests(html) == ["https://x.org/a.js"]
    assert external_requests('<link rel="stylesheet" href="//x.org/a.css">') == ["//x.org/a.css"]


def test_the_api_reference_shows_docstrings(site: Path) -> None:
    html = (site / "api" / "vista" / "index.html").read_text(encoding="utf-8")
    for name in set(vista.__all__) - {"__version__", "functional"}:
        assert f'id="vista.{name}"' in html
    assert '<span class="gp">&gt;&gt;&gt; </span>' in html
    assert "doctest:" not in html
    assert not re.search(r"<p>[^<]*&gt;&gt;&gt;|<blockquote>", html), "an example is shown as text"


def test_formulas_are_marked_for_katex(site: Path) -> None:
    html = (site / "how-it-works" / "index.html").read_text(encoding="utf-8")
    assert '<div class="arithmatex">' in html
    assert "assets/katex/katex.min.js" in html
    for asset in re.findall(r"url\(([^)]+)\)", (DOCS / "assets" / "katex" / "katex.min.css").read_text()):
        assert (site / "assets" / "katex" / asset).is_file()


def test_every_page_is_in_the_navigation_and_exists() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = [line.rpartition(": ")[2] for line in navigation.splitlines() if line.endswith(".md")]
    missing = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - set(listed)
    assert not missing
    assert len(listed) == len(set(listed))
    for name in listed:
        path = ROOT / name.removeprefix("project/") if name.startswith("project/") else DOCS / name
        assert path.is_file(), name


def test_every_example_is_in_the_gallery_with_its_code() -> None:
    gallery = DOCS / "examples.md"
    included = re.findall(r'^ *--8<-- "(examples/\w+\.py)"$', gallery.read_text(encoding="utf-8"), re.MULTILINE)
    linked = [target.removeprefix("../") for target in links_of(gallery) if target.endswith(".py")]
    examples = sorted(f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py"))
    assert sorted(included) == sorted(linked) == examples
