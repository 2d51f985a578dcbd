"""The models a person can choose, and their files."""
