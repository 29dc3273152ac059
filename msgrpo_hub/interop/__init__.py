"""Other frameworks: one thin file for each of their sockets. Their packages are extras, loaded when a socket is used."""
