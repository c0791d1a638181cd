"""What the command line calls: one module per command."""
