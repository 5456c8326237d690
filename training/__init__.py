"""Training code for the models that Streamwell packages; not part of the installed server."""
