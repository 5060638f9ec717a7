"""The Relation Network: forward(support, query) -> scores; losses by name; the file of a trained network."""
