"""Makes the app's environment and starts the app in it. Standard library only; knows nothing of the app's own
modules.
"""
