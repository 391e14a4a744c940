"""Raw traces become task tables: published files in, one row a task out, every row accounted for.

    text, SQLite, Parquet --> lines / sqlite_rows --> a format's module --> assemble --> task table
                                    |                      |                   |
                                    +--------- rules and account --------------+

Start at formats.py, then read one format, such as alibaba/openb.py.
"""
