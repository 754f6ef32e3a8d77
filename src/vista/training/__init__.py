"""From a configuration to a trained network and the record of its run."""
