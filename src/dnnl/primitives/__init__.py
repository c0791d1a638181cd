"""The operations: a description says what, a primitive description how, a primitive does it."""
