"""Conversations about books: what is read for a question, what is asked of the engine, what the reader gets
to see.
"""
