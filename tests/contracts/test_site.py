"""The documents become a site without a warning, and no link in them leads nowhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ +(?P<text>.+?) *$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What GitHub and the site call the headings."""
    text = FENCED.sub("", page.read_text("utf-8"))
    headings = (match["text"].lower() for match in HEADING.finditer(text))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page):
    text = FENCED.sub("", page.read_text("utf-8"))
    for match in LINK.finditer(text):
        target, _, anchor = match["target"].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        found = page.parent / target if target else page
        assert found.exists(), f"{page.name} links to {match['target']}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{page.name} links to {match['target']}"


def test_the_site_is_built_without_a_warning(tmp_path):
    sphinx = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    asked = [sys.executable, *sphinx, "-d", str(tmp_path / "trees"), "docs", str(tmp_path / "site")]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    built = {path.stem for path in (tmp_path / "site").glob("*.html")}
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} <= built
