"""The page: values in, HTML out."""
