"""What everything may use: errors, files, locks, the device, and the process as a whole."""
