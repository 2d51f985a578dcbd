"""Speculative decoding by composition: sampling, one verify rule, drafters, the decoder round."""
