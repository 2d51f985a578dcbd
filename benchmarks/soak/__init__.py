"""Whether anything grows that has no bound."""
