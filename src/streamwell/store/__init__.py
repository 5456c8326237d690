"""The store: runs, their events and conversations, in memory, in SQLite or in PostgreSQL.

Nothing is imported here, so that whoever takes one store does not pay for the others.
"""
