"""A DQN for every game: the baseline that learns without language."""
