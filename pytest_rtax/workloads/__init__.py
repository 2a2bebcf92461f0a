"""Workloads: the tiers T0 to T2, their actions, and where the repository comes from."""
