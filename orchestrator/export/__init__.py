"""What now: a trial's setting as something to run, with where it comes from."""
