"""The computer the app runs on: one instance, secrets, logs, sleep, windows."""
