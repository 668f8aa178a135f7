"""What a study leaves on disk: Arrow schemas, atomic files, the store."""
