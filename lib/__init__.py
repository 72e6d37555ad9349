"""Small models that compute every number in the book, in the order of the book.

- What there is: `hardware`, `models`, `names`.
- What a step costs: `roofline`, `kv_cache`, `parallelism`, `kernels`, `calibration`.
- What is served: `workload`, `traffic`, `scheduler`, `simulator`, `capacity`, `goodput`.
- What is kept and reused: `prefix_cache`, `transformer`, `cut_points`.
- The frontend: `chat`, `tokenizer`, `parsers`, `images`, `timing`.
- Held against the world: `measurements`, `measured`. Deciding: `decide`.

Around them: `live` (the forms' calculators), `page` (what a chapter shows), `data`, `checks` (refusals), and
`press`, which checks and builds the book and is no part of what a reader installs.
"""
