"""The files for operators are what their tools accept, and name commands that exist."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.cli.app import TRIMTAB_COMMANDS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


@pytest.mark.process
def test_the_dockerfile_passes_its_linter():
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run(
        [hadolint, "--no-color", DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.process
def test_systemd_accepts_the_unit():
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    done = subprocess.run(
        [analyze, "verify", DEPLOY / "trimtab.service"], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "not executable" not in line]
    assert complaints == []


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def test_the_compose_file_names_commands_and_services_that_exist():
    services = compose()["services"]
    for name, service in services.items():
        if service["image"] == "trimtab":
            assert service["command"][0] in TRIMTAB_COMMANDS, name
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        for needed in service.get("depends_on", {}):
            assert needed in services, name


def test_containers_have_longer_to_stop_than_turns_have_to_end():
    from trimtab.agent.config.spec import ServeSpec

    timeout = ServeSpec().shutdown_timeout
    for name in ("serve", "worker"):
        grace = compose()["services"][name]["stop_grace_period"]
        assert float(grace.removesuffix("s")) > timeout
    unit = (DEPLOY / "trimtab.service").read_text(encoding="utf-8")
    stop = next(line for line in unit.splitlines() if line.startswith("TimeoutStopSec="))
    assert float(stop.removeprefix("TimeoutStopSec=")) > timeout


def test_every_extra_in_the_image_is_declared():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    wanted = {part.split("]")[0] for part in text.split("[")[1:] if "]" in part and "fleet" in part}
    assert len(wanted) == 1
    assert set(wanted.pop().split(",")) <= set(project["optional-dependencies"])
