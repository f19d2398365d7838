"""From files to documents in a store: reading, chunking, indexing. Above stores and models, below the CLI."""
