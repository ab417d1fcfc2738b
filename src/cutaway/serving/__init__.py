"""Models over HTTP: what `cutaway serve` runs.

service     the models, the scheduler and the limits: what every request works with
schemas     requests, as dataclasses of options: checked as Python calls are, and described in /openapi.json
generation  the texts of one request, whole or in pieces, while they are generated
chat_template  from messages to a prompt, by the template of a model, in another process (`template_worker`)
html        a page whose text is translated, and nothing else
detection   which language a text is in, by the texts in `language_samples`
app         the application: gates in front (`gates`), one form of errors (`errors`), the routes

The routes are in a file for each API that clients know: `openai_routes`, `translate_routes`, `task_routes`,
`operations`.
"""
