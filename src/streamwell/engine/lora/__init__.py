"""LoRA adapters: read from folders as PEFT writes them, and kept beside the model."""
