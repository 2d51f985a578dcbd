"""Text around the model: tokenizer, streaming detokenizer, prompts."""
