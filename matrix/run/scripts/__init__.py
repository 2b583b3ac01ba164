"""Scripts of users: their declarations, and the cells that run them."""
