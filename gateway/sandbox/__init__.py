"""Where foreign code runs: what a model wrote, pages and documents that others made, servers of tools."""
