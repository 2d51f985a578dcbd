"""Teaches the embedded model to read: lessons from questions and summaries, learned as a low-rank adapter."""
