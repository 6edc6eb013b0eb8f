"""What the public functions take, checked and in one spelling; every error names the argument."""
