"""What programs that measure share: models, texts, results, and calm machines."""
