"""What several commands share: options, models, streams, tables."""
