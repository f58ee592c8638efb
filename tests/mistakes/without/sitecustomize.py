"""Python without some packages: those that WITHOUT names are not found."""

import os
import sys
from importlib.machinery import PathFinder

MISSING = frozenset(os.environ["WITHOUT"].split(","))


class Without(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname.partition(".")[0] in MISSING:
            return None
        return super().find_spec(fullname, path, target)


sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]
