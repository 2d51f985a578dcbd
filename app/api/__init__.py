"""The app for other programs on this computer: an OpenAI-compatible interface to its model and its books."""
