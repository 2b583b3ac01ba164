"""Which versions support what a user needs."""
