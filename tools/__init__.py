"""Commands for developers of Resift: building the compiled code and the wheels."""
