"""Wire models to core values and back. Pure: the only place that speaks both."""
