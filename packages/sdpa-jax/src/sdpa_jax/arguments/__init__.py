"""What the public functions take, checked and brought into the form of a call."""
