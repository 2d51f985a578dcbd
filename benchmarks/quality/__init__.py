"""How good it is: acceptance, answers, summaries, formats, and how books are read."""
