//! What a number from somebody else's privacy loss distribution allows ours to be.
