"""Why a configuration is faster or slower than another, as far as the rows can tell."""
