"""The books for assistants on this computer, over MCP: a thin process that they start, and what it asks of
the app.
"""
