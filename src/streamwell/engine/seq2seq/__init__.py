"""Encoder-decoders: an encoder reads the input once, a decoder answers with an eye on it."""
