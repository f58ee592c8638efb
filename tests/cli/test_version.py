"""What `trimtab --version` says."""

import platform
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli import installed_packages as told
from trimtab.cli.app import app

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def lines():
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_the_first_line_is_the_version_alone():
    assert lines()[0] == f"trimtab {version('trimtab')}"


def test_the_interpreter_and_the_machine_are_named_on_one_screen():
    said = lines()
    assert said[1] == f"Python {platform.python_version()} ({platform.python_implementation()})"
    assert platform.machine() in said[2]
    assert len(said) <= 24


def test_each_extra_is_listed_with_the_versions_of_its_packages():
    assert f"+ cli        typer {version('typer')}, rich {version('rich')}" in lines()


def test_a_missing_package_is_said_with_the_command_that_brings_it(monkeypatch):
    def without(name):
        if name == "openai":
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(told, "version", without)
    assert "- openai     missing: pip install 'trimtab[openai]'" in told.describe_installation()


@pytest.mark.parametrize("extra", told.PACKAGES_BY_EXTRA)
def test_the_packages_of_an_extra_are_those_that_it_declares(extra):
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    declared = project["optional-dependencies"][extra]
    own = {_bare(line) for line in declared if not line.startswith("trimtab")}
    assert {_bare(name) for name in told.PACKAGES_BY_EXTRA[extra]} == own


def _bare(requirement):
    name = requirement.split("[")[0].split(">")[0].strip()
    return name.lower().replace("_", "-")
