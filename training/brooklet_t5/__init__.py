"""Everything that makes Brooklet-T5, the encoder-decoder in the box."""
