"""What `trimtab --version` says."""

import platform
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from typer.testing import CliRunner

import trimtab
import trimtab_serve
from trimtab.cli import installed_packages as told
from trimtab.cli.app import app

PACKAGES = Path(__file__).parents[2] / "packages"


def read_extras(name):
    text = (PACKAGES / name / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]["optional-dependencies"]


def test_both_packages_have_one_version():
    text = (PACKAGES / "trimtab-serve/pyproject.toml").read_text(encoding="utf-8")
    assert trimtab_serve.__version__ == trimtab.__version__
    assert tomllib.loads(text)["project"]["dependencies"] == [f"trimtab=={trimtab.__version__}"]


def test_every_extra_of_the_server_has_the_same_name_in_the_library():
    library = read_extras("trimtab")
    for extra in read_extras("trimtab-serve"):
        assert library[extra] == [f"trimtab-serve[{extra}]"]


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
    declared = read_extras("trimtab-serve").get(extra) or read_extras("trimtab")[extra]
    # What has a marker is not for every Python, so the extra works without it.
    own = {_bare(line) for line in declared if not line.startswith("trimtab") and ";" not in line}
    assert {_bare(name) for name in told.PACKAGES_BY_EXTRA[extra]} == own


def _bare(requirement):
    name = requirement.split("[")[0].split(">")[0].strip()
    return name.lower().replace("_", "-")
