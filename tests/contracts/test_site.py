"""The documents become a site without a warning, and everything in it is found."""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.contracts import llms_page
from tests.contracts.public_names import FILE as PUBLIC_NAMES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = sorted(DOCS.rglob("*.md"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "tests").glob("*.md"), *SITE])
LINK = re.compile(r"(?P<picture>!?)\[(?P<label>[^\]]*)\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^(?P<level>#+) +(?P<text>.+?) *$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
DOCUMENTED = re.compile(r"^\.\. (?:auto\w+|py:\w+):: (?P<name>\S+)$", re.MULTILINE)
CLICKS = 2
"""From the index to any page."""


def anchors(page: Path) -> set[str]:
    """What GitHub and the site call the headings."""
    text = FENCED.sub("", page.read_text("utf-8"))
    headings = (match["text"].lower() for match in HEADING.finditer(text))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def shown(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_link_to_a_file_leads_to_one(page):
    text = FENCED.sub("", page.read_text("utf-8"))
    for match in LINK.finditer(text):
        assert match["label"], f"{page.name}: {match['target']} has no text"
        target, _, anchor = match["target"].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        found = page.parent / target if target else page
        assert found.exists(), f"{page.name} links to {match['target']}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{page.name} links to {match['target']}"


def pages_linked_from(page: Path) -> set[Path]:
    """The pages that one click leads to, in the text or in the page's part of the navigation."""
    name = page.relative_to(DOCS).with_suffix("").as_posix()
    below = {DOCS / f"{entry}.md" for _, tree in llms_page.toctrees(name) for entry, _ in tree}
    links = LINK.finditer(FENCED.sub("", page.read_text("utf-8")))
    targets = {(page.parent / link["target"].partition("#")[0]).resolve() for link in links}
    return below | (targets & set(SITE))


def test_every_page_is_two_clicks_from_the_index():
    reached = {DOCS / "index.md"}
    for _ in range(CLICKS):
        reached |= {linked for page in reached for linked in pages_linked_from(page)}
    assert [shown(page) for page in SITE if page not in reached] == []


def test_the_navigation_has_its_parts_and_each_page_once():
    trees = dict(llms_page.toctrees("index"))
    assert list(trees) == ["Start", "Guides", "How it works", "The server", "Reference", "Evidence"]
    listed = [
        entry
        for page in SITE
        for _, tree in llms_page.toctrees(page.relative_to(DOCS).with_suffix("").as_posix())
        for entry, _ in tree
    ]
    names = [page.relative_to(DOCS).with_suffix("").as_posix() for page in SITE]
    assert sorted([*listed, "index"]) == sorted(names)


def test_the_list_for_programs_has_every_page():
    assert llms_page.PAGE.read_text("utf-8") == llms_page.page(), "run `make llms`"
    listed = re.findall(rf"\({llms_page.ADDRESS}/(\S+)\)", llms_page.page())
    included = {f"docs/{page}.md": path for page, path in llms_page.INCLUDED.items()}
    names = [included.get(shown(page), shown(page)) for page in SITE]
    assert sorted(listed) == sorted(name for name in names if name != "docs/index.md")


def test_the_reference_has_every_public_name():
    texts = [page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md")]
    documented = [match["name"] for text in texts for match in DOCUMENTED.finditer(text)]
    assert sorted(documented) == sorted(PUBLIC_NAMES.read_text("utf-8").split())


def test_the_concepts_have_pictures_that_load_nothing():
    found = re.findall(r"!\[[^\]]+\]\((\S+\.svg)\)", (DOCS / "concepts.md").read_text("utf-8"))
    assert len(found) == 4
    for name in found:
        text = (DOCS / name).read_text("utf-8")
        first = next(ET.fromstring(text).iter("{http://www.w3.org/2000/svg}rect"))  # noqa: S314 - ours
        assert first.get("fill") == "#ffffff", "dark mode would show through"
        assert not re.search(r"href=|url\((?!#)|<script|@import", text)


@pytest.mark.parametrize("page", SITE, ids=shown)
def test_the_blocks_of_a_page_end_and_its_headings_skip_no_level(page):
    text = FENCED.sub("", page.read_text("utf-8"))
    assert not re.search(r"^```", text, re.MULTILINE)
    levels = [len(match["level"]) for match in HEADING.finditer(text)]
    assert [(one, other) for one, other in pairwise([0, *levels]) if other > one + 1] == []


@pytest.mark.parametrize("page", SITE, ids=shown)
def test_no_heading_below_the_title_of_a_page_stands_twice(page):
    text = FENCED.sub("", page.read_text("utf-8"))
    headings = [match["text"] for match in HEADING.finditer(text) if match["level"] != "#"]
    assert [heading for heading in headings if headings.count(heading) > 1] == []


@pytest.mark.process
@pytest.mark.soak
def test_the_site_is_built_without_a_warning(tmp_path):
    sphinx = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    asked = [sys.executable, *sphinx, "-d", str(tmp_path / "trees"), "docs", str(tmp_path / "site")]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    built = {path.relative_to(tmp_path / "site") for path in (tmp_path / "site").rglob("*.html")}
    assert {page.relative_to(DOCS).with_suffix(".html") for page in SITE} <= built
    assert (tmp_path / "site" / "llms.txt").exists()
    reference = (tmp_path / "site" / "reference" / "context.html").read_text("utf-8")
    assert 'id="trimtab.Context.request"' in reference
