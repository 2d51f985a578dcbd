"""Processes with limits for files and programs of others: on memory, on time, and on what they may do."""
