"""The documentation, and the programs that make its tables."""
