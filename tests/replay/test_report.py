import re

import pytest

from tests.lazy import lazy
from tests.replay.conversations import conversation
from trimtab.replay.billing import list_billed_providers
from trimtab.replay.results import ReplayStudy, build_study
from trimtab.replay.runner import ReplaySetup, replay_all

pytestmark = pytest.mark.slow

plots, report = lazy("trimtab.replay.plots"), lazy("trimtab.replay.report")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def study() -> ReplayStudy:
    providers = list_billed_providers("claude-sonnet-4-5")
    several = [conversation(f"<c{i}>", 12 + i, first=40 * i) for i in range(2)]
    setups = [
        ReplaySetup(name="full", options={"policy": "full"}),
        ReplaySetup(name="layered", options={"policy": "layered"}),
        ReplaySetup(name="layered:naive", options={"policy": "layered"}, naive_marks=True),
    ]
    runs = replay_all(several, setups, {p.name: p.rules for p in providers}, jobs=1)
    return build_study(several, setups, runs, providers)


@pytest.fixture(scope="module")
def page(study) -> str:
    return report.render_html_report(study)


@pytest.mark.slow
def test_a_report_asks_for_nothing_outside_itself(page):
    assert "<script" not in page
    assert not re.findall(r"\b(?:src|href)=[\"'](?!#)", page)
    assert not re.findall(r"url\((?!#)", page)
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}


def test_a_report_has_a_row_for_each_setup_and_a_picture_for_each_that_differs(page):
    assert page.count("<tr>") == 1 + 3
    assert page.count("<svg") == 2 + 2
    assert "<figcaption>layered, layered:naive</figcaption>" in page


def test_a_report_says_how_it_was_measured(page):
    for word in ("Reference", "Tokens", "Conversations", "Pauses", "Re-fetch"):
        assert f"<dt>{word}</dt>" in page
    assert "claude_v3" in page
    assert "Modelled" in page


def test_names_from_recordings_are_escaped(page):
    assert "&lt;c1&gt;" in page
    assert "<c1>" not in page


def test_ids_of_different_pictures_differ(page):
    ids = re.findall(r'<clipPath id="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 0


def test_every_colour_of_a_picture_can_change_with_the_theme(page):
    drawn = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert not re.findall(r"#[0-9a-f]{6}", drawn)
    both, *themes = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    assert len(themes) == 2
    for theme in themes:
        assert set(plots.COLOURS_BY_CSS_NAME) <= set(re.findall(r"--(\w+):", both + theme))


@pytest.mark.slow
def test_pictures_are_written_as_png(study, tmp_path):
    paths = list(plots.write_png_files(study, tmp_path / "new"))
    names = ["cost_recall", "context_full", "context_layered", "cumulative"]
    assert [path.stem for path in paths] == names
    assert all(path.read_bytes().startswith(PNG) for path in paths)


def test_the_front_holds_what_nothing_beats_in_both():
    assert plots.find_pareto_front([(3, 0.9), (1, 0.5), (2, 0.4), (4, 0.9), (5, 1.0)]) == [
        (1, 0.5),
        (3, 0.9),
        (5, 1.0),
    ]
