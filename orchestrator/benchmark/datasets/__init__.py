"""Where prompts come from: each dataset of the file made into seeded prompts, one endless supply a level."""
