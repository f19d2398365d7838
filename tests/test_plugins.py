"""Entry points: lazily, by name, with clear errors."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

import resift
from resift import RRFReranker, available_rerankers, load_reranker
from resift.errors import (
    ConfigError,
    InputError,
    MissingExtraError,
    PluginClashError,
    PluginLoadError,
    RerankerNotFound,
    StoreNotFound,
    install_command,
    require,
)
from resift.plugins import (
    STAGES,
    available_gate_profiles,
    available_scorers,
    available_stages,
    available_stores,
    load_plugin,
    load_store,
    plugin_package,
)
from resift.ranking.fusion import METHODS
from resift.testing import check_reranker
from resift.validation import Options, declared_options, option


def install(folder, package: str, *, group: str, entries: dict[str, str], source: str) -> None:
    """Install a package the way pip lays it out: a module and its metadata."""
    (folder / f"{package}.py").write_text(textwrap.dedent(source))
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {value}" for name, value in entries.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}\n")


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_built_in_plugins_are_entry_points():
    """Every fusion method is an entry point, builds and keeps the contract."""
    assert set(METHODS) <= set(available_rerankers())
    for name in METHODS:
        options = {"normalize": "min-max"} if name == "comb-sum" else {}
        if name != "log-odds":
            check_reranker(load_reranker(name, **options))


def test_options_reach_the_plugin():
    """Load_reranker(name, **options)."""
    reranker = load_reranker("rrf", k_param=10)
    assert isinstance(reranker, RRFReranker)
    assert reranker.k_param == 10


def test_an_unknown_option_raises_input_error():
    """One clear error names the plugin and the option."""
    with pytest.raises(InputError, match="k_parm"):
        load_reranker("rrf", k_parm=10)


def test_errors_inside_a_plugin_are_not_wrapped():
    """A TypeError that is not about arguments is a bug of the plugin, not of the caller."""
    with pytest.raises(InputError, match="k_param is 'x'"):
        load_reranker("rrf", k_param="x")


def test_an_unknown_name_gets_a_suggestion():
    """RerankerNotFound is a PluginLoadError and a KeyError, and reads well."""
    with pytest.raises(RerankerNotFound) as caught:
        load_reranker("rff")
    assert isinstance(caught.value, PluginLoadError)
    assert isinstance(caught.value, KeyError)
    assert str(caught.value).startswith("Unknown reranker 'rff'. Did you mean 'rrf'? Known: ")


def test_an_unknown_store_gets_a_suggestion():
    """The same for stores."""
    with pytest.raises(StoreNotFound, match="Unknown store 'sqlit'"):
        load_store("sqlit")
    assert available_stores() == sorted(available_stores())


def test_a_third_party_plugin_loads_without_importing_others(site):
    """Only the asked-for plugin is imported."""
    source = "from resift import RRFReranker\n\ndef build(): return RRFReranker(k_param=1)\n"
    install(site, "friendly", group="resift.rerankers", entries={"friendly": "friendly:build"}, source=source)
    install(site, "broken", group="resift.rerankers", entries={"broken": "broken:X"}, source="1 / 0")
    assert {"broken", "friendly"} <= set(available_rerankers())
    assert load_reranker("friendly").k_param == 1
    assert "broken" not in sys.modules


def test_a_broken_plugin_is_named_and_others_still_load(site):
    """The message names plugin, package and cause."""
    install(site, "broken", group="resift.rerankers", entries={"broken": "broken:X"}, source="1 / 0")
    with pytest.raises(PluginLoadError, match="'broken' of broken cannot be loaded: ZeroDivisionError"):
        load_reranker("broken")
    assert isinstance(load_reranker("rrf"), RRFReranker)


def test_a_plugin_that_is_not_callable_is_rejected(site):
    """An entry point must name something callable."""
    install(site, "odd", group="resift.rerankers", entries={"odd": "odd:VALUE"}, source="VALUE = 3")
    with pytest.raises(PluginLoadError, match="is a int"):
        load_reranker("odd")


def test_a_bug_in_a_plugin_constructor_is_visible(site):
    """A TypeError from deep inside is not dressed up as a wrong option."""
    source = "def build(): return len(3)\n"
    install(site, "buggy", group="resift.rerankers", entries={"buggy": "buggy:build"}, source=source)
    with pytest.raises(TypeError, match="has no len"):
        load_reranker("buggy")


def test_a_plugin_without_its_extra_names_the_install_command(site):
    """MissingExtraError passes through with its pip line."""
    source = "from resift.errors import require\nrequire('no_such_engine', extra='local')\n"
    install(site, "lacking", group="resift.rerankers", entries={"lacking": "lacking:X"}, source=source)
    with pytest.raises(MissingExtraError, match=re.escape(f"Run: {install_command('local')}")):
        load_reranker("lacking")


def test_two_packages_with_one_name_clash_by_name(site):
    """A clash raises and names both packages."""
    for package in ("first", "second"):
        install(site, package, group="resift.rerankers", entries={"mine": f"{package}:X"}, source="X = dict")
    with pytest.raises(PluginClashError, match=r"first \(first:X\) and second \(second:X\)"):
        load_reranker("mine")


def test_require_shows_what_is_broken_inside_an_installed_package(site):
    """Installed but broken is not the same as missing."""
    (site / "half_installed.py").write_text("import another_missing_thing\n")
    with pytest.raises(ModuleNotFoundError, match="another_missing_thing"):
        require("half_installed", extra="local")
    assert require("json", extra="local").dumps({}) == "{}"


def test_an_entry_point_without_a_distribution_is_named_by_its_module():
    """The package is named even where its metadata is gone."""
    from importlib.metadata import EntryPoint

    from resift.plugins import _package

    assert _package(EntryPoint("x", "mine.deep:X", "resift.rerankers")) == "mine"


def test_listing_plugins_imports_no_plugin():
    """Names resolve lazily."""
    program = (
        "import sys, resift; resift.available_rerankers(); print('resift.ranking.fusion.rerankers' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_a_reranker_that_is_switched_off_raises_config_error(site):
    """A factory may give None, as a hosted one without a key does; anyone who asks by name wants to know."""
    source = "def build(): return None\n"
    install(site, "absent", group="resift.rerankers", entries={"absent": "absent:build"}, source=source)
    with pytest.raises(ConfigError, match="'absent' is not available"):
        load_reranker("absent")


def test_every_role_lists_its_names_and_their_packages(site):
    """Scorers are the rerankers that do not fuse; a name that nobody has belongs to no package."""
    assert "cross-encoder" in available_scorers()
    assert "rrf" not in available_scorers()
    assert available_gate_profiles() == ["memosa", "neutral"]
    assert available_stages() == []
    install(site, "extra", group="resift.stages", entries={"tidy": "extra:Tidy"}, source="class Tidy: pass\n")
    assert available_stages() == ["tidy"]
    assert (plugin_package(STAGES, "tidy"), plugin_package(STAGES, "untidy")) == ("extra", "")
    with pytest.raises(PluginLoadError, match=r"Unknown stage 'tidi'\. Did you mean 'tidy'\?"):
        load_plugin(STAGES, "tidi")


def test_an_outdated_installation_names_the_install_command(tmp_path):
    """A checkout whose metadata is gone knows no names; the sentence says what to do."""
    source = Path(resift.__file__).parent.parent
    program = (
        f"import sys; sys.path[:] = [{str(source)!r}, *[p for p in sys.path if 'site-packages' not in p]]\n"
        "from resift.plugins import STORES, load_plugin\n"
        "from resift.errors import StoreNotFound\n"
        "try: load_plugin(STORES, 'sqlite')\n"
        "except StoreNotFound as exc: print(exc)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert "the installation is older than the code. Run: pip install -e ." in answer.stdout, answer.stderr


def test_without_entry_points_the_message_names_the_command(monkeypatch, tmp_path):
    """The same where this process finds no metadata."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(StoreNotFound, match="the installation is older than the code"):
        load_plugin("resift.stores", "sqlite")


@pytest.mark.parametrize("name", [None, "", "  ", 3, ["rrf"]])
def test_an_invalid_name_gets_the_list_of_names(name):
    """One clear sentence, whatever was passed."""
    with pytest.raises(RerankerNotFound, match=r"Unknown reranker .* Known: .*cross-encoder"):
        load_reranker(name)


@pytest.mark.parametrize(("called", "meant"), [("colbert", "late-interaction"), ("ColBERT", "late-interaction")])
def test_common_names_are_suggested(called, meant):
    """The field's name for a method leads to ours."""
    with pytest.raises(RerankerNotFound, match=f"Did you mean '{meant}'"):
        load_reranker(called)


def test_a_hosted_reranker_without_a_key_names_the_variable(monkeypatch):
    """Asked for by name, a reranker is there or says what is missing; the factory keeps None."""
    from resift.rerankers.hosted import hosted_reranker

    pytest.importorskip("httpx", reason="needs resift[hosted]")
    for name in ("COHERE_API_KEY", "CO_API_KEY", "RESIFT_CROSS_ENCODER_RERANKING_ENABLED"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="COHERE_API_KEY"):
        load_reranker("cohere")
    assert hosted_reranker("cohere") is None
    monkeypatch.setenv("RESIFT_CROSS_ENCODER_RERANKING_ENABLED", "false")
    with pytest.raises(ConfigError, match="switched off"):
        load_reranker("cohere", api_key="abc")


# What a pipeline file leaves out has the value of the default pipeline, not of the Python constructor.
DEFAULT_PIPELINE_OPTIONS = ("cross-encoder.max_windows", "cross-encoder.first_pass_windows")


@pytest.mark.parametrize("group", ["resift.rerankers", "resift.fusion", "resift.stores", "resift.gate_profiles"])
def test_declared_options_are_arguments_with_the_same_defaults(group):
    """What is declared next to a built-in cannot drift from its constructor."""
    import dataclasses
    import inspect
    from importlib.metadata import entry_points

    from resift.validation import options_class

    for entry in entry_points(group=group):
        plugin = load_plugin(group, entry.name)
        declared = options_class(plugin)
        if declared is None:
            continue
        takes = inspect.signature(getattr(plugin, "required", plugin)).parameters
        further = any(each.kind is each.VAR_KEYWORD for each in takes.values())
        made = {"api_key_env": "api_key"} if group == "resift.stores" else {}
        for field in dataclasses.fields(declared):
            argument = takes.get(made.get(field.name, field.name))
            if argument is None and further:
                continue
            name = f"{entry.name}.{field.name}"
            if field.name == "embedder" or name in DEFAULT_PIPELINE_OPTIONS:
                continue
            if field.default not in (None, dataclasses.MISSING):
                assert argument.default == field.default, name


def test_option_names_of_0_2_still_work_with_a_warning():
    with pytest.warns(DeprecationWarning, match="0.4") as warned:
        field = option("Top hits.", default=3, least=1, most=9, above=0, takes="int")
    assert len(warned) == 4

    @dataclass(frozen=True, kw_only=True)
    class Limits(Options):
        top: int = field

    [declared] = declared_options(Limits)
    assert (declared.min, declared.max, declared.gt, declared.kind) == (1, 9, 0, "int")
    with pytest.raises(TypeError, match="lowest"):
        option("Top hits.", lowest=1)
