"""The page of a report: one HTML file with its data, scripts and styles in it."""
