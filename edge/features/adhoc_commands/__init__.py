"""Ad-hoc commands (XEP-0050): listing and executing the commands that features register."""
