"""Is it better: measures, comparisons, replays and reports on collections and on data of one's own."""
