"""Models on this machine: which are allowed, where their files are, that they are safe, and how they run.

Files are this room's first half: `allowlist` (what may load), `locate` (where it is), `verify` (that it is
the pinned bytes), `local_models` (a folder that the user allows), `hub` (fetching). Nothing here ranks.
"""
