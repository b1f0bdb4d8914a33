"""What deploy/ holds fits the command and its limits: every option is one, every path is one that is served."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from heat_ood.cli import app
from heat_ood.serving import PORT, Settings
from heat_ood.serving._gate import OPEN

DEPLOY = Path(__file__).parents[2] / "deploy"
OPTIONS: Any = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]


def parsed(arguments: list[str]) -> dict[str, Any]:
    """What the command reads from a line; an option that it does not know is an error."""
    assert arguments[0] == "serve"
    with OPTIONS.make_context("serve", list(arguments[1:])) as context:
        return dict(context.params)


def instructions(name: str) -> dict[str, list[str]]:
    """Of the Dockerfile, by their words, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / name).read_text(), flags=re.M).replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in filter(str.strip, text.splitlines()):
        word, _, rest = line.strip().partition(" ")
        found.setdefault(word, []).append(rest.strip())
    return found


def test_the_dockerfile_starts_the_command_as_nobody_special() -> None:
    known = instructions("Dockerfile")
    command = json.loads(known["ENTRYPOINT"][0]) + json.loads(known["CMD"][0])
    assert command[0] == "heat-ood"
    values = parsed(command[1:])
    assert values["host"] == "0.0.0.0"
    assert values["token_file"] == Path("/run/secrets/token")
    assert known["VOLUME"][0] == str(values["drift_state"].parent)
    assert known["EXPOSE"][0] == str(values["port"]) == str(PORT)
    assert str(values["guard"]) in known["COPY"][0]
    assert known["USER"] == ["heat-ood"]
    assert known["STOPSIGNAL"] == ["SIGTERM"]
    check = known["HEALTHCHECK"][0]
    assert "/readyz" in check
    assert "/readyz" in OPEN
    compile(json.loads(check.partition("CMD ")[2])[2], "healthcheck", "exec")
    assert '"heat-ood[serve]"' in known["RUN"][0]


def unit() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "heat-ood.service").read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_starts_the_command_on_this_machine_alone() -> None:
    known = unit()
    line = shlex.split(known["ExecStart"][0])
    values = parsed(line[line.index("serve") :])
    assert values["host"] is None
    assert str(values["token_file"]) == "${CREDENTIALS_DIRECTORY}/token"
    assert known["LoadCredential"][0].startswith("token:")
    assert str(values["drift_state"]).startswith("${STATE_DIRECTORY}/")
    assert known["StateDirectory"] == ["heat-ood"]
    assert int(known["TimeoutStopSec"][0]) > Settings().seconds + 5
    assert int(known["LimitNOFILE"][0]) > 2 * Settings().connections


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (Debian: systemd)"
)
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    text = (
        (DEPLOY / "heat-ood.service").read_text().replace("/srv/heat-ood/venv/bin/heat-ood", shutil.which("true") or "")
    )
    (tmp_path / "heat-ood.service").write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "heat-ood.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if "heat-ood.service" in line] == []


def test_the_proxy_has_the_limits_of_the_service() -> None:
    text, default = (DEPLOY / "nginx.conf").read_text(), Settings()
    assert f"server 127.0.0.1:{PORT};" in text
    assert f"client_max_body_size {default.body_bytes >> 20}m;" in text
    assert f"client_body_timeout {default.seconds:.0f}s;" in text
    assert f"client_header_timeout {default.idle_seconds:.0f}s;" in text
    assert int(re.findall(r"proxy_read_timeout (\d+)s", text)[0]) > default.seconds + 5
    assert text.count("{") == text.count("}")


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed (Debian: nginx-light)")
def test_nginx_reads_its_file(tmp_path: Path) -> None:
    text = re.sub(r"listen 443 ssl;|ssl_certificate.*;", "", (DEPLOY / "nginx.conf").read_text())
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid; events {{}} http {{ access_log off; {text} }}")
    line = ["nginx", "-t", "-e", "stderr", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
