"""Measuring: one rollout, and the schedule that interleaves many."""
