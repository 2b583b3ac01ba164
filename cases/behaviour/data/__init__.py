"""What a model sees: collators, chat templates, packing and the order of rows."""
