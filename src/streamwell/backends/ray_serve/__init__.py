"""Engines in replicas of a Ray Serve deployment: `replica` there, `engine` in the gateways."""
