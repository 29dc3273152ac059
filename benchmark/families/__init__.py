"""Which families of language models act and train, and how: measured on tiny random models."""
