"""What agents see and are rewarded for, as arrays and as a PettingZoo environment."""
