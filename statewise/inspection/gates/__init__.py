"""What gates, cells and units do along a text, and which features they follow."""
