"""`resift completion`: a script that completes commands and options, made from the parser itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

SHELLS = ("bash", "zsh", "fish")

EXAMPLES = """\
examples:
  resift completion bash > ~/.local/share/bash-completion/completions/resift
  resift completion zsh > "${fpath[1]}/_resift"
  resift completion fish > ~/.config/fish/completions/resift.fish
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift completion`."""
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=SHELLS, help="for which shell")


def run(args: argparse.Namespace) -> int:
    """Write the script."""
    from resift.cli.main import build_parser
    from resift.cli.render import print_text

    parser = build_parser()
    tree = dict(_tree(parser))
    values = {**dict(_values(parser)), **_named_values()}
    print_text({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](tree, values))
    return 0


Words = dict[str, str]
"""Option or subcommand -> help."""


def _named_values() -> dict[str, list[str]]:
    """Return what may follow options whose values are declared elsewhere: plugins, their options, models."""
    from resift.models.registry import model_ids
    from resift.plugins import FUSION, available_fusions, load_plugin
    from resift.validation import declared_options, options_class

    values = {"fuse --method": available_fusions(), "rerank --model": model_ids("cross-encoder")}
    for name in ("rrf", "linear"):
        declared = options_class(load_plugin(FUSION, name))
        for option in () if declared is None else declared_options(declared):
            if option.name in ("dialect", "normalize"):
                values[f"fuse --{option.name}"] = option.allowed()
    return values


def _values(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the values that may follow each option: "tune --search" -> local, grid."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from _values(sub, f"{path} {name}".strip())
        elif action.choices:
            for option in action.option_strings:
                yield f"{path} {option}".strip(), [str(choice) for choice in action.choices]


def _tree(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, Words]]:
    """Yield the words that may follow each command path; the path of `config check` is "config check"."""
    words: Words = {}
    below: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        for option in action.option_strings:
            words[option] = action.help or ""
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            below += action.choices.items()
            words |= {
                name: helps.get(name, "") or (sub.description or "") for name, sub in action.choices.items()
            }
        elif action.choices and not action.option_strings:
            words |= {str(choice): action.help or "" for choice in action.choices}
    yield path, words
    for name, sub in below:
        yield from _tree(sub, f"{path} {name}".strip())


def _bash(tree: dict[str, Words], values: dict[str, list[str]]) -> str:
    cases = "\n".join(f'    "{path}") words="{" ".join(words)}" ;;' for path, words in tree.items())
    chosen = "\n".join(
        f'    "{place}") words="{" ".join(names)}"; path="" ;;' for place, names in values.items()
    )
    return f"""# bash completion for resift
_resift() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" path="" word words=""
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case " {_paths(tree)} " in
      *" ${{path:+$path:}}$word "*) path="${{path:+$path:}}$word" ;;
    esac
  done
  case "${{path//:/ }}" in
{cases}
  esac
  case "${{path//:/ }} ${{COMP_WORDS[COMP_CWORD-1]}}" in
{chosen}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  if [[ "$cur" != -* && -n "$path" ]]; then COMPREPLY+=($(compgen -f -- "$cur")); fi
}}
complete -o filenames -F _resift resift"""


def _paths(tree: dict[str, Words]) -> str:
    return " ".join(path.replace(" ", ":") for path in tree if path)


def _zsh(tree: dict[str, Words], values: dict[str, list[str]]) -> str:
    chosen = "\n".join(
        f'    "{place}") found=({" ".join(map(_quoted, names))}); spot="" ;;'
        for place, names in values.items()
    )
    cases = []
    for path, words in tree.items():
        described = " ".join(
            _quoted(f"{word.replace(':', chr(92) + ':')}:{_line(help)}") for word, help in words.items()
        )
        cases.append(f'    "{path}") found=({described}) ;;')
    body = "\n".join(cases)
    return f"""#compdef resift
# zsh completion for resift
_resift() {{
  local -a found
  local spot="" word
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case " {_paths(tree)} " in *" ${{spot:+$spot:}}$word "*) spot="${{spot:+$spot:}}$word" ;; esac
  done
  case "${{spot//:/ }}" in
{body}
  esac
  case "${{spot//:/ }} ${{words[CURRENT-1]}}" in
{chosen}
  esac
  _describe 'resift' found
  [[ -n "$spot" ]] && _files
}}
compdef _resift resift"""


def _fish(tree: dict[str, Words], values: dict[str, list[str]]) -> str:
    lines = ["# fish completion for resift"]
    for path, words in tree.items():
        parts = path.split()
        when = " && ".join(f"__fish_seen_subcommand_from {part}" for part in parts) or "__fish_use_subcommand"
        for word, help in words.items():
            about = f" -d {_quoted(_line(help))}" if help else ""
            names = values.get(f"{path} {word}".strip())
            about += f" -x -a {_quoted(' '.join(names))}" if names else ""
            if word.startswith("--"):
                lines.append(f"complete -c resift -n {_quoted(when)} -l {word[2:]}{about}")
            elif word.startswith("-"):
                lines.append(f"complete -c resift -n {_quoted(when)} -s {word[1:]}{about}")
            else:
                lines.append(f"complete -c resift -n {_quoted(when)} -a {word}{about}")
    return "\n".join(lines)


def _line(help: str) -> str:
    return " ".join(help.replace("%%", "%").split())


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"
