"""What the machine is and what fits it: probe, data of known GPUs, planner. No torch but in the probe."""
