"""How fast it is on this computer: decoding, reading, the app's own processes; beside other programs."""
