"""Generation, compared with decoding by its definition on the reference network."""
