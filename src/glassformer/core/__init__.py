"""What everything may use.

    errors.py   the exceptions that a user can meet
    files.py    files written whole or not at all
    blocks.py   large files checked block by block, each before its first use
    strict_json.py  JSON as every reader takes it
    lock.py     one process in a folder at a time
    device.py   where and how the arithmetic is done
    process.py  what a process that computes for long sets up once

Nothing here knows of anything else in the project.
"""
