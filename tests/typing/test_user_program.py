"""What type checkers say of programs that use the library. `make thorough` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.typing.checkers import run_mypy, run_pyright
from tests.typing.documents import write_programs

pytestmark = [pytest.mark.process, pytest.mark.soak]

USER_PROGRAM = Path(__file__).with_name("user_program.py").read_text()

RIGHT_LINES = ('Context("any-name", dialect="openai_chat")', 'fit([], model="gpt-4o", goal="cost")')
MISSPELLINGS = (
    'Context("gpt-4o", policy="atuo")',
    'Session.create(MemoryStore(), "a", model="gpt-4o", dialect="anthropc")',
    'Session.create(MemoryStore(), "a", modle="gpt-4o")',
    'Context("gpt-4o", dialect="anthropc")',
    'Context("gpt-4o", limits={"max_tool_result_token": 3})',
    'Context("gpt-4o").configure(modle="x")',
    'fit([], model="gpt-4o", foo=1)',
    'Context("gpt-4o", model_info={"context_windw": 3})',
    'Context("gpt-4o", goal="cheap")',
    'Context("gpt-4o", cache="2h")',
    'Context("gpt-4o").configure(policy="atuo")',
    'fit([], model="gpt-4o", limits={"summary": {"maxtokens": 3}})',
)
MISSPELLED_PROGRAM = "\n".join(
    [
        "from trimtab import Context, Session, fit",
        "from trimtab.testing import MemoryStore",
        *RIGHT_LINES,
        *MISSPELLINGS,
        "",
    ]
)


@pytest.mark.parametrize("run_checker", [run_pyright, run_mypy])
def test_the_sdks_types_are_kept_and_misspelled_options_found(run_checker, tmp_path):
    (tmp_path / "user_program.py").write_text(USER_PROGRAM)
    (tmp_path / "misspelled.py").write_text(MISSPELLED_PROGRAM)
    first = 3 + len(RIGHT_LINES)
    expected = {("misspelled.py", first + index) for index in range(len(MISSPELLINGS))}
    assert run_checker(tmp_path).keys() == expected


@pytest.mark.parametrize("run_checker", [run_pyright, run_mypy])
def test_the_programs_of_readme_cookbook_and_examples_have_no_error(run_checker, tmp_path):
    write_programs(tmp_path)
    assert run_checker(tmp_path) == {}
