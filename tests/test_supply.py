"""Locked requirements, the list of parts, and what SECURITY.md says of the carrier."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from resift.bill_of_materials import bill_of_materials
from resift.cli.main import main
from resift.models.allowlist import known, shipped

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
REQUIREMENT = re.compile(r"^([a-z0-9][a-z0-9.-]*)==(\S+)", re.MULTILINE)


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9._-]+", name)[0]).lower()


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_requirement_has_a_version_and_hashes_and_names_no_host(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[a-z0-9])", text.split("\n", 1)[1].strip())
    assert len(entries) > 10
    for entry in entries:
        assert REQUIREMENT.match(entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
    assert "://" not in text
    assert not re.search(r"--(index|extra|find|trusted)", text)


def test_what_the_project_asks_for_is_locked():
    """A dependency added to pyproject.toml must be locked too: python tools/lock_requirements.py."""
    about = project()
    extras = about["optional-dependencies"]
    wanted = {normal(one) for one in about["dependencies"]}
    users = wanted | {normal(one) for extra, ones in extras.items() if extra != "dev" for one in ones}
    for name, needed in zip(LOCKS, (users, users | {normal(one) for one in extras["dev"]}), strict=True):
        locked = {found[0] for found in REQUIREMENT.findall((ROOT / name).read_text(encoding="utf-8"))}
        assert needed - {"resift"} <= locked, f"{name}: run tools/lock_requirements.py"


def test_the_list_of_parts_names_packages_models_and_their_bytes(capsys, tmp_path):
    assert main(["sbom", "-o", str(tmp_path / "bill.json")]) == 0
    bill = json.loads((tmp_path / "bill.json").read_text(encoding="utf-8"))
    assert bill == bill_of_materials() == json.loads(json.dumps(bill_of_materials()))
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "resift")
    parts = {part["name"]: part for part in bill["components"]}
    assert parts["pyyaml"]["version"] == metadata.version("PyYAML")
    assert {name for name in known() if shipped(name)} <= set(parts) | {
        alias for name in known() if (spec := shipped(name)) for alias in spec.aliases
    }
    for name in parts:
        spec = shipped(name) if "/" in name else None
        if spec is not None:
            hashes = {file["name"]: file["hashes"][0]["content"] for file in parts[name]["components"]}
            assert hashes == {pinned.name: pinned.sha256 for pinned in spec.files}
    refs = {part["bom-ref"] for part in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert all({row["ref"], *row["dependsOn"]} <= refs for row in bill["dependencies"])


def test_security_says_what_the_carrier_brings():
    """The package that carries the models, its own requirements and its commands are named."""
    carrier = next(spec.carrier for name in known() if (spec := shipped(name)) and spec.carrier)
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    try:
        dist = metadata.distribution(carrier.package)
    except metadata.PackageNotFoundError:
        pytest.skip("the carrier is not installed")
    needed = [normal(one) for one in dist.requires or () if "extra ==" not in one]
    commands = [point.name for point in dist.entry_points if point.group == "console_scripts"]
    for word in (f"{carrier.package}=={carrier.version}", *needed, *commands):
        assert word in text, f"SECURITY.md does not name {word}"
