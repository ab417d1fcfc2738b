"""Attribution: how much each part of the input did for an answer, by gradients or by attention."""
