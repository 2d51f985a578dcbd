"""Makes the app's environment and starts the app in it. Standard library only; knows no app module."""
