"""The data and the run of `resift demo`: a trust that runs a lighthouse, with judged questions."""
