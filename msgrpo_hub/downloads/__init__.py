"""Downloads: the one gate to other people's repositories. Resolve, list, check, fetch, check the weights."""
