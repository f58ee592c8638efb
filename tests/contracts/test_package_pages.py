"""The page of each package in an index of packages: nothing on it is relative, and its links lead
somewhere."""

import re
from importlib.metadata import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent.name for path in (ROOT / "packages").glob("*/pyproject.toml"))
REPOSITORY = "https://github.com/trimtab/trimtab"
TARGET = re.compile(r"\]\(\s*(?P<inline>[^)\s]+)|^\[[^\]]+\]:\s*(?P<named>\S+)", re.MULTILINE)
ATTRIBUTE = re.compile(r"(?:src|href)=[\"'](?P<inline>[^\"']+)")


def targets(page: str) -> list[str]:
    matches = [*TARGET.finditer(page), *ATTRIBUTE.finditer(page)]
    return [next(filter(None, match.groups())) for match in matches]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_built_page_is_the_packages_readme(package):
    built = str(metadata(package).get_payload())
    readme = (ROOT / "packages" / package / "README.md").read_text("utf-8")
    assert built.strip() == readme.strip(), "the installed package is old: run `make install`"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_link_and_no_picture_of_the_built_page_is_relative(package):
    page = str(metadata(package).get_payload())
    assert targets(page)
    assert [target for target in targets(page) if not target.startswith("https://")] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_links_of_the_built_page_and_of_its_sidebar_lead_to_files_of_the_repository(package):
    fields = metadata(package)
    urls = [entry.partition(", ")[2] for entry in fields.get_all("Project-URL") or []]
    links = [*targets(str(fields.get_payload())), *urls]
    ours = re.compile(rf"{REPOSITORY}/(?:blob|tree)/main/([^#]+)")
    files = [match[1] for match in map(ours.match, links) if match]
    assert files
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_a_relative_link_would_be_seen():
    page = "[a](docs/a.md) ![b](img/b.svg) <img src='c.png'>\n[d]: ../d.md\n[e](https://f)"
    assert targets(page) == ["docs/a.md", "img/b.svg", "../d.md", "https://f", "c.png"]
