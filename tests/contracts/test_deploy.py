"""The files for operators are what their tools accept, and name commands that exist."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
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
    page = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    _, _, told = page.partition("### What the systemd unit forbids")
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


@pytest.mark.process
def test_nginx_accepts_the_rule_in_front(tmp_path):
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed")
    whole = f"pid {tmp_path}/pid; events {{}} http {{ include {DEPLOY}/nginx.conf; }}"
    (tmp_path / "nginx.conf").write_text(whole, encoding="utf-8")
    command = [nginx, "-t", "-q", "-p", tmp_path, "-c", tmp_path / "nginx.conf"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "/var/log/nginx" not in line]
    assert (done.returncode, complaints) == (0, [])


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


def test_every_container_of_ours_answers_the_health_check_of_the_image():
    services = compose()["services"]
    assert services["migrate"]["healthcheck"] == {"disable": True}
    image = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    [port] = re.findall(r"HEALTHCHECK(?s:.*)http://127.0.0.1:(\d+)/healthz", image)
    commands = [json.loads(image.rpartition("\nCMD ")[2])]
    for name in ("serve", "worker"):
        assert "healthcheck" not in services[name]
        commands.append(services[name]["command"])
    for command in commands:
        assert command[command.index("--metrics-port") + 1] == port


def test_the_unit_is_restarted_when_the_process_reports_no_more():
    unit = (DEPLOY / "trimtab.service").read_text(encoding="utf-8")
    assert re.search(r"^WatchdogSec=30$", unit, re.MULTILINE)
    assert "AF_UNIX" in re.findall(r"^RestrictAddressFamilies=(.*)$", unit, re.MULTILINE)[0]


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


def manifest(kind: str, name: str) -> dict[str, Any]:
    (found,) = [
        each["spec"]
        for each in manifests()
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


def container(name: str) -> dict[str, Any]:
    (found,) = pods()[name]["containers"]
    return found


def test_the_manifest_has_all_parts_of_a_fleet():
    assert [(each["kind"], each["metadata"]["name"]) for each in manifests()] == [
        ("ConfigMap", "trimtab"),
        ("Job", "trimtab-migrate-0-1-0"),
        ("Deployment", "trimtab-serve"),
        ("Deployment", "trimtab-worker"),
        ("Service", "trimtab"),
        ("PodDisruptionBudget", "trimtab-serve"),
        ("PodDisruptionBudget", "trimtab-worker"),
        ("NetworkPolicy", "trimtab"),
    ]
    for name in pods():
        assert container(name)["args"][0] in EXTRAS_BY_COMMAND
    service, labels = manifest("Service", "trimtab"), manifest("Deployment", "trimtab-serve")
    assert service["selector"] == labels["selector"]["matchLabels"]
    assert service["selector"] == labels["template"]["metadata"]["labels"]
    ports = {port["name"] for port in container("trimtab-serve")["ports"]}
    assert {port["targetPort"] for port in service["ports"]} <= ports


def test_kubernetes_asks_paths_that_are_answered_without_a_key():
    public = {route.path for route in API_ROUTES if route.required_role is None}
    alive = {"path": "/healthz", "port": "health"}
    for name, ready in (
        ("trimtab-serve", {"readinessProbe": {"path": "/readyz", "port": "http"}}),
        ("trimtab-worker", {}),
    ):
        pod = container(name)
        asked = {probe: pod[probe]["httpGet"] for probe in pod if probe.endswith("Probe")}
        # A process that is busy is not killed: the port `health` is not the event loop's.
        assert asked == {"startupProbe": alive, "livenessProbe": alive, **ready}
        assert {each["path"] for each in asked.values()} <= public
        ports = {port["name"]: port["containerPort"] for port in pod["ports"]}
        assert {each["port"] for each in asked.values()} <= ports.keys()
        assert f"--metrics-port={ports['health']}" in pod["args"]


def test_an_upgrade_and_an_emptied_node_leave_a_process_that_answers():
    for name in ("trimtab-serve", "trimtab-worker"):
        deployment = manifest("Deployment", name)
        budget = manifest("PodDisruptionBudget", name)
        assert deployment["replicas"] > budget["minAvailable"] > 0
        assert budget["selector"] == deployment["selector"]
    update = manifest("Deployment", "trimtab-serve")["strategy"]["rollingUpdate"]
    assert update == {"maxUnavailable": 0, "maxSurge": 1}
    pod = pods()["trimtab-serve"]
    sleep = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    from trimtab_serve.agent.config.spec import ServeSpec

    wait = int(sleep[1]) + ServeSpec().shutdown_timeout
    assert pod["terminationGracePeriodSeconds"] > wait


def test_a_new_version_migrates_by_a_job_of_its_own():
    (name,) = [each for each in pods() if each.startswith("trimtab-migrate-")]
    version = name.removeprefix("trimtab-migrate-").replace("-", ".")
    images = {each["image"] for pod in pods().values() for each in pod["containers"]}
    assert images == {f"trimtab:{version}"}


def test_the_network_policy_names_ports_that_exist():
    policy = manifest("NetworkPolicy", "trimtab")
    (labels,) = policy["podSelector"].values()
    assert all(
        labels.items() <= each["spec"]["template"]["metadata"]["labels"].items()
        for each in manifests()
        if each["kind"] in {"Deployment", "Job"}
    )
    named = {port["name"] for name in ("serve", "worker") for port in container_ports(name)}
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == named


def container_ports(component: str) -> list[dict[str, Any]]:
    return container(f"trimtab-{component}")["ports"]


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
    assert (spec.session.store, spec.serve.keys) == (data["DATABASE_URL"], True)


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
