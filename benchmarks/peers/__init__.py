"""Loading and steps the study's way."""
