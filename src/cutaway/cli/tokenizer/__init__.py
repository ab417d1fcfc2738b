"""`cutaway tokenizer`: train one, and see how one cuts a text."""
