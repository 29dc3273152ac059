"""Learning curves of settings changed one at a time."""
