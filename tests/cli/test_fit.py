"""What `trimtab fit` says of an input that is no body of a call."""

import pytest
from typer.testing import CliRunner

from trimtab.cli.app import app


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "nothing was piped in; pipe in the body of a model call: trimtab fit < body.json"),
        (" \n", "nothing was piped in"),
        ("x", "Expecting value, at line 1, column 1"),
        (
            '{"a":\n 1,\n x}',
            "Expecting property name enclosed in double quotes, at line 3, column 2",
        ),
        ("{}\n{}", "Extra data, at line 2, column 1"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_an_input_that_is_no_json_is_refused_with_its_line_and_column(body, said):
    result = CliRunner().invoke(app, ["fit"], input=body)
    assert result.exit_code != 0
    assert said in result.stderr
    assert not result.stdout
