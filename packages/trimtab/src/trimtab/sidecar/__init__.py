"""A wire body in, a wire body out: for programs in any language."""
