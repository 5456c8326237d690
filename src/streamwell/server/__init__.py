"""Front of house: the only floor that knows HTTP."""
