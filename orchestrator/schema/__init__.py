"""The search space's models and the result files' schemas, written down for editors and for people."""
