"""`resift sbom`: what this installation is made of, as a CycloneDX document."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """\
Lists Resift, every installed package that it or one of its extras asks for, what those ask for, and the
models it may load with the sha256 of each file, as CycloneDX 1.6. The same installation gives the same bytes.

examples:
  resift sbom > resift.cdx.json
  resift sbom -o resift.cdx.json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift sbom`."""
    parser.epilog = EXAMPLES
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write it here instead of stdout")


def run(args: argparse.Namespace) -> int:
    """Write the document."""
    from resift._internal.atomic_files import atomic_write
    from resift.bill_of_materials import bill_of_materials
    from resift.cli.render import print_json, print_note
    from resift.types import to_json

    bill = bill_of_materials()
    if args.output is None:
        print_json(bill)
    else:
        atomic_write(args.output, to_json(bill, indent=2) + "\n")
        print_note(f"{args.output} lists {len(bill['components'])} components.")
    return 0
