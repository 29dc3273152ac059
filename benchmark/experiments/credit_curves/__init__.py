"""Learning curves of the credits at equal seconds."""
