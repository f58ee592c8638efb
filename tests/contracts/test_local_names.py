"""The check of local names finds participles, and leaves nouns alone."""

import ast

from tests.contracts.local_names import is_bare_participle, iterate_locals

FUNCTION = """
def outer(given):
    found = given.find()
    with open(found) as opened:
        for row in opened:
            told = [kept for kept in row if kept]
    def inner():
        speed = found_rows = None
"""


def test_a_bare_participle_is_found_wherever_it_is_bound():
    names = {name for name, _ in iterate_locals(ast.parse(FUNCTION)) if is_bare_participle(name)}
    assert names == {"found", "opened", "told", "kept"}


def test_a_noun_that_looks_like_a_participle_is_a_name():
    assert not any(map(is_bare_participle, ("speed", "seed", "found_rows", "_need", "is_closed")))
