"""Which hosts there are, how they are reached, and what shall run on them.

`as_far` asks Ansible (templates, vaults, plugins), and `parse` makes whole descriptions of what it
says; `book` gives only names and addresses, without secrets, from a cache that is as old as the
inventory's files.
"""

from opsctl.inventory.book import book
from opsctl.inventory.locate import find
from opsctl.inventory.model import Book, BookEntry, HostEntry, Inventory
from opsctl.inventory.reader import (
    as_far,
    asks_of_roles,
    book_of,
    must_be_read,
    of_roles,
    parse,
    unread,
)
from opsctl.inventory.select import Selected, select

__all__ = [
    "Book",
    "BookEntry",
    "HostEntry",
    "Inventory",
    "Selected",
    "as_far",
    "asks_of_roles",
    "book",
    "book_of",
    "find",
    "must_be_read",
    "of_roles",
    "parse",
    "select",
    "unread",
]
