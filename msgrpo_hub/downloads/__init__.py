"""Downloads: the only gate to foreign repositories. Resolve, list, check, fetch, check the weights."""
