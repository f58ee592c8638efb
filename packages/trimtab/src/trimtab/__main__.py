"""`python -m trimtab`: the command `trimtab`."""

from trimtab.cli import main

if __name__ == "__main__":
    main()
