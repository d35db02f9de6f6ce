"""The store in PostgreSQL, for any number of workers. Needs psycopg, which is an extra of the package."""
