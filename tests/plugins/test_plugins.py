"""The packages for opencode and pi: their own tests in Node, and what is published."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trimtab

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "plugins"
PACKAGES = ("opencode", "pi")
NODE, NPM = shutil.which("node") or "", shutil.which("npm") or ""


def read_package(name: str) -> dict[str, object]:
    return json.loads((PLUGINS / name / "package.json").read_text())


@pytest.mark.parametrize("name", PACKAGES)
def test_a_plugin_has_the_version_of_the_library_and_no_dependency(name):
    package = read_package(name)
    assert package["version"] == trimtab.__version__
    assert not {"dependencies", "scripts", "peerDependencies"} & package.keys()


def test_both_plugins_start_the_sidecar_with_the_same_file():
    first, second = ((PLUGINS / name / "sidecar.js").read_bytes() for name in PACKAGES)
    assert first == second


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.process
@pytest.mark.skipif(not NPM, reason="npm is not installed")
def test_what_is_packed_is_all_that_the_plugin_imports(name, tmp_path):
    command = [NPM, "pack", "--dry-run", "--json", str(PLUGINS / name)]
    environ = {**os.environ, "HOME": str(tmp_path), "npm_config_cache": str(tmp_path)}
    packed = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=True)
    listed = json.loads(packed.stdout)
    (package,) = listed.values() if isinstance(listed, dict) else listed
    files = {each["path"] for each in package["files"]}
    sources = {path.name for path in (PLUGINS / name).glob("*.js")}
    assert files == {*sources, "package.json", "README.md", "LICENSE"}


@pytest.mark.parametrize("name", ["sidecar", *PACKAGES])
@pytest.mark.process
@pytest.mark.skipif(not NODE, reason="Node is not installed")
def test_a_plugin_passes_its_own_tests(name):
    command = [NODE, "--test", str(Path(__file__).with_name(f"{name}.test.mjs"))]
    environ = {**os.environ, "TRIMTAB_COMMAND": f"{sys.executable} -m trimtab.cli"}
    environ.pop("TRIMTAB", None)
    ended = subprocess.run(
        command,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-6_000:]
