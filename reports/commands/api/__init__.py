"""Commands about the API of the packages: the map, and the check of a user's code against it."""
