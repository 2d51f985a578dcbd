"""Programs of ours that make what is delivered, and are not delivered themselves."""
