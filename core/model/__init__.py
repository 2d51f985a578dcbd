"""The Llama family: configuration, forward pass, weights, catalogue, downloads."""
