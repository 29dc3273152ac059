"""Other frameworks, one thin file each. Their packages are extras, loaded with the file."""
