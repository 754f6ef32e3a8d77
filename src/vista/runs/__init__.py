"""A run on disk: its configuration, folder, record, checkpoints and lock. No training, no methods."""
