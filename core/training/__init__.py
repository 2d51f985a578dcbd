"""Trains a draft model for a target model. Imported by the command that does so and by nothing else in
core.
"""
