"""parashot: how should this few-shot training be parallelised? Measured, on your machine."""
