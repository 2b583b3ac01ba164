"""Everything that draws: pages, Markdown, text for a terminal."""
