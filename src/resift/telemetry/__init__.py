"""Sinks that hand events to tracing and metrics. Each is imported on use, with its own extra."""
