"""Internal support code. Do not import it outside Resift."""
