"""Cross-validation over strengths of the penalty: a fold is the whole X with weight zero on the rows that are held out.

So the models of all folds share X, and are fitted in shared passes over it, each with its certificate. They start from the model
of the whole data with the same penalty, of which one is the final model anyway.
"""
