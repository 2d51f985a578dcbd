"""What a device is tried with before it is trusted."""
