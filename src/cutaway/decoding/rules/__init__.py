"""Rules that change the scores of the next token: penalties, top-k and top-p, expressions, terms, bad words, stops."""
