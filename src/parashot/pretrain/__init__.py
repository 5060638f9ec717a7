"""The embedding as a classifier of all training classes, before any episode."""
