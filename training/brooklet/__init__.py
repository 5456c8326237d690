"""Brooklet: the generator, tokenizer, trainer and evaluator of the default model."""
