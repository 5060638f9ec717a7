"""The user's own training: which way to train it is fastest here."""
