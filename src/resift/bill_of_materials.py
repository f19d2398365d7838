"""What an installation of Resift is made of: packages and model files, as a CycloneDX document.

The packages are those installed here that Resift and its extras ask for, and what those ask for in turn.
The same installation always gives the same bytes: no time and no random number goes in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

from resift.models.registry import ModelSpec, builtin_ids, builtin_spec
from resift.types import JsonObject

SPEC_VERSION = "1.6"

_NAME = re.compile(r"\A\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


def bill_of_materials(package: str = "resift") -> JsonObject:
    """Return the CycloneDX document of an installed package and of the models it may load."""
    found = _installed(package)
    packages = [_package(dist) for _, (dist, _) in sorted(found.items())]
    models = [_model(spec) for spec in _specs()]
    root = packages.pop([part["name"] for part in packages].index(_normal(package)))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"component": {**root, "type": "library"}},
        "components": [*packages, *models],
        "dependencies": [
            {"ref": _purl(dist), "dependsOn": sorted(_purl(found[name][0]) for name in needs)}
            for _, (dist, needs) in sorted(found.items())
        ],
    }


def _installed(package: str) -> dict[str, tuple[metadata.Distribution, set[str]]]:
    """Return each package by its normal name, with the names of those it needs that are installed too."""
    found: dict[str, tuple[metadata.Distribution, set[str]]] = {}
    # Of Resift every extra counts that is installed; of others only what somebody asked for.
    waiting: list[tuple[str, frozenset[str] | None]] = [(_normal(package), None)]
    seen: set[tuple[str, frozenset[str] | None]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen or (dist := _distribution(name)) is None:
            continue
        seen.add((name, extras))
        needs = found.setdefault(name, (dist, set()))[1]
        for needed, asked in _needs(dist, extras):
            if needed != name and _distribution(needed) is not None:
                needs.add(needed)
                waiting.append((needed, asked))
    return found


def _needs(
    dist: metadata.Distribution, extras: frozenset[str] | None
) -> Iterator[tuple[str, frozenset[str]]]:
    for requirement in dist.requires or ():
        wanted, _, marker = requirement.partition(";")
        only_for = set(map(_normal, _EXTRA.findall(marker)))
        if only_for and extras is not None and not only_for & extras:
            continue
        if (match := _NAME.match(wanted)) is not None:
            asked = frozenset(_normal(extra) for extra in (match[2] or "").split(",") if extra.strip())
            yield _normal(match[1]), asked


def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _package(dist: metadata.Distribution) -> JsonObject:
    about = dist.metadata
    part: JsonObject = {
        "type": "library",
        "bom-ref": _purl(dist),
        "name": _normal(about["Name"]),
        "version": dist.version,
        "purl": _purl(dist),
    }
    if expressions := about.get_all("License-Expression"):
        part["licenses"] = [{"expression": expressions[0]}]
    elif name := _licence_name("".join(about.get_all("License") or []), about.get_all("Classifier") or []):
        part["licenses"] = [{"license": {"name": name}}]
    return part


def _licence_name(text: str, classifiers: list[str]) -> str:
    if text and len(text) <= 80 and "\n" not in text:
        return text
    named = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License ::")]
    return " AND ".join(sorted(named))


def _model(spec: ModelSpec) -> JsonObject:
    """Return a model with the only bytes that its files may hold."""
    files = [
        {"type": "file", "name": pinned.name, "hashes": [{"alg": "SHA-256", "content": pinned.sha256}]}
        for pinned in spec.files
    ]
    ref = f"model:{spec.id}@{spec.revision}"
    part = {
        "type": "machine-learning-model",
        "bom-ref": ref,
        "name": spec.id,
        "version": spec.revision,
        "licenses": [{"license": {"name": spec.license}}],
        "components": [{**file, "bom-ref": f"{ref}#{file['name']}"} for file in files],
    }
    if spec.package is not None:
        carried = f"{spec.package.name}=={spec.package.version}"
        part["properties"] = [{"name": "resift:carrier", "value": carried}]
    return part


def _specs() -> list[ModelSpec]:
    specs = (builtin_spec(name) for name in builtin_ids())
    return sorted({spec.id: spec for spec in specs if spec is not None}.values(), key=lambda spec: spec.id)


def _purl(dist: metadata.Distribution) -> str:
    return f"pkg:pypi/{_normal(dist.metadata['Name'])}@{dist.version}"


def _normal(name: str) -> str:
    """Return the one spelling of a package's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).strip().lower()
