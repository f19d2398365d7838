"""Read search results and records of other systems without conversion by the caller."""
