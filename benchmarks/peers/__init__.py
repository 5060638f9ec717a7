"""Other ways to load episodes, run on the same files."""
