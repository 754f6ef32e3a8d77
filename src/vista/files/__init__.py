"""Files on disk: atomic writes, array files, foreign ``.npz`` archives, tables and shell commands."""
