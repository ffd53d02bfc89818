"""From bounds to distributions, and from distributions to draws."""
