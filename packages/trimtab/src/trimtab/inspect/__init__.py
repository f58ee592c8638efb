"""A page of one session: what the model saw in each call, what was hidden, and what it cost."""

from trimtab.inspect.page import render_page
from trimtab.inspect.recorded_timeline import read_recorded_timeline
from trimtab.inspect.session_timeline import read_session_timeline
from trimtab.inspect.timeline import Timeline

__all__ = ["Timeline", "read_recorded_timeline", "read_session_timeline", "render_page"]
