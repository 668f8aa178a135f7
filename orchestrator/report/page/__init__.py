"""The report of a study: one data layer (`view` and the chart modules), three renderers (page, Markdown, pictures)."""
