"""The history of the schema, one file per revision in `versions/`; run by `store/migrate.py`."""
