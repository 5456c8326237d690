"""The adapter in the box: Brooklet with a sailor's voice."""
