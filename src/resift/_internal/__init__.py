"""Internal support code. Nothing outside Resift imports it."""
