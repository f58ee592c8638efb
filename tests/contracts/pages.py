"""The pages for users and contributors, whose blocks are tried."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
COOKBOOK = ROOT / "docs" / "cookbook"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *ROOT.glob("p*/*/README.md"),  # packages and plugins
    ]
)


def shown(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()
