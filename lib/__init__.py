"""Small models that compute every number in the book."""
