"""Learning curves of the samplers at equal seconds."""
