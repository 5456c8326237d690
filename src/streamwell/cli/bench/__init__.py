"""`streamwell bench`: how any OpenAI-compatible server behaves under load."""
