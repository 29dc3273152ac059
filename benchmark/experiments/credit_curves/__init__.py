"""Learning curves of the credits over as many updates."""
