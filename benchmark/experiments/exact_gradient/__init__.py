"""The exact policy gradient on Frozen Lake, and the estimators held against it."""
