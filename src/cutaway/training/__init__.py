"""Training: from a recipe, or from files, to a model folder.

    cutaway.train("recipes/shakespeare.toml", "build/shakespeare")

recipe, recipe_file, recipe_checks   what a run depends on
tasks                                the table of tasks: what each reads, its head, its objective
datasets                             from a recipe to examples in batches
trainer                              a run: it uses the following
loop, feed, optimizer, schedule      a step
validation, average                  loss and scores while it trains; averages of the weights
checkpoint, resume, run_folder       saving, and an exact continuation
finish, model_card                   the model folder
"""
