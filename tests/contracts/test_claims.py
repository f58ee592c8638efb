"""Pages say what the stored results of the benchmarks say, and results that overlap agree."""

import pytest

from benchmarks import claims


def test_no_page_contradicts_the_stored_results():
    assert claims.list_contradictions() == []


def test_a_changed_figure_is_found_in_a_table_and_in_a_sentence(tmp_path, monkeypatch):
    pages = {page for page, _ in claims.list_tables()} | {
        page for page, _ in claims.list_sentences()
    }
    for page in pages:
        text = (claims.ROOT / page).read_text(encoding="utf-8")
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / page).write_text(text.replace("7", "8"), encoding="utf-8")
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    assert {line.partition(":")[0] for line in claims.list_contradictions()} == pages


def test_a_page_without_the_place_of_its_table_is_named():
    with pytest.raises(ValueError, match="no comment '<!-- figures: peers -->'"):
        claims.put_table("a page", "peers", "| a table |")


@pytest.mark.parametrize("name", ["auto_evidence", "peers"])
def test_everything_is_its_own_baseline_and_saves_nothing(name):
    row = next(row for row in claims.load_results(name)["rows"] if row["setup"] == "everything")
    assert (row["saved"], row["recall"], row["cost"]) == (0.0, 1.0, row["baseline"])


def test_no_result_was_stored_that_was_broken():
    assert claims.load_results("peers")["broken"] == []


def test_the_picture_has_the_stored_figures():
    session = claims.load_results("session")
    picture = (claims.ROOT / "docs" / "img" / "session.svg").read_text(encoding="utf-8")
    assert f"call {session['refused_at']}: refused" in picture
    for lane in session["lanes"].values():
        assert (
            f"${lane['dollars_until_refused']:.2f} for {session['refused_at'] - 1} calls" in picture
        )
