"""`resift serve`: reranking, embeddings and search behind HTTP, for clients that exist already."""

from __future__ import annotations

import argparse
import errno
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resift.cli.options import add_count, add_repeated, at_least_one, port, seconds_or_zero
from resift.errors import InputError

if TYPE_CHECKING:
    from resift.server.keys import Keys
    from resift.server.options import ListenOptions as Listening
    from resift.server.options import ServerOptions

EXAMPLES = """\
Clients of Cohere, Jina, Voyage, TEI, vLLM and infinity change only their base URL; so do OpenAI's
for embeddings.
Open the address in a browser for the playground. Without keys everybody who reaches the port may ask.

examples:
  resift serve
  resift serve --port 8787 --api-key-file keys.txt --any-model
  resift serve --alias rerank-v3.5=cross-encoder/ms-marco-MiniLM-L-12-v2
  resift serve --store docs.db --judgements judged/
  resift serve --pipeline pipeline.yaml --workers 2 --host 0.0.0.0 --api-key-file keys.txt
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift serve`."""
    parser.epilog = EXAMPLES
    _where(parser.add_argument_group("where"))
    _what(parser.add_argument_group("what"))
    _limits(parser.add_argument_group("limits"))


def _where(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    group.add_argument("--port", type=port, default=8787, help="port; 0 takes a free one (default: 8787)")
    group.add_argument("--workers", type=at_least_one, default=1, metavar="N", help="processes on one port")
    group.add_argument("--api-key-file", type=Path, metavar="FILE", help="keys, one a line; may change")
    group.add_argument(
        "--api-key-env",
        default="RESIFT_API_KEYS",
        metavar="NAME",
        help="variable with keys, with commas between (default: RESIFT_API_KEYS)",
    )
    add_repeated(group, "--cors-origin", "URL", "web page that may ask; repeat")
    group.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate, for https")
    group.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key")
    group.add_argument(
        "--drain-delay",
        type=seconds_or_zero,
        default=2.0,
        metavar="S",
        help="from not ready to closed (default: 2)",
    )
    group.add_argument(
        "--drain",
        type=seconds_or_zero,
        default=20.0,
        metavar="S",
        help="time for work in flight (default: 20)",
    )
    group.add_argument("--no-access-log", action="store_true", help="write no line per request")


def _what(group: argparse._ArgumentGroup) -> None:
    from resift.models.embedder import DEFAULT_EMBEDDER
    from resift.rerankers.cross_encoder import DEFAULT_MODEL

    group.add_argument("--model", default=DEFAULT_MODEL, help=f"the reranker (default: {DEFAULT_MODEL})")
    group.add_argument("--embedder", default=DEFAULT_EMBEDDER, help="the embedding model, or none")
    add_repeated(group, "--alias", "NAME=MODEL", "another name for a model; repeat")
    group.add_argument("--any-model", action="store_true", help="take every model name for the default one")
    group.add_argument("--strict", action="store_true", help="refuse fields that are not known")
    group.add_argument("--zero-means-all", action="store_true", help="top_n 0 asks for all, as with vLLM")
    group.add_argument("--mcp", action="store_true", help="offer --store and --pack as MCP tools at /mcp")
    group.add_argument(
        "--store", type=Path, action="append", default=[], metavar="FILE", help="index to search; repeat"
    )
    group.add_argument("--pipeline", type=Path, metavar="FILE", help="pipeline file: stores, tiers, shape")
    group.add_argument("--pack", type=Path, metavar="PACK", help="knowledge pack for /v1/ask")
    group.add_argument("--judgements", type=Path, metavar="FOLDER", help="keep ratings as a BEIR folder")
    group.add_argument("--no-playground", action="store_true", help="serve no page at /")


def _limits(group: argparse._ArgumentGroup) -> None:
    from resift.server.options import Limits

    usual = Limits()
    for name, help in (
        ("max_pairs", "pairs worked on at once"),
        ("max_requests", "requests at once"),
        ("max_documents", "documents in a request"),
        ("max_text_chars", "characters of one text"),
        ("max_body_bytes", "bytes of a request"),
        ("max_connections", "connections at once"),
    ):
        add_count(group, "--" + name.replace("_", "-"), getattr(usual, name), help)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal comes; exit code 0 after an orderly end."""
    from resift.errors import require

    for module in ("starlette", "uvicorn", "prometheus_client"):
        require(module, extra="server")
    from resift.server.running import serve

    options, listening = server_options(args), listening_of(args)
    keys = _checked(options)
    listener = _listen(listening)
    _say_where(listening, listener.getsockname()[1], guarded=keys.needed)
    return serve(options, listening, listener=listener, make_app=_app_factory(args))


def _listen(listening: Listening) -> socket.socket:
    from resift.server.running import bind_socket

    try:
        return bind_socket(listening)
    except (socket.gaierror, UnicodeError) as exc:
        raise InputError(
            f"--host {listening.host}: no such address. Use 127.0.0.1 for this machine alone, or 0.0.0.0."
        ) from exc
    except OSError as exc:
        option = "--host" if exc.errno == errno.EADDRNOTAVAIL else "--port"
        reason = f"{listening.host}:{listening.port}: {exc.strerror or exc}"
        raise InputError(f"Cannot listen on {reason}. Choose another {option}.") from exc


def _app_factory(args: argparse.Namespace) -> Callable[[ServerOptions], Any]:
    from resift.server.app import serve_app

    if not args.mcp:
        return serve_app
    from resift.integrations.mcp import app_with_mcp

    return app_with_mcp


def _checked(options: ServerOptions) -> Keys:
    """Tell mistakes before anything listens; what takes longer is found out while the server starts."""
    from resift.models.registry import check_kind
    from resift.server.keys import Keys
    from resift.stores.sqlite import SQLiteStore

    check_kind(options.model, "cross-encoder")
    if options.embedder is not None:
        check_kind(options.embedder, "bi-encoder")
    for file in options.stores:
        SQLiteStore(file, read_only=True).release()
    if options.pipeline is not None:
        from resift.config import load_yaml

        load_yaml(options.pipeline)
    return Keys(file=options.key_file, env=options.key_env)


def server_options(args: argparse.Namespace) -> ServerOptions:
    """Return the options of the server that these arguments describe."""
    from resift.server.options import Limits, ServerOptions

    limits = {name: getattr(args, name) for name in Limits.__slots__ if hasattr(args, name)}
    return ServerOptions(
        model=args.model,
        embedder=None if args.embedder.lower() == "none" else args.embedder,
        aliases=dict(map(_alias, args.alias)),
        any_model=args.any_model,
        strict=args.strict,
        zero_means_all=args.zero_means_all,
        stores=tuple(args.store),
        pipeline=args.pipeline,
        pack=args.pack,
        judgements=args.judgements,
        key_file=args.api_key_file,
        key_env=args.api_key_env,
        cors_origins=tuple(args.cors_origin),
        playground=not args.no_playground,
        access_log=not args.no_access_log,
        limits=Limits(**limits),
    )


def listening_of(args: argparse.Namespace) -> Listening:
    """Return where and how the server listens."""
    from resift.server.options import ListenOptions as Listening

    if (args.tls_cert is None) != (args.tls_key is None):
        raise InputError("--tls-cert and --tls-key belong together: give both.")
    tls = {}
    if args.tls_cert is not None:
        tls = {"ssl_certfile": str(args.tls_cert), "ssl_keyfile": str(args.tls_key)}
    return Listening(
        host=args.host,
        port=args.port,
        workers=args.workers,
        drain_delay_s=args.drain_delay,
        drain_s=args.drain,
        tls=tls,
    )


def _alias(written: str) -> tuple[str, str]:
    name, equals, model = written.partition("=")
    if not (name and equals and model):
        raise InputError(f"--alias {written!r}: write NAME=MODEL, for example --alias rerank-v3.5=MODEL")
    return name, model


def _say_where(listening: Listening, port: int, *, guarded: bool) -> None:
    scheme = "https" if listening.tls else "http"
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    who = "a key is needed" if guarded else "no key is needed"
    sys.stderr.write(f"Resift is at {scheme}://{host}:{port} ({who}); Ctrl+C ends it.\n")
    if not guarded and not listening.host.startswith("127.") and listening.host not in ("localhost", "::1"):
        sys.stderr.write("Everybody who reaches this address may ask. Keys: --api-key-file FILE\n")
    sys.stderr.flush()
