"""What the command line says about itself: lists of settings, examples, completion."""
