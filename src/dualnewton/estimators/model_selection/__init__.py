"""Cross-validation over strengths of the penalty: a fold is the whole X with weight zero on the rows that are held out.

The models of all folds therefore share X and are fitted in shared passes over it, each with its certificate. They start from the
model of all rows with the same penalty; one of these is the final model anyway.
"""
