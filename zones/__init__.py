"""One zone at run time: its environment, its learner, what it keeps. Knows nothing of Flower."""
