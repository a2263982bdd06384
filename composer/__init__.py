"""From Graph to Plan: formula algebra, attributes, targets, plan."""
