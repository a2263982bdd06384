"""From Plan to numbers: sessions and the backends under them."""
