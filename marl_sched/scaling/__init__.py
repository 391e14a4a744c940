"""What a federation costs at several sizes: configurations, figures, the cost model, plots."""
