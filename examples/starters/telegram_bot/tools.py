"""The notes of the team: one line each, in a file that you can read and edit."""

from pathlib import Path

NOTES = Path(__file__).with_name("notes.txt")


def remember(note: str) -> str:
    """Write one line into the notes."""
    with NOTES.open("a", encoding="utf-8") as file:
        file.write(" ".join(note.split()) + "\n")
    return "written"


def read_notes() -> str:
    """Read all notes."""
    return NOTES.read_text(encoding="utf-8") if NOTES.exists() else "There are no notes yet."
