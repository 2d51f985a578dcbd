"""What the machine is: the probe and the data of known GPUs. Facts only. No torch but in the probe."""
