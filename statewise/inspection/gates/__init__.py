"""What units do along a text, and what they stand for."""
