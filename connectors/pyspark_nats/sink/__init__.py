"""Writing: options, publishing exactly once or at least once, and the producers' markers."""
