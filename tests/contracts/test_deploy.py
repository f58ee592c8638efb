"""The files for operators are what their tools accept, and name commands that exist."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.cli import EXTRAS_BY_COMMAND
from trimtab_serve.channels.http.app import API_ROUTES

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


@pytest.mark.process
def test_the_unit_leaves_little_open():
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    command = [analyze, "security", "--offline=true", "--threshold=30", "--no-pager"]
    done = subprocess.run(
        [*command, DEPLOY / "trimtab.service"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


def test_what_the_unit_forbids_is_documented():
    unit = (DEPLOY / "trimtab.service").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    _, _, told = page.partition("## What the systemd unit forbids")
    told, _, _ = told.partition("\n## ")
    named = set(re.findall(r"`(\w+)(?:=[^`]*)?`", told.partition("The unit does not set")[0]))
    settings = set(re.findall(r"^(\w+)=", unit, re.MULTILINE))
    assert {name for name in named if name[0].isupper()} <= settings
    for name in ("SystemCallFilter", "RestrictNamespaces", "ProtectHome", "MemoryMax"):
        assert name in named & settings


def run_promtool(*arguments: str | Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: the package prometheus)")
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.process
def test_prometheus_accepts_the_alerts():
    run_promtool("check", "rules", DEPLOY / "prometheus" / "alerts.yaml")


@pytest.mark.process
def test_each_alert_fires_when_it_should_and_not_otherwise():
    run_promtool("test", "rules", DEPLOY / "prometheus" / "alerts_test.yaml")


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not():
    def load(name: str) -> dict[str, Any]:
        return yaml.safe_load((DEPLOY / "prometheus" / name).read_text(encoding="utf-8"))

    rules = {rule["alert"] for group in load("alerts.yaml")["groups"] for rule in group["rules"]}
    cases = [
        check for test in load("alerts_test.yaml")["tests"] for check in test["alert_rule_test"]
    ]
    assert {check["alertname"] for check in cases if check["exp_alerts"]} == rules
    assert {check["alertname"] for check in cases if not check["exp_alerts"]} == rules


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def test_the_compose_file_names_commands_and_services_that_exist():
    services = compose()["services"]
    for name, service in services.items():
        if service["image"] == "trimtab":
            assert service["command"][0] in EXTRAS_BY_COMMAND, name
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        for needed in service.get("depends_on", {}):
            assert needed in services, name


def test_every_container_of_ours_has_a_health_check_that_fits_it():
    services = compose()["services"]
    assert services["migrate"]["healthcheck"] == {"disable": True}
    assert "healthcheck" not in services["serve"], "the image's own asks for /healthz"
    assert "--workers-only" not in services["serve"]["command"]
    check, command = services["worker"]["healthcheck"]["test"], services["worker"]["command"]
    assert command[command.index("--health-file") + 1] in check[1]


def freshness_checks() -> list[tuple[str, str]]:
    """Of workers: what their supervisor runs, and the file that it looks at."""
    worker = compose()["services"]["worker"]
    found = [(worker["healthcheck"]["test"][1].replace("$$", "$"), "/tmp/alive")]  # noqa: S108
    probe = container("trimtab-worker")["livenessProbe"]["exec"]["command"]
    return [*found, (probe[2], "/tmp/alive")]  # noqa: S108


@pytest.mark.process
@pytest.mark.parametrize(("age_s", "alive"), [(0, True), (20, True), (60, False), (None, False)])
def test_a_worker_is_healthy_while_its_file_is_fresh(tmp_path, age_s, alive):
    path = tmp_path / "alive"
    if age_s is not None:
        path.touch()
        os.utime(path, (time.time() - age_s,) * 2)
    for check, looked_at in freshness_checks():
        assert looked_at in check
        done = subprocess.run(
            ["/bin/sh", "-c", check.replace(looked_at, shlex.quote(str(path)))],
            capture_output=True,
            check=False,
        )
        assert (done.returncode == 0) is alive, check


def test_no_password_is_part_of_an_address():
    for name, service in compose()["services"].items():
        for variable, value in service.get("environment", {}).items():
            if "://" in value:
                assert "$" not in value, (name, variable)
                assert service["environment"]["PGPASSWORD"] == "${POSTGRES_PASSWORD}"


@pytest.mark.parametrize("password", ["p@ss/w#rd", "100%", "a:b?c=d&e", "'quoted' \\ \"too\""])
def test_any_password_reaches_the_database_beside_such_an_address(password, tmp_path):
    from trimtab_serve.agent.config.store_location import resolve_store_location

    conninfo = pytest.importorskip("psycopg.conninfo")
    environment = compose()["services"]["serve"]["environment"]
    address = resolve_store_location(
        environment["DATABASE_URL"], tmp_path, {"PGPASSWORD": password}
    )
    found = conninfo.conninfo_to_dict(address)
    assert (found["password"], found["host"], found["user"]) == (password, "database", "trimtab")


def manifests() -> list[dict[str, Any]]:
    text = (DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


def pods() -> dict[str, dict[str, Any]]:
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in manifests()
        if each["kind"] in {"Deployment", "Job"}
    }


def container(name: str) -> dict[str, Any]:
    (found,) = pods()[name]["containers"]
    return found


def test_the_manifest_has_all_parts_of_a_fleet():
    assert [(each["kind"], each["metadata"]["name"]) for each in manifests()] == [
        ("ConfigMap", "trimtab"),
        ("Job", "trimtab-migrate"),
        ("Deployment", "trimtab-serve"),
        ("Deployment", "trimtab-worker"),
        ("Service", "trimtab"),
    ]
    for name in pods():
        assert container(name)["args"][0] in EXTRAS_BY_COMMAND
    service, labels = manifests()[-1]["spec"], manifests()[2]["spec"]
    assert service["selector"] == labels["selector"]["matchLabels"]
    assert service["selector"] == labels["template"]["metadata"]["labels"]
    ports = {port["name"] for port in container("trimtab-serve")["ports"]}
    assert {port["targetPort"] for port in service["ports"]} <= ports


def test_kubernetes_asks_paths_that_are_answered_without_a_key():
    public = {route.path for route in API_ROUTES if route.required_role is None}
    serve = container("trimtab-serve")
    asked = {probe: serve[probe]["httpGet"]["path"] for probe in serve if probe.endswith("Probe")}
    assert asked == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    assert set(asked.values()) <= public


def test_pods_run_without_rights_and_within_limits():
    for name, pod in pods().items():
        own = pod["securityContext"]
        assert own["runAsNonRoot"] is True, name
        assert own["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        for each in [*pod["containers"], *pod.get("initContainers", [])]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert {"cpu", "memory"} <= each["resources"]["requests"].keys(), name
            assert "memory" in each["resources"]["limits"], name
            mounts = {mount["name"] for mount in each.get("volumeMounts", [])}
            assert mounts <= {volume["name"] for volume in pod.get("volumes", [])}, name


def test_the_agent_in_the_manifest_can_be_loaded(tmp_path):
    from trimtab_serve.agent.config.loader import load_agent_spec

    data = manifests()[0]["data"]
    (tmp_path / "agent.yaml").write_text(data["agent.yaml"], encoding="utf-8")
    environ = {"DATABASE_URL": data["DATABASE_URL"], "ANTHROPIC_API_KEY": "k"}
    spec = load_agent_spec(tmp_path / "agent.yaml", environ)
    assert (spec.session.store, spec.serve.keys) == (data["DATABASE_URL"], "keys.json")


def test_containers_have_longer_to_stop_than_turns_have_to_end():
    from trimtab_serve.agent.config.spec import ServeSpec

    timeout = ServeSpec().shutdown_timeout
    for name in ("serve", "worker"):
        grace = compose()["services"][name]["stop_grace_period"]
        assert float(grace.removesuffix("s")) > timeout
        assert pods()[f"trimtab-{name}"]["terminationGracePeriodSeconds"] > timeout
    unit = (DEPLOY / "trimtab.service").read_text(encoding="utf-8")
    stop = next(line for line in unit.splitlines() if line.startswith("TimeoutStopSec="))
    assert float(stop.removeprefix("TimeoutStopSec=")) > timeout


def test_every_extra_in_the_image_is_declared():
    import tomllib

    project = tomllib.loads((ROOT / "packages/trimtab/pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    wanted = {part.split("]")[0] for part in text.split("[")[1:] if "]" in part and "fleet" in part}
    assert len(wanted) == 1
    assert set(wanted.pop().split(",")) <= set(project["optional-dependencies"])
