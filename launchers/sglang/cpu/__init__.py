"""What a machine without a GPU needs to run a real SGLang: an environment, a kernel stand-in, and tiny models."""
