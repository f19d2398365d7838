"""Run ruff, mypy --strict and pytest, and stop at the first failure.

python -m tests.check                       # everything that decides whether a change lands
python -m tests.check tests/ranking/fusion -x       # other words go to pytest
python -m tests.check --fast                # ruff, mypy and the quick tests of every package
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUFF = [["ruff", "check", "."], ["ruff", "format", "--check", "."]]
PYTEST = ["pytest", "-n", str(min(4, os.cpu_count() or 1)), "--dist", "loadfile", "-rs"]
FRAMEWORKS = [
    "tests/integrations",
    "tests/external",
    "tests/batch/test_loading.py",
    "tests/config/test_config_engines.py",
    "tests/evaluation/test_significance_oracle.py",
    "tests/ranking/fusion/test_against_engines.py",
    "tests/ranking/test_calibration_oracle.py",
    "tests/stores/test_contract.py",
    "tests/stores/test_engine_indexes.py",
    "tests/stores/test_lancedb.py",
    "tests/stores/test_qdrant.py",
    "tests/stores/test_table_schemas.py",
    "tests/stores/test_tables.py",
    "tests/test_regular_expressions.py",
]
"""These import LangChain, LlamaIndex, Haystack, LanceDB, Qdrant, Chroma, scikit-learn and pandas. One process
imports each of them once; every worker of the other tests would spend seconds of CPU time on them."""
ONE_PROCESS = ["pytest", "-p", "no:xdist", "-rs"]
FAST = [*ONE_PROCESS, "-m", "not (slow or real_model or property or hardening)"]
FAST_CPU_S = 90
SLOW_FILES = {
    "frameworks": "integrations ranking/fusion/test_against_engines.py",
    "documentation": "docs migrating test_docs.py cli/test_screens.py",
    "browsers": """
        explain/test_browser.py explain/test_hostile_pages.py explain/test_pictures.py
        server/test_playground.py
    """,
    "processes": """
        batch/test_loading.py batch/test_pipelines_in_bulk.py cli/test_demo.py cli/test_doctor.py
        cli/test_every_command.py server/test_availability.py server/test_operation.py test_forking.py
    """,
    "large packages": """
        _internal/test_renamed_modules.py config/test_foreign_package.py external/test_clients.py
        evaluation/test_significance_oracle.py rerankers/hosted/test_hosted_sdks.py
        ranking/test_calibration_oracle.py stores/test_contract.py stores/test_engine_indexes.py
        stores/test_lancedb.py stores/test_postgres.py stores/test_qdrant.py stores/test_table_schemas.py
        stores/test_tables.py
    """,
    "models and measurements": """
        agent/test_answerability.py agent/test_sample.py cli/test_ask.py cli/test_calibrate.py
        cli/test_eval.py cli/test_eval_bench.py demo/test_demo_sample.py models/test_native_session.py
        pipeline/test_default_order.py pipeline/test_default_pipeline.py server/test_real_model.py
    """,
    "attacks": """
        agent/test_hostile_questions.py models/test_hostile_models.py models/test_hostile_shapes.py
        models/test_native_build.py rerankers/hosted/test_hosted_canary.py
        rerankers/hosted/test_hosted_faults.py resilience/test_breaker_machine.py
        stores/test_sqlite_index.py test_hardening.py test_regular_expressions.py
    """,
    "the whole repository": """
        test_architecture.py test_foundations.py test_language.py test_repository.py test_supply.py test_typing.py
    """,
}
"""Files in tests/ that --fast does not collect: importing them alone takes half of its time."""


def main() -> int:
    """Run the checks in order; words other than --fast go to pytest."""
    words = [word for word in sys.argv[1:] if word != "--fast"]
    paths = [word for word in words if not word.startswith("-")]
    if "--fast" in sys.argv:
        tests = [[*FAST, *words] if paths else [*FAST, *ignore_slow_files(), *words]]
    elif paths:
        tests = [[*PYTEST, *words]]
    else:
        tests = [[*PYTEST, *without_frameworks(), *words], [*ONE_PROCESS, *FRAMEWORKS, *words]]
    checks = [*RUFF, ["mypy"], *tests]
    if "--fast" in sys.argv and not (ROOT / ".mypy_cache").is_dir():
        checks.remove(["mypy"])
        sys.stdout.write("mypy is skipped: without its cache it takes 30 s. Run python -m mypy once.\n")
    code = 0
    for check in checks:
        sys.stdout.write(f"\n$ {' '.join(word for word in check if not word.startswith('--ignore='))}\n")
        sys.stdout.flush()
        code = subprocess.run([sys.executable, "-m", *check], cwd=ROOT, env=environment(), check=False).returncode
        if code != 0:
            break
    sys.stdout.write(f"\n{'failed' if code else 'passed'} after {cpu_seconds():.0f} s of CPU time\n")
    if "--fast" in sys.argv and not paths and cpu_seconds() > FAST_CPU_S:
        sys.stdout.write(f"That is over {FAST_CPU_S} s: see --durations=20, and mark tests slow.\n")
    return code


def environment() -> dict[str, str]:
    """Return the environment of the checks.

    Tests start some 200 Python processes. Where bytecode is not kept, each of them compiles the package again,
    and each pytest worker rewrites the assertions of every test file again.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def without_frameworks() -> list[str]:
    """Return the options that leave the frameworks to a process of their own."""
    return [f"--ignore={path}" for path in FRAMEWORKS]


def ignore_slow_files() -> list[str]:
    """Return the options that keep pytest from importing slow files."""
    return [f"--ignore=tests/{path}" for paths in SLOW_FILES.values() for path in paths.split()]


def cpu_seconds() -> float:
    """Return the CPU time of the checks so far, subprocesses included."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    sys.exit(main())
