"""Which paths a pattern means: the rules of .gitignore, in time that grows with pattern times path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_LONGEST = 1_000  # characters of a pattern; no path that people write needs more
_RANGE = re.compile(r"\[[!^]?\]?[^\]]{0,200}\]")


class Rule(NamedTuple):
    """One line of a .gitignore file."""

    parts: tuple[tuple[str, ...], ...]
    negated: bool
    folders_only: bool


def rules_of(lines: Iterable[str]) -> list[Rule]:
    """Return the rules of a .gitignore file, in its order."""
    return [rule for rule in map(_rule, lines) if rule is not None]


def ignored(rules: Sequence[Rule], path: str, *, folder: bool) -> bool | None:
    """Say whether the rules leave a path out, relative to where they stand; None if none speaks of it.

    The last rule that matches decides.
    """
    parts = path.split("/")
    for rule in reversed(rules):
        if (folder or not rule.folders_only) and _match(rule.parts, parts):
            return not rule.negated
    return None


def matches(patterns: Sequence[Rule], path: str) -> bool:
    """Say whether a file, or a folder above it, matches any of the patterns."""
    parts = path.split("/")
    ends = range(1, len(parts) + 1)
    return any(
        (end < len(parts) or not rule.folders_only) and _match(rule.parts, parts[:end])
        for rule in patterns
        for end in ends
    )


def _rule(line: str) -> Rule | None:
    line = line.rstrip("\r\n")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    negated = line.startswith("!")
    body = line[1:] if negated else line
    if not body or line.startswith("#") or len(body) > _LONGEST:
        return None
    folders_only = body.endswith("/")
    body = body.rstrip("/")
    # A slash at the beginning or in the middle ties the pattern to this folder.
    anchored = "/" in body
    parts = [part for part in body.split("/") if part]
    if not parts:
        return None
    if not anchored:
        parts.insert(0, "**")
    if parts[-1] == "**":
        parts[-1:] = ["**", "*"]
    return Rule(tuple(("**",) if part == "**" else _tokens(part) for part in parts), negated, folders_only)


def _tokens(part: str) -> tuple[str, ...]:
    """Cut a pattern into characters, "?", "*" and "[…]"; escaped characters begin with a backslash."""
    found: list[str] = []
    at = 0
    while at < len(part):
        if part[at] == "\\" and at + 1 < len(part):
            found.append(part[at : at + 2])
            at += 2
        elif part[at] == "[" and (bracket := _RANGE.match(part, at)) is not None:
            found.append(bracket[0])
            at = bracket.end()
        else:
            if not (part[at] == "*" and found and found[-1] == "*"):
                found.append(part[at])
            at += 1
    return tuple(found)


def _match(patterns: Sequence[tuple[str, ...]], parts: Sequence[str]) -> bool:
    """Match folder by folder; "**" stands for any number of folders."""
    reached = {0}
    for part in parts:
        # "**" may also stand for no folder at all.
        for at in sorted(reached):
            if at < len(patterns) and patterns[at] == ("**",):
                reached.add(at + 1)
        after = {at for at in reached if at < len(patterns) and patterns[at] == ("**",)}
        after |= {
            at + 1
            for at in reached
            if at < len(patterns) and patterns[at] != ("**",) and _match_name(patterns[at], part)
        }
        reached = after
    return len(patterns) in reached


def _match_name(pattern: Sequence[str], name: str) -> bool:
    """Match one name; goes back only to the last star, so time is at most pattern times name."""
    at = place = 0
    star, resume = -1, 0
    while place < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, resume, at = at, place, at + 1
        elif at < len(pattern) and _match_character(pattern[at], name[place]):
            at, place = at + 1, place + 1
        elif star >= 0:
            resume += 1
            at, place = star + 1, resume
        else:
            return False
    return all(one == "*" for one in pattern[at:])


def _match_character(pattern: str, character: str) -> bool:
    if pattern == "?":
        return True
    if pattern.startswith("\\"):
        return pattern[1] == character
    if pattern.startswith("[") and len(pattern) > 2:
        return _in_range(pattern[1:-1], character)
    return pattern == character


def _in_range(body: str, character: str) -> bool:
    negated = body[0] in "!^"
    body = body[1:] if negated else body
    found = False
    at = 0
    while at < len(body):
        if at + 2 < len(body) and body[at + 1] == "-":
            found = found or body[at] <= character <= body[at + 2]
            at += 3
        else:
            found = found or body[at] == character
            at += 1
    return found != negated
