"""`resift serve`: reranking, embeddings and search over HTTP; `resift mcp`: search for assistants."""

from __future__ import annotations

import argparse
import errno
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack

from resift.agent import KnowledgeGraphAgent, Pack
from resift.cli.arguments import select
from resift.cli.terminal import out
from resift.config import load_yaml
from resift.errors import InputError, require
from resift.index import Index
from resift.models.registry import check_kind
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.server.app import serve_app
from resift.server.keys import Keys
from resift.server.ratings import RatingsLog
from resift.server.server_options import Limits, ListenOptions, ServerOptions
from resift.stores.sqlite import SQLiteStore

_LIMITS = ("max_pairs", "max_requests", "max_documents", "max_text_chars", "max_body_bytes", "max_connections")


def run_serve(args: argparse.Namespace) -> int:
    """Serve until a signal arrives; exit code 0 after a clean shutdown."""
    # Until the server handles signals itself, no request is in progress, so the process can simply exit.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    for module in ("starlette", "uvicorn", "prometheus_client"):
        require(module, extra="server")
    from resift.server.running import bind_socket, serve

    make_app: Callable[[ServerOptions], object] = serve_app
    if args.mcp:
        from resift.integrations.mcp import app_with_mcp

        make_app = app_with_mcp
    options, listening = server_options(args), listening_options(args)
    for model in (options.model, *options.more_models):
        check_kind(model, "cross-encoder")
    if options.embedder is not None:
        check_kind(options.embedder, "bi-encoder")
    for file in options.stores:
        SQLiteStore(file, read_only=True).release()
    if options.pipeline is not None:
        load_yaml(options.pipeline)
    if options.pack is not None:
        Pack.open(options.pack).close()
    if options.judgements is not None:
        RatingsLog(options.judgements)
    keys = Keys(file=options.key_file, env=options.key_env)
    try:
        listener = bind_socket(listening)
    except (socket.gaierror, UnicodeError) as exc:
        advice = "Use 127.0.0.1 for this machine only, or 0.0.0.0."
        raise InputError(f"--host {listening.host}: no such address. {advice}") from exc
    except OSError as exc:
        option = "--host" if exc.errno == errno.EADDRNOTAVAIL else "--port"
        reason = f"{listening.host}:{listening.port}: {exc.strerror or exc}"
        raise InputError(f"Cannot listen on {reason}. Choose another {option}.") from exc
    port = listener.getsockname()[1]
    scheme = "https" if listening.tls else "http"
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    access = "API key required" if keys.needed else "no API key required"
    out.note(f"Resift is at {scheme}://{host}:{port} ({access}). Press Ctrl-C to stop.")
    is_local = listening.host.startswith("127.") or listening.host in ("localhost", "::1")
    if not keys.needed and not is_local:
        out.note("Anyone who can reach this address can use it. Require keys with: --api-key-file FILE")
    sys.stderr.flush()
    return serve(options, listening, listener=listener, make_app=make_app)


def server_options(args: argparse.Namespace) -> ServerOptions:
    """Return the options of the server."""
    models = args.model or [DEFAULT_MODEL]
    aliases = {}
    for alias in args.alias:
        name, _, model = alias.partition("=")
        if not name or not model:
            raise InputError(f"--alias {alias!r}: write NAME=MODEL, for example --alias rerank-v3.5=MODEL")
        aliases[name] = model
    return ServerOptions(
        **select(args, "any_model", "strict", "zero_means_all", "pipeline", "pack"),
        model=models[0],
        more_models=tuple(models[1:]),
        embedder=None if args.embedder.lower() == "none" else args.embedder,
        aliases=aliases,
        stores=tuple(args.store),
        judgements=args.judgments,
        key_file=args.api_key_file,
        key_env=args.api_key_env,
        cors_origins=tuple(args.cors_origin),
        allowed_hosts=tuple(args.allowed_host),
        playground=not args.no_playground,
        access_log=not args.no_access_log,
        limits=Limits(**select(args, *_LIMITS)),
    )


def listening_options(args: argparse.Namespace) -> ListenOptions:
    """Return the address and the shutdown times of the server."""
    if (args.tls_cert is None) != (args.tls_key is None):
        raise InputError("--tls-cert and --tls-key must be used together: pass both.")
    tls = {} if args.tls_cert is None else {"ssl_certfile": str(args.tls_cert), "ssl_keyfile": str(args.tls_key)}
    address = select(args, "host", "port", "workers")
    return ListenOptions(**address, drain_delay_s=args.drain_delay, drain_s=args.drain, tls=tls)


def run_mcp(args: argparse.Namespace) -> int:
    """Serve until the client closes the pipe."""
    from resift.integrations.mcp import create_mcp_server

    if args.store is None and args.pack is None:
        raise InputError("Specify what to search: --store FILE, --pack PACK, or both.")
    if sys.stdin.isatty():
        out.note("Waiting for an assistant. Add this command to its configuration. Press Ctrl-D to stop.")
    with ExitStack() as stack:
        index = agent = None
        if args.store is not None:
            index = stack.enter_context(Index(args.store, read_only=not args.allow_write))
        if args.pack is not None:
            agent = stack.enter_context(KnowledgeGraphAgent(args.pack, enable_cross_encoder=True))
        server = create_mcp_server(index, agent=agent, allow_write=args.allow_write)
        try:
            server.run("stdio")
        except* BrokenPipeError:
            # The assistant closed the pipe before the response was sent. Python 3.13 and later report the error
            # again when the stream of the MCP library is freed.
            def ignore_broken_pipe(unraisable: sys.UnraisableHookArgs) -> None:
                if not isinstance(unraisable.exc_value, BrokenPipeError):
                    sys.__unraisablehook__(unraisable)

            sys.unraisablehook = ignore_broken_pipe
    return 0
