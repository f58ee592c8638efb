import os

from hypothesis import settings

settings.register_profile("default", max_examples=200, deadline=None)
settings.register_profile("quick", max_examples=25, deadline=None)
settings.register_profile("thorough", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
