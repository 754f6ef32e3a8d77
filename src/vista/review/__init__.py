"""Review of suspected labels: the local page, the decisions, and what they are turned into."""
