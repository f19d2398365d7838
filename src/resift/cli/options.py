"""Options that several commands share, checked while they are parsed."""

from __future__ import annotations

import argparse
import math


def at_least_one(text: str) -> int:
    """Read a whole number of 1 or more."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} given; write a whole number of 1 or more")
    return number


def seconds(text: str) -> float:
    """Read a time in seconds above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number > 0 or math.isinf(number):
        raise argparse.ArgumentTypeError(f"{text} given; write seconds above 0, for example 0.5")
    return number
