"""The store: runs and their events, kept in memory, in SQLite, later in PostgreSQL.

Nothing is imported here, so that whoever takes one store does not pay for the others.
"""
