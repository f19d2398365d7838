"""Results and records of other systems, read as they are."""
