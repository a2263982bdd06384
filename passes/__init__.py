"""From Graph to Graph: one file a pass."""
