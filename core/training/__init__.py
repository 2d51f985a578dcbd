"""Trains a draft model for a target model. Imported by that command and by nothing else in core."""
