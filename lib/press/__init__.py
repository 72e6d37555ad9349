"""How the book is checked, built and taken along; nothing of it is in the wheel or in the browser.

The contract: `records`, `prose`, `contract` (what a page shows and says), `run`, `plugin` (executing it). The
site: `site`, `folds`, `metadata`, `social_cards`, `browser`, `downloads`, `templates/`. The commands:
`build`, `pdf`. It computes nothing that a page shows: that is what `lib.page` and the models are for.
"""
