"""Word vectors by skip-gram."""
