"""What all of the advice buys together: measured, as one training in two ways."""
